//! VIEW, RESHAPE, PERMUTE, TRANSPOSE: other views of the same storage. They compute nothing on any backend.

use super::{Alias, Computed, Operation, Output, operands, rule};
use crate::exact::{Operand, OperandMut};
use crate::shape::{Shape, contiguous_strides};
use serde::{Deserialize, Serialize};

/// Window with given extents, strides (bytes) and offset (bytes) inside the span of the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Extents.
    pub ne: [usize; 4],
    /// Strides in bytes; `nb[0]` is the bytes of one block.
    pub nb: [usize; 4],
    /// Offset in bytes from the beginning of the operand; a multiple of the block's bytes.
    pub offset: usize,
}

/// Other extents of a contiguous operand with the same number of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reshape {
    /// Extents.
    pub ne: [usize; 4],
}

/// Permuted dimensions: dimension `i` of the operand becomes dimension `axes[i]` of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permute {
    /// Permutation of 0, 1, 2, 3.
    pub axes: [usize; 4],
}

/// The first two dimensions exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transpose {}

impl View {
    fn check(&self, t: &Shape) -> Result<(), String> {
        let unit = t.dtype.block_bytes();
        rule(self.offset.is_multiple_of(unit) && self.nb.iter().all(|nb| nb % unit == 0), || {
            format!("offset and strides must be multiples of {unit} bytes")
        })?;
        rule(self.ne[0].is_multiple_of(t.dtype.block()), || "rows must be whole blocks".into())?;
        if self.ne.contains(&0) {
            return Ok(());
        }
        let row = self.ne[0] / t.dtype.block();
        let mut end = (row - 1).checked_mul(self.nb[0]).and_then(|e| e.checked_add(unit));
        for d in 1..4 {
            let step = (self.ne[d] - 1).checked_mul(self.nb[d]);
            end = end.zip(step).and_then(|(e, s)| e.checked_add(s));
        }
        let end = end.and_then(|e| e.checked_add(self.offset));
        rule(end.is_some_and(|e| e <= t.span_bytes()), || {
            format!("the window ends beyond the {} bytes of its operand", t.span_bytes())
        })
    }
}

/// Views have nothing to compute.
fn nothing(_src: &[Operand<'_>], _out: &mut OperandMut<'_>) -> Computed {
    Ok(())
}

impl Operation for View {
    fn name(&self) -> &'static str {
        "VIEW"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 1, 1)?;
        self.check(src[0])?;
        let alias = Alias { src: 0, nb: self.nb, offset: self.offset };
        Ok(Output { dtype: src[0].dtype, ne: self.ne, alias: Some(alias) })
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        nothing(src, out)
    }
}

impl Operation for Reshape {
    fn name(&self) -> &'static str {
        "RESHAPE"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 1, 1)?;
        let t = src[0];
        rule(t.is_contiguous(), || "only contiguous tensors can be reshaped".into())?;
        let product = self.ne.iter().try_fold(1usize, |p, &n| p.checked_mul(n));
        rule(product == Some(t.elements()), || format!("{:?} has another number of elements", self.ne))?;
        let nb = contiguous_strides(t.dtype, self.ne).ok_or("rows must be whole blocks")?;
        Ok(Output { dtype: t.dtype, ne: self.ne, alias: Some(Alias { src: 0, nb, offset: 0 }) })
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        nothing(src, out)
    }
}

fn permuted(t: &Shape, axes: [usize; 4]) -> Result<Output, String> {
    let mut sorted = axes;
    sorted.sort_unstable();
    rule(sorted == [0, 1, 2, 3], || format!("{axes:?} is no permutation of 0, 1, 2, 3"))?;
    rule(t.dtype.block() == 1 || axes[0] == 0, || "blocks cannot be split by a permutation".into())?;
    let (mut ne, mut nb) = ([0; 4], [0; 4]);
    for d in 0..4 {
        ne[axes[d]] = t.ne[d];
        nb[axes[d]] = t.nb[d];
    }
    Ok(Output { dtype: t.dtype, ne, alias: Some(Alias { src: 0, nb, offset: 0 }) })
}

impl Operation for Permute {
    fn name(&self) -> &'static str {
        "PERMUTE"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 1, 1)?;
        permuted(src[0], self.axes)
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        nothing(src, out)
    }
}

impl Operation for Transpose {
    fn name(&self) -> &'static str {
        "TRANSPOSE"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 1, 1)?;
        permuted(src[0], [1, 0, 2, 3])
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        nothing(src, out)
    }
}
