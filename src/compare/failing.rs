//! Graph file of the first node out of its bound: the node by itself, or the group it was computed in, with
//! the reference's operands, so that it can be examined without the model.

use super::header::Header;
use super::loaded::{prompt_graph, step_graph};
use super::nodes::{NodeFile, last_writer, state_after};
use super::options::{CompareOptions, Event, PerNode, Progress, Subject};
use super::report::{Comparison, Divergence, Report};
use super::{files, judge, second_look, shrink};
use crate::isolate::parent::Children;
use crate::isolate::protocol::ModelTask;
use crate::model::{BatchGraph, ModelFile};
use ggml_core::graph::file::GraphFile;
use ggml_core::op::{Op, View};
use ggml_core::{Error, Graph, Result, Source, TensorId};
use std::collections::HashMap;
use std::path::Path;

/// Writes a graph file for each backend's first node out of its bound, if the run is isolated (each node gets
/// the reference's operands). The file is reduced as long as it still fails, and the command that runs it is
/// added to the report. If the file cannot be written, the report's results stay.
pub(super) fn of_model(
    header: &Header,
    task: &ModelTask,
    children: &Children,
    report: &mut Report,
    progress: Progress<'_>,
) {
    let options = &header.options;
    for i in 0..report.comparisons.len() {
        let comparison = &report.comparisons[i];
        let Some(divergence) = comparison.first_divergence.clone().filter(|_| header.is_isolated()) else {
            continue;
        };
        let path =
            files::failing(&options.out, &files::stem(&comparison.lhs, comparison.offload, comparison.epoch));
        if !path.exists() && !children.is_over() {
            progress(&Event::new(
                &comparison.lhs,
                format!("writing a graph file of node '{}'", divergence.node),
            ));
            let written = write(header, task, report, comparison, &divergence, &path, children);
            if !matches!(written, Ok(true)) {
                let why =
                    written.err().map_or("the node agrees by itself".to_string(), |error| error.to_string());
                progress(&Event::new(&comparison.lhs, format!("no graph file: {why}")));
                // An incomplete or agreeing file is useless.
                let _ = files::remove(&path);
            }
        }
        let comparison = &mut report.comparisons[i];
        if path.exists()
            && let Some(divergence) = &mut comparison.first_divergence
        {
            divergence.rerun = Some(command(options, &path, &comparison.lhs));
            divergence.file = Some(path);
        }
    }
    judge::set_verdict(report);
}

/// Writes the file; returns true if it fails by itself.
fn write(
    header: &Header,
    task: &ModelTask,
    report: &Report,
    comparison: &Comparison,
    divergence: &Divergence,
    path: &Path,
    children: &Children,
) -> Result<bool> {
    let out = &header.options.out;
    let file = extract(task, out, report, divergence)?;
    let options = second_look::single_backend(&header.options, comparison)?
        .with_per_node(PerNode::Isolated)
        .with_prompt(None);
    let out = files::second_look(out).join("alone");
    let options = options.with_work(Subject::Graph(path.into())).with_out(&out);
    shrink::shrink(file, path, &mut |_| {
        files::begin(&out)?;
        let report = second_look::run_nested(&options, children, &mut |_| ())?;
        Ok(report.is_some_and(|report| report.comparisons.iter().any(|c| c.first_divergence.is_some())))
    })
}

fn command(options: &CompareOptions, path: &Path, backend: &str) -> String {
    let (path, precision, reference) = (path.display(), options.precision.name(), &options.reference);
    format!(
        "compare --graph {path} --backends {backend} --reference {reference} --per-node isolated --precision \
         {precision}"
    )
}

/// Extracts the part of a model's graph that diverged, with the contents of its leaves.
fn extract(task: &ModelTask, out: &Path, report: &Report, divergence: &Divergence) -> Result<GraphFile> {
    let model = ModelFile::open(&task.model)?;
    let missing = || Error::argument("reference", "no run", "results of its nodes");
    let reference = report.records.first().ok_or_else(missing)?;
    let path = files::nodes(out, &reference.stem);
    let mut results = NodeFile::open(&path)?;
    let (mut graph, mut data) = prompt_graph(&model, task)?;
    if divergence.step {
        let (step, inputs) = step_graph(&model, task, reference.token_ids.first().copied().unwrap_or(0))?;
        data = inputs;
        data.extend(state_after(&graph.graph, &results, &step.graph));
        graph = step;
        results = NodeFile::open(&files::of_step(&path))?;
    }
    let BatchGraph { graph, weights, .. } = graph;
    let named: HashMap<TensorId, &str> = weights.iter().map(|(id, name)| (*id, name.as_str())).collect();
    let contents = |id: TensorId| -> Result<Vec<u8>> {
        let t = graph.tensor(id);
        let missing = || Error::argument("graph", format!("nothing is known of '{}'", t.name), "");
        match &t.source {
            Source::Weight => {
                let gguf = model.gguf();
                let name = named.get(&id).ok_or_else(missing)?;
                let bytes = gguf.data(gguf.require(name)?)?;
                // A table may have more rows than the vocabulary.
                Ok(bytes[..t.dense_bytes().min(bytes.len())].to_vec())
            }
            Source::Input => data.get(&id).cloned().ok_or_else(missing),
            // An unknown state is empty.
            Source::State => Ok(data.get(&id).cloned().unwrap_or_else(|| vec![0; t.dense_bytes()])),
            Source::Node { .. } => Ok(results.bytes(results.find(&t.name).ok_or_else(missing)?).to_vec()),
        }
    };
    let is_member = |name: &String| divergence.members.contains(name) || *name == divergence.node;
    let nodes = graph.computed().filter(|&id| is_member(&graph.tensor(id).name)).collect();
    let (copied, file) = (HashMap::new(), GraphFile::default());
    Subgraph { graph: &graph, nodes, contents: &contents, copied, file }.copy_all(&divergence.node)
}

/// Nodes of a graph that are being copied into a graph of their own.
struct Subgraph<'a> {
    graph: &'a Graph,
    nodes: Vec<TensorId>,
    contents: &'a dyn Fn(TensorId) -> Result<Vec<u8>>,
    copied: HashMap<TensorId, TensorId>,
    file: GraphFile,
}

impl Subgraph<'_> {
    /// Copies the nodes, with their operands as leaves. Results used outside of the subgraph, and the
    /// differing result, become outputs.
    fn copy_all(mut self, differing: &str) -> Result<GraphFile> {
        for node in self.nodes.clone() {
            self.copy(node)?;
        }
        let outside = |id: TensorId| !self.nodes.contains(&id);
        let needed: Vec<TensorId> = self
            .graph
            .computed()
            .filter(|&id| outside(id))
            .flat_map(|id| self.graph.tensor(id).src())
            .map(|&id| self.graph.producer(id))
            .collect();
        for &node in &self.nodes {
            let leaves = needed.contains(&node)
                || self.graph.outputs().iter().any(|&o| self.graph.producer(o) == node);
            if leaves || self.graph.tensor(node).name == differing {
                self.file.graph.output(self.copied[&node])?;
            }
        }
        Ok(self.file)
    }

    fn copy(&mut self, id: TensorId) -> Result<TensorId> {
        if let Some(&known) = self.copied.get(&id) {
            return Ok(known);
        }
        let (graph, t) = (self.graph, self.graph.tensor(id));
        let copy = match &t.source {
            Source::Node { op, src } if self.nodes.contains(&graph.producer(id)) => {
                let src = src.iter().map(|&operand| self.copy(operand)).collect::<Result<Vec<_>>>()?;
                let copy = self.file.graph.node(op.clone(), &src)?;
                self.file.graph.name(copy, &t.name)?;
                copy
            }
            _ => self.leaf(id)?,
        };
        self.copied.insert(id, copy);
        Ok(copy)
    }

    /// Copies a tensor that no node of the subgraph computes: its entire root tensor as a leaf, and the view
    /// of it.
    fn leaf(&mut self, id: TensorId) -> Result<TensorId> {
        let t = self.graph.tensor(id);
        let root = self.graph.tensor(t.root);
        let leaf = match self.copied.get(&t.root) {
            Some(&known) => known,
            None => {
                let last = self.nodes.last().copied().unwrap_or(id);
                let writer = last_writer(self.graph, t.root, last, &self.nodes).unwrap_or(t.root);
                let source = match root.source {
                    Source::Node { .. } => Source::Input,
                    ref source => source.clone(),
                };
                let name = &self.graph.tensor(writer).name;
                let leaf = self.file.graph.leaf(name, root.dtype, root.ne, source)?;
                self.file.data.insert(leaf, (self.contents)(writer)?);
                leaf
            }
        };
        self.copied.insert(t.root, leaf);
        if (t.ne, t.nb, t.offset) == (root.ne, root.nb, 0) {
            return Ok(leaf);
        }
        let op = Op::View(View { ne: t.ne, nb: t.nb, offset: t.offset });
        self.file.graph.node(op, &[leaf])
    }
}
