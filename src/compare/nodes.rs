//! Results of every step of a graph, in a file: a line of JSON, then the bytes.

use super::protocol::{Message, NodesTask};
use crate::session::{NamedStep, Stepwise};
use ggml_core::backend::Program;
use ggml_core::bound;
use ggml_core::decode::decode;
use ggml_core::evaluate::{Contents, write_inputs};
use ggml_core::gguf::GgufFile;
use ggml_core::mapped::MappedBytes;
use ggml_core::metrics::Bound;
use ggml_core::precision::Precision;
use ggml_core::{DType, Error, Graph, Result, Source, TensorId};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::Path;

/// A node's entry in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) op: String,
    pub(super) operand_type: DType,
    pub(super) dtype: DType,
    pub(super) ne: [usize; 4],
    /// How far from the reference's a result may be that is computed from the reference's operands.
    pub(super) bound: Bound,
    /// Of a result of a group the nodes that were computed together, in their order.
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
        let entries: Vec<Entry> = serde_json::from_slice(&bytes[..end]).map_err(|_| broken())?;
        let data = bytes.slice(end + 1..bytes.len())?;
        let fits = |e: &Entry| e.offset.checked_add(e.bytes).is_some_and(|end| end <= data.len());
        if entries.iter().all(fits) { Ok(NodeFile { entries, data }) } else { Err(broken()) }
    }

    pub(super) fn bytes(&self, entry: &Entry) -> &[u8] {
        &self.data[entry.offset..entry.offset + entry.bytes]
    }

    /// A node's result as numbers, whatever its type.
    pub(super) fn values(&self, entry: &Entry) -> Result<Vec<f32>> {
        let values = decode(entry.dtype, self.bytes(entry))?;
        let expected: usize = entry.ne.iter().product();
        if values.len() != expected {
            return Err(Error::model(&entry.name, values.len(), format!("{expected} elements")));
        }
        Ok(values)
    }

    /// The result of a node that was computed alone.
    pub(super) fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name && e.members.is_empty())
    }

    /// A node's result, computed alone or as that of a group.
    fn find_any(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// The groups that a node was computed in.
    pub(super) fn groups_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |e| e.members.iter().any(|member| member == name))
    }
}

/// A graph to be looked at step by step.
pub(super) struct Nodes<'a> {
    graph: &'a Graph,
    program: Box<dyn Program>,
    steps: Vec<Step>,
}

/// A step by the ids of the graph.
struct Step {
    kind: &'static str,
    nodes: Vec<TensorId>,
    results: Vec<TensorId>,
}

impl Step {
    fn new(ids: &HashMap<&str, TensorId>, step: &NamedStep) -> Result<Step> {
        let of = |names: &[String]| {
            let known = |name: &String| ids.get(name.as_str()).copied().ok_or_else(|| missing(name));
            names.iter().map(known).collect::<Result<Vec<_>>>()
        };
        Ok(Step { kind: step.kind, nodes: of(&step.nodes)?, results: of(&step.results)? })
    }

    fn is_group(&self) -> bool {
        self.nodes.len() > 1
    }

    /// What is announced: the node, or the first and the last of a group and its kind.
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
    /// `program` runs the graph step by step and keeps every result; the inputs and the state among `data` are written
    /// into it.
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
        let steps = steps.iter().map(|step| Step::new(&ids, step)).collect::<Result<_>>()?;
        Ok(Nodes { graph, program, steps })
    }

    /// Runs the graph step by step and announces each step before it runs.
    pub(super) fn locate(&mut self, say: &mut dyn FnMut(Message)) -> Result<()> {
        for (i, step) in self.steps.iter().enumerate() {
            let name = step.name(self.graph);
            say(Message::Node { name: name.clone() });
            self.program.run_step(i).map_err(|e| e.with_node(&name))?;
        }
        Ok(())
    }

    /// Runs the graph step by step and adds every result. With a reference each step gets the reference's operands, and
    /// with `only_groups` no other steps run.
    pub(super) fn run(
        &mut self,
        reference: Option<&NodeFile>,
        only_groups: bool,
        results: &mut NodeResults,
        say: &mut dyn FnMut(Message),
    ) -> Result<()> {
        for (i, step) in self.steps.iter().enumerate() {
            if only_groups && !step.is_group() {
                continue;
            }
            let name = step.name(self.graph);
            say(Message::Node { name: name.clone() });
            if let Some(reference) = reference {
                give_operands(self.graph, self.program.as_mut(), step, reference)?;
            }
            self.program.run_step(i).map_err(|e| e.with_node(&name))?;
            for &result in &step.results {
                results.read(self.graph, result, self.program.as_mut())?;
                if step.is_group() {
                    results.in_group(self.graph, step);
                }
            }
        }
        Ok(())
    }
}

/// Overwrites what a step reads with the reference's results.
fn give_operands(g: &Graph, program: &mut dyn Program, step: &Step, reference: &NodeFile) -> Result<()> {
    let mut written = HashSet::new();
    for &operand in step.nodes.iter().flat_map(|&node| g.tensor(node).src()) {
        let producer = g.producer(operand);
        let outside =
            matches!(g.tensor(producer).source, Source::Node { .. }) && !step.nodes.contains(&producer);
        if outside && written.insert(producer) {
            let name = &g.tensor(producer).name;
            let entry = reference.find(name).ok_or_else(|| {
                Error::argument("reference", format!("no result of node '{name}'"), "one of every node")
            })?;
            program.write(g.tensor(producer).root, reference.bytes(entry))?;
        }
    }
    Ok(())
}

/// The state of a graph as an earlier graph left it whose results these are: of each leaf the last result that lies in it.
pub(super) fn state_after(earlier: &Graph, results: &NodeFile, graph: &Graph) -> Contents {
    let written = |name: &str| {
        let leaf = earlier.find(name)?;
        let writers = earlier.computed().filter(|&id| earlier.tensor(id).root == leaf);
        writers.filter_map(|id| results.find_any(&earlier.tensor(id).name)).last()
    };
    let state = graph.ids().filter(|&id| graph.tensor(id).source == Source::State);
    state.filter_map(|id| Some((id, results.bytes(written(&graph.tensor(id).name)?).to_vec()))).collect()
}

/// Looks at a graph as a task says, and writes the file of results. Chained: the steps that ship, one after the other, of
/// the reference its nodes.
/// Isolated: each group among them with the reference's operands, then each node alone, so that a group that is wrong
/// is told from a node that is.
pub(super) fn look(
    graph: &Graph,
    task: &NodesTask,
    precision: Precision,
    data: &Contents,
    program: &dyn Fn(bool) -> Result<Stepwise>,
    say: &mut dyn FnMut(Message),
) -> Result<()> {
    let mut results = NodeResults::new(precision);
    let Some(path) = &task.reference else {
        Nodes::new(graph, program(!task.alone)?, data)?.run(None, false, &mut results, say)?;
        return results.write(task.out.as_ref());
    };
    let reference = NodeFile::open(path.as_ref())?;
    let fused = program(true)?;
    if fused.1.iter().any(|step| step.nodes.len() > 1) {
        Nodes::new(graph, fused, data)?.run(Some(&reference), true, &mut results, say)?;
    }
    Nodes::new(graph, program(false)?, data)?.run(Some(&reference), false, &mut results, say)?;
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
    /// None yet, of a graph that is computed in that precision.
    pub(super) fn new(precision: Precision) -> NodeResults {
        NodeResults { precision, entries: Vec::new(), data: Vec::new() }
    }

    /// Adds a node's result. Of an operation that writes into an operand the whole operand is the result.
    pub(super) fn read(&mut self, g: &Graph, id: TensorId, program: &mut dyn Program) -> Result<()> {
        let t = g.tensor(id);
        let root = g.tensor(t.root);
        let offset = self.data.len();
        self.data.resize(offset + root.dense_bytes(), 0);
        program.read(t.root, &mut self.data[offset..])?;
        self.entries.push(Entry {
            name: t.name.clone(),
            op: t.op().map_or("", |o| o.name()).into(),
            operand_type: g.operands(id).first().map_or(t.dtype, |o| o.dtype),
            dtype: root.dtype,
            ne: root.ne,
            bound: bound::of_node(g, id, self.precision),
            members: Vec::new(),
            offset,
            bytes: root.dense_bytes(),
        });
        Ok(())
    }

    /// The result that was added last is that of a group.
    fn in_group(&mut self, g: &Graph, step: &Step) {
        if let Some(entry) = self.entries.last_mut() {
            entry.op = step.kind.into();
            entry.members = step.nodes.iter().map(|&id| g.tensor(id).name.clone()).collect();
            entry.bound = step.nodes.iter().map(|&id| bound::of_node(g, id, self.precision)).sum();
        }
    }

    /// Bytes that differ from those of another run of the same graph.
    pub(super) fn differences(&self, other: &NodeResults) -> usize {
        self.data.iter().zip(&other.data).filter(|(a, b)| a != b).count()
    }

    /// Writes the file.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        write(path, &self.entries, &self.data)
    }
}

fn write(path: &Path, entries: &[Entry], data: &[u8]) -> Result<()> {
    let file = || -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
        serde_json::to_writer(&mut out, entries)?;
        out.write_all(b"\n")?;
        out.write_all(data)?;
        out.flush()
    };
    file().map_err(|e| Error::io(path, e))
}

/// Whether a model file has block-quantised matrices.
pub(super) fn has_quantised_weights(gguf: &GgufFile) -> bool {
    gguf.tensors().iter().any(|t| t.dtype.is_quantized())
}
