//! ADD and MUL.

use super::grid::{by_rows, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::kernel::BinaryParams;

/// Plans the launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = BinaryParams::new(c.graph, c.node, &[])?;
    let src = c.graph.tensor(c.node).src();
    by_rows(c, ("binary", "binary"), tensors(&[src[0], src[1], c.node]), &p, p.ne, 4)
}
