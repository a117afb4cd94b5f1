//! Sessions: sequences of tokens with their cache on a model; prefill, decode, and several sequences in one
//! batch.
//!
//! Programs are prepared for a batch shape and cached. Attention reads a number of cache rows that grows in
//! steps of [`KV_STEP`], so decoding runs the same program until the rows in use pass the next step. Within a
//! step nothing is allocated, compiled or recorded. Batches of similar lengths share a program: it is
//! prepared for the longest of them, and shorter batches are padded with tokens that have no effect.
//!
//! [`Session::append`] is the common core of the other calls. It returns the logits, or the best of them, in
//! memory of the session; [`Session::prefill`] and similar calls copy them.
//!
//! [`Session::continue_with`] continues a conversation: it gets the whole conversation and computes only the new
//! tokens. [`Session::truncate`] goes back to any position, [`Session::share_prefix`] begins a sequence as another
//! one does; with recurrent state, both use checkpoints that the session keeps. A long prompt is computed in batches; between them [`Session::prefill_with`] reports progress and
//! can be stopped.
//!
//! [`Session::embed`] computes a vector of each of some texts, [`Session::hidden`] the hidden states that the
//! vectors are pooled from.
//!
//! A session has one sequence unless [`SessionOptions::sequences`] is larger; [`Session::prefill`],
//! [`Session::decode`] and similar calls work on sequence 0. An application with several users gives each a
//! sequence and computes the next tokens of all of them in one batch, which costs little more than the batch
//! of one of them:
//!
//! ```no_run
//! use diptych::{Model, Result, SessionOptions, greedy, session::Item};
//!
//! fn answer(model: &Model, prompts: &[Vec<u32>]) -> Result<Vec<Vec<u32>>> {
//!     let options = SessionOptions::default().with_sequences(prompts.len());
//!     let mut session = model.session(&options)?;
//!     let items: Vec<Item<'_>> =
//!         prompts.iter().enumerate().map(|(sequence, tokens)| Item { sequence, tokens }).collect();
//!     let mut logits = session.batch(&items)?;
//!     let mut answers = vec![Vec::new(); prompts.len()];
//!     for _ in 0..16 {
//!         let next: Vec<[u32; 1]> = logits.iter().map(|row| Ok([greedy(row)?])).collect::<Result<_>>()?;
//!         let items: Vec<Item<'_>> =
//!             next.iter().enumerate().map(|(sequence, tokens)| Item { sequence, tokens }).collect();
//!         answers.iter_mut().zip(&next).for_each(|(answer, token)| answer.extend(token));
//!         logits = session.batch(&items)?;
//!     }
//!     Ok(answers)
//! }
//! ```

mod ahead;
mod append;
mod cells;
mod checkpoints;
mod demote;
mod drafts;
mod embed;
mod followed;
mod history;
mod inputs;
mod layout;
mod memory;
mod phases;
mod predicted;
mod prepared;
mod profile;
mod programs;
mod results;
mod saved;

#[cfg(feature = "compare")]
pub(crate) use crate::model::default_cache;
pub use crate::model::{SessionOptions, Want};
pub use append::{Item, PrefillProgress};
pub use drafts::Verdict;
pub use embed::EmbedOptions;
#[cfg(feature = "compare")]
pub(crate) use inputs::inputs_after;
#[cfg(feature = "compare")]
pub(crate) use prepared::{NamedStep, Stepwise, debug_program, named_steps};
pub use profile::{Profile, ProfiledStep};
pub use results::{Best, Row, Rows};

use crate::model::{BatchShape, Model, Predictor, StateKind, is_processor};
use ahead::Ahead;
use cells::{Cells, Token};
use checkpoints::Checkpoints;
use ggml_core::metrics::argmax;
use ggml_core::precision::Precision;
use ggml_core::{DType, Error, Result};
use inputs::Inputs;
use layout::StateLayout;
use memory::{Compute, State};
use prepared::Prepared;
use results::Results;
use std::time::Duration;

/// Number of cache rows by which programs grow.
pub const KV_STEP: usize = 256;

/// Returns the token with the largest logit, the first of equals.
///
/// # Errors
/// [`Error::InvalidArgument`] if there are no logits, or all are NaN or minus infinity: there is no best token, and
/// a text that went on with any would hide that.
pub fn greedy(logits: &[f32]) -> Result<u32> {
    let best = argmax(logits).filter(|&token| logits[token] > f32::NEG_INFINITY);
    best.map(|token| token as u32).ok_or_else(no_best)
}

fn no_best() -> Error {
    Error::argument("logits", "all are NaN or minus infinity", "a token that may be chosen")
}

/// True if a token may be chosen by its logits: none is NaN or plus infinity, and not all are minus infinity,
/// which marks tokens that must not be chosen.
pub fn can_choose(logits: &[f32]) -> bool {
    // Without branches for valid logits: NaN and plus infinity fail the first comparison.
    let fine = logits.iter().fold(true, |fine, &x| fine & (x < f32::INFINITY));
    fine && logits.iter().any(|&x| x > f32::NEG_INFINITY)
}

/// Sequences of tokens with their cache.
pub struct Session {
    // Programs refer to buffers, so they go first.
    programs: Vec<Prepared>,
    ahead: Ahead,
    compute: Compute,
    state: State,
    layouts: Vec<StateLayout>,
    cells: Cells,
    checkpoints: Checkpoints,
    model: Model,
    context: usize,
    batch: usize,
    cache: DType,
    precision: Precision,
    /// True if batches compute what the predictor needs.
    predicts: bool,
    compute_time: Duration,
    prepare_time: Duration,
    /// True if a step of a few tokens more costs nothing.
    pads: bool,
    /// Tokens of the current batch, and the indices of those whose rows are wanted.
    placed: Vec<Token>,
    outputs: Vec<usize>,
    inputs: Inputs,
    results: Results,
    /// Lengths of sequences before a call, and how many of their positions were computed.
    before: Vec<[usize; 2]>,
    /// Computed positions of sequences before a batch.
    placed_before: Vec<usize>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let positions: Vec<usize> = (0..self.sequences()).map(|i| self.cells.length(i)).collect();
        f.debug_struct("Session").field("context", &self.context).field("positions", &positions).finish()
    }
}

impl Model {
    /// Creates a session with its own KV cache.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] if a device reports less free memory than the session needs
    /// ([`SessionOptions::check_memory`] turns this check off); [`Error::InvalidArgument`] for invalid
    /// options; errors of the backend.
    ///
    /// [`Error::DoesNotFit`]: ggml_core::Error::DoesNotFit
    /// [`Error::InvalidArgument`]: ggml_core::Error::InvalidArgument
    pub fn session(&self, options: &SessionOptions) -> Result<Session> {
        Session::new(self.clone(), options)
    }
}

impl Session {
    fn new(model: Model, options: &SessionOptions) -> Result<Session> {
        options.check(model.hparams())?;
        phases::decide(&model, options);
        Session::undecided(model, options)
    }

    /// Creates a session on the drivers that the model's phases have now.
    fn undecided(model: Model, options: &SessionOptions) -> Result<Session> {
        options.check(model.hparams())?;
        let (context, sequences) = (options.room(model.hparams()), options.sequences);
        let (cache, batch) =
            (options.cache_on(model.backend().as_ref()), options.batch_on(model.backend().as_ref()));
        let want = Want::Logits;
        let predicts = options.predictor && model.file().has_predictor();
        let predictor = if predicts { Predictor::Follows } else { Predictor::Unused };
        let shape = BatchShape {
            tokens: 1,
            kv: 1,
            context,
            sequences,
            outputs: 1,
            cache,
            want,
            drafts: false,
            predictor,
        };
        let graph = model.file().graph(&shape)?;
        if options.predictor && !predicts {
            return Err(Error::argument("predictor", "none in the file", "a file with one"));
        }
        let missing = |(_, name): &&(_, String)| model.weight(name).is_none();
        if let Some((_, name)) = graph.weights.iter().find(missing).filter(|_| predicts) {
            let expected = "a model loaded for sessions with a predictor (LoadOptions::session)";
            return Err(Error::argument("predictor", format!("'{name}' is not loaded"), expected));
        }
        let needs = model.needs(options)?;
        if options.check_memory {
            model.check_room(&needs)?;
        }
        if context > model.hparams().context {
            model.warn_beyond_training(context);
        }
        let state = State::new(&model, &needs)?;
        let layouts = StateLayout::of_graph(&graph);
        let pads = !is_processor(model.backend().as_ref());
        let every = (options.checkpoint_every, batch);
        let checkpoints = Checkpoints::new(&layouts, sequences, every, options.checkpoint_memory);
        Ok(Session {
            programs: Vec::new(),
            ahead: Ahead::new(options.ahead),
            compute: Compute::new(&needs),
            state,
            layouts,
            cells: Cells::new(context, sequences),
            checkpoints,
            model,
            context,
            batch,
            cache,
            precision: options.precision,
            predicts,
            compute_time: Duration::ZERO,
            prepare_time: Duration::ZERO,
            pads,
            placed: Vec::new(),
            outputs: Vec::new(),
            inputs: Inputs::default(),
            results: Results::default(),
            before: Vec::new(),
            placed_before: Vec::new(),
        })
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the number of positions of sequence 0.
    pub fn position(&self) -> usize {
        self.cells.length(0)
    }

    /// Returns the number of positions of a sequence.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such sequence.
    pub fn position_of(&self, sequence: usize) -> Result<usize> {
        self.check_sequence(sequence)?;
        Ok(self.cells.length(sequence))
    }

    /// Returns the maximum number of positions of each sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Returns true if sequences may have more positions than the model was trained on; its output beyond
    /// those may make no sense. The first session like this of a model logs a warning.
    pub fn is_beyond_training(&self) -> bool {
        self.context > self.model.hparams().context
    }

    /// Returns the tokens of a sequence in the order of their positions: the prompts and the decoded tokens.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such sequence.
    pub fn tokens(&self, sequence: usize) -> Result<&[u32]> {
        self.check_sequence(sequence)?;
        Ok(self.cells.tokens(sequence))
    }

    /// Returns the type of the cache.
    pub fn cache(&self) -> DType {
        self.cache
    }

    /// Returns the number of sequences.
    pub fn sequences(&self) -> usize {
        self.cells.sequences()
    }

    /// Returns the host time spent running programs.
    pub fn compute_time(&self) -> Duration {
        self.compute_time
    }

    /// Returns the host time spent preparing programs.
    pub fn prepare_time(&self) -> Duration {
        self.prepare_time
    }

    /// Clears all sequences. Prepared programs stay cached.
    pub fn reset(&mut self) {
        self.cells.clear();
        self.checkpoints.clear();
    }

    /// Clears a sequence.
    ///
    /// # Errors
    /// Errors of [`Session::truncate`].
    pub fn reset_sequence(&mut self, sequence: usize) -> Result<()> {
        self.truncate(sequence, 0)
    }

    /// Prepares the program of the next decode step of sequence 0, so that [`Session::append`] of one token
    /// only runs it.
    pub fn prepare_decode(&mut self, want: Want) -> Result<()> {
        let position = self.position();
        if position == self.context || self.cells.owed(0) > 0 {
            return Ok(());
        }
        let before = self.cells.changes();
        self.cells.append(0, &[0], &mut Vec::new());
        let shape = self.shape(1, 1, want);
        let prepared = match self.prepare_ahead(&shape) {
            Ok(false) => self.program(1, 1, want).map(|_| ()),
            ahead => ahead.map(|_| ()),
        };
        self.cells.truncate(0, position);
        self.ahead.keep_flight(before, self.cells.changes());
        prepared
    }

    /// True if the model has state that is not divided by positions.
    fn recurrent(&self) -> bool {
        self.layouts.iter().any(|layout| layout.kind == StateKind::Slots)
    }

    fn check_sequence(&self, sequence: usize) -> Result<()> {
        if sequence < self.sequences() {
            return Ok(());
        }
        Err(Error::argument("sequence", sequence, format!("a number below {}", self.sequences())))
    }
}
