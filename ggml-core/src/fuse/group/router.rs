//! Choice of experts by TOP_K, with the soft-max of the chosen scores.

use crate::op::SoftMax;
use crate::tensor::TensorId;

/// TOP_K of the scores, GET_ROWS of the chosen scores, and their soft-max.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Router {
    /// F32 `[experts, tokens]`.
    pub scores: TensorId,
    /// TOP_K: I32 `[used, tokens]`.
    pub ids: TensorId,
    /// GET_ROWS of the scores, which stays in the group.
    pub chosen: TensorId,
    /// SOFT_MAX of the chosen scores: F32 `[used, tokens]`.
    pub weights: TensorId,
    /// Parameters of SOFT_MAX.
    pub soft_max: SoftMax,
}

impl Router {
    pub(in crate::fuse) fn nodes(&self) -> Vec<TensorId> {
        vec![self.ids, self.chosen, self.weights]
    }
}
