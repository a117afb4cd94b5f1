//! Estimates of the errors that rounding makes in results that are in doubt.
//!
//! The reference computes the nodes of such a result several times, each time with operands that are rounded in
//! another way ([`Sample`]), and the mean squared errors of the elements are written to a file.

use super::nodes::{Entry, NodeFile, NodeResults, write_operands};
use super::{files, loaded};
use crate::isolate::protocol::{Doubtful, Message, ModelTask, NodesTask, Work};
use crate::model::Model;
use crate::session::{Stepwise, debug_program};
use ggml_core::evaluate::{Contents, write_inputs};
use ggml_core::exact::Sample;
use ggml_core::expected::Expected;
use ggml_core::precision::Precision;
use ggml_core::{DType, Error, Graph, Result, Source, TensorId};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Name of the files of estimates.
pub(super) const STEM: &str = "rounding";

/// Returns the path of the estimates of a run.
pub(super) fn path(out: &Path) -> PathBuf {
    files::nodes(out, STEM)
}

/// Estimated errors of results, read from their file.
pub(super) struct Estimates(Option<NodeFile>);

impl Estimates {
    /// Opens a file; without one there are no estimates.
    pub(super) fn open(path: &Path) -> Result<Estimates> {
        path.exists().then(|| NodeFile::open(path)).transpose().map(Estimates)
    }

    /// Returns the estimate for a node's result, computed by itself or in a group.
    pub(super) fn find(&self, name: &str, members: &[String]) -> Result<Option<Expected>> {
        let Some(file) = &self.0 else { return Ok(None) };
        let is_it = |entry: &&Entry| entry.name == name && entry.members == members;
        let squares = file.entries.iter().find(is_it).map(|entry| file.values(entry)).transpose()?;
        Ok(squares.map(|squares| Expected::from_mean_squares(&squares)))
    }
}

/// Estimates the errors of a model's results that a task lists, in the graph of the prompt and of a decode step.
pub(super) fn estimate_model(
    model: &Model,
    work: &Work,
    task: &ModelTask,
    send: &mut dyn FnMut(Message),
) -> Result<()> {
    let reference = NodeFile::open(exact_results(&task.nodes)?)?;
    let (prompt, inputs) = loaded::prompt_graph(model.file(), task)?;
    let of = |step: bool| task.nodes.doubtful.iter().filter(|d| d.step == step).collect::<Vec<_>>();
    let program = |graph| debug_program(model, graph, work.precision, false);
    let mut of_prompt = Estimation::new(&prompt.graph, program(&prompt)?, &inputs, work.precision)?;
    of_prompt.run(&of(false), &reference, send)?.write(task.nodes.out.as_ref())?;
    let of_step = of(true);
    let Some(&token) = task.given.first().filter(|_| !of_step.is_empty()) else { return Ok(()) };
    let (step, mut inputs) = loaded::step_graph(model.file(), task, token)?;
    inputs.extend(super::nodes::state_after(&prompt.graph, &reference, &step.graph));
    let nodes = task.nodes.of_step();
    let reference = NodeFile::open(exact_results(&nodes)?)?;
    let mut estimation = Estimation::new(&step.graph, program(&step)?, &inputs, work.precision)?;
    estimation.run(&of_step, &reference, send)?.write(nodes.out.as_ref())
}

/// Estimates the errors of results of a graph file.
pub(super) fn estimate_graph(
    graph: &Graph,
    program: Stepwise,
    data: &Contents,
    precision: Precision,
    task: &NodesTask,
    send: &mut dyn FnMut(Message),
) -> Result<()> {
    let reference = NodeFile::open(exact_results(task)?)?;
    let mut estimation = Estimation::new(graph, program, data, precision)?;
    let doubtful: Vec<&Doubtful> = task.doubtful.iter().collect();
    estimation.run(&doubtful, &reference, send)?.write(task.out.as_ref())
}

fn exact_results(task: &NodesTask) -> Result<&Path> {
    let missing = || Error::argument("reference", "no results", "those of every node in doubt");
    task.reference.as_ref().map(AsRef::as_ref).ok_or_else(missing)
}

/// A graph whose nodes are computed one by one, with rounded operands.
struct Estimation<'a> {
    graph: &'a Graph,
    program: Stepwise,
    data: &'a Contents,
    ids: HashMap<&'a str, TensorId>,
    precision: Precision,
}

impl<'a> Estimation<'a> {
    fn new(
        graph: &'a Graph,
        mut program: Stepwise,
        data: &'a Contents,
        precision: Precision,
    ) -> Result<Estimation<'a>> {
        write_inputs(program.0.as_mut(), graph, data)?;
        let ids = graph.ids().map(|id| (graph.tensor(id).name.as_str(), id)).collect();
        Ok(Estimation { graph, program, data, ids, precision })
    }

    /// Computes the estimates of results.
    fn run(
        &mut self,
        doubtful: &[&Doubtful],
        reference: &NodeFile,
        send: &mut dyn FnMut(Message),
    ) -> Result<NodeResults> {
        let mut results = NodeResults::new(self.precision);
        for result in doubtful {
            send(Message::Node { name: result.name.clone() });
            let missing = || Error::argument("node", format!("'{}'", result.name), "one of the graph");
            let id = *self.ids.get(result.name.as_str()).ok_or_else(missing)?;
            let exact = reference.find(&result.name).ok_or_else(missing)?;
            let exact = reference.values(exact)?;
            let nodes = self.nodes(result)?;
            let mut expected = Expected::new(exact.len());
            for seed in 1..=Expected::SAMPLES as u64 {
                let sample = Sample { precision: self.precision, seed };
                expected.add(&self.sample(sample, id, &nodes, result.whole, reference)?, &exact);
            }
            let squares = expected.mean_squares();
            results.add(self.graph, id, &result.members, DType::F32, bytemuck::cast_slice(&squares));
        }
        Ok(results)
    }

    /// Returns the nodes that a result is computed from, in their order.
    fn nodes(&self, result: &Doubtful) -> Result<Vec<TensorId>> {
        if result.whole {
            return Ok(self.graph.computed().collect());
        }
        let single = std::slice::from_ref(&result.name);
        let names = if result.members.is_empty() { single } else { &result.members };
        let unknown = |name: &String| Error::argument("node", format!("'{name}'"), "one of the graph");
        names.iter().map(|name| self.ids.get(name.as_str()).copied().ok_or_else(|| unknown(name))).collect()
    }

    /// Computes the nodes of a result with one sample of rounding, and returns the result.
    fn sample(
        &mut self,
        sample: Sample,
        id: TensorId,
        nodes: &[TensorId],
        whole: bool,
        reference: &NodeFile,
    ) -> Result<Vec<f32>> {
        let (g, (program, steps)) = (self.graph, &mut self.program);
        let program = program.as_mut();
        for (&leaf, contents) in self.data.iter().filter(|(leaf, _)| g.tensor(**leaf).source == Source::State)
        {
            program.write(leaf, contents)?;
        }
        if !whole {
            write_operands(g, program, nodes, reference)?;
        }
        program.set_rounding(Some(sample))?;
        for &node in nodes {
            let name = &g.tensor(node).name;
            let step = steps.iter().position(|step| step.nodes.contains(name));
            let step =
                step.ok_or_else(|| Error::argument("node", format!("'{name}'"), "one that is computed"))?;
            program.run_step(step).map_err(|e| e.with_node(name))?;
        }
        program.set_rounding(None)?;
        let root = g.tensor(g.tensor(id).root);
        let mut bytes = vec![0; root.dense_bytes()];
        program.read(g.tensor(id).root, &mut bytes)?;
        ggml_core::decode::decode(root.dtype, &bytes)
    }
}
