//! Sessions: sequences of tokens with their cache on a model; prefill, decode, and several sequences in one batch.
//!
//! Programs are prepared for a batch shape and kept. Attention looks at a number of cache rows that grows in steps of
//! [`KV_STEP`], so that decoding runs the same program again until the rows in use pass the next step: within a step
//! nothing is allocated, compiled or recorded.
//!
//! A session has one sequence unless [`SessionOptions::sequences`] says more; [`Session::prefill`], [`Session::decode`]
//! and their like work on sequence 0. An application that serves several users gives each a sequence and computes what
//! all of them need next in one batch, which costs little more than the batch of one of them:
//!
//! ```no_run
//! use diptych::{Model, Result, SessionOptions, greedy, session::Item};
//!
//! fn answer(model: &Model, prompts: &[Vec<u32>]) -> Result<Vec<Vec<u32>>> {
//!     let options = SessionOptions { sequences: prompts.len(), ..SessionOptions::default() };
//!     let mut session = model.session(&options)?;
//!     let items: Vec<Item<'_>> =
//!         prompts.iter().enumerate().map(|(sequence, tokens)| Item { sequence, tokens }).collect();
//!     let mut logits = session.batch(&items)?;
//!     let mut answers = vec![Vec::new(); prompts.len()];
//!     for _ in 0..16 {
//!         let next: Vec<[u32; 1]> = logits.iter().map(|row| [greedy(row)]).collect();
//!         let items: Vec<Item<'_>> =
//!             next.iter().enumerate().map(|(sequence, tokens)| Item { sequence, tokens }).collect();
//!         answers.iter_mut().zip(&next).for_each(|(answer, token)| answer.extend(token));
//!         logits = session.batch(&items)?;
//!     }
//!     Ok(answers)
//! }
//! ```

mod cells;
mod inputs;
mod prepared;
mod saved;

pub(crate) use inputs::prompt_inputs;
pub(crate) use prepared::debug_program;

use crate::model::{BatchGraph, BatchShape, Hparams, Model, StateKind};
use cells::Cells;
use ggml_core::metrics::argmax;
use ggml_core::op::flash_attn::CACHE_TYPES;
use ggml_core::plan::Precision;
use ggml_core::{DType, Error, Result};
use prepared::{Compute, Prepared, State};
use saved::Part;
use std::time::Duration;

/// Cache rows by which programs grow.
pub const KV_STEP: usize = 256;

/// Programs that a session keeps, beside one for each of its sequences.
const MAX_PROGRAMS: usize = 8;

/// How to make a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionOptions {
    /// Positions that each sequence has room for; `None`: the smaller of the model's context and 4096.
    pub context: Option<usize>,
    /// Sequences that are kept side by side; memory grows with them.
    pub sequences: usize,
    /// Tokens of one batch; longer work is done in several.
    pub batch: usize,
    /// Type of the cache: F32, F16, Q8_0 or Q4_0. The last two need heads of a multiple of 32 elements.
    pub cache: DType,
    /// How much rounding is allowed.
    pub precision: Precision,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            context: None,
            sequences: 1,
            batch: 512,
            cache: DType::F32,
            precision: Precision::default(),
        }
    }
}

impl SessionOptions {
    /// Positions that each sequence of a model has room for.
    pub(crate) fn room(&self, hparams: &Hparams) -> usize {
        self.context.unwrap_or(hparams.context.min(4096))
    }

    /// That there can be such a session.
    pub(crate) fn check(&self, hparams: &Hparams) -> Result<()> {
        let (context, sequences) = (self.room(hparams), self.sequences);
        if context == 0 || self.batch == 0 || sequences == 0 {
            return Err(Error::argument_said("session", "context, sequences and batch must be at least 1"));
        }
        // Rows of the cache are I32 in a graph.
        if context.checked_mul(sequences).is_none_or(|cells| cells > i32::MAX as usize) {
            let why = format!("{sequences} sequences of {context} positions are too many");
            return Err(Error::argument_said("session", why));
        }
        if !CACHE_TYPES.contains(&self.cache) {
            let names: Vec<&str> = CACHE_TYPES.iter().map(|dtype| dtype.name()).collect();
            let why = format!("is one of {}, not {}", names.join(", "), self.cache);
            return Err(Error::argument_said("cache type", why));
        }
        Ok(())
    }
}

/// The token with the largest logit (the first of equals; 0 if all are NaN).
pub fn greedy(logits: &[f32]) -> u32 {
    argmax(logits).unwrap_or(0) as u32
}

/// Tokens for a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Number of the sequence.
    pub sequence: usize,
    /// Tokens that are appended to it; at least one.
    pub tokens: &'a [u32],
}

/// Sequences of tokens with their cache.
pub struct Session {
    // Programs refer to buffers, so they go first.
    programs: Vec<Prepared>,
    compute: Compute,
    state: State,
    parts: Vec<Part>,
    cells: Cells,
    model: Model,
    context: usize,
    batch: usize,
    cache: DType,
    precision: Precision,
    compute_time: Duration,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let positions: Vec<usize> = (0..self.sequences()).map(|i| self.cells.length(i)).collect();
        f.debug_struct("Session").field("context", &self.context).field("positions", &positions).finish()
    }
}

impl Session {
    pub(crate) fn new(model: Model, options: &SessionOptions) -> Result<Session> {
        options.check(model.hparams())?;
        let (context, sequences) = (options.room(model.hparams()), options.sequences);
        let shape = BatchShape { tokens: 1, kv: 1, context, sequences, outputs: 1, cache: options.cache };
        let graph = model.file().graph(&shape)?;
        let needs = model.needs(options)?;
        let state = State::new(&model, &needs)?;
        Ok(Session {
            programs: Vec::new(),
            compute: Compute::new(&needs),
            state,
            parts: parts(&graph),
            cells: Cells::new(context, sequences),
            model,
            context,
            batch: options.batch,
            cache: options.cache,
            precision: options.precision,
            compute_time: Duration::ZERO,
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Positions of sequence 0.
    pub fn position(&self) -> usize {
        self.cells.length(0)
    }

    /// Positions of a sequence.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there is no such sequence.
    pub fn position_of(&self, sequence: usize) -> Result<usize> {
        self.check_sequence(sequence)?;
        Ok(self.cells.length(sequence))
    }

    /// Positions that each sequence has room for.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.cells.sequences()
    }

    /// Host time spent in running programs.
    pub fn compute_time(&self) -> Duration {
        self.compute_time
    }

    /// Forgets all sequences. Prepared programs are kept.
    pub fn reset(&mut self) {
        self.cells = Cells::new(self.context, self.sequences());
    }

    /// Forgets a sequence.
    ///
    /// # Errors
    /// Those of [`Session::truncate`].
    pub fn reset_sequence(&mut self, sequence: usize) -> Result<()> {
        self.truncate(sequence, 0)
    }

    /// Forgets the positions of a sequence from `position` on, so that it goes on differently from there.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there is no such sequence or position, and for a model with recurrent state,
    /// which cannot be taken back but to the beginning.
    pub fn truncate(&mut self, sequence: usize, position: usize) -> Result<()> {
        let length = self.position_of(sequence)?;
        if position > length {
            let why = format!("{position} is beyond the {length} positions of sequence {sequence}");
            return Err(Error::argument_said("position", why));
        }
        if self.recurrent() && position > 0 && position < length {
            let why = "recurrent state cannot be taken back to an earlier position, only to the beginning";
            return Err(Error::argument_said("position", why));
        }
        self.cells.truncate(sequence, position);
        Ok(())
    }

    /// Appends tokens to sequence 0; the logits after the last one (`vocabulary` values).
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        Ok(self.append(&[Item { sequence: 0, tokens }], false)?.concat())
    }

    /// Appends tokens to sequence 0; the logits after each of them, row after row.
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        Ok(self.append(&[Item { sequence: 0, tokens }], true)?.concat())
    }

    /// Appends one token to sequence 0; the logits after it.
    pub fn decode(&mut self, token: u32) -> Result<Vec<f32>> {
        self.prefill(&[token])
    }

    /// Appends tokens to several sequences at once; for each item the logits after its last token.
    ///
    /// The tokens of all items make one batch, or several where they are more than [`SessionOptions::batch`]. What a
    /// sequence gets does not depend on the others.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a sequence that does not exist, comes twice or has no room for its tokens, for no
    /// tokens and for a token outside the vocabulary; what the backend reports. After an error all sequences are as they
    /// were before the call. (With recurrent state, an error of the backend leaves the sequences of the call empty.)
    pub fn batch(&mut self, items: &[Item<'_>]) -> Result<Vec<Vec<f32>>> {
        self.append(items, false)
    }

    /// Prepares the program of the next decode step of sequence 0, so that [`Session::decode`] only runs it.
    pub fn prepare_decode(&mut self) -> Result<()> {
        let position = self.position();
        if position == self.context {
            return Ok(());
        }
        self.cells.append(0, 1);
        let prepared = self.program(1, 1);
        self.cells.truncate(0, position);
        prepared.map(|_| ())
    }

    /// Whether the model has state that is not made of positions.
    fn recurrent(&self) -> bool {
        self.parts.iter().any(|part| part.kind == StateKind::Slots)
    }

    fn check_sequence(&self, sequence: usize) -> Result<()> {
        if sequence < self.sequences() {
            return Ok(());
        }
        let why = format!("there is none with number {sequence}, the session has {}", self.sequences());
        Err(Error::argument_said("sequence", why))
    }

    pub(crate) fn check(&self, items: &[Item<'_>]) -> Result<()> {
        for (i, &Item { sequence, tokens }) in items.iter().enumerate() {
            let begin = self.position_of(sequence)?;
            if items[..i].iter().any(|other| other.sequence == sequence) {
                return Err(Error::argument_said("sequence", format!("{sequence} comes twice in a batch")));
            }
            if tokens.is_empty() {
                return Err(Error::argument_said("tokens", "there must be at least one"));
            }
            let vocabulary = self.model.hparams().vocabulary;
            if let Some(bad) = tokens.iter().find(|&&t| t as usize >= vocabulary) {
                let why = format!("{bad} is outside the vocabulary of {vocabulary}");
                return Err(Error::argument_said("token id", why));
            }
            let end = begin.saturating_add(tokens.len());
            if end > self.context {
                let why = format!(
                    "{end} positions are needed in sequence {sequence}, the context has room for {}",
                    self.context
                );
                return Err(Error::argument_said("context", why));
            }
        }
        Ok(())
    }

    /// Appends the tokens of all items; for each item the logits after its last token, or after `all`.
    fn append(&mut self, items: &[Item<'_>], all: bool) -> Result<Vec<Vec<f32>>> {
        self.check(items)?;
        let before: Vec<usize> = items.iter().map(|item| self.cells.length(item.sequence)).collect();
        let logits = self.append_checked(items, all);
        if logits.is_err() {
            for (item, before) in items.iter().zip(before) {
                self.cells.truncate(item.sequence, if self.recurrent() { 0 } else { before });
            }
        }
        logits
    }

    fn append_checked(&mut self, items: &[Item<'_>], all: bool) -> Result<Vec<Vec<f32>>> {
        struct Entry {
            item: usize,
            token: u32,
            wanted: bool,
        }
        let entries: Vec<Entry> = (items.iter().enumerate())
            .flat_map(|(item, Item { tokens, .. })| {
                let wanted = move |i: usize| all || i + 1 == tokens.len();
                tokens.iter().enumerate().map(move |(i, &token)| Entry { item, token, wanted: wanted(i) })
            })
            .collect();
        let mut logits = vec![Vec::new(); items.len()];
        for chunk in entries.chunks(self.batch) {
            let mut placed = Vec::new();
            for run in chunk.chunk_by(|a, b| a.item == b.item) {
                let tokens: Vec<u32> = run.iter().map(|entry| entry.token).collect();
                placed.extend(inputs::place(&mut self.cells, items[run[0].item].sequence, &tokens));
            }
            let mut outputs: Vec<usize> = (0..chunk.len()).filter(|&i| chunk[i].wanted).collect();
            if outputs.is_empty() {
                // A graph gives one row at least.
                outputs.push(chunk.len() - 1);
            }
            let rows = self.run(&placed, &outputs)?;
            for (&i, row) in outputs.iter().zip(rows.chunks_exact(self.model.hparams().vocabulary)) {
                if chunk[i].wanted {
                    logits[chunk[i].item].extend_from_slice(row);
                }
            }
        }
        Ok(logits)
    }

    /// Runs tokens whose cells are taken; the rows of logits of `outputs`.
    fn run(&mut self, tokens: &[inputs::Token], outputs: &[usize]) -> Result<Vec<f32>> {
        let index = self.program(tokens.len(), outputs.len())?;
        let prepared = &mut self.programs[index];
        let inputs = inputs::batch_inputs(prepared.graph(), tokens, outputs, &self.cells);
        let (logits, timing) = prepared.run(&inputs)?;
        self.compute_time += timing.host;
        Ok(logits)
    }

    /// Index of the prepared program for a batch whose cells are taken; the most recently used one is last.
    fn program(&mut self, tokens: usize, outputs: usize) -> Result<usize> {
        let (context, sequences, cache) = (self.context, self.sequences(), self.cache);
        let kv = self.cells.end().next_multiple_of(KV_STEP).min(context * sequences);
        let shape = BatchShape { tokens, kv, context, sequences, outputs, cache };
        if let Some(i) = self.programs.iter().position(|p| p.graph().shape == shape) {
            let used = self.programs.remove(i);
            self.programs.push(used);
            return Ok(self.programs.len() - 1);
        }
        if self.programs.len() == MAX_PROGRAMS + sequences {
            self.programs.remove(0);
        }
        let prepared = Prepared::new(&self.model, &shape, &self.state, &mut self.compute, self.precision)?;
        self.programs.push(prepared);
        Ok(self.programs.len() - 1)
    }
}

/// The state tensors of a graph, and how many bytes of each belong to a position or a sequence.
fn parts(graph: &BatchGraph) -> Vec<Part> {
    let shape = &graph.shape;
    let part = |(&id, &kind): (&ggml_core::TensorId, &StateKind)| {
        let count = match kind {
            StateKind::Rows => shape.cells(),
            StateKind::Slots => shape.sequences,
        };
        Part { kind, bytes: graph.graph.tensor(id).span_bytes() / count }
    };
    graph.state.iter().zip(&graph.state_kinds).map(part).collect()
}
