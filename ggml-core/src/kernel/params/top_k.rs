//! The largest elements of rows, and their soft-max.

use super::{Offsets, last, offset, outer, wrong};
use crate::error::{Error, Result};
use crate::fuse::{Best, Router};
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

/// A [`Best`]: the largest element of each row, where it is, and the sum of squares of the row, by work-groups that take a
/// part of a row each.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct BestParams {
    /// Elements of a row.
    pub n: u32,
    /// Elements of a part: whole quads. The last part may have fewer.
    pub part: u32,
    /// Parts of a row.
    pub parts: u32,
    /// Offset of x.
    pub offx: u32,
    /// Offset of the indices.
    pub offd: u32,
    /// Offset of the elements.
    pub offe: u32,
    /// Offset of the sums.
    pub offs: u32,
    /// Offset of the copy of the indices.
    pub offn: u32,
    /// 1 if there is a copy.
    pub next: u32,
}

impl BestParams {
    /// Parts of a row at the most: work-groups that keep a device busy, and few enough for one of them to choose from.
    pub const MOST_PARTS: usize = 128;
    /// Words that a part leaves for the work-group that chooses: the order of its best element, where that is, and its sum.
    pub const WORDS: usize = 3;

    /// From a group. `off` says what remains of a tensor's offset, `together` how many elements a work-group of the kernel
    /// reads at a time.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for results whose elements do not lie side by side.
    pub fn new(graph: &Graph, best: &Best, together: u32, off: &dyn Fn(TensorId) -> u32) -> Result<Self> {
        let x = graph.tensor(best.logits);
        let rows = x.ne[1];
        let result = |id: TensorId| graph.tensor(id).is_contiguous() && graph.tensor(id).elements() == rows;
        if !Self::results(best).into_iter().all(result) || together == 0 {
            return Err(Error::argument("results of a group", x.describe(), "one number of each row"));
        }
        let part = x.ne[0].div_ceil(Self::MOST_PARTS).next_multiple_of(together as usize);
        let [offx, offd, offe, offs, offn] = Self::operands(best).map(off);
        Ok(BestParams {
            n: narrow(x.ne[0], "extent", x)?,
            part: narrow(part, "part", x)?,
            parts: narrow(x.ne[0].div_ceil(part), "parts", x)?,
            offx,
            offd,
            offe,
            offs,
            offn,
            next: best.next.is_some().into(),
        })
    }

    /// The tensors of a group in the order of its kernels' operands: x, the indices, the elements, the sums, the copy of
    /// the indices (these themselves where there is none).
    pub fn operands(best: &Best) -> [TensorId; 5] {
        let [token, value, squares, next] = Self::results(best);
        [best.logits, token, value, squares, next]
    }

    fn results(best: &Best) -> [TensorId; 4] {
        [best.token, best.value, best.squares, best.next.unwrap_or(best.token)]
    }
}
