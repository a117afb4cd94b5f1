//! Work of a child process on a graph file: binding of its leaves, runs, and storage of the results of its
//! outputs or of every node.

use super::doubt;
use super::nodes::{self, NodeResults, Nodes};
use super::options::PerNode;
use crate::isolate::protocol::{Done, GraphTask, Message, Work};
use crate::session::{Stepwise, named_steps};
use ggml_core::backend::{Backend, Bindings, PrepareOptions};
use ggml_core::evaluate::{Contents, bind, write_inputs};
use ggml_core::graph::file::GraphFile;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::{Graph, Result};
use std::sync::Arc;
use std::time::Instant;

/// Runs the graph file `repeat` times, stores the outputs of the first run, and counts the bytes of later
/// runs that differ. With results per node, it runs the examination once and stores these instead. A stepwise
/// run stores nothing: it only reports each node to the parent before the node runs.
pub(super) fn run(
    work: &Work,
    task: &GraphTask,
    backend: Arc<dyn Backend>,
    send: &mut dyn FnMut(Message),
) -> Result<Done> {
    let start = Instant::now();
    let GraphFile { graph, data } = GraphFile::load(task.graph.as_ref())?;
    let bindings = bind(backend.as_ref(), &graph, &data)?;
    let load_s = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let program = |fused| debug_program(&graph, backend.as_ref(), &bindings, work.precision, fused);
    let mut unstable = 0;
    if work.stepwise {
        Nodes::new(&graph, program(true)?, &data)?.locate(send)?;
        return Ok(Done::default());
    } else if !task.nodes.doubtful.is_empty() {
        doubt::estimate_graph(&graph, program(false)?, &data, work.precision, &task.nodes, send)?;
    } else if task.nodes.mode == PerNode::Off {
        let results = outputs(&graph, &data, backend.as_ref(), &bindings, work.precision)?;
        for _ in 1..work.repeat {
            let bindings = bind(backend.as_ref(), &graph, &data)?;
            let repeated = outputs(&graph, &data, backend.as_ref(), &bindings, work.precision)?;
            unstable += results.differences(&repeated);
        }
        results.write(task.nodes.out.as_ref())?;
    } else {
        nodes::examine(&graph, &task.nodes, work.precision, &data, &program, send)?;
    }
    let prompt_s = start.elapsed().as_secs_f64();
    Ok(Done { load_s, prompt_s, unstable, stats: backend.stats(), ..Done::default() })
}

/// Prepares a program that runs step by step and retains every result: fused as in a normal run, or node by
/// node. Also returns its steps.
fn debug_program(
    g: &Graph,
    backend: &dyn Backend,
    bindings: &Bindings,
    precision: Precision,
    fused: bool,
) -> Result<Stepwise> {
    let plan = match fused {
        true => Plan::fused_debug(g, backend, precision)?,
        false => Plan::debug(g, &backend.device().limits, precision)?,
    };
    let program = backend.prepare(g, &plan, bindings, PrepareOptions::STEPWISE)?;
    Ok((program, named_steps(g, &plan)))
}

/// Runs the fused program once and returns the graph's outputs.
fn outputs(
    g: &Graph,
    data: &Contents,
    backend: &dyn Backend,
    bindings: &Bindings,
    precision: Precision,
) -> Result<NodeResults> {
    let plan = Plan::fused(g, backend, precision)?;
    let mut program = backend.prepare(g, &plan, bindings, PrepareOptions::default())?;
    write_inputs(program.as_mut(), g, data)?;
    program.run()?;
    let mut results = NodeResults::new(precision);
    for &output in g.outputs() {
        results.read(g, output, program.as_mut())?;
    }
    Ok(results)
}
