//! CACHE_MASK: each thread computes eight cells of some tokens.

use super::grid::{by_rows, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::kernel::CacheMaskParams;

/// Cells per thread.
const CELLS: u32 = 8;

/// Plans the launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = CacheMaskParams::new(c.graph, c.node, &[])?;
    let src = c.graph.tensor(c.node).src();
    let operands = tensors(&[src[0], src[1], c.node]);
    let rows = p.tokens.div_ceil(CacheMaskParams::TOKENS);
    by_rows(c, ("cache_mask", "cache_mask"), operands, &p, [p.kv, rows, 1, 1], CELLS)
}
