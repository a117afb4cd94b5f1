//! TOP_K: a wavefront for each row.

use super::grid::{ROW_THREADS, launch, rows_of, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::kernel::TopKParams;

/// The launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = TopKParams::new(c.graph, c.node, &[])?;
    let src = c.graph.tensor(c.node).src();
    let groups = rows_of(p.ne)?.div_ceil(u64::from(ROW_THREADS / c.profile.wave));
    Ok(vec![launch(c, ("top_k", "top_k"), tensors(&[src[0], c.node]), &p, [groups, 1, 1], ROW_THREADS)?])
}
