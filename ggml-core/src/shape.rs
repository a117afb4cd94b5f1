//! Shape of a tensor: name, element type, extents and strides.

use crate::dtype::DType;
use serde::{Deserialize, Serialize};

/// Properties of a tensor that the rules of operations depend on: name, type and layout, but not the storage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Name, unique in the graph.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents in elements, fastest first; unused ones are 1.
    pub ne: [usize; 4],
    /// Strides in bytes; `nb[0]` is the bytes of one block.
    pub nb: [usize; 4],
}

/// Returns the strides of a contiguous tensor; `None` on overflow or if `ne[0]` is no multiple of the type's
/// block.
pub fn contiguous_strides(dtype: DType, ne: [usize; 4]) -> Option<[usize; 4]> {
    let row = dtype.row_bytes(ne[0])?;
    let plane = row.checked_mul(ne[1])?;
    let volume = plane.checked_mul(ne[2])?;
    volume.checked_mul(ne[3])?;
    Some([dtype.block_bytes(), row, plane, volume])
}

impl Shape {
    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.ne.iter().product()
    }

    /// Returns the number of rows (of `ne[0]` elements).
    pub fn rows(&self) -> usize {
        self.ne[1] * self.ne[2] * self.ne[3]
    }

    /// Returns the bytes from the first to one past the last byte used; for a contiguous tensor its size.
    pub fn span_bytes(&self) -> usize {
        if self.elements() == 0 {
            return 0;
        }
        let row = self.ne[0].div_ceil(self.dtype.block());
        (1..4).map(|d| (self.ne[d] - 1) * self.nb[d]).sum::<usize>()
            + (row - 1) * self.nb[0]
            + self.dtype.block_bytes()
    }

    /// Returns the bytes of the elements without gaps.
    pub fn dense_bytes(&self) -> usize {
        self.dtype.row_bytes(self.ne[0]).unwrap_or(0) * self.rows()
    }

    /// True if the elements are stored without gaps in the order of their indices.
    pub fn is_contiguous(&self) -> bool {
        self.rows_contiguous()
            && self.nb[1] * self.ne[1] == self.nb_or(2, self.nb[1] * self.ne[1])
            && self.nb[2] * self.ne[2] == self.nb_or(3, self.nb[2] * self.ne[2])
            && (self.ne[1] == 1 && self.ne[2] == 1 && self.ne[3] == 1
                || Some(self.nb[1]) == self.dtype.row_bytes(self.ne[0]))
    }

    /// True if the elements of a row are stored without gaps.
    pub fn rows_contiguous(&self) -> bool {
        self.nb[0] == self.dtype.block_bytes()
    }

    fn nb_or(&self, d: usize, expected: usize) -> usize {
        if self.ne[d..].iter().all(|&n| n == 1) { expected } else { self.nb[d] }
    }

    /// Formats as `name TYPE [extents]`, without trailing extents of 1.
    pub fn describe(&self) -> String {
        let last = (1..4).rev().find(|&d| self.ne[d] != 1).unwrap_or(0);
        let ne: Vec<String> = self.ne[..=last].iter().map(|n| n.to_string()).collect();
        format!("{} {} [{}]", self.name, self.dtype, ne.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: DType, ne: [usize; 4]) -> Shape {
        Shape { name: "t".into(), dtype, ne, nb: contiguous_strides(dtype, ne).unwrap() }
    }

    #[test]
    fn spans_and_contiguity() {
        let t = tensor(DType::F32, [3, 5, 2, 1]);
        assert_eq!((t.span_bytes(), t.dense_bytes(), t.is_contiguous()), (120, 120, true));
        let mut gap = t.clone();
        gap.nb = [4, 16, 80, 160];
        assert_eq!(
            (gap.span_bytes(), gap.is_contiguous(), gap.rows_contiguous()),
            (80 + 64 + 12, false, true)
        );
        let mut flipped = tensor(DType::F32, [5, 3, 1, 1]);
        flipped.nb = [12, 4, 60, 60];
        assert!(!flipped.is_contiguous() && !flipped.rows_contiguous());
        let mut one_row = tensor(DType::F32, [5, 1, 1, 1]);
        one_row.nb = [4, 4000, 4000, 4000];
        assert!(one_row.is_contiguous());
        assert_eq!(tensor(DType::Q8_0, [64, 3, 1, 1]).span_bytes(), 204);
        assert_eq!(contiguous_strides(DType::F32, [usize::MAX, 2, 1, 1]), None);
    }
}
