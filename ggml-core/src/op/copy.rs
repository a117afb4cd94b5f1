//! CPY and CONT: copies of elements in the order of their indices, with type conversion.

use super::{Alias, Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut, indices};
use crate::metrics::Bound;
use crate::precision::Precision;
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

const COPIED: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::I32];

/// Copies operand 0 into operand 1, which the result aliases.
///
/// Both have the same number of elements; element `n` in index order goes to element `n`. Types F32, F16 and
/// BF16 convert into each other (round to nearest, ties to even); I32 goes to I32 only.
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

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
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

    fn bound(&self, _operand: DType, _precision: Precision) -> Bound {
        Bound::EQUAL
    }
}

impl Operation for Cont {
    fn name(&self) -> &'static str {
        "CONT"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 1, 1)?;
        typed(src[0], COPIED, "source")?;
        Ok(Output::new(src[0].dtype, src[0].ne))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        copy(&src[0], out);
        Ok(())
    }

    fn bound(&self, _operand: DType, _precision: Precision) -> Bound {
        Bound::EQUAL
    }
}
