//! Parameters of kernels that work row by row.

use super::{Mask, Offsets, floor_power_of_two, last, offset, optional, outer, wrong};
use crate::error::Result;
use crate::graph::Graph;
use crate::kernel::{extents, narrow, strides};
use crate::op::{Op, RopeMode};
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

/// Parameters of ROPE. Operands: x, positions, table (see [`crate::kernel::rope`]), factors (the table if
/// missing).
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
    /// Number of rotated elements.
    pub n_dims: u32,
    /// 0 if pairs are neighbours, 1 if they are the halves.
    pub neox: u32,
    /// 1 if factors are present.
    pub has_factors: u32,
    /// Factor of sine and cosine.
    pub magnitude: f32,
}

impl RopeParams {
    /// Builds the parameters of a ROPE node. `off` has the offsets of the operands (x, positions, factors if
    /// any) and the result.
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
            off2: optional(off, &s, 2),
            offd: last(off),
            n_dims: narrow(rope.n_dims, "n_dims", d)?,
            neox: (rope.mode == RopeMode::Neox) as u32,
            has_factors: (s.len() > 2) as u32,
            magnitude: crate::kernel::rope::magnitude(rope),
        })
    }
}

/// Parameters of SOFT_MAX. Operands: x, mask (x if missing).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct SoftMaxParams {
    /// Extents of x.
    pub ne: [u32; 4],
    /// Strides of x: rows and outer dimensions.
    pub nb0: [u32; 3],
    /// Strides of the mask: rows and outer dimensions.
    pub nb1: [u32; 3],
    /// Strides of the result: rows and outer dimensions.
    pub nbd: [u32; 3],
    /// Outer extents of the mask.
    pub mask_ne: [u32; 2],
    /// Offset of x.
    pub off0: u32,
    /// Offset of the mask.
    pub off1: u32,
    /// Offset of the result.
    pub offd: u32,
    /// 0 for no mask, 1 for F32, 2 for F16.
    pub mask_type: u32,
    /// Factor of x.
    pub scale: f32,
    /// Maximum bias of ALiBi; 0 for slope 1.
    pub max_bias: f32,
    /// Largest power of two not above the number of heads.
    pub heads_log2: u32,
}

impl SoftMaxParams {
    /// Builds the parameters of a SOFT_MAX node. `off` has the offsets of the operands (x, mask if any) and
    /// the result.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let Some(Op::SoftMax(op)) = d.op() else { return Err(wrong(d)) };
        let s = graph.operands(node);
        let mask = Mask::new(s.get(1))?;
        let ne = extents(d)?;
        Ok(SoftMaxParams {
            ne,
            nb0: outer(s[0])?,
            nb1: mask.nb,
            nbd: outer(d)?,
            mask_ne: mask.ne,
            off0: offset(off, 0),
            off1: optional(off, &s, 1),
            offd: last(off),
            mask_type: mask.code,
            scale: op.scale,
            max_bias: op.max_bias,
            heads_log2: floor_power_of_two(ne[2]),
        })
    }
}

/// Parameters of GET_ROWS. Operands: a, ids.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct GetRowsParams {
    /// Extents of the result.
    pub ne: [u32; 4],
    /// Number of rows of `a`.
    pub rows: u32,
    /// Strides of `a` in blocks: rows and outer dimensions.
    pub nb0: [u32; 3],
    /// Strides of the ids.
    pub nb1: [u32; 3],
    /// Strides of the result: rows and outer dimensions.
    pub nbd: [u32; 3],
    /// Offset of `a` in blocks.
    pub off0: u32,
    /// Offset of the ids.
    pub off1: u32,
    /// Offset of the result.
    pub offd: u32,
}

impl GetRowsParams {
    /// Builds the parameters of a GET_ROWS node.
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

/// Parameters of SET_ROWS. Operands: values, ids; the result is the destination.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct SetRowsParams {
    /// Extents of the values.
    pub ne: [u32; 4],
    /// Number of rows of the destination.
    pub rows: u32,
    /// Outer extents of the ids.
    pub ids_ne: [u32; 2],
    /// Strides of the values: rows and outer dimensions.
    pub nb0: [u32; 3],
    /// Strides of the ids.
    pub nb1: [u32; 3],
    /// Strides of the destination: rows and outer dimensions.
    pub nbd: [u32; 3],
    /// Offset of the values.
    pub off0: u32,
    /// Offset of the ids.
    pub off1: u32,
    /// Offset of the destination.
    pub offd: u32,
}

impl SetRowsParams {
    /// Builds the parameters of a SET_ROWS node. `off` has the offsets of the operands (destination, values,
    /// ids) and the result.
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
