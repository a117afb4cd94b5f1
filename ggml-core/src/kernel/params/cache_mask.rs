//! Parameters of cache masks.

use super::{Offsets, last, offset, wrong};
use crate::error::Result;
use crate::graph::Graph;
use crate::kernel::extents;
use crate::op::Op;
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

/// Parameters of CACHE_MASK. Operands: cells, tokens. Operands and result are contiguous.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct CacheMaskParams {
    /// Number of cells.
    pub kv: u32,
    /// Number of tokens.
    pub tokens: u32,
    /// Words of each cell's sequences.
    pub words: u32,
    /// 1 if a token attends to no position after its own.
    pub causal: u32,
    /// Length of the window in positions, at most [`CacheMaskParams::ALL`].
    pub window: u32,
    /// 1 if the window is the token's chunk.
    pub chunked: u32,
    /// Offset of the cells.
    pub off0: u32,
    /// Offset of the tokens.
    pub off1: u32,
    /// Offset of the result.
    pub offd: u32,
}

impl CacheMaskParams {
    /// Window that contains all positions.
    pub const ALL: u32 = 1 << 31;
    /// Tokens for which a kernel reuses the cells it has read.
    pub const TOKENS: u32 = 4;

    /// Builds the parameters of a CACHE_MASK node. `off` has the offsets of the operands and the result.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let Some(Op::CacheMask(op)) = d.op() else { return Err(wrong(d)) };
        let [kv, tokens, ..] = extents(d)?;
        let [_, fields, ..] = extents(graph.tensor(d.src()[0]))?;
        let window = op.window.and_then(|size| u32::try_from(size).ok());
        Ok(CacheMaskParams {
            kv,
            tokens,
            words: fields - 1,
            causal: op.causal.into(),
            window: window.map_or(Self::ALL, |size| size.min(Self::ALL)),
            chunked: op.chunked.into(),
            off0: offset(off, 0),
            off1: offset(off, 1),
            offd: last(off),
        })
    }
}
