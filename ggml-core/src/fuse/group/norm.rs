//! RMS_NORM with its weight, optionally with a sum before it and a residual sum or a gate after it; RMS_NORM
//! times a constant.

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
    /// Gate, with the extents of the norm.
    pub gate: TensorId,
    /// Function of the gate.
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

/// `r = a + b` or a tensor `r`; `n = rms_norm(r) * weight`; optionally `n + c`, or `n` with a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Sum before the norm. It is a result of the group.
    pub sum: Option<Sum>,
    /// Norm. It is a result of the group unless `residual` or `gated` reads it.
    pub norm: NormPart,
    /// Sum of the norm and a tensor of its extents; the norm may be either operand.
    pub residual: Option<Sum>,
    /// Product of the norm and a gate.
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

    /// Returns the last result: the norm, or its sum or product.
    pub fn result(&self) -> TensorId {
        let behind = self.residual.map(|sum| sum.node).or(self.gated.map(|gated| gated.node));
        behind.unwrap_or(self.norm.nodes[1])
    }

    /// Returns the tensor that is added to the norm.
    pub fn added(&self) -> Option<TensorId> {
        let norm = self.norm.nodes[1];
        self.residual.and_then(|sum| sum.of.into_iter().find(|&id| id != norm))
    }
}
