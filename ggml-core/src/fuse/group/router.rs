//! Choice of the experts that compute a token, and their weights.

use crate::op::SoftMax;
use crate::tensor::TensorId;

/// TOP_K of the scores, the scores of these, and their soft-max.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Router {
    /// F32 `[experts, tokens]`.
    pub scores: TensorId,
    /// TOP_K: I32 `[used, tokens]`.
    pub ids: TensorId,
    /// GET_ROWS of the scores, which does not leave the group.
    pub chosen: TensorId,
    /// SOFT_MAX of them: F32 `[used, tokens]`.
    pub weights: TensorId,
    /// Its parameters.
    pub soft_max: SoftMax,
}

impl Router {
    pub(in crate::fuse) fn nodes(&self) -> Vec<TensorId> {
        vec![self.ids, self.chosen, self.weights]
    }
}
