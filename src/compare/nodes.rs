//! Results of every node of a graph, in a file: a line of JSON, then the bytes.

use super::protocol::{Message, NodesTask};
use ggml_core::backend::Program;
use ggml_core::decode::decode;
use ggml_core::evaluate::{Contents, write_inputs};
use ggml_core::gguf::GgufFile;
use ggml_core::mapped::MappedBytes;
use ggml_core::{DType, Error, Graph, Result, Source, TensorId};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
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

    pub(super) fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }
}

/// A graph to be looked at node by node.
pub(super) struct Nodes<'a> {
    graph: &'a Graph,
    program: Box<dyn Program>,
}

impl<'a> Nodes<'a> {
    /// `program` runs the graph step by step and keeps every result; the inputs among `data` are written into it.
    pub(super) fn new(graph: &'a Graph, mut program: Box<dyn Program>, data: &Contents) -> Result<Nodes<'a>> {
        write_inputs(program.as_mut(), graph, data)?;
        Ok(Nodes { graph, program })
    }

    /// Runs the graph node by node and announces each node before it runs.
    pub(super) fn locate(&mut self, say: &mut dyn FnMut(Message)) -> Result<()> {
        for (step, id) in self.graph.computed().enumerate() {
            let name = &self.graph.tensor(id).name;
            say(Message::Node { name: name.clone() });
            self.program.run_step(step).map_err(|e| e.with_node(name))?;
        }
        Ok(())
    }

    /// Runs the graph node by node and writes every result. With a reference each node gets the reference's operands.
    pub(super) fn run(&mut self, task: &NodesTask, say: &mut dyn FnMut(Message)) -> Result<()> {
        let reference = task.reference.as_ref().map(|path| NodeFile::open(path.as_ref())).transpose()?;
        let mut results = NodeResults::default();
        for (step, id) in self.graph.computed().enumerate() {
            let name = &self.graph.tensor(id).name;
            say(Message::Node { name: name.clone() });
            if let Some(reference) = &reference {
                self.give_operands(id, reference)?;
            }
            self.program.run_step(step).map_err(|e| e.with_node(name))?;
            results.read(self.graph, id, self.program.as_mut())?;
        }
        results.write(task.out.as_ref())
    }

    /// Overwrites the operands of a node with the reference's results.
    fn give_operands(&mut self, id: TensorId, reference: &NodeFile) -> Result<()> {
        let g = self.graph;
        let mut written = HashSet::new();
        for &operand in g.tensor(id).src() {
            let producer = g.producer(operand);
            if matches!(g.tensor(producer).source, Source::Node { .. }) && written.insert(producer) {
                let name = &g.tensor(producer).name;
                let entry = reference.find(name).ok_or_else(|| {
                    Error::argument("reference", format!("no result of node '{name}'"), "one of every node")
                })?;
                self.program.write(g.tensor(producer).root, reference.bytes(entry))?;
            }
        }
        Ok(())
    }
}

/// Results of nodes, in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NodeResults {
    entries: Vec<Entry>,
    data: Vec<u8>,
}

impl NodeResults {
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
            offset,
            bytes: root.dense_bytes(),
        });
        Ok(())
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
