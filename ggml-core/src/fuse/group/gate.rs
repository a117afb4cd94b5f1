//! Nodes from the residual stream to the choice of experts.

use super::choice::Choice;
use super::norm::NormPart;
use super::products::Product;
use crate::tensor::TensorId;

/// RMS_NORM with its weight, the product of the norm with a matrix, and the choice by the resulting scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gate {
    /// Norm of F32 `[k, tokens]`. It is a result of the group, because the experts read it too.
    pub norm: NormPart,
    /// Scores, F32 `[experts, tokens]`, which stay in the group. The matrix is F32.
    pub scores: Product,
    /// Choice by the scores.
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
