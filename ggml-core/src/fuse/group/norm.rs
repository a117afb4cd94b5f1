//! A sum, RMS_NORM with its weight, a residual sum; a gate; RMS_NORM times a number.

use crate::op::Activation;
use crate::tensor::TensorId;

/// RMS_NORM of rows times a weight of a row's length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormPart {
    /// Operand of the norm: F32, contiguous rows.
    pub x: TensorId,
    /// F32 `[n]`.
    pub weight: TensorId,
    /// Added to the mean square.
    pub eps: f32,
    /// RMS_NORM and MUL.
    pub nodes: [TensorId; 2],
}

/// `a + b`, both of the same extents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sum {
    /// The operands.
    pub of: [TensorId; 2],
    /// The node.
    pub node: TensorId,
}

/// `activation(gate) * n`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gated {
    /// The gate, of the extents of what it gates.
    pub gate: TensorId,
    /// Its function.
    pub activation: Activation,
    /// GLU.
    pub node: TensorId,
}

/// `rms_norm(x) * factor`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaled {
    /// Operand of the norm: F32, contiguous rows.
    pub x: TensorId,
    /// Added to the mean square.
    pub eps: f32,
    /// The factor.
    pub factor: f32,
    /// RMS_NORM and SCALE.
    pub nodes: [TensorId; 2],
}

/// `r = a + b` or a tensor `r`; `n = rms_norm(r) * weight`; perhaps `n + c`, or `n` with a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// The sum that is normed. It leaves the group.
    pub sum: Option<Sum>,
    /// The norm. It leaves the group unless it goes into `residual` or `gated`.
    pub norm: NormPart,
    /// The norm plus something of its extents: which of the operands is not the norm.
    pub residual: Option<Sum>,
    /// The norm behind a gate.
    pub gated: Option<Gated>,
}

impl Norm {
    pub(in crate::fuse) fn nodes(&self) -> Vec<TensorId> {
        let sums = [self.sum, self.residual].into_iter().flatten().map(|sum| sum.node);
        self.norm.nodes.into_iter().chain(sums).chain(self.gated.map(|gated| gated.node)).collect()
    }

    pub(in crate::fuse) fn results(&self) -> Vec<TensorId> {
        self.sum.map(|sum| sum.node).into_iter().chain([self.result()]).collect()
    }

    /// Returns the result of the group.
    pub fn result(&self) -> TensorId {
        let behind = self.residual.map(|sum| sum.node).or(self.gated.map(|gated| gated.node));
        behind.unwrap_or(self.norm.nodes[1])
    }

    /// Returns the operand that is added to the norm.
    pub fn added(&self) -> Option<TensorId> {
        let norm = self.norm.nodes[1];
        self.residual.and_then(|sum| sum.of.into_iter().find(|&id| id != norm))
    }
}
