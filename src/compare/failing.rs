//! The first node that is out of its bound as a graph file: it alone, or the group that it was computed in, with the
//! reference's operands, so that it can be looked at without the model.

use super::generate::{prompt_graph, step_graph};
use super::nodes::{NodeFile, state_after};
use super::options::{CompareOptions, Event, PerNode, Progress, Subject};
use super::protocol::{ModelTask, NodesTask};
use super::report::{Divergence, EVERYTHING, Report};
use super::whole::{cache, compare_graph, prompt};
use super::{files, shrink};
use crate::model::{BatchGraph, ModelFile};
use ggml_core::graph::file::GraphFile;
use ggml_core::op::{Op, View};
use ggml_core::{Error, Graph, Result, Source, TensorId};
use std::collections::HashMap;
use std::path::Path;

/// Writes the file of each backend's first node that is out of its bound where each got the reference's operands, makes
/// it smaller as long as it fails, and says how it is run.
pub(super) fn of_model(
    model: &Path,
    options: &CompareOptions,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    if options.per_node != PerNode::Isolated {
        return Ok(());
    }
    for i in 0..report.comparisons.len() {
        let comparison = &report.comparisons[i];
        let (backend, offload) = (comparison.lhs.clone(), comparison.offload);
        let Some(divergence) = comparison.first_divergence.clone() else { continue };
        let path = files::failing(&options.out, &backend, offload);
        progress(&Event::new(&backend, format!("a graph of node '{}' alone", divergence.node)));
        let written = extract(model, options, report, &divergence).and_then(|file| {
            let options = alone(options, &path, &backend)?;
            shrink::shrink(file, &path, &mut |path| fails(path, &options))
        });
        // What cannot be written does not take away what is known.
        let divergence = report.comparisons[i].first_divergence.as_mut();
        match (written, divergence) {
            (Ok(true), Some(divergence)) => {
                divergence.rerun = Some(command(options, &path, &backend));
                divergence.file = Some(path);
            }
            (Ok(false), Some(divergence)) => divergence.file = Some(path),
            (Err(error), _) => progress(&Event::new(&backend, format!("no graph file: {error}"))),
            _ => {}
        }
    }
    super::judge::give_verdict(report);
    Ok(())
}

/// How the file is run.
fn alone(options: &CompareOptions, path: &Path, backend: &str) -> Result<CompareOptions> {
    let options = options.clone().with_work(Subject::Graph(path.into())).with_backends([backend.parse()?]);
    let out = options.out.join("failing");
    Ok(options.with_repeat(1).with_invariance(false).with_prompt(None).with_out(out))
}

fn command(options: &CompareOptions, path: &Path, backend: &str) -> String {
    let (path, precision, reference) = (path.display(), options.precision.name(), &options.reference);
    format!(
        "compare --graph {path} --backends {backend} --reference {reference} --per-node isolated --precision \
         {precision}"
    )
}

/// Whether a graph file alone is out of bounds.
fn fails(path: &Path, options: &CompareOptions) -> Result<bool> {
    files::begin(&options.out)?;
    let mut report = Report::new(options);
    compare_graph(path, options, &mut report, &mut |_| ())?;
    Ok(report.comparisons.iter().any(|c| c.first_divergence.is_some()))
}

/// The graph that a divergence was found in, what its leaves hold, and the reference's results.
fn extract(
    model: &Path,
    options: &CompareOptions,
    report: &Report,
    divergence: &Divergence,
) -> Result<GraphFile> {
    let model = ModelFile::open(model)?;
    let tokens = prompt(options, &model)?;
    let reference = files::nodes(&options.out, &report.reference, EVERYTHING);
    let mut results = NodeFile::open(&reference)?;
    let task = ModelTask {
        model: "".into(),
        tokens,
        predict: options.predict,
        given: Vec::new(),
        cache: cache(options),
        offload: EVERYTHING,
        logits: "".into(),
        nodes: NodesTask { mode: PerNode::Off, out: "".into(), reference: None, alone: false },
    };
    let (mut graph, mut data) = prompt_graph(&model, &task)?;
    if divergence.step {
        let first = report.records.first().and_then(|record| record.token_ids.first());
        let (step, inputs) = step_graph(&model, &task, first.copied().unwrap_or(0))?;
        data = inputs;
        data.extend(state_after(&graph.graph, &results, &step.graph));
        graph = step;
        results = NodeFile::open(&files::of_step(&reference))?;
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
                Ok(gguf.data(gguf.require(name)?)?.to_vec())
            }
            // A state that nothing is known of is empty.
            Source::Input => data.get(&id).cloned().ok_or_else(missing),
            Source::State => Ok(data.get(&id).cloned().unwrap_or_else(|| vec![0; t.dense_bytes()])),
            Source::Node { .. } => Ok(results.bytes(results.find(&t.name).ok_or_else(missing)?).to_vec()),
        }
    };
    let names = if divergence.members.is_empty() {
        vec![divergence.node.clone()]
    } else {
        divergence.members.clone()
    };
    let mut part = Part {
        graph: &graph,
        nodes: Vec::new(),
        contents: &contents,
        copied: HashMap::new(),
        file: GraphFile::default(),
    };
    part.nodes = graph.computed().filter(|&id| names.contains(&graph.tensor(id).name)).collect();
    part.copy_all(&divergence.node)
}

/// Some nodes of a graph on their way into one of their own.
struct Part<'a> {
    graph: &'a Graph,
    nodes: Vec<TensorId>,
    contents: &'a dyn Fn(TensorId) -> Result<Vec<u8>>,
    copied: HashMap<TensorId, TensorId>,
    file: GraphFile,
}

impl Part<'_> {
    /// The nodes with their operands as leaves. What leaves the group is an output, as the result that differs.
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

    /// What no node of these computes: the whole of the tensor that it lies in, and the view of that.
    fn leaf(&mut self, id: TensorId) -> Result<TensorId> {
        let (t, producer) = (self.graph.tensor(id), self.graph.producer(id));
        let root = self.graph.tensor(t.root);
        let leaf = match self.copied.get(&producer).filter(|_| producer != id) {
            Some(&known) => known,
            None => {
                let source = match root.source {
                    Source::Node { .. } => Source::Input,
                    ref source => source.clone(),
                };
                let name = &self.graph.tensor(producer).name;
                let leaf = self.file.graph.leaf(name, root.dtype, root.ne, source)?;
                self.file.data.insert(leaf, (self.contents)(producer)?);
                leaf
            }
        };
        self.copied.insert(producer, leaf);
        if (t.ne, t.nb, t.offset) == (root.ne, root.nb, 0) {
            return Ok(leaf);
        }
        let op = Op::View(View { ne: t.ne, nb: t.nb, offset: t.offset });
        self.file.graph.node(op, &[leaf])
    }
}
