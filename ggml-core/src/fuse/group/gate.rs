//! Choice of the experts that compute a token, from the residual stream on.

use super::choice::Choice;
use super::norm::NormPart;
use super::products::Product;
use crate::tensor::TensorId;

/// RMS_NORM with its weight, the product of that with a matrix, and the choice among the scores that this gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gate {
    /// The norm of F32 `[k, tokens]`. Its result leaves the group: the experts read it, too.
    pub norm: NormPart,
    /// The scores, F32 `[experts, tokens]`, which do not leave the group. The matrix is F32.
    pub scores: Product,
    /// The choice among them.
    pub choice: Choice,
}

impl Gate {
    pub(in crate::fuse) fn nodes(&self) -> Vec<TensorId> {
        let scores = [self.scores.node].into_iter().chain(self.scores.bias.map(|_| self.scores.result));
        self.norm.nodes.into_iter().chain(scores).chain(self.choice.nodes()).collect()
    }

    pub(in crate::fuse) fn results(&self) -> Vec<TensorId> {
        vec![self.norm.nodes[1], self.choice.ids, self.choice.weights()]
    }
}
