//! ADD and MUL: element by element; the second operand is repeated to the extents of the first.

use super::{Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut, indices};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// Element-wise operation of two operands.
///
/// `a`: F32 `[n0, n1, n2, n3]`; `b`: F32, every extent divides that of `a`. Result: F32 with the extents of
/// `a`, `a[i] op b[i mod ne(b)]`.
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

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
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
