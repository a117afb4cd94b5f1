//! Parameter structures, one for each family of kernels, and how they follow from a node.
//!
//! Field order is part of the interface: shaders and HIP kernels declare the same structures. All fields have four
//! bytes, so there is no padding.

use super::{extents, narrow, strides};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::op::{Binary, Op, RopeMode};
use crate::tensor::{Tensor, TensorId};
use bytemuck::{Pod, Zeroable};

/// Largest parameter structure in bytes: every Vulkan device has 128 bytes of push constants.
pub const MAX_PARAM_BYTES: usize = 128;

/// What remains of the offsets of the operands and the result after their windows were aligned, in blocks: operands
/// in order, the result last.
pub type Offsets<'a> = &'a [u32];

fn wrong(node: &Tensor) -> Error {
    Error::argument("kernel parameters", format!("{} is no node of this family", node.describe()))
}

fn offset(off: Offsets<'_>, i: usize) -> u32 {
    off.get(i).copied().unwrap_or(0)
}

fn last(off: Offsets<'_>) -> u32 {
    off.last().copied().unwrap_or(0)
}

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

/// Activations and SCALE: `d[i] = f(a[i])`.
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
    /// Offset of the result.
    pub offd: u32,
    /// Number of the [`Activation`](crate::op::Activation); 100 for SCALE.
    pub op: u32,
    /// SCALE: factor.
    pub scale: f32,
    /// SCALE: summand.
    pub bias: f32,
}

impl UnaryParams {
    /// Number of SCALE in the field `op`.
    pub const SCALE: u32 = 100;

    /// From an activation or SCALE node.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let (op, scale, bias) = match d.op() {
            Some(Op::Unary(u)) => (u.activation as u32, 1.0, 0.0),
            Some(Op::Scale(s)) => (Self::SCALE, s.scale, s.bias),
            _ => return Err(wrong(d)),
        };
        let a = graph.operands(node)[0];
        let (off0, offd) = (offset(off, 0), last(off));
        Ok(UnaryParams { ne: extents(d)?, nb0: strides(a)?, nbd: strides(d)?, off0, offd, op, scale, bias })
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
        Ok(GluParams { ne, nb0, nb1, nbd: strides(d)?, off0, off1, offd: last(off), op: glu.activation as u32 })
    }
}

/// RMS_NORM: one row of `ne[0]` elements at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct NormParams {
    /// Extents.
    pub ne: [u32; 4],
    /// Strides of the operand (`nb0[0]` is 1).
    pub nb0: [u32; 4],
    /// Strides of the result.
    pub nbd: [u32; 4],
    /// Offset of the operand.
    pub off0: u32,
    /// Offset of the result.
    pub offd: u32,
    /// Added to the mean square.
    pub eps: f32,
}

impl NormParams {
    /// From an RMS_NORM node.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let Some(Op::RmsNorm(norm)) = d.op() else { return Err(wrong(d)) };
        let a = graph.operands(node)[0];
        let (off0, offd) = (offset(off, 0), last(off));
        Ok(NormParams { ne: extents(d)?, nb0: strides(a)?, nbd: strides(d)?, off0, offd, eps: norm.eps })
    }
}

/// ROPE. Operands: x, positions, table (see [`super::rope`]), factors (the table again where there are none).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct RopeParams {
    /// Extents of x.
    pub ne: [u32; 4],
    /// Strides of x (`nb0[0]` is 1).
    pub nb0: [u32; 4],
    /// Strides of the result.
    pub nbd: [u32; 4],
    /// Offset of x.
    pub off0: u32,
    /// Offset of the positions.
    pub off1: u32,
    /// Offset of the factors.
    pub off2: u32,
    /// Offset of the result.
    pub offd: u32,
    /// Elements that are rotated.
    pub n_dims: u32,
    /// 0 neighbours are a pair, 1 halves.
    pub neox: u32,
    /// 1 if there are factors.
    pub has_factors: u32,
    /// Factor of sine and cosine.
    pub magnitude: f32,
}

impl RopeParams {
    /// From a ROPE node. `off` is that of the node's operands (x, positions, factors if any) and the result.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let Some(Op::Rope(rope)) = d.op() else { return Err(wrong(d)) };
        let s = graph.operands(node);
        Ok(RopeParams {
            ne: extents(d)?,
            nb0: strides(s[0])?,
            nbd: strides(d)?,
            off0: offset(off, 0),
            off1: offset(off, 1),
            off2: if s.len() > 2 { offset(off, 2) } else { 0 },
            offd: last(off),
            n_dims: narrow(rope.n_dims, "n_dims", d)?,
            neox: (rope.mode == RopeMode::Neox) as u32,
            has_factors: (s.len() > 2) as u32,
            magnitude: super::rope::magnitude(rope),
        })
    }
}

/// SOFT_MAX. Operands: x, mask (x again where there is none).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct SoftMaxParams {
    /// Extents of x.
    pub ne: [u32; 4],
    /// Strides of x, rows and outwards.
    pub nb0: [u32; 3],
    /// Strides of the mask, rows and outwards.
    pub nb1: [u32; 3],
    /// Strides of the result, rows and outwards.
    pub nbd: [u32; 3],
    /// Outer extents of the mask.
    pub mask_ne: [u32; 2],
    /// Offset of x.
    pub off0: u32,
    /// Offset of the mask.
    pub off1: u32,
    /// Offset of the result.
    pub offd: u32,
    /// 0 no mask, 1 F32, 2 F16.
    pub mask_type: u32,
    /// Factor of x.
    pub scale: f32,
    /// ALiBi; 0 for slope 1.
    pub max_bias: f32,
    /// Largest power of two that is no more than the heads.
    pub heads_log2: u32,
}

/// 0 no mask, 1 F32, 2 F16.
fn mask_type(mask: Option<&&Tensor>) -> u32 {
    mask.map_or(0, |m| if m.dtype == crate::DType::F16 { 2 } else { 1 })
}

fn floor_power_of_two(n: u32) -> u32 {
    if n == 0 { 1 } else { 1 << (31 - n.leading_zeros()) }
}

fn outer(t: &Tensor) -> Result<[u32; 3]> {
    let [_, nb1, nb2, nb3] = strides(t)?;
    Ok([nb1, nb2, nb3])
}

impl SoftMaxParams {
    /// From a SOFT_MAX node. `off` is that of the node's operands (x, mask if any) and the result.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let Some(Op::SoftMax(op)) = d.op() else { return Err(wrong(d)) };
        let s = graph.operands(node);
        let mask = s.get(1);
        let ne = extents(d)?;
        let mask_ne = mask.map(|m| extents(m)).transpose()?.unwrap_or([1; 4]);
        Ok(SoftMaxParams {
            ne,
            nb0: outer(s[0])?,
            nb1: mask.map(|m| outer(m)).transpose()?.unwrap_or_default(),
            nbd: outer(d)?,
            mask_ne: [mask_ne[2], mask_ne[3]],
            off0: offset(off, 0),
            off1: if mask.is_some() { offset(off, 1) } else { 0 },
            offd: last(off),
            mask_type: mask_type(mask),
            scale: op.scale,
            max_bias: op.max_bias,
            heads_log2: floor_power_of_two(ne[2]),
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

/// GET_ROWS. Operands: a, ids.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct GetRowsParams {
    /// Extents of the result.
    pub ne: [u32; 4],
    /// Rows of `a`.
    pub rows: u32,
    /// Strides of `a` in blocks, rows and outwards.
    pub nb0: [u32; 3],
    /// Strides of the ids.
    pub nb1: [u32; 3],
    /// Strides of the result, rows and outwards.
    pub nbd: [u32; 3],
    /// Offset of `a` in blocks.
    pub off0: u32,
    /// Offset of the ids.
    pub off1: u32,
    /// Offset of the result.
    pub offd: u32,
}

impl GetRowsParams {
    /// From a GET_ROWS node.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        if !matches!(d.op(), Some(Op::GetRows(_))) {
            return Err(wrong(d));
        }
        let s = graph.operands(node);
        let ids = strides(s[1])?;
        Ok(GetRowsParams {
            ne: extents(d)?,
            rows: narrow(s[0].ne[1], "rows", s[0])?,
            nb0: outer(s[0])?,
            nb1: [ids[0], ids[1], ids[2]],
            nbd: outer(d)?,
            off0: offset(off, 0),
            off1: offset(off, 1),
            offd: last(off),
        })
    }
}

/// SET_ROWS. Operands: values, ids; the result is the destination.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct SetRowsParams {
    /// Extents of the values.
    pub ne: [u32; 4],
    /// Rows of the destination.
    pub rows: u32,
    /// Outer extents of the ids.
    pub ids_ne: [u32; 2],
    /// Strides of the values, rows and outwards.
    pub nb0: [u32; 3],
    /// Strides of the ids.
    pub nb1: [u32; 3],
    /// Strides of the destination, rows and outwards.
    pub nbd: [u32; 3],
    /// Offset of the values.
    pub off0: u32,
    /// Offset of the ids.
    pub off1: u32,
    /// Offset of the destination.
    pub offd: u32,
}

impl SetRowsParams {
    /// From a SET_ROWS node. `off` is that of the node's operands (destination, values, ids) and the result.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        if !matches!(d.op(), Some(Op::SetRows(_))) {
            return Err(wrong(d));
        }
        let s = graph.operands(node);
        let (ids_ne, ids) = (extents(s[2])?, strides(s[2])?);
        Ok(SetRowsParams {
            ne: extents(s[1])?,
            rows: narrow(d.ne[1], "rows", d)?,
            ids_ne: [ids_ne[1], ids_ne[2]],
            nb0: outer(s[1])?,
            nb1: [ids[0], ids[1], ids[2]],
            nbd: outer(d)?,
            off0: offset(off, 1),
            off1: offset(off, 2),
            offd: last(off),
        })
    }
}

/// MUL_MAT, mat-vec and mat-mul: `d[m, n] = sum over k of a[k, m] * b[k, n]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct MulMatParams {
    /// Rows of `a`.
    pub m: u32,
    /// Rows of `b`.
    pub n: u32,
    /// Length of the rows in elements.
    pub k: u32,
    /// Third extent of `b`.
    pub ne2: u32,
    /// Fourth extent of `b`.
    pub ne3: u32,
    /// Third extent of `b` over that of `a`.
    pub r2: u32,
    /// Fourth extent of `b` over that of `a`.
    pub r3: u32,
    /// Strides of `a` in blocks, rows and outwards.
    pub nb0: [u32; 3],
    /// Strides of `b`, rows and outwards.
    pub nb1: [u32; 3],
    /// Strides of the result, rows and outwards.
    pub nbd: [u32; 3],
    /// Offset of `a` in blocks.
    pub off0: u32,
    /// Offset of `b`.
    pub off1: u32,
    /// Offset of the result.
    pub offd: u32,
    /// First row of `a` that this dispatch computes (operands larger than a window are split by rows).
    pub first_row: u32,
}

impl MulMatParams {
    /// From a MUL_MAT node.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        if !matches!(d.op(), Some(Op::MulMat(_))) {
            return Err(wrong(d));
        }
        let s = graph.operands(node);
        let (a, b) = (extents(s[0])?, extents(s[1])?);
        Ok(MulMatParams {
            m: a[1],
            n: b[1],
            k: a[0],
            ne2: b[2],
            ne3: b[3],
            r2: b[2] / a[2],
            r3: b[3] / a[3],
            nb0: outer(s[0])?,
            nb1: outer(s[1])?,
            nbd: outer(d)?,
            off0: offset(off, 0),
            off1: offset(off, 1),
            offd: last(off),
            first_row: 0,
        })
    }
}

/// FLASH_ATTN_EXT. Operands: q, k, v, mask (q again where there is none).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct FlashAttnParams {
    /// Row lengths of k and v.
    pub d: [u32; 2],
    /// Tokens, heads, batch of q.
    pub ne: [u32; 3],
    /// Positions and heads of k and v.
    pub kv: [u32; 2],
    /// Strides of q, rows and outwards.
    pub nbq: [u32; 3],
    /// Strides of k, rows and outwards.
    pub nbk: [u32; 3],
    /// Strides of v, rows and outwards.
    pub nbv: [u32; 3],
    /// Strides of the mask, rows and outwards.
    pub nbm: [u32; 3],
    /// Outer extents of the mask.
    pub mask_ne: [u32; 2],
    /// Offsets of q, k, v, mask, result. The result is contiguous.
    pub off: [u32; 5],
    /// 0 no mask, 1 F32, 2 F16.
    pub mask_type: u32,
    /// Largest power of two that is no more than the heads.
    pub heads_log2: u32,
    /// Factor of the scores.
    pub scale: f32,
    /// ALiBi; 0 for slope 1.
    pub max_bias: f32,
    /// Bound of the scores; 0 for none.
    pub logit_softcap: f32,
}

impl FlashAttnParams {
    /// From a FLASH_ATTN_EXT node. `off` is that of the node's operands and the result.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let Some(Op::FlashAttnExt(op)) = d.op() else { return Err(wrong(d)) };
        let s = graph.operands(node);
        let (q, k, v, mask) = (extents(s[0])?, extents(s[1])?, extents(s[2])?, s.get(3));
        let mask_ne = mask.map(|m| extents(m)).transpose()?.unwrap_or([1; 4]);
        let off_mask = if mask.is_some() { offset(off, 3) } else { 0 };
        Ok(FlashAttnParams {
            d: [k[0], v[0]],
            ne: [q[1], q[2], q[3]],
            kv: [k[1], k[2]],
            nbq: outer(s[0])?,
            nbk: outer(s[1])?,
            nbv: outer(s[2])?,
            nbm: mask.map(|m| outer(m)).transpose()?.unwrap_or_default(),
            mask_ne: [mask_ne[2], mask_ne[3]],
            off: [offset(off, 0), offset(off, 1), offset(off, 2), off_mask, last(off)],
            mask_type: mask_type(mask),
            heads_log2: floor_power_of_two(q[2]),
            scale: op.scale,
            max_bias: op.max_bias,
            logit_softcap: op.logit_softcap,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::tensor::Source;

    #[test]
    fn structures_fit_push_constants() {
        let sizes = [
            size_of::<BinaryParams>(),
            size_of::<UnaryParams>(),
            size_of::<GluParams>(),
            size_of::<NormParams>(),
            size_of::<RopeParams>(),
            size_of::<SoftMaxParams>(),
            size_of::<CopyParams>(),
            size_of::<GetRowsParams>(),
            size_of::<SetRowsParams>(),
            size_of::<MulMatParams>(),
            size_of::<FlashAttnParams>(),
        ];
        assert!(sizes.iter().all(|&s| s <= MAX_PARAM_BYTES && s % 4 == 0), "{sizes:?}");
    }

    #[test]
    fn strides_count_blocks() {
        let mut g = Graph::new();
        let a = g.leaf("a", DType::Q8_0, [64, 10, 3, 1], Source::Weight).unwrap();
        let b = g.leaf("b", DType::F32, [64, 5, 6, 1], Source::Input).unwrap();
        let d = g.mul_mat(a, b).unwrap();
        let p = MulMatParams::new(&g, d, &[7, 8, 9]).unwrap();
        assert_eq!((p.m, p.n, p.k, p.r2, p.r3), (10, 5, 64, 2, 1));
        assert_eq!((p.nb0, p.nb1, p.nbd), ([2, 20, 0], [64, 320, 0], [10, 50, 0]));
        assert_eq!((p.off0, p.off1, p.offd), (7, 8, 9));
        assert!(BinaryParams::new(&g, d, &[]).is_err());
    }
}
