//! Best logit of each row, with a check that the row is finite.

use crate::tensor::TensorId;

/// TOP_K of one element, that element, and the product of the row with itself, which is finite only if the
/// row is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// F32 `[n, rows]`, contiguous.
    pub logits: TensorId,
    /// TOP_K: I32 `[1, rows]`.
    pub token: TensorId,
    /// GET_ROWS: F32, one for each row.
    pub value: TensorId,
    /// MUL_MAT: F32, one for each row.
    pub squares: TensorId,
    /// CPY of the token to the tensor from which the next decode step reads it.
    pub next: Option<TensorId>,
}

impl Best {
    pub(in crate::fuse) fn nodes(&self) -> Vec<TensorId> {
        [self.token, self.value, self.squares].into_iter().chain(self.next).collect()
    }
}
