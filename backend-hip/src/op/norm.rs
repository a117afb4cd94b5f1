//! RMS_NORM.

use super::grid::{row_by_row, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::kernel::NormParams;

/// The launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = NormParams::new(c.graph, c.node, &[])?;
    let src = c.graph.tensor(c.node).src();
    row_by_row(c, "norm", ["rms_norm_wave", "rms_norm_group"], tensors(&[src[0], c.node]), &p, p.ne)
}
