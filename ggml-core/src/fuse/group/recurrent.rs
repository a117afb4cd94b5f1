//! Operations with a state and the nodes around them.

use super::norm::Scaled;
use crate::op::Activation;
use crate::tensor::TensorId;

/// SSM_CONV, the bias and activation of its rows, and the copy of the new state over the old one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv {
    /// SSM_CONV; its result stays in the group.
    pub node: TensorId,
    /// Bias, F32 `[channels]`, and its sum with the rows.
    pub bias: Option<(TensorId, TensorId)>,
    /// Activation of the rows.
    pub activation: Activation,
    /// Node of the activation: F32 `[channels, tokens]`.
    pub rows: TensorId,
    /// CPY of the new state into the operand that holds the old one.
    pub kept: TensorId,
}

impl Conv {
    /// Maximum number of taps: the new state of a channel is held in registers before it is written.
    pub const TAPS: usize = 8;

    pub(in crate::fuse) fn nodes(&self) -> Vec<TensorId> {
        let sum = self.bias.map(|(_, sum)| sum);
        [self.node, self.rows, self.kept].into_iter().chain(sum).collect()
    }

    pub(in crate::fuse) fn results(&self) -> Vec<TensorId> {
        vec![self.rows, self.kept]
    }
}

/// GATED_DELTA_NET of queries and keys that are heads of one tensor, normed and scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delta {
    /// Norm and scale of queries and keys.
    pub unit: Scaled,
    /// Index of the first head of queries and of keys, in the normed tensor.
    pub first: [usize; 2],
    /// GATED_DELTA_NET.
    pub node: TensorId,
}

impl Delta {
    pub(in crate::fuse) fn nodes(&self) -> Vec<TensorId> {
        self.unit.nodes.into_iter().chain([self.node]).collect()
    }
}
