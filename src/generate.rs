//! Text generation from a model: a prompt goes in, tokens come out one by one, as text that can be shown
//! immediately.
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
//!     println!("\n{}", generation.summary());
//!     Ok(())
//! }
//! ```
//!
//! A conversation of several turns needs no log of computed tokens: [`Generation::continue_with`] gets the whole
//! conversation each time and computes only the new tokens. [`Generations`] runs several generations in
//! parallel, [`Requests`] puts a queue of several users in front of them.

mod draft;
mod pace;
mod requests;
mod several;
mod summary;
mod writer;

pub use crate::cancel::Cancel;
pub use requests::{Event, RequestId, RequestLimits, Requests};
pub use several::Generations;
pub use summary::{Finish, Summary};

use crate::session::{Item, Rows};
use crate::tokenizer::Tokenizer;
use crate::{SamplerOptions, Session};
use draft::{Drafter, ModelDrafter};
use ggml_core::setters;
use ggml_core::{Error, Result};
use pace::Pace;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use writer::Writer;

/// Options of a generation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// Maximum number of tokens; `None`: as many as fit into the context.
    pub predict: Option<usize>,
    /// Options for choosing tokens.
    pub sampler: SamplerOptions,
    /// Texts that end the generation; they are not part of the output.
    pub stop: Vec<String>,
    /// True to continue after tokens that end a turn or the text.
    pub ignore_end: bool,
    /// Handle that ends the generation from another thread; `None`: a new handle, see
    /// [`Generation::cancel_handle`].
    pub cancel: Option<Cancel>,
    /// Maximum number of tokens that a step drafts, if there is a model that drafts ([`Generation::draft_with`]) or the session
    /// uses the predictor of its file ([`SessionOptions::predictor`](crate::SessionOptions::predictor)); 0 for none.
    pub draft: usize,
}

setters!(GenerateOptions {
    with_predict => predict: impl Into<Option<usize>>,
    with_sampler => sampler: SamplerOptions,
    with_stop => stop: Vec<String>,
    with_ignore_end => ignore_end: bool,
    with_cancel => cancel: impl Into<Option<Cancel>>,
    with_draft => draft: usize,
});

impl Default for GenerateOptions {
    /// Returns greedy options without a limit of tokens.
    fn default() -> Self {
        GenerateOptions {
            predict: None,
            sampler: SamplerOptions::default(),
            stop: Vec::new(),
            ignore_end: false,
            cancel: None,
            draft: 8,
        }
    }
}

/// Token and the text that can be shown after it: empty while a character or a stop text is incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Token; `None` for text that was held back to the end.
    pub token: Option<u32>,
    /// Text to show.
    pub text: String,
}

/// Generation: an iterator of pieces of text. The session's sequence 0 holds the prompt and the generated
/// tokens except the last one, so a conversation can continue with it: [`Generation::continue_with`]. With drafts
/// ([`Generation::draft_with`]) it can be some tokens ahead of the pieces that were returned.
///
/// The prompt is computed by [`Generation::prompt`], or else by the first call of [`Iterator::next`]; before
/// that the session is unchanged. If the generation is cancelled within the prompt, the sequence holds the
/// computed part, see [`Session::tokens`].
pub struct Generation<'a> {
    session: &'a mut Session,
    writer: Writer<'a>,
    /// Part of the prompt that is not computed yet.
    prompt: Vec<u32>,
    /// Last chosen token, which the session does not hold yet.
    next: Option<u32>,
    /// Pieces that are chosen but not returned yet.
    ready: VecDeque<Piece>,
    /// Reason for the end of the text, until the pieces before it are returned.
    finish: Option<Finish>,
    drafting: Option<Drafting<'a>>,
    /// Maximum number of drafts of a step.
    most_drafts: usize,
}

/// Model that drafts, and how much it does.
struct Drafting<'a> {
    drafter: Drafter<'a>,
    pace: Pace,
    /// Tokens of the session and the one after them.
    text: Vec<u32>,
}

impl<'a> Drafting<'a> {
    fn new(drafter: Drafter<'a>, most: usize) -> Drafting<'a> {
        Drafting { drafter, pace: Pace::new(most), text: Vec::new() }
    }
}

impl<'a> Generation<'a> {
    /// Starts a generation that appends a prompt to the session's sequence 0. Tokens of the prompt count for
    /// the sampler's penalties.
    ///
    /// # Errors
    /// Errors of [`Sampler::new`](crate::Sampler::new); [`Error::InvalidArgument`] for a prompt that is
    /// empty, has tokens outside the vocabulary or does not fit into the context, and for an empty stop text.
    pub fn start(
        session: &'a mut Session,
        tokenizer: &'a Tokenizer,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Result<Generation<'a>> {
        session.check_tokens(0, session.position(), prompt)?;
        if session.position() == 0 {
            warn_of_two_begins(tokenizer, prompt);
        }
        let writer = Writer::new(tokenizer, prompt, options)?;
        Ok(Generation::new(session, writer, prompt, options))
    }

    /// Starts a generation after a whole conversation. The prompt is the conversation from the beginning;
    /// only tokens that sequence 0 does not hold yet are computed, see [`Session::keep_common`].
    ///
    /// # Errors
    /// Errors of [`Generation::start`].
    pub fn continue_with(
        session: &'a mut Session,
        tokenizer: &'a Tokenizer,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Result<Generation<'a>> {
        session.check_tokens(0, 0, prompt)?;
        let mut writer = Writer::new(tokenizer, prompt, options)?;
        let held = session.keep_common(0, prompt)?;
        if held == 0 {
            warn_of_two_begins(tokenizer, prompt);
        }
        writer.summary.held_tokens = held;
        Ok(Generation::new(session, writer, &prompt[held..], options))
    }

    fn new(
        session: &'a mut Session,
        writer: Writer<'a>,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Generation<'a> {
        let (prompt, most_drafts) = (prompt.to_vec(), options.draft);
        let predicts = session.has_predictor() && most_drafts > 0;
        session.follow_with_predictor(predicts);
        let drafting = predicts.then(|| Drafting::new(Drafter::Predictor, most_drafts));
        Generation {
            session,
            writer,
            prompt,
            next: None,
            ready: VecDeque::new(),
            finish: None,
            drafting,
            most_drafts,
        }
    }

    /// Lets a smaller model draft tokens, up to [`GenerateOptions::draft`] in a step. This generation's model verifies
    /// them all in one batch, see [`Session::verify`]: each token is chosen from its logits as without drafts, and a draft
    /// is accepted if it is the chosen token. So the text is the same, greedy or sampled with the same seed, apart from
    /// rounding that depends on the number of tokens in a batch. The number of drafts adapts to what is accepted and to
    /// the measured times; if drafts do not pay, there are hardly any, and the log says so.
    ///
    /// `draft` is a session of its own, whose sequence 0 follows the text. It may be one of another backend.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the models have different vocabularies.
    pub fn draft_with(mut self, draft: &'a mut Session) -> Result<Generation<'a>> {
        let drafter = Drafter::Model(ModelDrafter::new(draft, self.session)?);
        self.drafting = Some(Drafting::new(drafter, self.most_drafts));
        Ok(self)
    }

    /// Computes the prompt, unless it has been computed. Between batches, `progress` receives the number of
    /// computed tokens and the number of tokens to compute. If the generation is cancelled meanwhile, it
    /// ends, and [`Summary::finish`] has the reason.
    ///
    /// # Errors
    /// Errors of [`Session::prefill`].
    pub fn prompt(&mut self, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        if self.prompt.is_empty() || self.writer.summary.finish.is_some() {
            return Ok(());
        }
        let (start, mut computed) = (Instant::now(), 0);
        let cancel = &self.writer.cancel;
        let mut on_progress = |done: usize, all: usize| {
            computed = done;
            progress(done, all);
            if cancel.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let items = [Item { sequence: 0, tokens: &self.prompt }];
        let ended =
            self.session.append_with(&items, self.writer.want(), &mut on_progress).map(|rows| rows.is_some());
        self.writer.summary.computed_tokens += computed;
        self.writer.summary.prompt_time += start.elapsed();
        self.prompt.drain(..computed);
        match ended {
            Ok(true) => {}
            Ok(false) => _ = self.writer.due(),
            Err(error) => {
                self.writer.fail();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Continues a text that a full context has cut off ([`Finish::ContextFull`]) after another, shorter prompt: the
    /// conversation without its oldest turns, then the tokens generated so far, which must include the last one.
    /// Characters, stop texts, penalties and the limit of tokens go on as if nothing had happened. Call it as soon as
    /// [`Generation::summary`] says that the context is full: the next call of [`Iterator::next`] ends the text. In the
    /// summary, the prompt is then this one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the context has not cut off the text, or if it has already ended, and for a prompt
    /// that is empty, has tokens outside the vocabulary or leaves no room.
    pub fn go_on(&mut self, prompt: &[u32]) -> Result<()> {
        self.session.check_tokens(0, 0, prompt)?;
        if prompt.len() >= self.session.context() {
            let most = format!("fewer than {}, the positions of the context", self.session.context());
            return Err(Error::argument("prompt", format!("{} tokens", prompt.len()), most));
        }
        self.writer.go_on()?;
        let held = self.session.keep_common(0, prompt)?;
        (self.writer.summary.prompt_tokens, self.writer.summary.held_tokens) = (prompt.len(), held);
        (self.prompt, self.next) = (prompt[held..].to_vec(), None);
        Ok(())
    }

    /// Returns the handle that ends this generation from another thread, also within its prompt.
    pub fn cancel_handle(&self) -> Cancel {
        self.writer.cancel.clone()
    }

    /// Returns a summary of the generation so far.
    pub fn summary(&self) -> &Summary {
        &self.writer.summary
    }

    /// Chooses the next pieces, at least one unless a token ends the text.
    fn step(&mut self) -> Result<()> {
        if let Some(token) = self.next.take() {
            if self.drafting.is_some() {
                return self.step_with_drafts(token);
            }
            let items = [Item { sequence: 0, tokens: &[token] }];
            self.session.append(&items, self.writer.want()).inspect_err(|_| self.writer.fail())?;
        }
        let room = self.session.position() < self.session.context();
        let piece = self.writer.choose(self.session.rows().get(0), room)?;
        self.next = piece.as_ref().and_then(|piece| piece.token);
        self.ready.extend(piece);
        Ok(())
    }

    /// Computes `token` and drafts of those after it, and chooses a token from each row as long as it is the draft.
    fn step_with_drafts(&mut self, token: u32) -> Result<()> {
        let (start, prepared) = (Instant::now(), self.prepare_time());
        let drafts = self.drafts_after(token);
        let (length, context) = (self.session.position() + 1, self.session.context());
        let (mut next, mut accepted, want) = (None, 0, self.writer.want());
        let (writer, ready) = (&mut self.writer, &mut self.ready);
        let mut choose = |rows: Rows<'_>| {
            loop {
                let piece = writer.choose(rows.get(accepted), length + accepted < context)?;
                next = piece.as_ref().and_then(|piece| piece.token);
                let is_draft = next.is_some() && next == drafts.get(accepted).copied();
                ready.extend(piece);
                // The session does not hold the last token of a text.
                if !is_draft || writer.summary.finish.is_some() {
                    return Ok(accepted);
                }
                accepted += 1;
            }
        };
        let done = if drafts.is_empty() {
            // The device may begin the next step ahead.
            let items = [Item { sequence: 0, tokens: &[token] }];
            self.session.append(&items, want).and_then(&mut choose).map(|_| ())
        } else {
            self.session.verify(0, &[token], &drafts, want, &mut choose)
        };
        done.inspect_err(|_| self.writer.fail())?;
        self.next = next;
        if self.ready.len() > 1 {
            self.finish = self.writer.summary.finish.take();
        }
        self.writer.summary.steps += 1;
        self.writer.summary.drafts += drafts.len();
        self.writer.summary.accepted_drafts += accepted;
        // What is prepared once says nothing of later steps.
        let prepared = self.prepare_time().saturating_sub(prepared);
        if let Some(drafting) = &mut self.drafting {
            drafting.pace.add(drafts.len(), accepted, start.elapsed().saturating_sub(prepared));
            if let Some(news) = drafting.pace.news() {
                tracing::info!("{news}");
            }
            if drafting.pace.is_over() {
                self.session.follow_with_predictor(false);
                self.drafting = None;
            }
        }
        Ok(())
    }

    /// Returns the time spent preparing programs.
    fn prepare_time(&self) -> Duration {
        let drafter =
            self.drafting.as_ref().map_or(Duration::ZERO, |drafting| drafting.drafter.prepare_time());
        self.session.prepare_time() + drafter
    }

    /// Returns the next piece that is chosen. With the last one, the reason for the end of the text is known.
    fn next_ready(&mut self) -> Option<Piece> {
        let piece = self.ready.pop_front()?;
        if self.ready.is_empty() && self.finish.is_some() {
            self.writer.summary.finish = self.finish.take();
        }
        Some(piece)
    }

    /// Returns drafts of the tokens after `token`, which is the one after those that the session holds.
    fn drafts_after(&mut self, token: u32) -> Vec<u32> {
        let Some(Drafting { drafter, pace, text }) = &mut self.drafting else { return Vec::new() };
        let room = self.session.room_for_drafts().min(self.writer.remaining().saturating_sub(1));
        let count = pace.next().min(room);
        if count == 0 {
            return Vec::new();
        }
        text.clear();
        text.extend_from_slice(self.session.tokens(0).unwrap_or_default());
        text.push(token);
        match drafter.draft(self.session, text, count) {
            Ok(drafts) => drafts,
            Err(error) => {
                tracing::warn!("drafting failed, the text goes on without drafts: {error}");
                self.drafting = None;
                Vec::new()
            }
        }
    }
}

fn warn_of_two_begins(tokenizer: &Tokenizer, prompt: &[u32]) {
    if tokenizer.begins_twice(prompt) {
        tracing::warn!("the prompt begins with two begin tokens; models were trained with one");
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Result<Piece>> {
        if let Some(piece) = self.next_ready() {
            return Some(Ok(piece));
        }
        if self.writer.done() {
            return None;
        }
        if let Err(error) = self.prompt(&mut |_, _| ()) {
            return Some(Err(error));
        }
        if self.writer.due() {
            return self.writer.end().map(Ok);
        }
        let start = Instant::now();
        let step = self.step();
        self.writer.summary.time += start.elapsed();
        match step {
            Ok(()) => self.next_ready().or_else(|| self.writer.end()).map(Ok),
            Err(error) => Some(Err(error)),
        }
    }
}

impl std::fmt::Debug for Generation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation").field("summary", self.summary()).finish_non_exhaustive()
    }
}
