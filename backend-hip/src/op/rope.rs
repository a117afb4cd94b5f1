//! ROPE.

use super::grid::by_rows;
use super::{Context, Launch, Operand, Refusal};
use ggml_core::kernel::RopeParams;

/// Plans the launches of a node of this family. The table of frequencies is the node's constant; it also
/// serves as a placeholder for missing factors.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = RopeParams::new(c.graph, c.node, &[])?;
    let src = c.graph.tensor(c.node).src();
    let table = Operand::Constant(c.node);
    let factors = src.get(2).map_or(table, |&f| Operand::Tensor(f));
    let operands =
        vec![Operand::Tensor(src[0]), Operand::Tensor(src[1]), table, factors, Operand::Tensor(c.node)];
    by_rows(c, ("rope", "rope"), operands, &p, p.ne, 2)
}
