//! Test cases of gated linear units.

use super::case::{Case, Fill};
use crate::dtype::DType;
use crate::op::{Activation, Glu, Operation};

/// Test cases: every function in both forms, odd sizes, strided operands.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for op in Activation::ALL.map(Glu::new).into_iter().chain([Glu::clamped(1.702, 3.0)]) {
        for ne in [[64, 3, 1, 1], [257, 2, 2, 1]] {
            cases.push(Case::new(format!("{}(split, {ne:?})", op.name()), |g, c| {
                let gate = c.leaf(g, "gate", DType::F32, ne, Fill::Uniform(-6.0, 6.0))?;
                let up = c.leaf(g, "up", DType::F32, ne, Fill::Uniform(-2.0, 2.0))?;
                g.glu(op, gate, Some(up))
            }));
        }
        for swapped in [false, true] {
            let op = Glu { swapped, ..op };
            cases.push(Case::new(format!("{}(one operand, swapped={swapped})", op.name()), |g, c| {
                let both = c.leaf(g, "both", DType::F32, [130, 5, 1, 2], Fill::Uniform(-6.0, 6.0))?;
                g.glu(op, both, None)
            }));
        }
    }
    cases.push(Case::new("SWIGLU(windows of one tensor)", |g, c| {
        let both = c.leaf(g, "both", DType::F32, [96, 7, 1, 1], Fill::Uniform(-4.0, 4.0))?;
        let gate = g.view(both, [48, 7, 1, 1], [4, 384, 2688, 2688], 0)?;
        let up = g.view(both, [48, 7, 1, 1], [4, 384, 2688, 2688], 192)?;
        g.glu(Glu::new(Activation::Silu), gate, Some(up))
    }));
    cases
}
