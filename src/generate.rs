//! Text from a model: a prompt goes in, tokens come out one by one, as text that can be shown at once.
//!
//! ```no_run
//! use diptych::generate::{GenerateOptions, Generation};
//! use diptych::tokenizer::EncodeOptions;
//! use diptych::{Model, OpenOptions, Result, SessionOptions, Tokenizer, open};
//!
//! fn main() -> Result<()> {
//!     let model = Model::load("model.gguf", open("vulkan", &OpenOptions::default())?)?;
//!     let tokenizer = Tokenizer::from_gguf(model.file().gguf())?;
//!     let mut session = model.session(&SessionOptions::default())?;
//!     let prompt = tokenizer.encode("The sea is", &EncodeOptions::default());
//!     let mut generation = Generation::start(&mut session, &tokenizer, &prompt, &GenerateOptions::default())?;
//!     for piece in generation.by_ref() {
//!         print!("{}", piece?.text);
//!     }
//!     println!("\n{:?}", generation.summary());
//!     Ok(())
//! }
//! ```

use crate::tokenizer::{Detokenizer, Tokenizer};
use crate::{Sampler, SamplerOptions, Session};
use ggml_core::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Tokens at the most; `None`: as many as the context has room for.
    pub predict: Option<usize>,
    /// How tokens are chosen.
    pub sampler: SamplerOptions,
    /// Texts that end the generation; they are not part of what comes out.
    pub stop: Vec<String>,
    /// Go on after tokens that end a turn or the text.
    pub ignore_end: bool,
}

impl Default for GenerateOptions {
    /// Greedy, to the end of the text.
    fn default() -> Self {
        GenerateOptions {
            predict: None,
            sampler: SamplerOptions::default(),
            stop: Vec::new(),
            ignore_end: false,
        }
    }
}

/// A token and the text that can be shown now that it is there: none while a character or a stop text is incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The token; `None` for text that was held back to the end.
    pub token: Option<u32>,
    /// The text.
    pub text: String,
}

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its turn or the text, with this token.
    End(u32),
    /// As many tokens as were asked for.
    Limit,
    /// This stop text came.
    Stop(String),
    /// The session's context is full.
    ContextFull,
    /// [`Cancel::cancel`] was called.
    Cancelled,
    /// The error that the iterator gave.
    Failed,
}

/// What a generation did.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Why it ended; `None` while it goes on.
    pub finish: Option<Finish>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Time that the prompt took.
    pub prompt_time: Duration,
    /// Tokens that were generated, the one that ended the text included.
    pub tokens: usize,
    /// Time that they took, without the caller's own.
    pub time: Duration,
}

/// Ends a generation from another thread, within one token.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ends it.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A generation: an iterator of pieces. The session holds the prompt and what was generated afterwards, but for the last
/// token, so that a conversation goes on with it.
pub struct Generation<'a> {
    session: &'a mut Session,
    tokenizer: &'a Tokenizer,
    detokenizer: Option<Detokenizer<'a>>,
    sampler: Sampler,
    logits: Vec<f32>,
    held: Held,
    limit: usize,
    ignore_end: bool,
    cancel: Cancel,
    summary: Summary,
    done: bool,
}

impl<'a> Generation<'a> {
    /// Appends the prompt to the session's sequence. Tokens of the prompt count for the sampler's penalties.
    ///
    /// # Errors
    /// Those of [`Sampler::new`] and [`Session::prefill`]: an empty prompt, one that the context has no room for.
    pub fn start(
        session: &'a mut Session,
        tokenizer: &'a Tokenizer,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Result<Generation<'a>> {
        if options.stop.iter().any(String::is_empty) {
            return Err(Error::argument("stop text", "is empty"));
        }
        let mut sampler = Sampler::new(options.sampler.clone())?;
        let start = Instant::now();
        let logits = session.prefill(prompt)?;
        let prompt_time = start.elapsed();
        prompt.iter().for_each(|&token| sampler.accept(token));
        let summary = Summary {
            finish: None,
            prompt_tokens: prompt.len(),
            prompt_time,
            tokens: 0,
            time: Duration::ZERO,
        };
        Ok(Generation {
            session,
            tokenizer,
            detokenizer: Some(tokenizer.detokenizer()),
            sampler,
            logits,
            held: Held { text: String::new(), stop: options.stop.clone() },
            limit: options.predict.unwrap_or(usize::MAX),
            ignore_end: options.ignore_end,
            cancel: Cancel::default(),
            summary,
            done: false,
        })
    }

    /// What ends this generation from elsewhere.
    pub fn cancel_handle(&self) -> Cancel {
        self.cancel.clone()
    }

    /// What was done so far.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Ends, and gives the text that was held back.
    fn finish(&mut self, finish: Finish) -> Option<Result<Piece>> {
        self.done = true;
        let stopped = matches!(finish, Finish::Stop(_));
        self.summary.finish = Some(finish);
        let rest = self.detokenizer.take().map(Detokenizer::finish).unwrap_or_default();
        let text = std::mem::take(&mut self.held.text) + &rest;
        (!stopped && !text.is_empty()).then_some(Ok(Piece { token: None, text }))
    }

    /// Chooses the next token from the logits and takes its text.
    fn step(&mut self) -> Result<Option<Piece>> {
        let token = self.sampler.sample(&self.logits)?;
        self.sampler.accept(token);
        self.summary.tokens += 1;
        if self.tokenizer.is_end(token) && !self.ignore_end {
            self.summary.finish = Some(Finish::End(token));
            return Ok(None);
        }
        let new = self.detokenizer.as_mut().map(|d| d.push(token)).unwrap_or_default();
        let (text, stop) = self.held.push(&new);
        if let Some(stop) = stop {
            self.summary.finish = Some(Finish::Stop(stop));
        } else if self.summary.tokens >= self.limit {
            self.summary.finish = Some(Finish::Limit);
        } else if self.session.position() >= self.session.context() {
            self.summary.finish = Some(Finish::ContextFull);
        } else {
            self.logits = self.session.decode(token)?;
        }
        Ok(Some(Piece { token: Some(token), text }))
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Result<Piece>> {
        if self.done {
            return None;
        }
        if let Some(finish) = self.summary.finish.clone() {
            return self.finish(finish);
        }
        if self.cancel.is_set() {
            return self.finish(Finish::Cancelled);
        }
        if self.limit == 0 {
            return self.finish(Finish::Limit);
        }
        let start = Instant::now();
        let step = self.step();
        self.summary.time += start.elapsed();
        match step {
            Ok(Some(piece)) => Some(Ok(piece)),
            Ok(None) => {
                let finish = self.summary.finish.clone().unwrap_or(Finish::Limit);
                self.finish(finish)
            }
            Err(error) => {
                self.done = true;
                self.summary.finish = Some(Finish::Failed);
                Some(Err(error))
            }
        }
    }
}

impl std::fmt::Debug for Generation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation").field("summary", &self.summary).finish_non_exhaustive()
    }
}

/// Text that may be the beginning of a stop text.
struct Held {
    text: String,
    stop: Vec<String>,
}

impl Held {
    /// Adds text; what can be shown, and the stop text that was found.
    fn push(&mut self, new: &str) -> (String, Option<String>) {
        self.text += new;
        let found =
            self.stop.iter().filter_map(|s| Some((self.text.find(s.as_str())?, s))).min_by_key(|f| f.0);
        if let Some((at, stop)) = found {
            let stop = stop.clone();
            self.text.truncate(at);
            return (std::mem::take(&mut self.text), Some(stop));
        }
        // The longest end of the text that a stop text begins with.
        let begins = |at: &usize| self.stop.iter().any(|s| s.starts_with(&self.text[*at..]));
        let keep = self.text.char_indices().map(|(at, _)| at).find(begins).unwrap_or(self.text.len());
        let rest = self.text.split_off(keep);
        (std::mem::replace(&mut self.text, rest), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stop: &[&str], pieces: &[&str]) -> (Vec<String>, Option<String>, String) {
        let mut held = Held { text: String::new(), stop: stop.iter().map(|s| s.to_string()).collect() };
        let mut shown = Vec::new();
        for piece in pieces {
            let (text, found) = held.push(piece);
            shown.push(text);
            if found.is_some() {
                return (shown, found, held.text);
            }
        }
        (shown, None, held.text)
    }

    #[test]
    fn stop_texts_are_held_back_and_cut() {
        let owned = |texts: &[&str]| texts.iter().map(|t| t.to_string()).collect::<Vec<_>>();
        assert_eq!(
            run(&["END"], &["a", "bE", "N", "D!"]),
            (owned(&["a", "b", "", ""]), Some("END".into()), "".into())
        );
        assert_eq!(run(&["END"], &["bE", "Nx"]), (owned(&["b", "ENx"]), None, "".into()));
        assert_eq!(run(&["END"], &["xEN"]), (owned(&["x"]), None, "EN".into()));
        // The first in the text counts, whatever the order of the list.
        assert_eq!(run(&["yz", "x"], &["axyz"]), (owned(&["a"]), Some("x".into()), "".into()));
        assert_eq!(run(&["äö"], &["ä", "ä", "ö"]), (owned(&["", "ä", ""]), Some("äö".into()), "".into()));
        assert_eq!(run(&[], &["a", "b"]), (owned(&["a", "b"]), None, "".into()));
    }
}
