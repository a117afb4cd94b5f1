//! The choice of experts with what gives the scores.

use super::outer;
use crate::error::{Error, Result};
use crate::fuse::Gate;
use crate::graph::Graph;
use crate::kernel::{extents, narrow};
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

/// A [`Gate`]: `n = rms_norm(x) * s`, `scores = w n + b`, the indices of the largest of these and the soft-max of them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct GateParams {
    /// Elements of a row of x.
    pub k: u32,
    /// Rows of w.
    pub experts: u32,
    /// Rows of x.
    pub tokens: u32,
    /// Experts that are chosen for each.
    pub used: u32,
    /// Stride of rows of x.
    pub nbx: u32,
    /// Stride of rows of w.
    pub nbw: u32,
    /// Stride of rows of n.
    pub nbn: u32,
    /// Stride of rows of the indices and of the soft-max.
    pub nbd: u32,
    /// Offset of x.
    pub offx: u32,
    /// Offset of s.
    pub offs: u32,
    /// Offset of w.
    pub offw: u32,
    /// Offset of b.
    pub offb: u32,
    /// Offset of n.
    pub offn: u32,
    /// Offset of the indices.
    pub offd: u32,
    /// Offset of the soft-max.
    pub offe: u32,
    /// 1 if there is a b.
    pub bias: u32,
    /// Added to the mean square.
    pub eps: f32,
    /// Soft-max: factor of the scores.
    pub scale: f32,
}

impl GateParams {
    /// From a group. `off` says what remains of a tensor's offset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for rows that are no whole quads at multiples of four elements, and for operands whose
    /// elements do not lie side by side.
    pub fn new(graph: &Graph, gate: &Gate, off: &dyn Fn(TensorId) -> u32) -> Result<Self> {
        let [x, s, w, b, n, ids, weights] = Self::operands(gate).map(|id| graph.tensor(id));
        let [ox, os, ow, ob, on, oi, oe] = Self::operands(gate).map(off);
        let row = |t| Ok::<_, Error>(outer(t)?[0]);
        let [k, tokens, ..] = extents(x)?;
        let [used, ..] = extents(ids)?;
        let p = GateParams {
            k,
            experts: narrow(w.ne[1], "experts", w)?,
            tokens,
            used,
            nbx: row(x)?,
            nbw: row(w)?,
            nbn: row(n)?,
            nbd: row(ids)?,
            offx: ox,
            offs: os,
            offw: ow,
            offb: ob,
            offn: on,
            offd: oi,
            offe: oe,
            bias: gate.scores.bias.is_some().into(),
            eps: gate.norm.eps,
            scale: gate.router.soft_max.scale,
        };
        let quads = [p.k, p.nbx, p.nbw, p.nbn, ox, os, ow, on];
        if quads.iter().any(|n| n % 4 != 0) {
            return Err(Error::argument("rows of a gate", x.describe(), "whole quads"));
        }
        let side_by_side = [x, s, w, b, n, ids].iter().all(|t| t.rows_contiguous());
        if !side_by_side || row(weights)? != p.nbd || ids.ne[2..] != [1, 1] {
            return Err(Error::argument("operand of a gate", weights.describe(), "contiguous rows"));
        }
        Ok(p)
    }

    /// The tensors of a group in the order of its kernels' operands: x, s, w, b (s if there is none), n, the indices, the
    /// soft-max.
    pub fn operands(gate: &Gate) -> [TensorId; 7] {
        let (s, router) = (gate.norm.weight, &gate.router);
        let b = gate.scores.bias.unwrap_or(s);
        [gate.norm.x, s, gate.scores.weight, b, gate.norm.nodes[1], router.ids, router.weights]
    }
}
