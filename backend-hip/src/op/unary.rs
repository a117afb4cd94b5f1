//! Activations and SCALE, alone and in chains.

use super::grid::{by_rows, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::TensorId;
use ggml_core::kernel::UnaryParams;

/// The launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    plan_chain(c, c.graph.tensor(c.node).src()[0], &[c.node])
}

/// The launches of several nodes, one after the other.
pub(super) fn plan_chain(c: &Context<'_>, x: TensorId, nodes: &[TensorId]) -> Result<Vec<Launch>, Refusal> {
    let p = UnaryParams::new(c.graph, nodes, &[])?;
    by_rows(c, ("unary", "unary"), tensors(&[x, c.node]), &p, p.ne, 4)
}
