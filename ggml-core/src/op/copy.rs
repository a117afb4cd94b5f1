//! CPY and CONT: elements copied in order of their indices, with conversion of type.

use super::{Alias, Computed, Operation, Output, operands, rule, typed};
use crate::catalogue::{Case, Fill};
use crate::dtype::DType;
use crate::reference::{Operand, OperandMut, indices};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

const COPIED: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::I32];

/// Copies operand 0 into operand 1, which the result aliases.
///
/// Both have the same number of elements; element `n` in index order goes to element `n`. Types F32, F16 and BF16
/// convert into each other (round to nearest, ties to even); I32 goes to I32 only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpy {}

/// Copies a tensor of any strides into contiguous storage. Types F32, F16, BF16, I32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cont {}

fn copy(a: &Operand<'_>, out: &mut OperandMut<'_>) {
    let ne = out.ne;
    for (from, to) in indices(a.ne).zip(indices(ne)) {
        out.set(to, a.at(from));
    }
}

impl Operation for Cpy {
    fn name(&self) -> &'static str {
        "CPY"
    }

    fn output(&self, src: &[&Tensor]) -> Result<Output, String> {
        operands(src, 2, 2)?;
        let (a, dst) = (src[0], src[1]);
        typed(a, COPIED, "source")?;
        typed(dst, COPIED, "destination")?;
        let ints = (a.dtype == DType::I32) as u8 + (dst.dtype == DType::I32) as u8;
        rule(ints != 1, || "I32 is copied to I32 only".into())?;
        rule(a.elements() == dst.elements(), || "source and destination must have as many elements".into())?;
        Ok(Output { dtype: dst.dtype, ne: dst.ne, alias: Some(Alias { src: 1, nb: dst.nb, offset: 0 }) })
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        copy(&src[0], out);
        Ok(())
    }
}

impl Operation for Cont {
    fn name(&self) -> &'static str {
        "CONT"
    }

    fn output(&self, src: &[&Tensor]) -> Result<Output, String> {
        operands(src, 1, 1)?;
        typed(src[0], COPIED, "source")?;
        Ok(Output::new(src[0].dtype, src[0].ne))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        copy(&src[0], out);
        Ok(())
    }
}

/// Test cases: every pair of types, permutations, other extents, offsets.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let floats = [DType::F32, DType::F16, DType::BF16];
    for from in floats {
        for to in floats {
            cases.push(Case::new(format!("CPY({from} -> {to})"), |g, c| {
                let a = c.leaf(g, "a", from, [65, 3, 2, 1], Fill::Uniform(-300.0, 300.0))?;
                let dst = c.leaf(g, "dst", to, [13, 15, 2, 1], Fill::Uniform(-1.0, 1.0))?;
                g.cpy(a, dst)
            }));
        }
    }
    cases.push(Case::new("CPY(F32 permuted -> window of F16)", |g, c| {
        let a = c.leaf(g, "a", DType::F32, [7, 5, 3, 2], Fill::Uniform(-3.0, 3.0))?;
        let a = g.permute(a, [2, 0, 1, 3])?;
        let dst = c.leaf(g, "dst", DType::F16, [40, 12, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let window = g.view(dst, [21, 10, 1, 1], [2, 80, 960, 960], 86)?;
        g.cpy(a, window)
    }));
    cases.push(Case::new("CPY(I32 -> I32)", |g, c| {
        let a = c.leaf(g, "a", DType::I32, [33, 2, 1, 1], Fill::Ids(100000))?;
        let dst = c.leaf(g, "dst", DType::I32, [66, 1, 1, 1], Fill::Ids(2))?;
        g.cpy(a, dst)
    }));
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32] {
        for axes in [[0, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1, 3], [3, 2, 1, 0]] {
            cases.push(Case::new(format!("CONT({dtype}, axes={axes:?})"), |g, c| {
                let fill = if dtype == DType::I32 { Fill::Ids(9999) } else { Fill::Uniform(-9.0, 9.0) };
                let a = c.leaf(g, "a", dtype, [34, 5, 3, 2], fill)?;
                let a = g.permute(a, axes)?;
                g.cont(a)
            }));
        }
    }
    cases.push(Case::new("CONT(F32, rows repeated)", |g, c| {
        let a = c.leaf(g, "a", DType::F32, [70, 2, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let a = g.view(a, [64, 3, 5, 1], [4, 0, 0, 0], 24)?;
        g.cont(a)
    }));
    cases.push(Case::new("CONT(F32 transposed, larger than one work-group)", |g, c| {
        let a = c.leaf(g, "a", DType::F32, [100, 77, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let a = g.transpose(a)?;
        g.cont(a)
    }));
    cases
}
