//! Parameters of products and attention.

use super::{Mask, Offsets, clamp, floor_power_of_two, last, offset, optional, outer, wrong};
use crate::error::{Error, Result};
use crate::fuse::{Experts, FEW_ROWS, Products};
use crate::graph::Graph;
use crate::kernel::{extents, strides};
use crate::op::{Glu, Op};
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

/// Parameters of MUL_MAT, as matrix-vector and matrix-matrix product: `d[m, n] = sum over k of a[k, m] * b[k,
/// n]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct MulMatParams {
    /// Rows of `a`.
    pub m: u32,
    /// Rows of `b`.
    pub n: u32,
    /// Elements in a row.
    pub k: u32,
    /// Third extent of `b`.
    pub ne2: u32,
    /// Fourth extent of `b`.
    pub ne3: u32,
    /// Ratio of the third extents of `b` and `a`.
    pub r2: u32,
    /// Ratio of the fourth extents of `b` and `a`.
    pub r3: u32,
    /// Strides of `a` in blocks: rows and outer dimensions.
    pub nb0: [u32; 3],
    /// Strides of `b`: rows and outer dimensions.
    pub nb1: [u32; 3],
    /// Strides of the result: rows and outer dimensions.
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
    /// Builds the parameters of a MUL_MAT node.
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

    /// True if the matrix has few long rows. Tiles would then leave most compute units idle, because each
    /// tile goes through all of `k`, so the matrix-vector kernel is faster for any number of columns. This
    /// applies to the small matrices of a delta net.
    pub fn has_few_rows(&self, compute_units: u64) -> bool {
        let tiles = u64::from(self.n.div_ceil(64)) * u64::from(self.ne2) * u64::from(self.ne3);
        self.m - self.first_row <= FEW_ROWS as u32 && self.k >= 1024 && tiles * 2 <= compute_units
    }

    /// Returns only the fields that describe the columns of `b`. They are equal for all products of one `b`,
    /// whose columns can then be quantised once for all of them.
    pub fn of_columns(&self) -> MulMatParams {
        let MulMatParams { n, k, ne2, ne3, nb1, off1, .. } = *self;
        MulMatParams { n, k, ne2, ne3, nb1, off1, ..MulMatParams::default() }
    }
}

impl MulMatIdParams {
    /// Returns the same for a product with matrices by index: each token has one column, or one for each
    /// selected matrix.
    pub fn of_columns(&self) -> MulMatParams {
        let n = if self.nb1[0] == 0 { 1 } else { self.used };
        let nb1 = [self.nb1[0], self.nb1[1], 0];
        MulMatParams {
            n,
            k: self.k,
            ne2: self.tokens,
            ne3: 1,
            nb1,
            off1: self.off1,
            ..MulMatParams::default()
        }
    }
}

/// Parameters of products of one input with one to three matrices that have the same type, row length and row
/// stride, with fused operations. The input may be RMS_NORM(x) * w of an `x` in memory. Each result may have
/// a bias, and a single result may have a residual. The first two products may be gate and `up` of a GLU,
/// which is then the only result. A GLU of the halves of one product treats them as two matrices.
///
/// Results are contiguous: column `j` of result `i` begins at `offd[i] + j * m[i]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct ProductsParams {
    /// Elements in a row.
    pub k: u32,
    /// Rows of the input, which are the columns of each result.
    pub n: u32,
    /// Rows of each matrix; 0 for a missing matrix.
    pub m: [u32; 3],
    /// Rows that this dispatch computes: first and one past the last, counted over all matrices, for a GLU
    /// over the first matrix. (A matrix larger than a window is split by rows; its window then begins with
    /// the first of them.)
    pub rows: [u32; 2],
    /// Third extent of the input: 1 except for a single product without fused operations.
    pub ne2: u32,
    /// Ratio of the third extents of input and matrix.
    pub r2: u32,
    /// Strides of the matrices in blocks: rows (equal for all matrices), and the third dimension.
    pub nb0: [u32; 2],
    /// Strides of the input: rows, and the third dimension.
    pub nb1: [u32; 2],
    /// Stride of the residual's rows.
    pub nbr: u32,
    /// Offsets of the matrices in blocks.
    pub off0: [u32; 3],
    /// Offset of the input (or of the norm's `x`).
    pub off1: u32,
    /// Offsets of the results.
    pub offd: [u32; 3],
    /// Offsets of the biases.
    pub offb: [u32; 3],
    /// Offset of the residual.
    pub offr: u32,
    /// Offset of the norm's weight.
    pub offw: u32,
    /// The norm's epsilon.
    pub eps: f32,
    /// Number of the GLU's [`Activation`](crate::op::Activation).
    pub op: u32,
    /// SWIGLU_OAI: slope of the gate's sigmoid.
    pub alpha: f32,
    /// SWIGLU_OAI: bound of gate and `up`; 0 for all other functions.
    pub limit: f32,
    /// Present parts: sum of the constants of this type.
    pub parts: u32,
}

impl ProductsParams {
    /// True if all matrices satisfy [`MulMatParams::has_few_rows`] and there are no fused operations.
    pub fn have_few_rows(&self, compute_units: u64) -> bool {
        let few = |&m: &u32| {
            let one =
                MulMatParams { m, n: self.n, k: self.k, ne2: self.ne2, ne3: 1, ..MulMatParams::default() };
            one.has_few_rows(compute_units)
        };
        self.parts == 0 && self.m.iter().all(few)
    }

    /// Builds the parameters of a group, or of a single MUL_MAT, whose input may have a third extent.
    /// `remainder` gives the remainder of a tensor's offset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for matrices with different row strides; an error if a value does not fit
    /// into 32 bits.
    pub fn new(graph: &Graph, group: &Products, remainder: impl Fn(TensorId) -> u32) -> Result<Self> {
        let at = |id: Option<TensorId>| id.map_or(0, &remainder);
        let x = group.norm.map_or(group.input, |norm| norm.x);
        let (input, [nb1, nb12, _]) = (extents(graph.tensor(x))?, outer(graph.tensor(x))?);
        let mut p = ProductsParams {
            k: input[0],
            n: input[1],
            ne2: input[2],
            r2: 1,
            nb1: [nb1, nb12],
            nbr: group.added().map(|added| outer(graph.tensor(added))).transpose()?.unwrap_or_default()[0],
            off1: remainder(x),
            offr: at(group.added()),
            offw: at(group.norm.map(|norm| norm.weight)),
            eps: group.norm.map_or(0.0, |norm| norm.eps),
            ..ProductsParams::default()
        };
        for (i, product) in group.products.iter().take(p.m.len()).enumerate() {
            let weight = graph.tensor(product.weight);
            let (a, [nb0, nb02, _]) = (extents(weight)?, outer(weight)?);
            // The row stride of a matrix with one row does not matter.
            if p.nb0[0] != nb0 && p.nb0[0] != 0 && nb0 != 0 {
                return Err(Error::argument(
                    "products",
                    weight.describe(),
                    "rows as far apart as the others'",
                ));
            }
            p.nb0 = [p.nb0[0].max(nb0), nb02];
            (p.m[i], p.r2) = (a[1], input[2] / a[2].max(1));
            (p.off0[i], p.offd[i], p.offb[i]) =
                (remainder(product.weight), remainder(product.result), at(product.bias));
            p.parts |= if product.bias.is_some() { Self::BIAS << i } else { 0 };
        }
        p.parts |= if group.residual.is_some() { Self::RESIDUAL } else { 0 };
        p.parts |= if group.norm.is_some() { Self::NORM } else { 0 };
        if let Some(sum) = group.residual {
            p.offd[0] = remainder(sum.node);
        }
        if let Some(glu) = group.glu {
            p.glue(group.products.len(), &glu.op, remainder(glu.node));
        }
        p.rows = [0, if group.glu.is_some() { p.m[0] } else { p.m.iter().sum() }];
        Ok(p)
    }

    /// Converts the matrices to gate and `up` of a GLU.
    fn glue(&mut self, products: usize, glu: &Glu, offd: u32) {
        if products == 1 {
            self.m = [self.m[0] / 2, self.m[0] / 2, 0];
            self.off0[1] = self.off0[0] + self.m[0] * self.nb0[0];
            self.offb[1] = self.offb[0] + self.m[0];
            self.parts |= (self.parts & Self::BIAS) << 1;
            if glu.swapped {
                self.off0.swap(0, 1);
                self.offb.swap(0, 1);
            }
        }
        self.offd[0] = offd;
        self.parts |= Self::GLU;
        self.op = glu.activation as u32;
        (self.alpha, self.limit) = clamp(glu);
    }

    /// First bit of `parts`, shifted by `i`: matrix `i` has a bias.
    pub const BIAS: u32 = 1;
    /// Bit of `parts`: a residual is present.
    pub const RESIDUAL: u32 = 8;
    /// Bit of `parts`: a norm is present.
    pub const NORM: u32 = 16;
    /// Bit of `parts`: the result is the GLU of the first two products.
    pub const GLU: u32 = 32;
}

/// Parameters of a HIP matrix-vector kernel in addition to [`ProductsParams`]: its grid, a fourth dimension,
/// experts.
///
/// With experts, the planes of the input are pairs of token and index: [`ProductsParams::ne2`] indices for
/// each token. The matrices of a pair are the planes of the weights that its index selects.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct MatVecParams {
    /// First work-groups of the second and the third matrix.
    pub begin: [u32; 2],
    /// Number of times that a wavefront processes rows.
    pub passes: u32,
    /// Base-2 logarithm of the number of wavefronts that share rows.
    pub split: u32,
    /// Ratio of the fourth extents of input and matrix.
    pub r3: u32,
    /// Stride of the matrices in the fourth dimension.
    pub nb03: u32,
    /// Stride of the input in the fourth dimension.
    pub nb13: u32,
    /// Number of experts; 0 without indices.
    pub experts: u32,
    /// Strides of the experts' indices: indices, tokens.
    pub nb2: [u32; 2],
    /// Number of indices over which each result is the weighted sum; 0 if every index has its own result.
    pub summed: u32,
    /// Strides of the weights of the sum: indices, tokens.
    pub nbf: [u32; 2],
}

/// Parameters of MUL_MAT_ID: `d[m, used, tokens] = sum over k of a[k, m, ids[used, tokens]] * b[k, used,
/// tokens]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct MulMatIdParams {
    /// Rows of each matrix of `a`.
    pub m: u32,
    /// Elements in a row.
    pub k: u32,
    /// Number of matrices in `a`.
    pub experts: u32,
    /// Number of indices for each token.
    pub used: u32,
    /// Number of tokens.
    pub tokens: u32,
    /// Strides of `a` in blocks: rows, matrices.
    pub nb0: [u32; 2],
    /// Strides of `b`: rows (0 if all indices share one row), tokens.
    pub nb1: [u32; 2],
    /// Strides of the ids: indices, tokens.
    pub nb2: [u32; 2],
    /// Strides of the result: rows, tokens.
    pub nbd: [u32; 2],
    /// Offset of `a` in blocks.
    pub off0: u32,
    /// Offset of `b`.
    pub off1: u32,
    /// Offset of the ids.
    pub off2: u32,
    /// Offset of the result.
    pub offd: u32,
    /// First matrix of `a` in the window (operands larger than a window are split by matrices). This dispatch
    /// skips pairs whose index is outside `first_expert .. first_expert + window_experts`.
    pub first_expert: u32,
    /// Number of matrices in the window.
    pub window_experts: u32,
}

impl MulMatIdParams {
    /// Builds the parameters of a MUL_MAT_ID node. `off` has the offsets of the operands (a, b, ids) and the
    /// result.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        if !matches!(d.op(), Some(Op::MulMatId(_))) {
            return Err(wrong(d));
        }
        let s = graph.operands(node);
        let (a, ids) = (extents(s[0])?, strides(s[2])?);
        let ([nb0, nb02, _], [nb1, nb12, _], [nbd, nbd2, _]) = (outer(s[0])?, outer(s[1])?, outer(d)?);
        Ok(MulMatIdParams {
            m: a[1],
            k: a[0],
            experts: a[2],
            used: extents(s[2])?[0],
            tokens: extents(s[2])?[1],
            nb0: [nb0, nb02],
            nb1: [nb1, nb12],
            nb2: [ids[0], ids[1]],
            nbd: [nbd, nbd2],
            off0: offset(off, 0),
            off1: offset(off, 1),
            off2: offset(off, 2),
            offd: last(off),
            first_expert: 0,
            window_experts: a[2],
        })
    }
}

/// Parameters of products of one input with one or two matrices of each selected expert, with fused
/// operations. Each product may have a bias. The two may be gate and `up` of a GLU. The results of a token's
/// experts may be summed with weights, and then a residual may be added. The second matrix of an expert has
/// the shape and strides of the first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct ExpertsParams {
    /// The first product; offset and strides of the result are those of the group's result.
    pub product: MulMatIdParams,
    /// Offset of the second matrix in blocks.
    pub off0_up: u32,
    /// Offsets of the biases.
    pub offb: [u32; 2],
    /// Strides of the weights of the sum: indices, tokens.
    pub nbf: [u32; 2],
    /// Offset of the weights of the sum.
    pub offf: u32,
    /// Stride of the residual's rows.
    pub nbr: u32,
    /// Offset of the residual.
    pub offr: u32,
    /// Number of the GLU's [`Activation`](crate::op::Activation).
    pub op: u32,
    /// SWIGLU_OAI: slope of the gate's sigmoid.
    pub alpha: f32,
    /// SWIGLU_OAI: bound of gate and `up`; 0 for all other functions.
    pub limit: f32,
}

impl ExpertsParams {
    /// Builds the parameters of a group, or of a single MUL_MAT_ID. `remainder` gives the remainder of a
    /// tensor's offset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no products or a second matrix with different strides; an error if a
    /// value does not fit into 32 bits.
    pub fn new(graph: &Graph, group: &Experts, remainder: impl Fn(TensorId) -> u32) -> Result<Self> {
        let (first, second) = (group.products.first(), group.products.get(1));
        let first = first.ok_or_else(|| Error::argument("products", "none", "one or two"))?;
        let at = |id: Option<TensorId>| id.map_or(0, &remainder);
        let result = group.results().first().copied();
        let off = [remainder(first.weight), remainder(group.input), remainder(group.ids), at(result)];
        let mut p = ExpertsParams {
            product: MulMatIdParams::new(graph, first.node, &off)?,
            off0_up: at(second.map(|up| up.weight)),
            offb: [Some(first), second].map(|product| at(product.and_then(|p| p.bias).map(|bias| bias.0))),
            offr: at(group.added()),
            ..ExpertsParams::default()
        };
        let weight = graph.tensor(first.weight);
        if let Some(up) = second.map(|up| graph.tensor(up.weight)).filter(|up| up.nb != weight.nb) {
            return Err(Error::argument("products", up.describe(), "a matrix that is as the other"));
        }
        if let Some(glu) = group.glu {
            p.op = glu.op.activation as u32;
            (p.alpha, p.limit) = clamp(&glu.op);
        }
        if let Some(weighted) = &group.weighted {
            let of = outer(graph.tensor(weighted.weights))?;
            (p.nbf, p.offf) = ([of[0], of[1]], remainder(weighted.weights));
            p.product.nbd = [0, p.product.m];
        }
        if let Some(added) = group.added() {
            p.nbr = outer(graph.tensor(added))?[0];
        }
        Ok(p)
    }
}

/// Parameters of the sum over a token's experts, d[i, t] = sum over u of w[u, t] * a[i, u, t], and of the
/// residual that is added to it. Operands: a, w, residual (w if missing), result. Columns of `a` are dense.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct ExpertSumParams {
    /// Elements of a column.
    pub m: u32,
    /// Experts of a token.
    pub used: u32,
    /// Tokens.
    pub tokens: u32,
    /// Stride of `a`: tokens.
    pub nb0: u32,
    /// Strides of the weights: experts, tokens.
    pub nbf: [u32; 2],
    /// Stride of the residual: tokens.
    pub nbr: u32,
    /// Stride of the result: tokens.
    pub nbd: u32,
    /// Offset of the weights.
    pub offf: u32,
    /// Offset of the residual.
    pub offr: u32,
    /// Offset of the result.
    pub offd: u32,
}

impl ExpertSumParams {
    /// Builds the parameters of a group's sum.
    ///
    /// # Errors
    /// An error if the columns of a token have 2^32 elements or more together.
    pub fn new(group: &ExpertsParams) -> Result<Self> {
        let p = &group.product;
        let all = p.m.checked_mul(p.used);
        let all = all.and_then(|all| all.checked_mul(p.tokens).map(|_| all));
        let nb0 =
            all.ok_or_else(|| Error::argument("experts", p.m.to_string(), "fewer than 2^32 results"))?;
        Ok(ExpertSumParams {
            m: p.m,
            used: p.used,
            tokens: p.tokens,
            nb0,
            nbf: group.nbf,
            nbr: group.nbr,
            nbd: p.nbd[1],
            offf: group.offf,
            offr: group.offr,
            offd: p.offd,
        })
    }

    /// Returns the parameters of the products that are summed, whose results are `a`.
    pub fn products(&self, group: &ExpertsParams) -> MulMatIdParams {
        MulMatIdParams { nbd: [self.m, self.nb0], offd: 0, ..group.product }
    }
}

/// Parameters of FLASH_ATTN_EXT. Operands: q, k, v, mask (q if missing), sinks (q if missing).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct FlashAttnParams {
    /// Row lengths of k and v.
    pub d: [u32; 2],
    /// Tokens, heads, batch of q.
    pub ne: [u32; 3],
    /// Positions and heads of k and v.
    pub kv: [u32; 2],
    /// Strides of q: rows and outer dimensions.
    pub nbq: [u32; 3],
    /// Strides of k: rows and outer dimensions.
    pub nbk: [u32; 3],
    /// Strides of v: rows and outer dimensions.
    pub nbv: [u32; 3],
    /// Strides of the mask: rows and outer dimensions.
    pub nbm: [u32; 3],
    /// Outer extents of the mask.
    pub mask_ne: [u32; 2],
    /// Offsets of q, k, v, mask, sinks, result. The result is contiguous.
    pub off: [u32; 6],
    /// 0 for no mask, 1 for F32, 2 for F16; plus 4 if sinks are present.
    pub mask_type: u32,
    /// Largest power of two not above the number of heads.
    pub heads_log2: u32,
    /// Factor of the scores.
    pub scale: f32,
    /// Maximum bias of ALiBi; 0 for slope 1.
    pub max_bias: f32,
    /// Soft cap of the scores; 0 for none.
    pub logit_softcap: f32,
}

impl FlashAttnParams {
    /// Bit of `mask_type`: sinks are present.
    pub const SINKS: u32 = 4;

    /// Builds the parameters of a FLASH_ATTN_EXT node. `off` has the offsets of the operands and the result.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let Some(Op::FlashAttnExt(op)) = d.op() else { return Err(wrong(d)) };
        let s = graph.operands(node);
        let (q, k, v) = (extents(s[0])?, extents(s[1])?, extents(s[2])?);
        let mask = Mask::new(s.get(3))?;
        let [off3, off4] = [3, 4].map(|i| optional(off, &s, i));
        Ok(FlashAttnParams {
            d: [k[0], v[0]],
            ne: [q[1], q[2], q[3]],
            kv: [k[1], k[2]],
            nbq: outer(s[0])?,
            nbk: outer(s[1])?,
            nbv: outer(s[2])?,
            nbm: mask.nb,
            mask_ne: mask.ne,
            off: [offset(off, 0), offset(off, 1), offset(off, 2), off3, off4, last(off)],
            mask_type: mask.code | if s.len() > 4 { Self::SINKS } else { 0 },
            heads_log2: floor_power_of_two(q[2]),
            scale: op.scale,
            max_bias: op.max_bias,
            logit_softcap: op.logit_softcap,
        })
    }
}
