//! Tensor descriptions: type, extents, strides, and whose storage they use.

use crate::dtype::DType;
use crate::op::Op;
use serde::{Deserialize, Serialize};

/// Index of a tensor in its [`Graph`](crate::Graph).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TensorId(pub u32);

impl TensorId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where the contents of a tensor come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Source {
    /// Bound once and never written.
    Weight,
    /// Written by the caller before each run.
    Input,
    /// Kept from run to run (a KV cache); zero at the beginning.
    State,
    /// Computed.
    Node {
        /// The operation with its parameters.
        op: Op,
        /// Operands in the order of the operation's definition.
        src: Vec<TensorId>,
    },
}

/// A tensor of up to four dimensions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    /// Name: unique in its graph.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents in elements, fastest first; unused ones are 1.
    pub ne: [usize; 4],
    /// Strides in bytes; `nb[0]` is the bytes of one block.
    pub nb: [usize; 4],
    /// The tensor that owns the storage: this one, or for a view the one that it looks into.
    pub root: TensorId,
    /// Bytes from the beginning of the root's storage.
    pub offset: usize,
    /// Where the contents come from.
    pub source: Source,
}

/// Strides of a contiguous tensor; `None` on overflow or if `ne[0]` is no multiple of the type's block.
pub fn contiguous_strides(dtype: DType, ne: [usize; 4]) -> Option<[usize; 4]> {
    let row = dtype.row_bytes(ne[0])?;
    let plane = row.checked_mul(ne[1])?;
    let volume = plane.checked_mul(ne[2])?;
    volume.checked_mul(ne[3])?;
    Some([dtype.block_bytes(), row, plane, volume])
}

impl Tensor {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.ne.iter().product()
    }

    /// Number of rows (of `ne[0]` elements).
    pub fn rows(&self) -> usize {
        self.ne[1] * self.ne[2] * self.ne[3]
    }

    /// Bytes from the first to one past the last byte used, which for a contiguous tensor is its size.
    pub fn span_bytes(&self) -> usize {
        if self.elements() == 0 {
            return 0;
        }
        let row = self.ne[0].div_ceil(self.dtype.block());
        (1..4).map(|d| (self.ne[d] - 1) * self.nb[d]).sum::<usize>()
            + (row - 1) * self.nb[0]
            + self.dtype.block_bytes()
    }

    /// Bytes of the elements without gaps.
    pub fn dense_bytes(&self) -> usize {
        self.dtype.row_bytes(self.ne[0]).unwrap_or(0) * self.rows()
    }

    /// Whether the elements lie without gaps in the order of their indices.
    pub fn is_contiguous(&self) -> bool {
        self.rows_contiguous()
            && self.nb[1] * self.ne[1] == self.nb_or(2, self.nb[1] * self.ne[1])
            && self.nb[2] * self.ne[2] == self.nb_or(3, self.nb[2] * self.ne[2])
            && (self.ne[1] == 1 && self.ne[2] == 1 && self.ne[3] == 1
                || Some(self.nb[1]) == self.dtype.row_bytes(self.ne[0]))
    }

    /// Whether the elements of one row lie without gaps.
    pub fn rows_contiguous(&self) -> bool {
        self.nb[0] == self.dtype.block_bytes()
    }

    fn nb_or(&self, d: usize, expected: usize) -> usize {
        if self.ne[d..].iter().all(|&n| n == 1) { expected } else { self.nb[d] }
    }

    /// Whether this tensor looks into the storage of another.
    pub fn is_view(&self) -> bool {
        matches!(&self.source, Source::Node { op, .. } if op.is_view())
    }

    /// The operation, for computed tensors.
    pub fn op(&self) -> Option<&Op> {
        match &self.source {
            Source::Node { op, .. } => Some(op),
            _ => None,
        }
    }

    /// The operands, empty for leaves.
    pub fn src(&self) -> &[TensorId] {
        match &self.source {
            Source::Node { src, .. } => src,
            _ => &[],
        }
    }

    /// `name TYPE [extents]`, trailing ones left out.
    pub fn describe(&self) -> String {
        let last = (1..4).rev().find(|&d| self.ne[d] != 1).unwrap_or(0);
        let ne: Vec<String> = self.ne[..=last].iter().map(|n| n.to_string()).collect();
        format!("{} {} [{}]", self.name, self.dtype, ne.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: DType, ne: [usize; 4]) -> Tensor {
        let nb = contiguous_strides(dtype, ne).unwrap();
        Tensor { name: "t".into(), dtype, ne, nb, root: TensorId(0), offset: 0, source: Source::Input }
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
