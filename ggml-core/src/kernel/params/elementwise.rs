//! Parameters of element-wise kernels.

use super::{Offsets, clamp, last, offset, wrong};
use crate::error::{Error, Result};
use crate::fuse::Chain;
use crate::graph::Graph;
use crate::kernel::{extents, narrow, strides};
use crate::op::{Binary, Op};
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

/// Parameters of ADD and MUL, also in fused kernels: `d[i] = a[i] op b[i mod ne1]`.
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
    /// 0 for ADD, 1 for MUL.
    pub op: u32,
}

impl BinaryParams {
    /// Builds the parameters of an ADD or MUL node.
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

/// Parameters of up to four consecutive element-wise functions of F32: `d[i] = f(a[i], ...)`. The result is
/// contiguous.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct UnaryParams {
    /// Extents.
    pub ne: [u32; 4],
    /// Strides of `a`.
    pub nb0: [u32; 4],
    /// Strides of the other operands; 0 in dimensions along which an operand is repeated, and for missing
    /// operands.
    pub nb: [[u32; 4]; 3],
    /// Offset of `a`.
    pub off0: u32,
    /// Offsets of the other operands.
    pub off: [u32; 3],
    /// Offset of the result.
    pub offd: u32,
    /// Number of functions; from bit 8 on the number of other operands.
    pub count: u32,
    /// Codes of the functions, 8 bits each, the first in the lowest: numbers of
    /// [`Activation`](crate::op::Activation)s, or 100 for SCALE, 101 for ADD and 102 for MUL with the next
    /// other operand. Activation + 128 is the product with that activation of the next other operand;
    /// activation + 192 is the product of the activation with the next other operand.
    pub op: u32,
    /// Factor and bias of each SCALE.
    pub scale: [[f32; 2]; 2],
}

const _: () = assert!(Chain::OTHERS == 3 && Chain::SCALES == 2, "`UnaryParams` has a place for each");

impl UnaryParams {
    /// Code of SCALE in the field `op`.
    pub const SCALE: u32 = 100;
    /// Code of ADD.
    pub const ADD: u32 = 101;
    /// Code of MUL.
    pub const MUL: u32 = 102;
    /// Added to the code of the activation if the other operand is the gate.
    pub const GATED: u32 = 128;
    /// Added to the code of the activation if the chain's value is the gate.
    pub const GATE: u32 = 192;

    /// Builds the parameters of a chain, possibly of one function. `off` has the offsets of the operand, the
    /// other operands (any value for missing ones) and the result.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for too many functions or operands, a result that is not contiguous, or
    /// unsupported functions.
    pub fn new(graph: &Graph, chain: &Chain, off: [u32; 2 + Chain::OTHERS]) -> Result<Self> {
        let (a, d) = (graph.tensor(chain.x), graph.tensor(chain.result()));
        let [off0, rest @ .., offd] = off;
        let scales = |id: &&TensorId| matches!(graph.tensor(**id).op(), Some(Op::Scale(_)));
        let fits = chain.nodes.len() <= Chain::LONGEST
            && chain.others.len() <= Chain::OTHERS
            && chain.nodes.iter().filter(scales).count() <= Chain::SCALES
            && d.is_contiguous();
        if !fits {
            let found = format!("{} functions, {} operands more", chain.nodes.len(), chain.others.len());
            return Err(Error::argument(
                "chain",
                found,
                "four or fewer, three or fewer, a contiguous result",
            ));
        }
        let mut p = UnaryParams {
            ne: extents(d)?,
            nb0: strides(a)?,
            off0,
            off: rest,
            offd,
            count: (chain.nodes.len() + (chain.others.len() << 8)) as u32,
            ..UnaryParams::default()
        };
        for (nb, id) in p.nb.iter_mut().zip(&chain.others) {
            let other = graph.tensor(*id);
            *nb = strides(other)?;
            nb.iter_mut().zip(other.ne).filter(|(_, n)| *n == 1).for_each(|(nb, _)| *nb = 0);
        }
        let mut numbers = p.scale.iter_mut();
        for (i, (&id, of)) in chain.nodes.iter().zip(chain.inputs()).enumerate() {
            let node = graph.tensor(id);
            let op = match node.op() {
                Some(Op::Unary(u)) => u.activation as u32,
                Some(Op::Scale(s)) => {
                    numbers.next().into_iter().for_each(|pair| *pair = [s.scale, s.bias]);
                    Self::SCALE
                }
                Some(Op::Binary(Binary::Add)) => Self::ADD,
                Some(Op::Binary(Binary::Mul)) => Self::MUL,
                Some(Op::Glu(glu)) if Chain::is_gate(graph, id, of) => Self::GATE + glu.activation as u32,
                Some(Op::Glu(glu)) => Self::GATED + glu.activation as u32,
                _ => return Err(wrong(node)),
            };
            p.op |= op << (8 * i);
        }
        Ok(p)
    }
}

/// Parameters of gated linear units: `d[i] = activation(gate[i]) * up[i]`. With one operand, both windows are
/// the same and the offsets select the halves.
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
    /// Builds the parameters of a GLU node. `off` has the offsets of the operands and the result.
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
        let (alpha, limit) = clamp(glu);
        Ok(GluParams {
            ne,
            nb0,
            nb1,
            nbd: strides(d)?,
            off0,
            off1,
            offd: last(off),
            op: glu.activation as u32,
            alpha,
            limit,
        })
    }
}

/// Parameters of CPY and CONT: element `n` of the source is copied to element `n` of the destination.
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
    /// Builds the parameters of a CPY or CONT node. `off` has the offset of the source first and of the
    /// result last.
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
