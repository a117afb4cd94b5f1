//! Speed of generation with drafts: those of a smaller model, or of the model's own predictor.

use super::{BenchOptions, Measurement, SLOW};
use crate::generate::{GenerateOptions, Generation, Summary};
use crate::tokenizer::Tokenizer;
use crate::{Model, Session};
use ggml_core::{Error, Result};
use serde::Serialize;
use std::time::Instant;

/// Speed of generation with drafts, and the part of them that was accepted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DraftMeasurement {
    /// Tokens per second.
    #[serde(flatten)]
    pub speed: Measurement,
    /// Number of drafted tokens in all runs.
    pub drafts: usize,
    /// Number of drafts that were accepted.
    pub accepted: usize,
    /// Steps of the model.
    pub steps: usize,
}

impl DraftMeasurement {
    /// Returns the accepted share of the drafts; 0 if there were none.
    pub fn share(&self) -> f64 {
        self.accepted as f64 / self.drafts.max(1) as f64
    }

    /// Returns the number of tokens that a step has made.
    pub fn tokens_of_a_step(&self) -> f64 {
        (self.steps + self.accepted) as f64 / self.steps.max(1) as f64
    }
}

/// Measures greedy generation in which `draft` drafts up to `most` tokens in a step, see [`Generation::draft_with`];
/// without such a model the predictor of the model's file does. The number of drafts adapts within each run, so runs of few tokens show little of the gain.
///
/// # Errors
/// Errors of [`bench()`](super::bench()) and of [`Generation::draft_with`]; [`Error::InvalidArgument`] if nothing drafts.
pub fn bench_drafts(
    model: &Model,
    draft: Option<&Model>,
    most: usize,
    options: &BenchOptions,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<DraftMeasurement> {
    let own = options.session.clone().with_predictor(draft.is_none());
    let own = options.clone().with_prompt_tokens(0).with_session(own);
    let (mut session, tokens) = super::session(model, &own)?;
    let draft_options = options.session.clone().with_context(session.context());
    let mut drafts = draft.map(|draft| draft.session(&draft_options)).transpose()?;
    if drafts.is_none() && !session.has_predictor() {
        return Err(Error::argument("drafts", "no predictor in the file", "one, or a model that drafts"));
    }
    let tokenizer = Tokenizer::from_gguf(model.file().gguf())?;
    let at = if options.depth > 0 { format!("@{}", options.depth) } else { String::new() };
    let name = format!("tg{}{at} drafts", options.predict);
    let prompt = &tokens[..options.depth.max(1)];
    let text =
        GenerateOptions::default().with_predict(options.predict).with_ignore_end(true).with_draft(most);
    let start = Instant::now();
    let mut warm = run(&mut session, drafts.as_mut(), &tokenizer, prompt, &text)?;
    while start.elapsed() < options.warm_up && warm.time < SLOW {
        warm = run(&mut session, drafts.as_mut(), &tokenizer, prompt, &text)?;
    }
    let (mut seconds, mut sums) = (Vec::with_capacity(options.repeat), [0; 3]);
    for _ in 0..options.repeat {
        let done = run(&mut session, drafts.as_mut(), &tokenizer, prompt, &text)?;
        seconds.push(done.time.as_secs_f64());
        progress(&name, done.time.as_secs_f64());
        for (sum, count) in sums.iter_mut().zip([done.drafts, done.accepted_drafts, done.steps]) {
            *sum += count;
        }
    }
    let [drafts, accepted, steps] = sums;
    Ok(DraftMeasurement { speed: Measurement::new(name, options.predict, &seconds), drafts, accepted, steps })
}

/// Generates one text; returns its summary, whose time is that of generation alone.
fn run(
    session: &mut Session,
    drafts: Option<&mut Session>,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    options: &GenerateOptions,
) -> Result<Summary> {
    let generation = Generation::continue_with(session, tokenizer, prompt, options)?;
    let mut generation = match drafts {
        Some(drafts) => generation.draft_with(drafts)?,
        None => generation,
    };
    generation.prompt(&mut |_, _| ())?;
    generation.by_ref().try_for_each(|piece| piece.map(|_| ()))?;
    Ok(generation.summary().clone())
}
