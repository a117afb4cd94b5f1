//! Activations and SCALE, alone and in chains.

use super::grid::{by_rows, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::fuse::Chain;
use ggml_core::kernel::UnaryParams;

/// The launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    plan_chain(c, &Chain::of_one(c.graph, c.node))
}

/// The launches of several functions, one after the other. Without a row the operand stands in its place.
pub(super) fn plan_chain(c: &Context<'_>, chain: &Chain) -> Result<Vec<Launch>, Refusal> {
    let p = UnaryParams::new(c.graph, chain, [0; 3])?;
    let operands = tensors(&[chain.x, chain.row.unwrap_or(chain.x), chain.result()]);
    by_rows(c, ("unary", "unary"), operands, &p, p.ne, 4)
}
