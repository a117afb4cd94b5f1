//! The reference backend: every operation exactly as its definition says, in f64, on one thread.
//!
//! It exists to be right and to be read. It shares no code with any other backend, not even a dequantiser, and keeps
//! a vector of bytes for each tensor instead of an arena, so that an error of the planner shows too. Results are
//! rounded to the type of their tensor once, when a node is finished.

use crate::dtype::DType;
use crate::tensor::Tensor;

mod backend;
mod decode;
mod store;

pub use backend::ReferenceBackend;

/// An operand of a definition: elements by index, as f64.
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
    /// A tensor over the storage of its root.
    pub fn new(tensor: &Tensor, bytes: &'a [u8]) -> Operand<'a> {
        Operand { dtype: tensor.dtype, ne: tensor.ne, nb: tensor.nb, offset: tensor.offset, bytes }
    }

    fn place(&self, [i0, i1, i2, i3]: [usize; 4]) -> usize {
        self.offset
            + i0 / self.dtype.block() * self.nb[0]
            + i1 * self.nb[1]
            + i2 * self.nb[2]
            + i3 * self.nb[3]
    }

    /// The element at an index.
    pub fn at(&self, index: [usize; 4]) -> f64 {
        decode::element(self.dtype, &self.bytes[self.place(index)..], index[0] % self.dtype.block())
    }

    /// The row at the three outer indices.
    pub fn row(&self, [i1, i2, i3]: [usize; 3]) -> Vec<f64> {
        (0..self.ne[0]).map(|i0| self.at([i0, i1, i2, i3])).collect()
    }
}

/// The result of a definition.
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
    /// A tensor over the storage of its root.
    pub fn new(tensor: &Tensor, bytes: &'a mut [u8]) -> OperandMut<'a> {
        OperandMut { dtype: tensor.dtype, ne: tensor.ne, nb: tensor.nb, offset: tensor.offset, bytes }
    }

    /// Sets an element, rounded to the type (nearest, ties to even).
    pub fn set(&mut self, [i0, i1, i2, i3]: [usize; 4], value: f64) {
        let at = self.offset + i0 * self.nb[0] + i1 * self.nb[1] + i2 * self.nb[2] + i3 * self.nb[3];
        decode::store(self.dtype, &mut self.bytes[at..], value);
    }

    /// Sets a whole row, rounded to the type; blocks as SET_ROWS says.
    pub fn set_row(&mut self, [i1, i2, i3]: [usize; 3], row: &[f64]) {
        let at = self.offset + i1 * self.nb[1] + i2 * self.nb[2] + i3 * self.nb[3];
        for (i, block) in row.chunks_exact(self.dtype.block()).enumerate() {
            store::block(self.dtype, &mut self.bytes[at + i * self.nb[0]..], block);
        }
    }
}

/// Every index of a tensor, the first fastest.
pub fn indices(ne: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    let count: usize = ne.iter().product();
    (0..count).map(move |n| {
        [n % ne[0], n / ne[0] % ne[1], n / (ne[0] * ne[1]) % ne[2], n / (ne[0] * ne[1] * ne[2])]
    })
}
