//! Operands and results of the definitions: elements by index, as f64.
//!
//! The decoders and the rounding here belong to the definitions and the reference backend only. Other
//! backends have their own, so that agreement with the reference is evidence of correctness.

use crate::dtype::DType;
use crate::shape::Shape;

mod decode;
mod float;
mod points;
mod rounding;
mod store;

pub use rounding::{Rounding, Sample, Stored};

/// Error: there is no memory for intermediate values of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory {
    /// Bytes requested.
    pub asked: usize,
}

/// Operand of a definition: elements by index, as f64.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub ne: [usize; 4],
    nb: [usize; 4],
    offset: usize,
    bytes: &'a [u8],
}

impl<'a> Operand<'a> {
    /// Creates an operand of this shape that begins `offset` bytes after the start of `bytes`.
    pub fn new(shape: &Shape, offset: usize, bytes: &'a [u8]) -> Operand<'a> {
        Operand { dtype: shape.dtype, ne: shape.ne, nb: shape.nb, offset, bytes }
    }

    /// Returns the bytes from the start of a row on.
    fn row_bytes(&self, [i1, i2, i3]: [usize; 3]) -> &'a [u8] {
        &self.bytes[self.offset + i1 * self.nb[1] + i2 * self.nb[2] + i3 * self.nb[3]..]
    }

    /// Returns the element at an index.
    pub fn at(&self, [i0, i1, i2, i3]: [usize; 4]) -> f64 {
        let row = self.row_bytes([i1, i2, i3]);
        let (block, i) = match self.dtype.block() {
            1 => (i0, 0),
            elements => (i0 / elements, i0 % elements),
        };
        decode::element(self.dtype, &row[block * self.nb[0]..], i)
    }

    /// Returns the row at the three outer indices.
    ///
    /// # Errors
    /// [`NoMemory`] if the allocation fails.
    pub fn row(&self, row: [usize; 3]) -> Result<Vec<f64>, NoMemory> {
        let bytes = self.row_bytes(row);
        let mut values = list(std::iter::repeat_n(0.0, self.ne[0]))?;
        let without_gaps = self.nb[0] == self.dtype.block_bytes();
        let block = match self.dtype.block() {
            1 if without_gaps => self.ne[0].max(1),
            elements => elements,
        };
        for (b, values) in values.chunks_mut(block).enumerate() {
            decode::elements(self.dtype, &bytes[b * self.nb[0]..], 0, values);
        }
        Ok(values)
    }
}

/// Result of a definition.
#[derive(Debug)]
pub struct OperandMut<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub ne: [usize; 4],
    nb: [usize; 4],
    offset: usize,
    bytes: &'a mut [u8],
}

impl<'a> OperandMut<'a> {
    /// Creates a result of this shape that begins `offset` bytes after the start of `bytes`.
    pub fn new(shape: &Shape, offset: usize, bytes: &'a mut [u8]) -> OperandMut<'a> {
        OperandMut { dtype: shape.dtype, ne: shape.ne, nb: shape.nb, offset, bytes }
    }

    /// Sets an element, rounded to the type (nearest, ties to even).
    pub fn set(&mut self, [i0, i1, i2, i3]: [usize; 4], value: f64) {
        let at = self.offset + i0 * self.nb[0] + i1 * self.nb[1] + i2 * self.nb[2] + i3 * self.nb[3];
        decode::store(self.dtype, &mut self.bytes[at..], value);
    }

    /// Sets an entire row, rounded to the type; blocks are rounded as defined by SET_ROWS.
    pub fn set_row(&mut self, [i1, i2, i3]: [usize; 3], row: &[f64]) {
        let at = self.offset + i1 * self.nb[1] + i2 * self.nb[2] + i3 * self.nb[3];
        for (i, block) in row.chunks_exact(self.dtype.block()).enumerate() {
            store::block(self.dtype, &mut self.bytes[at + i * self.nb[0]..], block);
        }
    }
}

/// Collects the items of an iterator; unlike `collect`, it does not abort if there is no memory.
///
/// # Errors
/// [`NoMemory`] if an allocation fails.
pub(crate) fn list<T>(items: impl Iterator<Item = T>) -> Result<Vec<T>, NoMemory> {
    let asked = |count: usize| NoMemory { asked: count.saturating_mul(size_of::<T>()) };
    let (mut list, least) = (Vec::new(), items.size_hint().0);
    list.try_reserve_exact(least).map_err(|_| asked(least))?;
    for item in items {
        if list.len() == list.capacity() {
            list.try_reserve(1).map_err(|_| asked(2 * list.len()))?;
        }
        list.push(item);
    }
    Ok(list)
}

/// Iterates over every index of a tensor, the first dimension fastest.
pub fn indices(ne: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    let count: usize = ne.iter().product();
    (0..count).map(move |n| {
        [n % ne[0], n / ne[0] % ne[1], n / (ne[0] * ne[1]) % ne[2], n / (ne[0] * ne[1] * ne[2])]
    })
}
