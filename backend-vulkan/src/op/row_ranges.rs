//! Splitting of operands larger than a descriptor window, by rows or by matrices.
//!
//! The windows of all parts of an operand have the same remainder with respect to the device's alignment as
//! the operand itself, so that the offset in the kernel's parameters is valid for each of them.

use super::{Context, Operand, Refusal};
use ggml_core::{Tensor, TensorId};
use std::ops::Range;

/// Rows of an operand with a constant stride.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    tensor: &'a Tensor,
    id: TensorId,
    /// Byte offset of the first row in the tensor.
    base: usize,
    /// Number of rows.
    count: usize,
    /// Stride between rows in bytes.
    stride: usize,
    /// Bytes of a row.
    bytes: usize,
}

impl<'a> Rows<'a> {
    /// Returns the rows of the matrix of a tensor with outer indices `i2` and `i3`.
    pub(super) fn of(c: &'a Context<'_>, id: TensorId, i2: usize, i3: usize) -> Rows<'a> {
        let tensor = c.graph.tensor(id);
        let bytes = tensor.dtype.row_bytes(tensor.ne[0]).unwrap_or(usize::MAX);
        let base = i2 * tensor.nb[2] + i3 * tensor.nb[3];
        Rows { tensor, id, base, count: tensor.ne[1], stride: tensor.nb[1], bytes }
    }

    /// Returns the matrices of a tensor of three dimensions, each as one long row.
    pub(super) fn matrices(c: &'a Context<'_>, id: TensorId) -> Rows<'a> {
        let row = Rows::of(c, id, 0, 0);
        let bytes = (row.count.saturating_sub(1)).saturating_mul(row.stride).saturating_add(row.bytes);
        Rows { count: row.tensor.ne[2], stride: row.tensor.nb[2], bytes, ..row }
    }

    /// Returns the operand for a range of the rows.
    pub(super) fn operand(&self, rows: &Range<usize>) -> Operand {
        let bytes = rows.len().saturating_sub(1) * self.stride + self.bytes;
        Operand::Range(self.id, self.base + rows.start * self.stride, bytes)
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns ranges of rows for which the rows of each operand fit a window. The operands have the same number
/// of rows.
pub(super) fn split_rows(c: &Context<'_>, operands: &[Rows<'_>]) -> Result<Vec<Range<usize>>, Refusal> {
    let alignment = usize::try_from(c.profile.caps.binding_alignment).unwrap_or(1).max(4);
    let count = operands.iter().map(|o| o.count).min().unwrap_or(0);
    let (mut most, mut step) = (count, 1);
    for o in operands {
        if o.base % alignment != 0 {
            return Err(Refusal(format!(
                "{} exceeds the device's maximum window, and the offsets of its matrices are not aligned",
                o.tensor.describe()
            )));
        }
        // A window may begin before its part and end at a multiple of sixteen bytes.
        let room = c.window_limit().saturating_sub(o.tensor.dtype.block_bytes() * alignment + 16);
        let (stride, bytes) = (o.stride, o.bytes);
        let fitting = match (room.checked_sub(bytes), stride) {
            (None, _) => 0,
            (Some(_), 0) => count,
            (Some(rest), _) => rest / stride + 1,
        };
        most = most.min(fitting);
        // Powers of two, so that the larger is a multiple of the smaller.
        step = step.max(alignment / gcd(alignment, stride));
    }
    if most < count {
        most = most / step * step;
    }
    if most == 0 {
        let names: Vec<String> = operands.iter().map(|o| o.tensor.describe()).collect();
        return Err(Refusal(format!(
            "a few rows of {} exceed the device's maximum window",
            names.join(", ")
        )));
    }
    Ok((0..count).step_by(most).map(|first| first..count.min(first + most)).collect())
}
