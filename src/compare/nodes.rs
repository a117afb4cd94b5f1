//! Results of every node of the prompt's graph, in a file: a line of JSON, then the bytes.

use super::protocol::{Message, Work};
use crate::model::{BatchGraph, BatchShape, Model};
use crate::session::{batch_inputs, bind, state_layout};
use ggml_core::backend::{PrepareOptions, Program, Usage};
use ggml_core::gguf::GgufFile;
use ggml_core::mapped::MappedBytes;
use ggml_core::plan::Plan;
use ggml_core::{DType, Error, Result, Source, TensorId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
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
        let broken = || Error::model("is no file of node results").with_path(path);
        let end = bytes.iter().position(|&b| b == b'\n').ok_or_else(broken)?;
        let entries: Vec<Entry> = serde_json::from_slice(&bytes[..end]).map_err(|_| broken())?;
        let data = bytes.slice(end + 1..bytes.len())?;
        let fits = |e: &Entry| e.offset.checked_add(e.bytes).is_some_and(|end| end <= data.len());
        if entries.iter().all(fits) { Ok(NodeFile { entries, data }) } else { Err(broken()) }
    }

    pub(super) fn bytes(&self, entry: &Entry) -> &[u8] {
        &self.data[entry.offset..entry.offset + entry.bytes]
    }

    pub(super) fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }
}

/// The prompt's graph as one batch, with logits of every token.
fn prompt_graph(model: &Model, work: &Work) -> Result<BatchGraph> {
    let n = work.tokens.len();
    model.file().graph(&BatchShape { tokens: n, kv: n, context: n, outputs: n, cache: DType::F32 })
}

/// A debug program of the prompt's graph with its inputs written.
fn debug_program(model: &Model, graph: &BatchGraph, work: &Work) -> Result<(Plan, Box<dyn Program>)> {
    let backend = model.backend();
    let alignment = backend.device().limits.alignment;
    let plan = Plan::debug(&graph.graph, alignment, work.precision)?;
    let state = backend.allocate(state_layout(graph, alignment).1, Usage::State)?;
    let bindings = bind(model, graph, &state)?;
    let mut program = backend.prepare(&graph.graph, &plan, &bindings, PrepareOptions { stepwise: true })?;
    for (id, bytes) in batch_inputs(graph, &work.tokens, 0) {
        program.write(id, &bytes)?;
    }
    Ok((plan, program))
}

/// Runs the prompt's graph node by node and announces each node before it runs.
pub(super) fn locate(model: &Model, work: &Work, say: &mut dyn FnMut(Message)) -> Result<()> {
    let graph = prompt_graph(model, work)?;
    let (plan, mut program) = debug_program(model, &graph, work)?;
    for (step, &id) in plan.steps.iter().enumerate() {
        let name = &graph.graph.tensor(id).name;
        say(Message::Node { name: name.clone() });
        program.run_step(step).map_err(|e| e.with_node(name))?;
    }
    Ok(())
}

/// Runs the prompt's graph node by node and writes every result. With a reference each node gets the reference's
/// operands.
pub(super) fn run(model: &Model, work: &Work, say: &mut dyn FnMut(Message)) -> Result<()> {
    let reference = work.reference_nodes.as_deref().map(NodeFile::open).transpose()?;
    let graph = prompt_graph(model, work)?;
    let (plan, mut program) = debug_program(model, &graph, work)?;
    let g = &graph.graph;
    let (mut entries, mut data) = (Vec::new(), Vec::new());
    for (step, &id) in plan.steps.iter().enumerate() {
        let t = g.tensor(id);
        say(Message::Node { name: t.name.clone() });
        if let Some(reference) = &reference {
            give_operands(&graph, id, reference, program.as_mut())?;
        }
        program.run_step(step).map_err(|e| e.with_node(&t.name))?;
        // Of an operation that writes into an operand the whole operand is the result.
        let root = g.tensor(t.root);
        let offset = data.len();
        data.resize(offset + root.dense_bytes(), 0);
        program.read(t.root, &mut data[offset..])?;
        entries.push(Entry {
            name: t.name.clone(),
            op: t.op().map_or("", |o| o.name()).into(),
            operand_type: g.operands(id).first().map_or(t.dtype, |o| o.dtype),
            dtype: root.dtype,
            ne: root.ne,
            offset,
            bytes: root.dense_bytes(),
        });
    }
    write(&work.nodes, &entries, &data)
}

/// Overwrites the operands of a node with the reference's results.
fn give_operands(
    graph: &BatchGraph,
    id: TensorId,
    reference: &NodeFile,
    program: &mut dyn Program,
) -> Result<()> {
    let g = &graph.graph;
    let mut written: HashMap<TensorId, ()> = HashMap::new();
    for &operand in g.tensor(id).src() {
        let producer = g.producer(operand);
        if matches!(g.tensor(producer).source, Source::Node { .. }) && written.insert(producer, ()).is_none()
        {
            let name = &g.tensor(producer).name;
            let entry = reference
                .find(name)
                .ok_or_else(|| Error::argument("reference", format!("has no result of node '{name}'")))?;
            program.write(g.tensor(producer).root, reference.bytes(entry))?;
        }
    }
    Ok(())
}

fn write(path: &Path, entries: &[Entry], data: &[u8]) -> Result<()> {
    let file = || -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
        serde_json::to_writer(&mut out, entries)?;
        out.write_all(b"\n")?;
        out.write_all(data)?;
        out.flush()
    };
    file().map_err(|e| Error::io(path, &e))
}

/// Whether a model file has block-quantised matrices.
pub(super) fn has_quantised_weights(gguf: &GgufFile) -> bool {
    gguf.tensors().iter().any(|t| t.dtype.is_quantized())
}
