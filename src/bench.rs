//! Speed of a model on a backend: tokens per second of prompts (pp) and of generation (tg), repeated.
//!
//! A measurement is the wall time of the calls that an application makes for greedy text: building inputs, running, choosing
//! the token, reading it back. Programs are prepared in a run before that does not count. Prompts are random tokens from a seed: speed does not
//! depend on them.

mod profile;

pub use profile::{Breakdown, Share, copy_bandwidth};

use crate::session::{Item, Profile, Want};
use crate::statistics::Summary;
use crate::{Model, Session, SessionOptions};
use ggml_core::rng::Rng;
use ggml_core::setters;
use ggml_core::{Error, Result};
use serde::Serialize;
use std::time::Instant;

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BenchOptions {
    /// Tokens of the prompt; 0 leaves the prompt out.
    pub prompt_tokens: usize,
    /// Tokens that are generated after one token; 0 leaves generation out.
    pub predict: usize,
    /// Tokens that are in the cache before each measurement.
    pub depth: usize,
    /// How often each is measured.
    pub repeat: usize,
    /// Seed of the prompt.
    pub seed: u64,
    /// The session; its context grows as far as the measurement needs it.
    pub session: SessionOptions,
}

setters!(BenchOptions {
    with_prompt_tokens => prompt_tokens: usize,
    with_predict => predict: usize,
    with_depth => depth: usize,
    with_repeat => repeat: usize,
    with_seed => seed: u64,
    with_session => session: SessionOptions,
});

impl Default for BenchOptions {
    fn default() -> Self {
        let session = SessionOptions::default();
        BenchOptions { prompt_tokens: 512, predict: 128, depth: 0, repeat: 5, seed: 1, session }
    }
}

/// Tokens per second of several runs of the same work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// "pp512", "tg128"; "tg128@4096" where 4096 tokens were in the cache before.
    pub name: String,
    /// Tokens of a run.
    pub tokens: usize,
    /// Tokens per second of each run.
    pub samples: Vec<f64>,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation (of a sample: n - 1); 0 for one run.
    pub sd: f64,
}

impl Measurement {
    /// From the seconds of runs of `tokens` tokens.
    pub fn new(name: String, tokens: usize, seconds: &[f64]) -> Measurement {
        let samples: Vec<f64> = seconds.iter().map(|s| tokens as f64 / s.max(1e-9)).collect();
        let Summary { mean, sd, .. } = Summary::of(&samples).unwrap_or_default();
        Measurement { name, tokens, samples, mean, sd }
    }
}

/// Measures a model. `progress` is told the name of each run and its seconds.
///
/// # Errors
/// [`Error::InvalidArgument`] where nothing is asked for or the context of the model is too small; what the backend reports.
pub fn bench(
    model: &Model,
    options: &BenchOptions,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<Vec<Measurement>> {
    let (prompt, predict, depth, repeat) =
        (options.prompt_tokens, options.predict, options.depth, options.repeat);
    let (mut session, tokens) = session(model, options)?;
    let mut all = Vec::new();
    let mut measure = |name: String, count: usize, work: &mut dyn FnMut(&mut Session) -> Result<()>| {
        let mut seconds = Vec::with_capacity(repeat);
        for run in 0..=repeat {
            return_to(&mut session, &tokens[..depth])?;
            let start = Instant::now();
            work(&mut session)?;
            if run > 0 {
                seconds.push(start.elapsed().as_secs_f64());
                progress(&name, seconds[run - 1]);
            }
        }
        all.push(Measurement::new(name, count, &seconds));
        Ok::<(), Error>(())
    };
    let at = if depth > 0 { format!("@{depth}") } else { String::new() };
    if prompt > 0 {
        measure(format!("pp{prompt}{at}"), prompt, &mut |session| {
            step(session, &tokens[..prompt]).map(|_| ())
        })?;
    }
    if predict > 0 {
        measure(format!("tg{predict}{at}"), predict, &mut |session| {
            (0..predict).try_fold(tokens[0], |token, _| step(session, &[token])).map(|_| ())
        })?;
    }
    Ok(all)
}

/// Measures the steps of a batch of the prompt and of a decode step, as far as they are asked for: `repeat` passes of each.
///
/// # Errors
/// Those of [`bench()`].
pub fn profile(model: &Model, options: &BenchOptions) -> Result<Vec<Profile>> {
    let (mut session, tokens) = session(model, options)?;
    let batch = options.prompt_tokens.min(options.session.batch_on(model.backend().as_ref()));
    let mut profiles = Vec::new();
    for (wanted, count) in [(options.prompt_tokens > 0, batch), (options.predict > 0, 1)] {
        if wanted {
            return_to(&mut session, &tokens[..options.depth])?;
            profiles.push(session.profile(&tokens[..count], Want::Best(1), options.repeat)?);
        }
    }
    Ok(profiles)
}

/// A session with room for a measurement, and the tokens that it appends.
fn session(model: &Model, options: &BenchOptions) -> Result<(Session, Vec<u32>)> {
    let (prompt, predict, depth, repeat) =
        (options.prompt_tokens, options.predict, options.depth, options.repeat);
    if repeat == 0 || (prompt, predict) == (0, 0) {
        return Err(Error::argument(
            "bench",
            format!("{repeat} runs of {prompt} and {predict} tokens"),
            "something to measure",
        ));
    }
    // Generation begins after one token.
    let longest = prompt.max(if predict > 0 { predict.saturating_add(1) } else { 0 });
    let context = depth.saturating_add(longest);
    if context > model.hparams().context {
        let expected = format!("at most {}, the model's context", model.hparams().context);
        return Err(Error::argument("bench", format!("{context} positions"), expected));
    }
    let context = options.session.context.unwrap_or(0).max(context);
    let session = model.session(&SessionOptions { context: Some(context), ..options.session.clone() })?;
    let vocabulary = model.hparams().vocabulary;
    let mut rng = Rng::new(options.seed);
    let tokens: Vec<u32> = (0..prompt.max(depth).max(1)).map(|_| rng.below(vocabulary) as u32).collect();
    Ok((session, tokens))
}

/// Leaves just these tokens in the session. What is there of them stays, but for recurrent state, which cannot go back.
fn return_to(session: &mut Session, tokens: &[u32]) -> Result<()> {
    if tokens.is_empty() || session.truncate(0, tokens.len().min(session.position())).is_err() {
        session.reset();
    }
    let rest = &tokens[session.position()..];
    if rest.is_empty() { Ok(()) } else { step(session, rest).map(|_| ()) }
}

/// Appends tokens; the best token after them.
fn step(session: &mut Session, tokens: &[u32]) -> Result<u32> {
    let rows = session.append(&[Item { sequence: 0, tokens }], Want::Best(1))?;
    Ok(rows.get(0).map_or(0, |row| row.greedy()))
}
