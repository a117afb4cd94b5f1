//! Norms with the sums around them.

use super::{Offsets, last, offset, outer, wrong};
use crate::error::{Error, Result};
use crate::fuse::Norm;
use crate::graph::Graph;
use crate::kernel::extents;
use crate::op::Op;
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

/// RMS_NORM, alone or as a [`Norm`]: `r = x + y` or x, `d = rms_norm(r) * w + z`. Operands: x, y, w, z, r, d; those that
/// there are not have others in their place.
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
    /// Added to the mean square.
    pub eps: f32,
    /// The sum of [`NormParams::SUM`], [`NormParams::WEIGHT`] and [`NormParams::RESIDUAL`].
    pub parts: u32,
}

impl NormParams {
    /// In `parts`: there is a y.
    pub const SUM: u32 = 1;
    /// In `parts`: there is a w.
    pub const WEIGHT: u32 = 2;
    /// In `parts`: there is a z.
    pub const RESIDUAL: u32 = 4;

    /// From an RMS_NORM node. `off` is that of the operand first and the result last.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let Some(Op::RmsNorm(norm)) = d.op() else { return Err(wrong(d)) };
        let (nb0, nbd) = (outer(graph.operands(node)[0])?, outer(d)?);
        let (off0, offd) = (offset(off, 0), last(off));
        Ok(NormParams { ne: extents(d)?, nb0, nbd, off0, offd, eps: norm.eps, ..NormParams::default() })
    }

    /// From a group. `off` says what remains of a tensor's offset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for operands whose elements do not lie side by side.
    pub fn of_group(graph: &Graph, norm: &Norm, off: &dyn Fn(TensorId) -> u32) -> Result<Self> {
        let operands = Self::operands(norm);
        let [x, y, w, z, r, d] = operands;
        if let Some(apart) = operands.map(|id| graph.tensor(id)).iter().find(|t| !t.rows_contiguous()) {
            return Err(Error::argument("operand of a norm", apart.describe(), "contiguous rows"));
        }
        let strides = |id: TensorId| outer(graph.tensor(id));
        let sum = norm.sum.map_or(0, |_| Self::SUM);
        let residual = norm.residual.map_or(0, |_| Self::RESIDUAL);
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
            parts: Self::WEIGHT | sum | residual,
        })
    }

    /// The tensors of a group in the order of its kernels' operands: x, y, w, z, r, d.
    pub fn operands(norm: &Norm) -> [TensorId; 6] {
        let [x, y] = norm.sum.map_or([norm.norm.x; 2], |sum| sum.of);
        let (w, d) = (norm.norm.weight, norm.residual.map_or(norm.norm.nodes[1], |sum| sum.node));
        [x, y, w, norm.added().unwrap_or(x), norm.sum.map_or(d, |sum| sum.node), d]
    }
}
