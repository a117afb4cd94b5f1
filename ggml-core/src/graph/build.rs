//! Builder methods, one for each operation. Shapes and errors are those of the operation's definition in
//! [`crate::op`].

use super::Graph;
use crate::error::Result;
use crate::op::{
    Activation, Binary, CacheMask, Cont, Cpy, FlashAttnExt, GatedDeltaNet, GetRows, Glu, MulMat, MulMatId,
    Op, Permute, Reshape, RmsNorm, Rope, Scale, SetRows, SoftMax, SsmConv, SsmScan, TopK, Transpose, Unary,
    View,
};
use crate::tensor::TensorId;

impl Graph {
    /// Adds GET_ROWS: rows of `a` by index.
    pub fn get_rows(&mut self, a: TensorId, ids: TensorId) -> Result<TensorId> {
        self.node(Op::GetRows(GetRows {}), &[a, ids])
    }

    /// Adds SET_ROWS: writes `values` into rows of `dst`; the result is the modified `dst`.
    pub fn set_rows(&mut self, dst: TensorId, values: TensorId, ids: TensorId) -> Result<TensorId> {
        self.node(Op::SetRows(SetRows {}), &[dst, values, ids])
    }

    /// Adds MUL_MAT: matrix product of `a` (weights) and `b` (activations).
    pub fn mul_mat(&mut self, a: TensorId, b: TensorId) -> Result<TensorId> {
        self.node(Op::MulMat(MulMat {}), &[a, b])
    }

    /// Adds MUL_MAT_ID: product of `b` and the matrices of `a` that `ids` selects for each token.
    pub fn mul_mat_id(&mut self, a: TensorId, b: TensorId, ids: TensorId) -> Result<TensorId> {
        self.node(Op::MulMatId(MulMatId {}), &[a, b, ids])
    }

    /// Adds TOP_K: indices of the `k` largest elements of each row.
    pub fn top_k(&mut self, x: TensorId, k: usize) -> Result<TensorId> {
        self.node(Op::TopK(TopK { k, flat: false }), &[x])
    }

    /// Adds [`TopK`] of a matrix's rows, with indices into the whole matrix.
    pub fn top_k_flat(&mut self, x: TensorId, k: usize) -> Result<TensorId> {
        self.node(Op::TopK(TopK { k, flat: true }), &[x])
    }

    /// Adds ADD or MUL.
    pub fn binary(&mut self, op: Binary, a: TensorId, b: TensorId) -> Result<TensorId> {
        self.node(Op::Binary(op), &[a, b])
    }

    /// Adds ADD; `b` is repeated to the extents of `a`.
    pub fn add(&mut self, a: TensorId, b: TensorId) -> Result<TensorId> {
        self.binary(Binary::Add, a, b)
    }

    /// Adds MUL; `b` is repeated to the extents of `a`.
    pub fn mul(&mut self, a: TensorId, b: TensorId) -> Result<TensorId> {
        self.binary(Binary::Mul, a, b)
    }

    /// Adds RMS_NORM of each row.
    pub fn rms_norm(&mut self, x: TensorId, eps: f32) -> Result<TensorId> {
        self.node(Op::RmsNorm(RmsNorm { eps }), &[x])
    }

    /// Adds ROPE.
    pub fn rope(
        &mut self,
        op: Rope,
        x: TensorId,
        positions: TensorId,
        factors: Option<TensorId>,
    ) -> Result<TensorId> {
        let src: Vec<TensorId> = [x, positions].into_iter().chain(factors).collect();
        self.node(Op::Rope(op), &src)
    }

    /// Adds SOFT_MAX of each row.
    pub fn soft_max(&mut self, op: SoftMax, x: TensorId, mask: Option<TensorId>) -> Result<TensorId> {
        let src: Vec<TensorId> = [x].into_iter().chain(mask).collect();
        self.node(Op::SoftMax(op), &src)
    }

    /// Adds an activation function.
    pub fn unary(&mut self, activation: Activation, x: TensorId) -> Result<TensorId> {
        self.node(Op::Unary(Unary { activation }), &[x])
    }

    /// Adds SCALE: `x * scale + bias`.
    pub fn scale(&mut self, x: TensorId, scale: f32, bias: f32) -> Result<TensorId> {
        self.node(Op::Scale(Scale { scale, bias }), &[x])
    }

    /// Adds a gated linear unit of `gate` and `up`, or of the halves of one operand.
    pub fn glu(&mut self, op: Glu, gate: TensorId, up: Option<TensorId>) -> Result<TensorId> {
        let src: Vec<TensorId> = [gate].into_iter().chain(up).collect();
        self.node(Op::Glu(op), &src)
    }

    /// Adds CPY: copies `a` into `dst`; the result is the modified `dst`.
    pub fn cpy(&mut self, a: TensorId, dst: TensorId) -> Result<TensorId> {
        self.node(Op::Cpy(Cpy {}), &[a, dst])
    }

    /// Adds CONT: a contiguous copy.
    pub fn cont(&mut self, a: TensorId) -> Result<TensorId> {
        self.node(Op::Cont(Cont {}), &[a])
    }

    /// Adds FLASH_ATTN_EXT: attention.
    pub fn flash_attn_ext(
        &mut self,
        op: FlashAttnExt,
        q: TensorId,
        k: TensorId,
        v: TensorId,
        mask: Option<TensorId>,
    ) -> Result<TensorId> {
        let src: Vec<TensorId> = [q, k, v].into_iter().chain(mask).collect();
        self.node(Op::FlashAttnExt(op), &src)
    }

    /// Adds FLASH_ATTN_EXT with sinks.
    pub fn flash_attn_sinks(
        &mut self,
        op: FlashAttnExt,
        [q, k, v]: [TensorId; 3],
        mask: TensorId,
        sinks: TensorId,
    ) -> Result<TensorId> {
        self.node(Op::FlashAttnExt(op), &[q, k, v, mask, sinks])
    }

    /// Adds CACHE_MASK: the attention mask of cache cells for each token.
    pub fn cache_mask(&mut self, op: CacheMask, cells: TensorId, tokens: TensorId) -> Result<TensorId> {
        self.node(Op::CacheMask(op), &[cells, tokens])
    }

    /// Adds SSM_CONV: convolution of `x` with the taps `w`. The new state is stored after the result.
    pub fn ssm_conv(
        &mut self,
        x: TensorId,
        w: TensorId,
        state: TensorId,
        runs: TensorId,
    ) -> Result<TensorId> {
        self.node(Op::SsmConv(SsmConv {}), &[x, w, state, runs])
    }

    /// Adds GATED_DELTA_NET of `q`, `k`, `v`, `g`, `beta`, `state` and `runs`. The new state is stored after
    /// the result.
    pub fn gated_delta_net(&mut self, scale: f32, src: [TensorId; 7]) -> Result<TensorId> {
        self.node(Op::GatedDeltaNet(GatedDeltaNet { scale }), &src)
    }

    /// Adds SSM_SCAN of `x`, `dt`, `a`, `b`, `c`, `state` and `runs`. The new state is stored after the
    /// result.
    pub fn ssm_scan(&mut self, src: [TensorId; 7]) -> Result<TensorId> {
        self.node(Op::SsmScan(SsmScan {}), &src)
    }

    /// Adds VIEW: a window with strides and offset in bytes.
    pub fn view(&mut self, x: TensorId, ne: [usize; 4], nb: [usize; 4], offset: usize) -> Result<TensorId> {
        self.node(Op::View(View { ne, nb, offset }), &[x])
    }

    /// Adds RESHAPE of a contiguous tensor.
    pub fn reshape(&mut self, x: TensorId, ne: [usize; 4]) -> Result<TensorId> {
        self.node(Op::Reshape(Reshape { ne }), &[x])
    }

    /// Adds PERMUTE: dimension `i` becomes dimension `axes[i]`.
    pub fn permute(&mut self, x: TensorId, axes: [usize; 4]) -> Result<TensorId> {
        self.node(Op::Permute(Permute { axes }), &[x])
    }

    /// Adds TRANSPOSE: exchanges the first two dimensions.
    pub fn transpose(&mut self, x: TensorId) -> Result<TensorId> {
        self.node(Op::Transpose(Transpose {}), &[x])
    }
}
