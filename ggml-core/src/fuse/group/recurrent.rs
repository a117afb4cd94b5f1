//! Groups around the operations with a state.

use super::norm::Scaled;
use crate::op::Activation;
use crate::tensor::TensorId;

/// SSM_CONV, what becomes of its rows of tokens, and the new state in the place of the old one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv {
    /// SSM_CONV; its result does not leave the group.
    pub node: TensorId,
    /// F32 `[channels]`, and its sum with the rows.
    pub bias: Option<(TensorId, TensorId)>,
    /// Activation of the rows.
    pub activation: Activation,
    /// The node that does it: F32 `[channels, tokens]`.
    pub rows: TensorId,
    /// CPY of the new state to the operand that is the old one.
    pub kept: TensorId,
}

impl Conv {
    /// The most taps: the new state of a channel is in registers before it is written.
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
    /// The heads of what is normed with which queries and keys begin.
    pub first: [usize; 2],
    /// GATED_DELTA_NET.
    pub node: TensorId,
}

impl Delta {
    pub(in crate::fuse) fn nodes(&self) -> Vec<TensorId> {
        self.unit.nodes.into_iter().chain([self.node]).collect()
    }
}
