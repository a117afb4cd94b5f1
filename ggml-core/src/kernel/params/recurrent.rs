//! Parameters of kernels with a recurrent state.

use super::{Offsets, last, offset, outer, wrong};
use crate::error::Result;
use crate::fuse::{Conv, Delta};
use crate::graph::Graph;
use crate::kernel::{extents, narrow};
use crate::op::Op;
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

/// Parameters of SSM_CONV. Operands: x, w, state, runs. All but x are contiguous, like the result.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct SsmConvParams {
    /// Number of channels.
    pub channels: u32,
    /// Number of tokens.
    pub tokens: u32,
    /// Number of taps.
    pub taps: u32,
    /// Number of slots of the state.
    pub slots: u32,
    /// Rows of the runs: 3, or 4 if drafts are possible.
    pub run_fields: u32,
    /// Stride of the rows of x.
    pub nb0: u32,
    /// Offsets of x, w, state, runs, result.
    pub off: [u32; 5],
}

impl SsmConvParams {
    /// Builds the parameters of an SSM_CONV node. `off` has the offsets of the operands and the result.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        if !matches!(d.op(), Some(Op::SsmConv(_))) {
            return Err(wrong(d));
        }
        let s = graph.operands(node);
        let (x, w, state) = (extents(s[0])?, extents(s[1])?, extents(s[2])?);
        Ok(SsmConvParams {
            channels: x[0],
            tokens: x[1],
            taps: w[0],
            slots: state[2],
            run_fields: extents(s[3])?[0],
            nb0: outer(s[0])?[0],
            off: [offset(off, 0), offset(off, 1), offset(off, 2), offset(off, 3), last(off)],
        })
    }
}

/// Parameters of GATED_DELTA_NET. Operands: q, k, v, g, beta, state, runs. All but q, k and v are contiguous,
/// like the result.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct DeltaNetParams {
    /// Lengths of keys and values.
    pub d: [u32; 2],
    /// Heads of keys and values.
    pub heads: [u32; 2],
    /// Number of tokens.
    pub tokens: u32,
    /// Number of slots of the state.
    pub slots: u32,
    /// Rows of the runs: 3, or 4 if drafts are possible.
    pub run_fields: u32,
    /// Strides of q: heads, tokens.
    pub nbq: [u32; 2],
    /// Strides of k: heads, tokens.
    pub nbk: [u32; 2],
    /// Strides of v: heads, tokens.
    pub nbv: [u32; 2],
    /// Offsets of q, k, v, g, beta, state, runs, result; of a group also of the factors of decays and of the state that is
    /// replaced.
    pub off: [u32; 10],
    /// Factor of the result.
    pub scale: f32,
    /// Norm of queries and keys: `x factor / sqrt(mean(x^2) + eps)`. A factor of 0 means no norm.
    pub factor: f32,
    /// Epsilon added to the mean square.
    pub eps: f32,
    /// 1 if g and beta are operands of a softplus and a sigmoid.
    pub gates: u32,
    /// 1 if the new state replaces the old one.
    pub keeps: u32,
}

impl DeltaNetParams {
    /// Builds the parameters of a GATED_DELTA_NET node. `off` has the offsets of the operands and the result.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let Some(Op::GatedDeltaNet(op)) = d.op() else { return Err(wrong(d)) };
        let s = graph.operands(node);
        let (q, v) = (extents(s[0])?, extents(s[2])?);
        let pair = |i: usize| outer(s[i]).map(|[heads, tokens, _]| [heads, tokens]);
        let mut offsets = [last(off); 10];
        (0..7).for_each(|i| offsets[i] = offset(off, i));
        Ok(DeltaNetParams {
            d: [q[0], v[0]],
            heads: [q[1], v[1]],
            tokens: q[2],
            slots: extents(s[5])?[3],
            run_fields: extents(s[6])?[0],
            nbq: pair(0)?,
            nbk: pair(1)?,
            nbv: pair(2)?,
            off: offsets,
            scale: op.scale,
            factor: 0.0,
            eps: 0.0,
            gates: 0,
            keeps: 0,
        })
    }

    /// Builds the parameters of a group: queries and keys are taken from the operand of the norm. `off` gives the
    /// remainder of a tensor's offset.
    pub fn of_group(graph: &Graph, delta: &Delta, off: &dyn Fn(TensorId) -> u32) -> Result<Self> {
        let x = graph.tensor(delta.unit.x);
        let [heads, tokens, _] = outer(x)?;
        let mut p = DeltaNetParams::new(graph, delta.node, &[])?;
        let [src @ .., factors, result, kept] = DeltaNetParams::operands(graph, delta);
        let [a, b, c, d, e, f, g] = src.map(off);
        p.off = [a, b, c, d, e, f, g, off(result), off(factors), off(kept)];
        (p.gates, p.keeps) = (delta.gates.is_some().into(), delta.kept.is_some().into());
        (p.nbq, p.nbk) = ([heads, tokens], [heads, tokens]);
        for (i, first) in delta.first.into_iter().enumerate() {
            p.off[i] += narrow(first, "head", x)?.saturating_mul(heads);
        }
        (p.factor, p.eps) = (delta.unit.factor, delta.unit.eps);
        Ok(p)
    }

    /// Returns the tensors of a group in the order of the kernel's operands: those of the node, factors of decays (the
    /// decays if there are none), the result, the state that is replaced (the result if none is). The last two are written.
    pub fn operands(graph: &Graph, delta: &Delta) -> [TensorId; 10] {
        let src = graph.tensor(delta.node).src();
        let [_, _, v, g, beta, state, runs] =
            std::array::from_fn(|i| src.get(i).copied().unwrap_or(delta.node));
        let (step, of_beta, factors) =
            delta.gates.map_or((g, beta, g), |gates| (gates.step, gates.beta, gates.factor));
        let kept = if delta.kept.is_some() { state } else { delta.node };
        [delta.unit.x, delta.unit.x, v, step, of_beta, state, runs, factors, delta.node, kept]
    }

    /// Returns the operands of a node alone, in the same order.
    pub fn of_node(graph: &Graph, node: TensorId) -> [TensorId; 10] {
        let src = graph.tensor(node).src();
        std::array::from_fn(|i| match i {
            7 => src.get(3).copied().unwrap_or(node),
            _ => src.get(i).copied().unwrap_or(node),
        })
    }
}

/// Parameters of a short convolution with a bias and an activation. Its new state replaces the old one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct ConvParams {
    /// Number of channels.
    pub channels: u32,
    /// Number of tokens.
    pub tokens: u32,
    /// Number of taps.
    pub taps: u32,
    /// Number of slots of the state.
    pub slots: u32,
    /// Rows of the runs: 3, or 4 if drafts are possible.
    pub run_fields: u32,
    /// Stride of the rows of x.
    pub nb0: u32,
    /// Number of the [`Activation`](crate::op::Activation).
    pub op: u32,
    /// 1 if a bias is present.
    pub bias: u32,
    /// Offsets of x, w, runs, bias, result, state.
    pub off: [u32; 6],
}

impl ConvParams {
    /// Tokens of a channel computed by one thread.
    pub const TOKENS: u32 = 8;

    /// Returns the number of threads for each channel.
    pub fn tiles(&self) -> u32 {
        self.tokens.div_ceil(ConvParams::TOKENS)
    }

    /// Builds the parameters of a group. `off` gives the remainder of a tensor's offset.
    pub fn new(graph: &Graph, conv: &Conv, off: &dyn Fn(TensorId) -> u32) -> Result<Self> {
        let p = SsmConvParams::new(graph, conv.node, &[])?;
        Ok(ConvParams {
            channels: p.channels,
            tokens: p.tokens,
            taps: p.taps,
            slots: p.slots,
            run_fields: p.run_fields,
            nb0: p.nb0,
            op: conv.activation as u32,
            bias: conv.bias.is_some().into(),
            off: ConvParams::operands(graph, conv).map(off),
        })
    }

    /// Returns the tensors of a group in the order of the kernel's operands: x, w, runs, bias (w if missing),
    /// the rows, the state. The last two are written.
    pub fn operands(graph: &Graph, conv: &Conv) -> [TensorId; 6] {
        let src = graph.tensor(conv.node).src();
        let [x, w, state, runs] = [0, 1, 2, 3].map(|i| src.get(i).copied().unwrap_or(conv.node));
        [x, w, runs, conv.bias.map_or(w, |(bias, _)| bias), conv.rows, state]
    }
}

/// Parameters of SSM_SCAN. Operands: x, dt, a, b, c, state, runs. All but x, b and c are contiguous, like the
/// result.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct SsmScanParams {
    /// Lengths of a channel's state and of a head.
    pub d: [u32; 2],
    /// Groups and heads.
    pub heads: [u32; 2],
    /// Number of tokens.
    pub tokens: u32,
    /// Number of slots of the state.
    pub slots: u32,
    /// Rows of the runs: 3, or 4 if drafts are possible.
    pub run_fields: u32,
    /// Strides of x: heads, tokens.
    pub nbx: [u32; 2],
    /// Strides of b: groups, tokens.
    pub nbb: [u32; 2],
    /// Strides of c: groups, tokens.
    pub nbc: [u32; 2],
    /// Offsets of x, dt, a, b, c, state, runs, result.
    pub off: [u32; 8],
}

impl SsmScanParams {
    /// Builds the parameters of an SSM_SCAN node. `off` has the offsets of the operands and the result.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        if !matches!(d.op(), Some(Op::SsmScan(_))) {
            return Err(wrong(d));
        }
        let s = graph.operands(node);
        let (x, b) = (extents(s[0])?, extents(s[3])?);
        let pair = |i: usize| outer(s[i]).map(|[heads, tokens, _]| [heads, tokens]);
        Ok(SsmScanParams {
            d: [b[0], x[0]],
            heads: [b[1], x[1]],
            tokens: x[2],
            slots: extents(s[5])?[3],
            run_fields: extents(s[6])?[0],
            nbx: pair(0)?,
            nbb: pair(3)?,
            nbc: pair(4)?,
            off: std::array::from_fn(|i| if i < 7 { offset(off, i) } else { last(off) }),
        })
    }
}
