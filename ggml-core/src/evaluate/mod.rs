//! Evaluation of a graph in one call: on one backend, or on several to compare their results.
//!
//! [`evaluate`] binds a graph's leaves on a backend, plans, prepares and runs it once, and reads its outputs.
//! [`compare_backends`] does so on several backends and measures the distance of each one's outputs from
//! those of the first. To run a graph many times, prepare it once instead: [`bind`], [`Backend::prepare`],
//! [`write_inputs`].
//!
//! ```
//! use ggml_core::cpu::{CpuBackend, CpuOptions};
//! use ggml_core::encode::encode;
//! use ggml_core::evaluate::{compare_backends, evaluate};
//! use ggml_core::precision::Precision;
//! use ggml_core::reference::ReferenceBackend;
//! use ggml_core::{DType, Graph, Source};
//! use std::collections::HashMap;
//!
//! let mut g = Graph::new();
//! let w = g.leaf("w", DType::F16, [32, 2, 1, 1], Source::Weight)?;
//! let x = g.leaf("x", DType::F32, [32, 1, 1, 1], Source::Input)?;
//! let y = g.mul_mat(w, x)?;
//! g.output(y);
//! let data = HashMap::from([
//!     (w, encode(DType::F16, 32, &[2.0; 64])?),
//!     (x, encode(DType::F32, 32, &[0.25; 32])?),
//! ]);
//!
//! let cpu = CpuBackend::open(CpuOptions::default())?;
//! let outputs = evaluate(&cpu, &g, &data, Precision::Exact)?;
//! assert_eq!(outputs[0].values()?, [16.0, 16.0]);
//!
//! let reference = ReferenceBackend::default();
//! for comparison in compare_backends(&[&reference, &cpu], &g, &data, Precision::Fast)? {
//!     assert!(comparison.agrees(), "{comparison}");
//! }
//! # Ok::<(), ggml_core::Error>(())
//! ```

use crate::backend::{Backend, PrepareOptions, Program, host_memory};
use crate::decode::decode;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::plan::Plan;
use crate::precision::Precision;
use crate::schedule::unsupported;
use crate::tensor::{Tensor, TensorId};
use std::collections::HashMap;

mod bind;
mod compare;
#[cfg(test)]
mod tests;

pub use bind::{bind, check, write_inputs};
pub use compare::{BackendComparison, OutputDistance, compare_backends};

/// Contents of leaves: dense bytes in their types, as in a [`GraphFile`](crate::graph::file::GraphFile).
pub type Contents = HashMap<TensorId, Vec<u8>>;

/// Contents of a tensor, read from a backend.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Name of the tensor in its graph.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents in elements, fastest first.
    pub ne: [usize; 4],
    /// Elements row after row, in the type's blocks. They are dense, regardless of the tensor's strides.
    pub bytes: Vec<u8>,
}

impl HostTensor {
    /// Decodes the elements to F32.
    ///
    /// # Errors
    /// As [`decode`].
    pub fn values(&self) -> Result<Vec<f32>> {
        decode(self.dtype, &self.bytes)
    }
}

/// Runs a graph once and returns its outputs in the order in which they were declared. `data` holds the
/// contents of every weight and input; state without contents is zero.
///
/// # Errors
/// [`Error::InvalidArgument`] if `data` does not match the graph's leaves; [`Error::Unsupported`] if the
/// backend has no kernel for a node; errors of the backend's allocation, preparation and run.
pub fn evaluate(
    backend: &dyn Backend,
    graph: &Graph,
    data: &Contents,
    precision: Precision,
) -> Result<Vec<HostTensor>> {
    let mut program = run(backend, graph, data, precision)?;
    graph.outputs().iter().map(|&id| read(program.as_mut(), graph, id)).collect()
}

/// Returns the first tensor of a graph that the backend does not support, with the reason.
pub(crate) fn refusal(backend: &dyn Backend, graph: &Graph) -> Option<(TensorId, String)> {
    graph.ids().find_map(|id| unsupported(backend, graph, id).map(|reason| (id, reason)))
}

/// Runs a graph once and returns the program.
pub(crate) fn run(
    backend: &dyn Backend,
    graph: &Graph,
    data: &Contents,
    precision: Precision,
) -> Result<Box<dyn Program>> {
    if let Some((node, reason)) = refusal(backend, graph) {
        let t = graph.tensor(node);
        let (backend, op) = (backend.device().backend.clone(), t.op().map_or("LEAF", |op| op.name()));
        return Err(Error::Unsupported { backend, op, node: t.name.clone(), reason });
    }
    let mut program = prepare(backend, graph, data, precision)?;
    program.run()?;
    Ok(program)
}

/// Uploads the contents of a graph that the backend supports, and prepares it.
pub(crate) fn prepare(
    backend: &dyn Backend,
    graph: &Graph,
    data: &Contents,
    precision: Precision,
) -> Result<Box<dyn Program>> {
    let bindings = bind(backend, graph, data)?;
    let plan = Plan::fused(graph, backend, precision)?;
    let mut program = backend.prepare(graph, &plan, &bindings, PrepareOptions::default())?;
    write_inputs(program.as_mut(), graph, data)?;
    Ok(program)
}

/// Reads a tensor whose root the program still holds.
pub(crate) fn read(program: &mut dyn Program, graph: &Graph, id: TensorId) -> Result<HostTensor> {
    let t = graph.tensor(id);
    let mut bytes = host_memory(graph.tensor(t.root).dense_bytes())?;
    program.read(t.root, &mut bytes)?;
    if t.root != id {
        bytes = gather(t, &bytes)?;
    }
    Ok(HostTensor { name: t.name.clone(), dtype: t.dtype, ne: t.ne, bytes })
}

/// Copies the elements of a view, row after row, from the bytes of its root.
fn gather(t: &Tensor, root: &[u8]) -> Result<Vec<u8>> {
    let outside = || Error::argument(format!("view {}", t.describe()), "outside of its root", "");
    let (blocks, block) = (t.ne[0] / t.dtype.block(), t.dtype.block_bytes());
    let [_, n1, n2, _] = t.ne;
    let mut out = host_memory(t.dense_bytes())?;
    for (i, to) in out.chunks_exact_mut(block).enumerate() {
        let row = i / blocks;
        let index = [i % blocks, row % n1, row / n1 % n2, row / n1 / n2];
        let from = t.offset + index.iter().zip(t.nb).map(|(i, nb)| i * nb).sum::<usize>();
        to.copy_from_slice(root.get(from..from + block).ok_or_else(outside)?);
    }
    Ok(out)
}
