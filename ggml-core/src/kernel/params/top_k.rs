//! The largest elements of rows, and their soft-max.

use super::{Offsets, last, offset, outer, wrong};
use crate::error::Result;
use crate::fuse::Router;
use crate::graph::Graph;
use crate::kernel::{extents, narrow};
use crate::op::Op;
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

/// TOP_K, alone or as a [`Router`]: then the soft-max of the elements that were picked is a second result, with the
/// extents and strides of the first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct TopKParams {
    /// Extents of x.
    pub ne: [u32; 4],
    /// Strides of x, rows and outwards.
    pub nb0: [u32; 3],
    /// Strides of the results, rows and outwards.
    pub nbd: [u32; 3],
    /// Offset of x.
    pub off0: u32,
    /// Offset of the indices.
    pub offd: u32,
    /// Offset of the soft-max.
    pub offw: u32,
    /// Indices for each row.
    pub k: u32,
    /// Index of the first element of a row by the row's number in its matrix.
    pub first: u32,
    /// 1 for the soft-max.
    pub weights: u32,
    /// Soft-max: factor of the elements.
    pub scale: f32,
}

impl TopKParams {
    /// From a TOP_K node. `off` is that of the operand and the result.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let Some(Op::TopK(op)) = d.op() else { return Err(wrong(d)) };
        let x = graph.operands(node)[0];
        Ok(TopKParams {
            ne: extents(x)?,
            nb0: outer(x)?,
            nbd: outer(d)?,
            off0: offset(off, 0),
            offd: last(off),
            k: narrow(op.k, "k", d)?,
            first: if op.flat { narrow(x.ne[0], "ne0", d)? } else { 0 },
            ..TopKParams::default()
        })
    }

    /// From a group. `off` is that of the scores, the indices and the weights.
    pub fn of_group(graph: &Graph, router: &Router, off: [u32; 3]) -> Result<Self> {
        let [scores, ids, offw] = off;
        let p = TopKParams::new(graph, router.ids, &[scores, ids])?;
        Ok(TopKParams { offw, weights: 1, scale: router.soft_max.scale, ..p })
    }
}
