//! Results of every step of a graph, and their file: a line of JSON, then the bytes.

use crate::isolate::protocol::{Message, NodesTask};
use crate::json;
use crate::session::{NamedStep, Stepwise};
use ggml_core::backend::Program;
use ggml_core::bound;
use ggml_core::decode::decode;
use ggml_core::evaluate::{Contents, write_inputs};
use ggml_core::files;
use ggml_core::gguf::GgufFile;
use ggml_core::mapped::MappedBytes;
use ggml_core::metrics::Bound;
use ggml_core::precision::Precision;
use ggml_core::{DType, Error, Graph, Result, Source, TensorId};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::Path;

/// Entry of a node in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) op: String,
    pub(super) operand_type: DType,
    pub(super) dtype: DType,
    pub(super) ne: [usize; 4],
    /// The largest error allowed for a result that is computed from the reference's operands.
    pub(super) bound: Bound,
    /// Names of the nodes that were computed together as a group, in their order; empty for a single node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) members: Vec<String>,
    offset: usize,
    bytes: usize,
}

/// A file of node results.
pub(super) struct NodeFile {
    pub(super) entries: Vec<Entry>,
    data: MappedBytes,
}

impl NodeFile {
    pub(super) fn open(path: &Path) -> Result<NodeFile> {
        let bytes = MappedBytes::map(path)?;
        let broken = || Error::model("file of node results", "another format", "").with_path(path);
        let end = bytes.iter().position(|&b| b == b'\n').ok_or_else(broken)?;
        let entries: Vec<Entry> = json::read(&bytes[..end]).map_err(|_| broken())?;
        let data = bytes.slice(end + 1..bytes.len())?;
        let fits = |e: &Entry| e.offset.checked_add(e.bytes).is_some_and(|end| end <= data.len());
        if entries.iter().all(fits) { Ok(NodeFile { entries, data }) } else { Err(broken()) }
    }

    pub(super) fn bytes(&self, entry: &Entry) -> &[u8] {
        &self.data[entry.offset..entry.offset + entry.bytes]
    }

    /// Decodes a node's result to f32, whatever its type.
    pub(super) fn values(&self, entry: &Entry) -> Result<Vec<f32>> {
        let values = decode(entry.dtype, self.bytes(entry))?;
        let expected: usize = entry.ne.iter().product();
        if values.len() != expected {
            return Err(Error::model(&entry.name, values.len(), format!("{expected} elements")));
        }
        Ok(values)
    }

    /// Finds the result of a node that was computed by itself.
    pub(super) fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name && e.members.is_empty())
    }

    /// Finds a node's result, computed by itself or in a group.
    fn find_any(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// Returns the groups that a node was computed in.
    pub(super) fn groups_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |e| e.members.iter().any(|member| member == name))
    }
}

/// A graph that is run step by step.
pub(super) struct Nodes<'a> {
    graph: &'a Graph,
    program: Box<dyn Program>,
    steps: Vec<GraphStep>,
}

/// A step, with the tensor IDs of the graph.
struct GraphStep {
    kind: &'static str,
    nodes: Vec<TensorId>,
    results: Vec<TensorId>,
}

impl GraphStep {
    fn new(ids: &HashMap<&str, TensorId>, step: &NamedStep) -> Result<GraphStep> {
        let of = |names: &[String]| {
            let known = |name: &String| ids.get(name.as_str()).copied().ok_or_else(|| missing(name));
            names.iter().map(known).collect::<Result<Vec<_>>>()
        };
        Ok(GraphStep { kind: step.kind, nodes: of(&step.nodes)?, results: of(&step.results)? })
    }

    fn is_group(&self) -> bool {
        self.nodes.len() > 1
    }

    /// Returns the name to announce: the node, or the first and last node of a group and its kind.
    fn name(&self, graph: &Graph) -> String {
        let name = |id: Option<&TensorId>| id.map_or("", |&id| graph.tensor(id).name.as_str());
        match self.is_group() {
            false => name(self.nodes.first()).into(),
            true => format!("{} .. {} ({})", name(self.nodes.first()), name(self.nodes.last()), self.kind),
        }
    }
}

fn missing(name: &str) -> Error {
    Error::argument("step", format!("node '{name}'"), "a node of the graph")
}

impl<'a> Nodes<'a> {
    /// Prepares a graph. `program` runs it step by step and retains every result; the inputs and the state in
    /// `data` are written into the program.
    pub(super) fn new(
        graph: &'a Graph,
        (mut program, steps): Stepwise,
        data: &Contents,
    ) -> Result<Nodes<'a>> {
        write_inputs(program.as_mut(), graph, data)?;
        for (&id, contents) in data.iter().filter(|(id, _)| graph.tensor(**id).source == Source::State) {
            program.write(id, contents)?;
        }
        let ids: HashMap<&str, TensorId> =
            graph.ids().map(|id| (graph.tensor(id).name.as_str(), id)).collect();
        let steps = steps.iter().map(|step| GraphStep::new(&ids, step)).collect::<Result<_>>()?;
        Ok(Nodes { graph, program, steps })
    }

    /// Runs the graph step by step and announces each step before it runs.
    pub(super) fn locate(&mut self, send: &mut dyn FnMut(Message)) -> Result<()> {
        for (i, step) in self.steps.iter().enumerate() {
            let name = step.name(self.graph);
            send(Message::Node { name: name.clone() });
            self.program.run_step(i).map_err(|e| e.with_node(&name))?;
        }
        Ok(())
    }

    /// Runs the graph step by step up to the first result with NaN or plus infinity, and describes its node. Minus
    /// infinity is what masks consist of.
    pub(super) fn first_invalid(&mut self, send: &mut dyn FnMut(Message)) -> Result<Option<String>> {
        for (i, step) in self.steps.iter().enumerate() {
            let name = step.name(self.graph);
            send(Message::Node { name: name.clone() });
            self.program.run_step(i).map_err(|e| e.with_node(&name))?;
            for &result in &step.results {
                let root = self.graph.tensor(self.graph.tensor(result).root);
                let mut bytes = vec![0; root.dense_bytes()];
                self.program.read(self.graph.tensor(result).root, &mut bytes)?;
                if decode(root.dtype, &bytes)?.iter().any(|x| x.is_nan() || *x == f32::INFINITY) {
                    let (node, op) = (&self.graph.tensor(result).name, self.graph.tensor(result).op());
                    return Ok(Some(match step.is_group() {
                        true => format!("node '{node}' of the group {name}"),
                        false => format!("node '{node}' ({})", op.map_or("", |op| op.name())),
                    }));
                }
            }
        }
        Ok(None)
    }

    /// Runs the graph step by step and appends every result. With a reference, each step gets the reference's
    /// operands. With `only_groups`, only groups run.
    pub(super) fn run(
        &mut self,
        reference: Option<&NodeFile>,
        only_groups: bool,
        results: &mut NodeResults,
        send: &mut dyn FnMut(Message),
    ) -> Result<()> {
        for (i, step) in self.steps.iter().enumerate() {
            if only_groups && !step.is_group() {
                continue;
            }
            let name = step.name(self.graph);
            send(Message::Node { name: name.clone() });
            if let Some(reference) = reference {
                write_operands(self.graph, self.program.as_mut(), &step.nodes, reference)?;
            }
            self.program.run_step(i).map_err(|e| e.with_node(&name))?;
            for &result in &step.results {
                results.read(self.graph, result, self.program.as_mut())?;
                if step.is_group() {
                    results.mark_group(self.graph, step, result);
                }
            }
        }
        Ok(())
    }
}

/// Overwrites the operands of nodes that are computed together with the reference's results.
pub(super) fn write_operands(
    g: &Graph,
    program: &mut dyn Program,
    nodes: &[TensorId],
    reference: &NodeFile,
) -> Result<()> {
    let mut written = HashSet::new();
    let operands = |&node: &TensorId| g.tensor(node).src().iter().map(move |&operand| (node, operand));
    for (node, operand) in nodes.iter().flat_map(operands) {
        let root = g.tensor(operand).root;
        if let Some(writer) = last_writer(g, root, node, nodes)
            && written.insert(root)
        {
            let name = &g.tensor(writer).name;
            let entry = reference.find(name).ok_or_else(|| {
                Error::argument("reference", format!("no result of node '{name}'"), "one of every node")
            })?;
            program.write(root, reference.bytes(entry))?;
        }
    }
    Ok(())
}

/// Returns the last node before `node` that stored something in a root tensor and is none of `others`: that
/// which computed the tensor, or one that wrote into it later. `None` if it is a leaf in which nothing has been
/// stored.
pub(super) fn last_writer(
    g: &Graph,
    root: TensorId,
    node: TensorId,
    others: &[TensorId],
) -> Option<TensorId> {
    let earlier = g.computed().take_while(|id| id.index() < node.index());
    earlier.filter(|id| g.tensor(*id).root == root && !others.contains(id)).last()
}

/// Returns the state of `graph` after `earlier`, whose results are given: for each leaf, the last result
/// stored in it.
pub(super) fn state_after(earlier: &Graph, results: &NodeFile, graph: &Graph) -> Contents {
    let written = |name: &str| {
        let leaf = earlier.find(name)?;
        let writers = earlier.computed().filter(|&id| earlier.tensor(id).root == leaf);
        writers.filter_map(|id| results.find_any(&earlier.tensor(id).name)).last()
    };
    let state = graph.ids().filter(|&id| graph.tensor(id).source == Source::State);
    state.filter_map(|id| Some((id, results.bytes(written(&graph.tensor(id).name)?).to_vec()))).collect()
}

/// Examines a graph as a task requests, and writes the file of results.
///
/// Chained, without a reference: runs the steps, fused as in a normal run, one after the other; for the
/// reference itself, node by node. Isolated, with a reference: runs each group with the reference's operands,
/// then each node by itself, so that a wrong group can be distinguished from a wrong node.
pub(super) fn examine(
    graph: &Graph,
    task: &NodesTask,
    precision: Precision,
    data: &Contents,
    program: &dyn Fn(bool) -> Result<Stepwise>,
    send: &mut dyn FnMut(Message),
) -> Result<()> {
    let mut results = NodeResults::new(precision);
    let Some(path) = &task.reference else {
        Nodes::new(graph, program(!task.alone)?, data)?.run(None, false, &mut results, send)?;
        return results.write(task.out.as_ref());
    };
    let reference = NodeFile::open(path.as_ref())?;
    let fused = program(true)?;
    if fused.1.iter().any(|step| step.nodes.len() > 1) {
        Nodes::new(graph, fused, data)?.run(Some(&reference), true, &mut results, send)?;
    }
    Nodes::new(graph, program(false)?, data)?.run(Some(&reference), false, &mut results, send)?;
    results.write(task.out.as_ref())
}

/// Results of nodes, in memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeResults {
    precision: Precision,
    entries: Vec<Entry>,
    data: Vec<u8>,
}

impl NodeResults {
    /// Creates an empty list of results, for a graph computed in that precision.
    pub(super) fn new(precision: Precision) -> NodeResults {
        NodeResults { precision, entries: Vec::new(), data: Vec::new() }
    }

    /// Appends a node's result. If an operation writes into an operand, the entire operand is its result.
    pub(super) fn read(&mut self, g: &Graph, id: TensorId, program: &mut dyn Program) -> Result<()> {
        let root = g.tensor(g.tensor(id).root);
        let mut bytes = vec![0; root.dense_bytes()];
        program.read(g.tensor(id).root, &mut bytes)?;
        self.add(g, id, &[], root.dtype, &bytes);
        Ok(())
    }

    /// Appends values of a node's result, computed together with others.
    pub(super) fn add(&mut self, g: &Graph, id: TensorId, members: &[String], dtype: DType, bytes: &[u8]) {
        let t = g.tensor(id);
        self.entries.push(Entry {
            name: t.name.clone(),
            op: t.op().map_or("", |o| o.name()).into(),
            operand_type: g.operands(id).first().map_or(t.dtype, |o| o.dtype),
            dtype,
            ne: g.tensor(t.root).ne,
            bound: bound::of_node(g, id, self.precision),
            members: members.to_vec(),
            offset: self.data.len(),
            bytes: bytes.len(),
        });
        self.data.extend_from_slice(bytes);
    }

    /// Marks the last result as that of a group.
    fn mark_group(&mut self, g: &Graph, step: &GraphStep, result: TensorId) {
        if let Some(entry) = self.entries.last_mut() {
            entry.op = step.kind.into();
            entry.members = step.nodes.iter().map(|&id| g.tensor(id).name.clone()).collect();
            entry.bound = bound::of_group(g, &step.nodes, result, self.precision);
        }
    }

    /// Counts the bytes that differ from those of another run of the same graph.
    pub(super) fn differences(&self, other: &NodeResults) -> usize {
        self.data.iter().zip(&other.data).filter(|(a, b)| a != b).count()
    }

    /// Writes the file.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        write(path, &self.entries, &self.data)
    }
}

fn write(path: &Path, entries: &[Entry], data: &[u8]) -> Result<()> {
    let written = files::replace(path, |file| {
        let mut out = std::io::BufWriter::new(file);
        serde_json::to_writer(&mut out, entries)?;
        out.write_all(b"\n")?;
        out.write_all(data)?;
        out.flush()
    });
    written.map_err(|e| Error::io(path, e))
}

/// True if a model file has block-quantised matrices.
pub(super) fn has_quantised_weights(gguf: &GgufFile) -> bool {
    gguf.tensors().iter().any(|t| t.dtype.is_quantized())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_place_of_results_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("cpu.nodes"), dir.path().join("target"));
        std::fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        NodeResults::new(Precision::Exact).write(&path).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");
        assert!(NodeFile::open(&path).unwrap().entries.is_empty());
    }
}
