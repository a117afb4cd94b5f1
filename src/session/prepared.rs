//! What a session runs: state in device memory, and graphs prepared for batches.

use crate::model::{BatchGraph, BatchShape, Model};
use ggml_core::backend::{Bindings, Buffer, PrepareOptions, Program, Slice, Timing, Usage};
use ggml_core::plan::{Plan, Precision};
use ggml_core::{Error, Result, TensorId};
use std::collections::HashMap;

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

/// The state tensors of a session: one buffer, zero at first. A tensor is named by its index in [`BatchGraph::state`].
#[derive(Clone, Debug)]
pub(super) struct State {
    model: Model,
    buffer: Buffer,
    offsets: Vec<usize>,
}

impl State {
    /// Memory for the state tensors of `graph`, which are the same in every graph of its context and cache type.
    pub(super) fn new(model: &Model, graph: &BatchGraph) -> Result<State> {
        let (offsets, bytes) = state_layout(graph, model.backend().device().limits.alignment);
        let buffer = model.backend().allocate(bytes, Usage::State)?;
        Ok(State { model: model.clone(), buffer, offsets })
    }

    /// Reads `out.len()` bytes of a tensor from byte `offset` on.
    pub(super) fn download(&self, tensor: usize, offset: usize, out: &mut [u8]) -> Result<()> {
        let at = self.offset(tensor)? + offset;
        self.model.backend().download(&self.buffer, at, out)
    }

    /// Writes bytes of a tensor from byte `offset` on.
    pub(super) fn upload(&self, tensor: usize, offset: usize, data: &[u8]) -> Result<()> {
        let at = self.offset(tensor)? + offset;
        self.model.backend().upload(&self.buffer, at, data)
    }

    fn offset(&self, tensor: usize) -> Result<usize> {
        let missing = || Error::argument("state tensor", format!("there is none with index {tensor}"));
        self.offsets.get(tensor).copied().ok_or_else(missing)
    }
}

/// Memory for intermediates that the programs of a session share; it grows with the largest.
#[derive(Clone, Debug, Default)]
pub(super) struct Compute {
    buffer: Option<Buffer>,
}

impl Compute {
    fn of(&mut self, model: &Model, bytes: usize) -> Result<Buffer> {
        match &self.buffer {
            Some(buffer) if buffer.bytes() >= bytes => Ok(buffer.clone()),
            _ => {
                let buffer = model.backend().allocate(bytes, Usage::Compute)?;
                self.buffer = Some(buffer.clone());
                Ok(buffer)
            }
        }
    }
}

/// A graph that is ready to run again and again.
pub(super) struct Prepared {
    graph: BatchGraph,
    program: Box<dyn Program>,
}

impl Prepared {
    /// Prepares the graph of a batch shape.
    pub(super) fn new(
        model: &Model,
        shape: &BatchShape,
        state: &State,
        compute: &mut Compute,
        precision: Precision,
    ) -> Result<Prepared> {
        let backend = model.backend();
        let graph = model.file().graph(shape)?;
        let plan = Plan::new(&graph.graph, backend.device().limits.alignment, precision)?;
        let mut bindings = bind(model, &graph, &state.buffer)?;
        bindings.compute = Some(compute.of(model, plan.arena_bytes)?);
        let program = backend.prepare(&graph.graph, &plan, &bindings, PrepareOptions::default())?;
        Ok(Prepared { graph, program })
    }

    /// The graph of the batch.
    pub(super) fn graph(&self) -> &BatchGraph {
        &self.graph
    }

    /// Writes the inputs, runs, and reads the logits: `outputs` rows of `vocabulary` values.
    pub(super) fn run(&mut self, inputs: &HashMap<TensorId, Vec<u8>>) -> Result<(Vec<f32>, Timing)> {
        for (&id, bytes) in inputs {
            self.program.write(id, bytes)?;
        }
        let timing = self.program.run()?;
        let mut logits = vec![0f32; self.graph.graph.tensor(self.graph.logits).elements()];
        self.program.read(self.graph.logits, bytemuck::cast_slice_mut(&mut logits))?;
        Ok((logits, timing))
    }
}
