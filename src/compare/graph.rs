//! The child's work on a graph file: bind its leaves, run it, keep its outputs or every node.

use super::nodes::{NodeResults, Nodes};
use super::options::PerNode;
use super::protocol::{Done, GraphTask, Message, Work};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program, Slice, Usage};
use ggml_core::graph::file::GraphFile;
use ggml_core::plan::{Plan, Precision};
use ggml_core::{Error, Graph, Result, Source, TensorId};
use std::sync::Arc;
use std::time::Instant;

/// Does the work. A stepwise run has no results: it has announced the nodes.
pub(super) fn run(
    work: &Work,
    task: &GraphTask,
    backend: Arc<dyn Backend>,
    say: &mut dyn FnMut(Message),
) -> Result<Done> {
    let start = Instant::now();
    let file = GraphFile::load(task.graph.as_ref())?;
    let bound = bind(&file, backend.as_ref())?;
    let load_s = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let nodes = || -> Result<Nodes<'_>> {
        let program = debug_program(&file.graph, backend.as_ref(), &bound, work.precision)?;
        Nodes::new(&file.graph, program, &bound.inputs)
    };
    let mut unstable = 0;
    if work.stepwise {
        nodes()?.locate(say)?;
        return Ok(Done::default());
    } else if task.nodes.mode == PerNode::Off {
        let results = outputs(&file.graph, backend.as_ref(), &bound, work.precision)?;
        for _ in 1..work.repeat {
            let bound = bind(&file, backend.as_ref())?;
            let again = outputs(&file.graph, backend.as_ref(), &bound, work.precision)?;
            unstable += results.differences(&again);
        }
        results.write(task.nodes.out.as_ref())?;
    } else {
        nodes()?.run(&task.nodes, say)?;
    }
    let prompt_s = start.elapsed().as_secs_f64();
    Ok(Done { load_s, prompt_s, unstable, stats: backend.stats(), ..Done::default() })
}

/// The first leaf without contents that it needs: state begins as zeros, weights and inputs must be given.
pub(super) fn missing_leaf(file: &GraphFile) -> Option<&str> {
    let g = &file.graph;
    g.ids()
        .filter(|id| matches!(g.tensor(*id).source, Source::Weight | Source::Input))
        .find(|id| !file.data.contains_key(id))
        .map(|id| g.tensor(id).name.as_str())
}

/// A graph's leaves: where weights and state lie, and the contents of inputs.
struct Bound {
    bindings: Bindings,
    inputs: Vec<(TensorId, Vec<u8>)>,
}

/// Weights and state on the backend, one block of memory for each kind.
fn bind(file: &GraphFile, backend: &dyn Backend) -> Result<Bound> {
    let g = &file.graph;
    if let Some(name) = missing_leaf(file) {
        return Err(Error::model(format!("leaf '{name}'"), "no contents", ""));
    }
    let mut bindings = Bindings::default();
    for (source, usage) in [(Source::Weight, Usage::Weights), (Source::State, Usage::State)] {
        let leaves: Vec<TensorId> = g.ids().filter(|id| g.tensor(*id).source == source).collect();
        place(file, &leaves, usage, backend, &mut bindings)?;
    }
    let is_input = |id: &TensorId| g.tensor(*id).source == Source::Input;
    let inputs = file.data.iter().filter(|(id, _)| is_input(id)).map(|(id, data)| (*id, data.clone()));
    Ok(Bound { bindings, inputs: inputs.collect() })
}

fn place(
    file: &GraphFile,
    leaves: &[TensorId],
    usage: Usage,
    backend: &dyn Backend,
    bindings: &mut Bindings,
) -> Result<()> {
    if leaves.is_empty() {
        return Ok(());
    }
    let alignment = backend.device().limits.alignment;
    let sizes = leaves.iter().map(|id| file.graph.tensor(*id).span_bytes().next_multiple_of(alignment));
    let buffer = backend.allocate(sizes.clone().sum(), usage)?;
    let mut offset = 0;
    for (id, bytes) in leaves.iter().zip(sizes) {
        if let Some(data) = file.data.get(id) {
            backend.upload(&buffer, offset, data)?;
        }
        bindings.leaves.insert(*id, Slice { buffer: buffer.clone(), offset });
        offset += bytes;
    }
    Ok(())
}

/// A program that runs step by step and keeps every result.
fn debug_program(
    g: &Graph,
    backend: &dyn Backend,
    bound: &Bound,
    precision: Precision,
) -> Result<Box<dyn Program>> {
    let plan = Plan::debug(g, backend.device().limits.alignment, precision)?;
    backend.prepare(g, &plan, &bound.bindings, PrepareOptions { stepwise: true })
}

/// One ordinary run; its outputs.
fn outputs(g: &Graph, backend: &dyn Backend, bound: &Bound, precision: Precision) -> Result<NodeResults> {
    let plan = Plan::new(g, backend.device().limits.alignment, precision)?;
    let mut program = backend.prepare(g, &plan, &bound.bindings, PrepareOptions::default())?;
    for (id, bytes) in &bound.inputs {
        program.write(*id, bytes)?;
    }
    program.run()?;
    let mut results = NodeResults::default();
    for &output in g.outputs() {
        results.read(g, output, program.as_mut())?;
    }
    Ok(results)
}
