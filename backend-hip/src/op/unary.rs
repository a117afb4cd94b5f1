//! Activations and SCALE.

use super::grid::{by_rows, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::kernel::UnaryParams;

/// The launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = UnaryParams::new(c.graph, c.node, &[])?;
    let src = c.graph.tensor(c.node).src();
    by_rows(c, ("unary", "unary"), tensors(&[src[0], c.node]), &p, p.ne, 4)
}
