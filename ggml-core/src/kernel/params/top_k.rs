//! Parameters of kernels that find the largest elements of rows.

use super::{Offsets, last, offset, outer, wrong};
use crate::error::{Error, Result};
use crate::fuse::{Best, Router};
use crate::graph::Graph;
use crate::kernel::{extents, narrow};
use crate::op::Op;
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

/// Parameters of TOP_K, by itself or as a [`Router`]. With a router, the soft-max of the selected elements is
/// a second result with the extents and strides of the first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct TopKParams {
    /// Extents of x.
    pub ne: [u32; 4],
    /// Strides of x: rows and outer dimensions.
    pub nb0: [u32; 3],
    /// Strides of the results: rows and outer dimensions.
    pub nbd: [u32; 3],
    /// Offset of x.
    pub off0: u32,
    /// Offset of the indices.
    pub offd: u32,
    /// Offset of the soft-max.
    pub offw: u32,
    /// Number of indices for each row.
    pub k: u32,
    /// Index of a row's first element, per row number in its matrix: the row length for flat indices, else 0.
    pub first: u32,
    /// 1 if the soft-max is computed.
    pub weights: u32,
    /// Factor of the elements in the soft-max.
    pub scale: f32,
}

impl TopKParams {
    /// Builds the parameters of a TOP_K node. `off` has the offsets of the operand and the result.
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

    /// Builds the parameters of a group. `off` has the offsets of the scores, the indices and the weights.
    pub fn of_group(graph: &Graph, router: &Router, off: [u32; 3]) -> Result<Self> {
        let [scores, ids, offw] = off;
        let p = TopKParams::new(graph, router.ids, &[scores, ids])?;
        Ok(TopKParams { offw, weights: 1, scale: router.soft_max.scale, ..p })
    }
}

/// Parameters of a [`Best`]: the largest element of each row, its index, and the sum of squares of the row.
/// Each work-group processes one part of a row.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct BestParams {
    /// Elements in a row.
    pub n: u32,
    /// Elements in a part, a multiple of four. The last part may have fewer.
    pub part: u32,
    /// Number of parts in a row.
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
    /// 1 if the copy is present.
    pub next: u32,
}

impl BestParams {
    /// Maximum number of parts in a row: enough work-groups to occupy a device, and few enough for a final
    /// selection by one of them.
    pub const MOST_PARTS: usize = 128;
    /// Words that a part passes to the final selection: the order of its best element, the element's index,
    /// and its sum.
    pub const WORDS: usize = 3;

    /// Builds the parameters of a group. `off` gives the remainder of a tensor's offset; `together` is the
    /// number of elements that a work-group reads at a time.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a result is not contiguous with one value for each row, or `together` is
    /// 0.
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

    /// Returns the tensors of a group in the order of the kernel's operands: x, the indices, the elements,
    /// the sums, the copy of the indices (the indices if missing).
    pub fn operands(best: &Best) -> [TensorId; 5] {
        let [token, value, squares, next] = Self::results(best);
        [best.logits, token, value, squares, next]
    }

    fn results(best: &Best) -> [TensorId; 4] {
        [best.token, best.value, best.squares, best.next.unwrap_or(best.token)]
    }
}
