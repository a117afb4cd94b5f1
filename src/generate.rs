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
//!
//! [`Generations`] has several side by side.

mod several;
mod writer;

pub use several::Generations;

use crate::tokenizer::Tokenizer;
use crate::{SamplerOptions, Session};
use ggml_core::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use writer::Writer;

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

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A generation: an iterator of pieces. The session's sequence 0 holds the prompt and what was generated afterwards, but
/// for the last token, so that a conversation goes on with it.
pub struct Generation<'a> {
    session: &'a mut Session,
    writer: Writer<'a>,
    logits: Vec<f32>,
    /// The token that the session lacks.
    next: Option<u32>,
}

impl<'a> Generation<'a> {
    /// Appends the prompt to the session's sequence 0. Tokens of the prompt count for the sampler's penalties.
    ///
    /// # Errors
    /// Those of [`Sampler::new`](crate::Sampler::new) and [`Session::prefill`]: an empty prompt, one that the context has
    /// no room for. An empty stop text.
    pub fn start(
        session: &'a mut Session,
        tokenizer: &'a Tokenizer,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Result<Generation<'a>> {
        let mut writer = Writer::new(tokenizer, prompt, options)?;
        let start = Instant::now();
        let logits = session.prefill(prompt)?;
        writer.summary.prompt_time = start.elapsed();
        Ok(Generation { session, writer, logits, next: None })
    }

    /// What ends this generation from elsewhere.
    pub fn cancel_handle(&self) -> Cancel {
        self.writer.cancel.clone()
    }

    /// What was done so far.
    pub fn summary(&self) -> &Summary {
        &self.writer.summary
    }

    /// The next piece; `None` for a token that ends the text.
    fn step(&mut self) -> Result<Option<Piece>> {
        if let Some(token) = self.next.take() {
            self.logits = self.session.decode(token).inspect_err(|_| self.writer.fail())?;
        }
        let room = self.session.position() < self.session.context();
        let piece = self.writer.choose(&self.logits, room)?;
        self.next = piece.as_ref().and_then(|piece| piece.token);
        Ok(piece)
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Result<Piece>> {
        if self.writer.done() {
            return None;
        }
        if self.writer.due() {
            return self.writer.end().map(Ok);
        }
        let start = Instant::now();
        let step = self.step();
        self.writer.summary.time += start.elapsed();
        match step {
            Ok(Some(piece)) => Some(Ok(piece)),
            Ok(None) => self.writer.end().map(Ok),
            Err(error) => Some(Err(error)),
        }
    }
}

impl std::fmt::Debug for Generation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation").field("summary", self.summary()).finish_non_exhaustive()
    }
}
