//! Parameters of norms with the sums around them.

use super::{Offsets, last, offset, outer, wrong};
use crate::error::{Error, Result};
use crate::fuse::{Norm, Scaled};
use crate::graph::Graph;
use crate::kernel::extents;
use crate::op::Op;
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

/// Parameters of RMS_NORM, by itself or as a [`Norm`] or [`Scaled`]: `r = x + y` or x, `n = rms_norm(r) *
/// factor * w`, `d = n + z` or `activation(z) * n`. Operands: x, y, w, z, r, d; a missing operand is replaced
/// by another tensor.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct NormParams {
    /// Extents.
    pub ne: [u32; 4],
    /// Strides of x, rows and outwards.
    pub nb0: [u32; 3],
    /// Strides of y.
    pub nb1: [u32; 3],
    /// Strides of z.
    pub nb2: [u32; 3],
    /// Strides of the results.
    pub nbd: [u32; 3],
    /// Offset of x.
    pub off0: u32,
    /// Offset of y.
    pub off1: u32,
    /// Offset of z.
    pub off2: u32,
    /// Offset of w.
    pub offw: u32,
    /// Offset of r.
    pub offr: u32,
    /// Offset of d.
    pub offd: u32,
    /// Epsilon added to the mean square.
    pub eps: f32,
    /// Factor of the norm.
    pub factor: f32,
    /// Number of the gate's [`Activation`](crate::op::Activation).
    pub op: u32,
    /// Sum of the present parts: [`NormParams::SUM`], [`NormParams::WEIGHT`], [`NormParams::RESIDUAL`],
    /// [`NormParams::GATE`].
    pub parts: u32,
}

impl NormParams {
    /// In `parts`: y is present.
    pub const SUM: u32 = 1;
    /// In `parts`: w is present.
    pub const WEIGHT: u32 = 2;
    /// In `parts`: z is present and is added.
    pub const RESIDUAL: u32 = 4;
    /// In `parts`: z is present and is a gate.
    pub const GATE: u32 = 8;

    /// Builds the parameters of an RMS_NORM node. `off` has the offset of the operand first and of the result
    /// last.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let Some(Op::RmsNorm(norm)) = d.op() else { return Err(wrong(d)) };
        let (nb0, nbd) = (outer(graph.operands(node)[0])?, outer(d)?);
        let (off0, offd) = (offset(off, 0), last(off));
        let (eps, factor) = (norm.eps, 1.0);
        Ok(NormParams { ne: extents(d)?, nb0, nbd, off0, offd, eps, factor, ..NormParams::default() })
    }

    /// Builds the parameters of a norm times a constant. `off` has the offsets of x and the result.
    pub fn of_scaled(graph: &Graph, scaled: &Scaled, off: [u32; 2]) -> Result<Self> {
        let p = NormParams::new(graph, scaled.nodes[0], &off)?;
        Ok(NormParams { factor: scaled.factor, ..p })
    }

    /// Builds the parameters of a group. `off` gives the remainder of a tensor's offset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an operand whose rows are not contiguous.
    pub fn of_group(graph: &Graph, norm: &Norm, off: &dyn Fn(TensorId) -> u32) -> Result<Self> {
        let operands = Self::operands(norm);
        let [x, y, w, z, r, d] = operands;
        if let Some(apart) = operands.map(|id| graph.tensor(id)).iter().find(|t| !t.rows_contiguous()) {
            return Err(Error::argument("operand of a norm", apart.describe(), "contiguous rows"));
        }
        let strides = |id: TensorId| outer(graph.tensor(id));
        let sum = norm.sum.map_or(0, |_| Self::SUM);
        let residual = norm.residual.map_or(0, |_| Self::RESIDUAL);
        let gate = norm.gated.map_or(0, |_| Self::GATE);
        Ok(NormParams {
            ne: extents(graph.tensor(d))?,
            nb0: strides(x)?,
            nb1: strides(y)?,
            nb2: strides(z)?,
            nbd: strides(d)?,
            off0: off(x),
            off1: off(y),
            off2: off(z),
            offw: off(w),
            offr: off(r),
            offd: off(d),
            eps: norm.norm.eps,
            factor: 1.0,
            op: norm.gated.map_or(0, |gated| gated.activation as u32),
            parts: Self::WEIGHT | sum | residual | gate,
        })
    }

    /// Returns the tensors of a group in the order of the kernel's operands: x, y, w, z, r, d.
    pub fn operands(norm: &Norm) -> [TensorId; 6] {
        let [x, y] = norm.sum.map_or([norm.norm.x; 2], |sum| sum.of);
        let (w, d) = (norm.norm.weight, norm.result());
        let z = norm.added().or(norm.gated.map(|gated| gated.gate)).unwrap_or(x);
        [x, y, w, z, norm.sum.map_or(d, |sum| sum.node), d]
    }
}
