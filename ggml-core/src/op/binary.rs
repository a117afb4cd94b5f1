//! ADD and MUL: element by element, the second operand repeated to the extents of the first.

use super::{Computed, Operation, Output, operands, rule, typed};
use crate::catalogue::{Case, Fill};
use crate::dtype::DType;
use crate::reference::{Operand, OperandMut, indices};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Element-wise operation of two operands.
///
/// `a`: F32 `[n0, n1, n2, n3]`; `b`: F32, every extent divides that of `a`. Result: F32 with the extents of `a`,
/// `a[i] op b[i mod ne(b)]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Binary {
    /// Sum.
    Add,
    /// Product.
    Mul,
}

impl Operation for Binary {
    fn name(&self) -> &'static str {
        match self {
            Binary::Add => "ADD",
            Binary::Mul => "MUL",
        }
    }

    fn output(&self, src: &[&Tensor]) -> Result<Output, String> {
        operands(src, 2, 2)?;
        let (a, b) = (src[0], src[1]);
        typed(a, &[DType::F32], "a")?;
        typed(b, &[DType::F32], "b")?;
        let fits = (0..4).all(|d| b.ne[d] > 0 && a.ne[d] % b.ne[d] == 0);
        rule(fits, || "every extent of b must divide that of a".into())?;
        Ok(Output::new(DType::F32, a.ne))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let (a, b) = (&src[0], &src[1]);
        for i in indices(out.ne) {
            let j = std::array::from_fn(|d| i[d] % b.ne[d]);
            let (x, y) = (a.at(i), b.at(j));
            out.set(i, if *self == Binary::Add { x + y } else { x * y });
        }
        Ok(())
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }
}

/// Test cases: equal extents, rows, columns and scalars repeated, odd sizes, strided and offset operands.
pub fn cases() -> Vec<Case> {
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
