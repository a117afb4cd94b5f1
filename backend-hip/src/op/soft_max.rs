//! SOFT_MAX.

use super::grid::{row_by_row, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::kernel::SoftMaxParams;

/// Plans the launches of a node of this family. Without a mask, x serves as a placeholder for it.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = SoftMaxParams::new(c.graph, c.node, &[])?;
    let src = c.graph.tensor(c.node).src();
    let mask = *src.get(1).unwrap_or(&src[0]);
    row_by_row(c, "soft_max", ["soft_max_wave", "soft_max_group"], tensors(&[src[0], mask, c.node]), &p, p.ne)
}
