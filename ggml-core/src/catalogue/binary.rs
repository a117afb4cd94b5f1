//! Test cases of ADD and MUL.

use super::case::{Case, Fill};
use crate::dtype::DType;
use crate::op::{Binary, Operation};

/// Test cases: equal extents, rows, columns and scalars repeated, odd sizes, strided and offset operands.
pub(super) fn cases() -> Vec<Case> {
    let shapes: &[([usize; 4], [usize; 4])] = &[
        ([1, 1, 1, 1], [1, 1, 1, 1]),
        ([64, 4, 1, 1], [64, 4, 1, 1]),
        ([257, 3, 2, 2], [257, 3, 2, 2]),
        ([256, 7, 1, 1], [256, 1, 1, 1]),
        ([33, 5, 4, 3], [1, 5, 1, 3]),
        ([12, 6, 4, 2], [4, 3, 2, 1]),
        ([1025, 2, 1, 1], [1, 1, 1, 1]),
    ];
    let mut cases = Vec::new();
    for op in [Binary::Add, Binary::Mul] {
        for &(a, b) in shapes {
            cases.push(Case::new(format!("{}(a={a:?}, b={b:?})", op.name()), |g, c| {
                let x = c.leaf(g, "a", DType::F32, a, Fill::Uniform(-2.0, 2.0))?;
                let y = c.leaf(g, "b", DType::F32, b, Fill::Uniform(-2.0, 2.0))?;
                g.binary(op, x, y)
            }));
        }
        cases.push(Case::new(format!("{}(a permuted, b offset view)", op.name()), |g, c| {
            let x = c.leaf(g, "a", DType::F32, [10, 6, 3, 1], Fill::Uniform(-2.0, 2.0))?;
            let x = g.permute(x, [1, 0, 2, 3])?;
            let y = c.leaf(g, "b", DType::F32, [31, 1, 1, 1], Fill::Uniform(-2.0, 2.0))?;
            let y = g.view(y, [6, 1, 1, 1], [4, 24, 24, 24], 12)?;
            g.binary(op, x, y)
        }));
        cases.push(Case::new(format!("{}(edge values)", op.name()), |g, c| {
            let x = c.leaf(g, "a", DType::F32, [16, 2, 1, 1], Fill::Edges)?;
            let y = c.leaf(g, "b", DType::F32, [16, 1, 1, 1], Fill::Uniform(0.5, 1.5))?;
            g.binary(op, x, y)
        }));
    }
    cases
}
