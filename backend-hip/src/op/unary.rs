//! Activations and SCALE, by themselves, and chains of element-wise functions.

use super::grid::{by_rows, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::fuse::Chain;
use ggml_core::kernel::UnaryParams;

/// Plans the launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    plan_chain(c, &Chain::of_one(c.graph, c.node))
}

/// Plans the launch of several functions, applied one after the other. The first operand serves as a
/// placeholder for missing ones.
pub(super) fn plan_chain(c: &Context<'_>, chain: &Chain) -> Result<Vec<Launch>, Refusal> {
    let p = UnaryParams::new(c.graph, chain, [0; 2 + Chain::OTHERS])?;
    let mut operands = [chain.x; 2 + Chain::OTHERS];
    operands[1..].iter_mut().zip(&chain.others).for_each(|(operand, &other)| *operand = other);
    operands[1 + Chain::OTHERS] = chain.result();
    by_rows(c, ("unary", "unary"), tensors(&operands), &p, p.ne, 4)
}
