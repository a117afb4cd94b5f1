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

/// Nodes that make the decays and the betas of a delta net: `softplus(step) factor` and `sigmoid(beta)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaGates {
    /// Operand of the softplus, F32 `[heads, tokens]`.
    pub step: TensorId,
    /// Vector of factors, F32 `[heads]`.
    pub factor: TensorId,
    /// Operand of the sigmoid, F32 `[heads, tokens]`.
    pub beta: TensorId,
    /// Softplus, product and sigmoid.
    pub nodes: [TensorId; 3],
}

/// GATED_DELTA_NET of queries and keys that are heads of one tensor, normed and scaled; with the nodes that make its decays
/// and betas, and the copy of the new state over the old one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delta {
    /// Norm and scale of queries and keys.
    pub unit: Scaled,
    /// Index of the first head of queries and of keys, in the normed tensor.
    pub first: [usize; 2],
    /// GATED_DELTA_NET.
    pub node: TensorId,
    /// Nodes of decays and betas, if they are in the group.
    pub gates: Option<DeltaGates>,
    /// CPY of the new state into the operand that holds the old one, if it is in the group.
    pub kept: Option<TensorId>,
}

impl Delta {
    pub(in crate::fuse) fn nodes(&self) -> Vec<TensorId> {
        let gates = self.gates.into_iter().flat_map(|gates| gates.nodes);
        self.unit.nodes.into_iter().chain(gates).chain([self.node]).chain(self.kept).collect()
    }

    pub(in crate::fuse) fn results(&self) -> Vec<TensorId> {
        [self.node].into_iter().chain(self.kept).collect()
    }
}
