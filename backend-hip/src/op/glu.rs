//! Gated linear units.

use super::grid::{by_rows, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::kernel::GluParams;

/// Plans the launches of a node of this family. With one operand both pointers are equal, and the parameters
/// distinguish its halves.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = GluParams::new(c.graph, c.node, &[])?;
    let src = c.graph.tensor(c.node).src();
    let up = *src.get(1).unwrap_or(&src[0]);
    by_rows(c, ("glu", "glu"), tensors(&[src[0], up, c.node]), &p, p.ne, 4)
}
