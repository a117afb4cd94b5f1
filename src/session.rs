//! Sessions: a KV cache on a model, prefill and decode.
//!
//! Programs are prepared for a batch shape and kept. Attention looks at a number of cache positions that grows in
//! steps of [`KV_STEP`], so that decoding runs the same program again until the context passes the next step: within
//! a step nothing is allocated, compiled or recorded.

mod saved;

use crate::model::{BatchGraph, BatchShape, Model};
use ggml_core::backend::{Bindings, Buffer, PrepareOptions, Program, Slice, Timing, Usage};
use ggml_core::metrics::argmax;
use ggml_core::plan::{Plan, Precision};
use ggml_core::{DType, Error, Result};
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

/// Cache positions by which programs grow.
pub const KV_STEP: usize = 256;

/// Programs that a session keeps.
const MAX_PROGRAMS: usize = 8;

/// How to make a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionOptions {
    /// Positions that the cache has room for; `None`: the smaller of the model's context and 4096.
    pub context: Option<usize>,
    /// Tokens of one batch of a prefill.
    pub batch: usize,
    /// Type of the cache: F32 or F16.
    pub cache: DType,
    /// How much rounding is allowed.
    pub precision: Precision,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions { context: None, batch: 512, cache: DType::F32, precision: Precision::default() }
    }
}

/// The token with the largest logit (the first of equals; 0 if all are NaN).
pub fn greedy(logits: &[f32]) -> u32 {
    argmax(logits).unwrap_or(0) as u32
}

/// A sequence of tokens with its cache.
pub struct Session {
    // Programs refer to buffers, so they go first.
    programs: Vec<Prepared>,
    compute: Option<Buffer>,
    state: Buffer,
    model: Model,
    context: usize,
    batch: usize,
    cache: DType,
    precision: Precision,
    position: usize,
    compute_time: Duration,
}

struct Prepared {
    graph: BatchGraph,
    program: Box<dyn Program>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("context", &self.context).field("position", &self.position).finish()
    }
}

/// Offsets of the state tensors of a graph in one buffer, and its length.
pub(crate) fn state_layout(graph: &BatchGraph, alignment: usize) -> (Vec<usize>, usize) {
    let mut end = 0;
    let offsets = graph
        .state
        .iter()
        .map(|&id| {
            let at = end;
            end += graph.graph.tensor(id).span_bytes().next_multiple_of(alignment);
            at
        })
        .collect();
    (offsets, end)
}

/// Bindings of a graph's weights and state.
pub(crate) fn bind(model: &Model, graph: &BatchGraph, state: &Buffer) -> Result<Bindings> {
    let mut bindings = Bindings::default();
    for (id, name) in &graph.weights {
        let slice = model.weight(name).ok_or_else(|| Error::model(format!("tensor '{name}' is missing")))?;
        bindings.leaves.insert(*id, slice.clone());
    }
    let (offsets, _) = state_layout(graph, model.backend().device().limits.alignment);
    for (&id, offset) in graph.state.iter().zip(offsets) {
        bindings.leaves.insert(id, Slice { buffer: state.clone(), offset });
    }
    Ok(bindings)
}

/// The inputs of a batch that begins at a position, encoded.
pub(crate) fn batch_inputs(
    graph: &BatchGraph,
    tokens: &[u32],
    position: usize,
) -> HashMap<ggml_core::TensorId, Vec<u8>> {
    let shape = &graph.shape;
    let ints = |values: &mut dyn Iterator<Item = usize>| -> Vec<u8> {
        values.flat_map(|v| (v as i32).to_le_bytes()).collect()
    };
    let n = tokens.len();
    let mut inputs = HashMap::new();
    inputs.insert(graph.inputs.tokens, tokens.iter().flat_map(|&t| (t as i32).to_le_bytes()).collect());
    inputs.insert(graph.inputs.positions, ints(&mut (position..position + n)));
    inputs.insert(graph.inputs.cache_rows, ints(&mut (position..position + n)));
    let rows = position..position + n;
    inputs.insert(graph.inputs.mask, mask(rows.clone(), shape.kv, |row, column| column <= row));
    if let (Some(id), Some(window)) = (graph.inputs.window_mask, graph.window) {
        let sees = |row, column| column <= row && window.reaches(row, column);
        inputs.insert(id, mask(rows, shape.kv, sees));
    }
    if let Some(rows) = graph.inputs.output_rows {
        inputs.insert(rows, ints(&mut (n - shape.outputs..n)));
    }
    inputs
}

/// A mask of tokens at positions `rows` over `kv` positions of the cache.
fn mask(rows: Range<usize>, kv: usize, sees: impl Fn(usize, usize) -> bool) -> Vec<u8> {
    let mut mask = Vec::with_capacity(rows.len() * kv * 4);
    for row in rows {
        for column in 0..kv {
            let value = if sees(row, column) { 0.0 } else { f32::NEG_INFINITY };
            mask.extend_from_slice(&value.to_le_bytes());
        }
    }
    mask
}

impl Session {
    pub(crate) fn new(model: Model, options: &SessionOptions) -> Result<Session> {
        let trained = model.hparams().context;
        let context = options.context.unwrap_or(trained.min(4096));
        if context == 0 || options.batch == 0 {
            return Err(Error::argument("session", "context and batch must be at least 1"));
        }
        if !matches!(options.cache, DType::F32 | DType::F16) {
            return Err(Error::argument("cache type", format!("is F32 or F16, not {}", options.cache)));
        }
        let shape = BatchShape { tokens: 1, kv: 1, context, outputs: 1, cache: options.cache };
        let graph = model.file().graph(&shape)?;
        let (_, bytes) = state_layout(&graph, model.backend().device().limits.alignment);
        let state = model.backend().allocate(bytes, Usage::State)?;
        Ok(Session {
            programs: Vec::new(),
            compute: None,
            state,
            model,
            context,
            batch: options.batch,
            cache: options.cache,
            precision: options.precision,
            position: 0,
            compute_time: Duration::ZERO,
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Positions in the cache.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Positions that the cache has room for.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Host time spent in running programs.
    pub fn compute_time(&self) -> Duration {
        self.compute_time
    }

    /// Forgets the sequence. Prepared programs are kept.
    pub fn reset(&mut self) {
        self.position = 0;
    }

    /// Appends tokens; the logits after the last one (`vocabulary` values).
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.append(tokens, false)
    }

    /// Appends tokens; the logits after each of them, row after row.
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.append(tokens, true)
    }

    /// Appends one token; the logits after it.
    pub fn decode(&mut self, token: u32) -> Result<Vec<f32>> {
        self.append(&[token], false)
    }

    /// Prepares the program of the next decode step, so that [`Session::decode`] only runs it.
    pub fn prepare_decode(&mut self) -> Result<()> {
        if self.position < self.context {
            self.program(1, 1)?;
        }
        Ok(())
    }

    fn append(&mut self, tokens: &[u32], all: bool) -> Result<Vec<f32>> {
        self.check(tokens)?;
        let mut logits = Vec::new();
        for batch in tokens.chunks(self.batch) {
            let outputs = if all { batch.len() } else { 1 };
            let rows = self.run(batch, outputs)?;
            if all {
                logits.extend_from_slice(&rows);
            } else {
                logits = rows;
            }
        }
        Ok(logits)
    }

    fn check(&self, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::argument("tokens", "there must be at least one"));
        }
        let vocabulary = self.model.hparams().vocabulary;
        if let Some(bad) = tokens.iter().find(|&&t| t as usize >= vocabulary) {
            return Err(Error::argument(
                "token id",
                format!("{bad} is outside the vocabulary of {vocabulary}"),
            ));
        }
        let end = self.position + tokens.len();
        if end > self.context {
            let why = format!("{end} positions are needed, the context has room for {}", self.context);
            return Err(Error::argument("context", why));
        }
        Ok(())
    }

    fn run(&mut self, tokens: &[u32], outputs: usize) -> Result<Vec<f32>> {
        let position = self.position;
        let index = self.program(tokens.len(), outputs)?;
        let Prepared { graph, program } = &mut self.programs[index];
        for (id, bytes) in batch_inputs(graph, tokens, position) {
            program.write(id, &bytes)?;
        }
        let Timing { host, .. } = program.run()?;
        let mut logits = vec![0f32; graph.graph.tensor(graph.logits).elements()];
        program.read(graph.logits, bytemuck::cast_slice_mut(&mut logits))?;
        self.compute_time += host;
        self.position += tokens.len();
        Ok(logits)
    }

    /// Index of the prepared program for a batch at the current position; the most recently used one is last.
    fn program(&mut self, tokens: usize, outputs: usize) -> Result<usize> {
        let kv = (self.position + tokens).next_multiple_of(KV_STEP).min(self.context);
        let shape = BatchShape { tokens, kv, context: self.context, outputs, cache: self.cache };
        if let Some(i) = self.programs.iter().position(|p| p.graph.shape == shape) {
            let used = self.programs.remove(i);
            self.programs.push(used);
            return Ok(self.programs.len() - 1);
        }
        if self.programs.len() == MAX_PROGRAMS {
            self.programs.remove(0);
        }
        let prepared = self.prepare(&shape)?;
        self.programs.push(prepared);
        Ok(self.programs.len() - 1)
    }

    fn prepare(&mut self, shape: &BatchShape) -> Result<Prepared> {
        let backend = self.model.backend().clone();
        let graph = self.model.file().graph(shape)?;
        let plan = Plan::new(&graph.graph, backend.device().limits.alignment, self.precision)?;
        if self.compute.as_ref().is_none_or(|c| c.bytes() < plan.arena_bytes) {
            self.compute = Some(backend.allocate(plan.arena_bytes, Usage::Compute)?);
        }
        let mut bindings = bind(&self.model, &graph, &self.state)?;
        bindings.compute = self.compute.clone();
        let program = backend.prepare(&graph.graph, &plan, &bindings, PrepareOptions::default())?;
        Ok(Prepared { graph, program })
    }
}
