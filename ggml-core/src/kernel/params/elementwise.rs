//! Element-wise kernels.

use super::{Offsets, last, offset, wrong};
use crate::error::{Error, Result};
use crate::fuse::Chain;
use crate::graph::Graph;
use crate::kernel::{extents, narrow, strides};
use crate::op::{Binary, Op};
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

/// ADD, MUL (and fused forms of them): `d[i] = a[i] op b[i mod ne1]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct BinaryParams {
    /// Extents of `a` and the result.
    pub ne: [u32; 4],
    /// Extents of `b`.
    pub ne1: [u32; 4],
    /// Strides of `a`.
    pub nb0: [u32; 4],
    /// Strides of `b`.
    pub nb1: [u32; 4],
    /// Strides of the result.
    pub nbd: [u32; 4],
    /// Offset of `a`.
    pub off0: u32,
    /// Offset of `b`.
    pub off1: u32,
    /// Offset of the result.
    pub offd: u32,
    /// 0 ADD, 1 MUL.
    pub op: u32,
}

impl BinaryParams {
    /// From an ADD or MUL node.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let Some(Op::Binary(op)) = d.op() else { return Err(wrong(d)) };
        let s = graph.operands(node);
        Ok(BinaryParams {
            ne: extents(d)?,
            ne1: extents(s[1])?,
            nb0: strides(s[0])?,
            nb1: strides(s[1])?,
            nbd: strides(d)?,
            off0: offset(off, 0),
            off1: offset(off, 1),
            offd: last(off),
            op: (*op == Binary::Mul) as u32,
        })
    }
}

/// Activations and SCALE, and one ADD or MUL with a row, up to four one after the other: `d[i] = f(a[i])`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct UnaryParams {
    /// Extents.
    pub ne: [u32; 4],
    /// Strides of `a`.
    pub nb0: [u32; 4],
    /// Strides of the result.
    pub nbd: [u32; 4],
    /// Offset of `a`.
    pub off0: u32,
    /// Stride of the row; 0 if there is none.
    pub nb1: u32,
    /// Offset of the row.
    pub off1: u32,
    /// Offset of the result.
    pub offd: u32,
    /// How many functions.
    pub count: u32,
    /// Numbers of the [`Activation`](crate::op::Activation)s; 100 for SCALE, 101 for ADD, 102 for MUL.
    pub op: [u32; 4],
    /// SCALE: factors.
    pub scale: [f32; 4],
    /// SCALE: summands.
    pub bias: [f32; 4],
}

impl UnaryParams {
    /// Number of SCALE in the field `op`.
    pub const SCALE: u32 = 100;
    /// Number of ADD.
    pub const ADD: u32 = 101;
    /// Number of MUL.
    pub const MUL: u32 = 102;

    /// From a chain, which may be of one function. `off` is that of the operand, the row (anything if there is none) and
    /// the result.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for too many functions, or others.
    pub fn new(graph: &Graph, chain: &Chain, off: [u32; 3]) -> Result<Self> {
        let (a, d) = (graph.tensor(chain.x), graph.tensor(chain.result()));
        let [off0, off1, offd] = off;
        let mut p = UnaryParams {
            ne: extents(d)?,
            nb0: strides(a)?,
            nbd: strides(d)?,
            off0,
            nb1: chain.row.is_some() as u32,
            off1,
            offd,
            count: narrow(chain.nodes.len(), "functions", d)?,
            ..UnaryParams::default()
        };
        if chain.nodes.len() > p.op.len() {
            return Err(Error::argument("chain", format!("{} functions", p.count), "four or fewer"));
        }
        for (i, node) in chain.nodes.iter().map(|&id| graph.tensor(id)).enumerate() {
            (p.op[i], p.scale[i], p.bias[i]) = match node.op() {
                Some(Op::Unary(u)) => (u.activation as u32, 1.0, 0.0),
                Some(Op::Scale(s)) => (Self::SCALE, s.scale, s.bias),
                Some(Op::Binary(Binary::Add)) => (Self::ADD, 1.0, 0.0),
                Some(Op::Binary(Binary::Mul)) => (Self::MUL, 1.0, 0.0),
                _ => return Err(wrong(node)),
            };
        }
        Ok(p)
    }
}

/// Gated linear units: `d[i] = activation(gate[i]) * up[i]`. With one operand both windows are the same and the
/// offsets tell the halves apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct GluParams {
    /// Extents of the result.
    pub ne: [u32; 4],
    /// Strides of the gate.
    pub nb0: [u32; 4],
    /// Strides of `up`.
    pub nb1: [u32; 4],
    /// Strides of the result.
    pub nbd: [u32; 4],
    /// Offset of the gate.
    pub off0: u32,
    /// Offset of `up`.
    pub off1: u32,
    /// Offset of the result.
    pub offd: u32,
    /// Number of the [`Activation`](crate::op::Activation).
    pub op: u32,
    /// SWIGLU_OAI: slope of the gate's sigmoid.
    pub alpha: f32,
    /// SWIGLU_OAI: bound of gate and `up`; 0 for all other functions.
    pub limit: f32,
}

impl GluParams {
    /// From a GLU node. `off` is that of the node's operands and the result.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let Some(Op::Glu(glu)) = d.op() else { return Err(wrong(d)) };
        let s = graph.operands(node);
        let ne = extents(d)?;
        let (off0, off1) = match s.len() {
            2 => (offset(off, 0), offset(off, 1)),
            _ if glu.swapped => (offset(off, 0) + ne[0], offset(off, 0)),
            _ => (offset(off, 0), offset(off, 0) + ne[0]),
        };
        let up = s.get(1).unwrap_or(&s[0]);
        let (mut nb0, mut nb1) = (strides(s[0])?, strides(up)?);
        (nb0[0], nb1[0]) = (1, 1);
        Ok(GluParams {
            ne,
            nb0,
            nb1,
            nbd: strides(d)?,
            off0,
            off1,
            offd: last(off),
            op: glu.activation as u32,
            alpha: glu.clamped.map_or(0.0, |c| c.alpha),
            limit: glu.clamped.map_or(0.0, |c| c.limit),
        })
    }
}

/// CPY and CONT: element `n` of the source goes to element `n` of the destination.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct CopyParams {
    /// Extents of the source.
    pub ne0: [u32; 4],
    /// Extents of the destination.
    pub ned: [u32; 4],
    /// Strides of the source.
    pub nb0: [u32; 4],
    /// Strides of the destination.
    pub nbd: [u32; 4],
    /// Offset of the source.
    pub off0: u32,
    /// Offset of the destination.
    pub offd: u32,
    /// Number of elements.
    pub count: u32,
}

impl CopyParams {
    /// From a CPY or CONT node. `off` is that of the source first and the result last.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        if !matches!(d.op(), Some(Op::Cpy(_) | Op::Cont(_))) {
            return Err(wrong(d));
        }
        let a = graph.operands(node)[0];
        Ok(CopyParams {
            ne0: extents(a)?,
            ned: extents(d)?,
            nb0: strides(a)?,
            nbd: strides(d)?,
            off0: offset(off, 0),
            offd: last(off),
            count: narrow(d.elements(), "number of elements", d)?,
        })
    }
}
