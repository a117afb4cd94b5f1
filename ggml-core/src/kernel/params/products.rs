//! Products and attention.

use super::{Offsets, floor_power_of_two, last, mask_type, offset, outer, wrong};
use crate::error::{Error, Result};
use crate::fuse::{Experts, FEW_ROWS, Products};
use crate::graph::Graph;
use crate::kernel::{extents, strides};
use crate::op::{Glu, Op};
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

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

    /// Whether there are so few long rows that tiles would leave most of a device's compute units idle, each going through
    /// all of `k` in turn, and mat-vec is better whatever the number of columns: the small matrices beside a delta net.
    pub fn has_few_rows(&self, compute_units: u64) -> bool {
        let tiles = u64::from(self.n.div_ceil(64)) * u64::from(self.ne2) * u64::from(self.ne3);
        self.m - self.first_row <= FEW_ROWS as u32 && self.k >= 1024 && tiles * 2 <= compute_units
    }

    /// What says of a product where its columns are: the same for all products of one `b`, whose columns may be rounded
    /// once for all of them.
    pub fn of_columns(&self) -> MulMatParams {
        let MulMatParams { n, k, ne2, ne3, nb1, off1, .. } = *self;
        MulMatParams { n, k, ne2, ne3, nb1, off1, ..MulMatParams::default() }
    }
}

impl MulMatIdParams {
    /// The same of a product with matrices by index: a column, or one for each matrix used, of each token.
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

/// Products of one input with one to three matrices of one type whose rows are as long and lie as far apart, and what
/// stands before and after them: the input may be RMS_NORM(x) * w of the `x` that is in memory, each result may have a
/// bias and the only one a residual, and the first two may be gate and `up` of a GLU, which then is the one result. A
/// GLU of the halves of one product has them as its two matrices.
///
/// Results are contiguous: column `j` of result `i` begins at `offd[i] + j * m[i]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct ProductsParams {
    /// Length of the rows in elements.
    pub k: u32,
    /// Rows of the input: columns of each result.
    pub n: u32,
    /// Rows of each matrix; 0 where there is none.
    pub m: [u32; 3],
    /// Rows that this dispatch computes, first and behind the last, counted over all matrices, of a GLU over the first
    /// (a matrix larger than a window is split by rows; its window then begins with the first of them).
    pub rows: [u32; 2],
    /// Third extent of the input: 1 but for a single product without anything before and after it.
    pub ne2: u32,
    /// Third extent of the input over that of the matrix.
    pub r2: u32,
    /// Strides of the matrices in blocks: rows (of all matrices alike), and one outwards.
    pub nb0: [u32; 2],
    /// Strides of the input: rows, and one outwards.
    pub nb1: [u32; 2],
    /// Stride of the residual's rows.
    pub nbr: u32,
    /// Offsets of the matrices in blocks.
    pub off0: [u32; 3],
    /// Offset of the input (of the norm's `x`).
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
    /// What there is: sum of the constants of this type.
    pub parts: u32,
}

impl ProductsParams {
    /// Whether all are products of which [`MulMatParams::has_few_rows`] says so, with nothing before and after them.
    pub fn have_few_rows(&self, compute_units: u64) -> bool {
        let few = |&m: &u32| {
            let one =
                MulMatParams { m, n: self.n, k: self.k, ne2: self.ne2, ne3: 1, ..MulMatParams::default() };
            one.has_few_rows(compute_units)
        };
        self.parts == 0 && self.m.iter().all(few)
    }

    /// From a group, or from a single MUL_MAT as one, whose input then may have a third extent. `remainder` gives the
    /// offset of a tensor.
    ///
    /// # Errors
    /// Matrices whose rows are not equally far apart, and what does not fit 32 bits.
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
            // Of a matrix of one row the stride does not matter.
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

    /// Makes gate and `up` of the matrices.
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
        (self.alpha, self.limit) = glu.clamped.map_or((0.0, 0.0), |c| (c.alpha, c.limit));
    }

    /// Bits of `parts`, from this one on: matrix `i` has a bias.
    pub const BIAS: u32 = 1;
    /// Bit of `parts`: there is a residual.
    pub const RESIDUAL: u32 = 8;
    /// Bit of `parts`: there is a norm.
    pub const NORM: u32 = 16;
    /// Bit of `parts`: the result is the GLU of the first two products.
    pub const GLU: u32 = 32;
}

/// What a mat-vec of HIP takes beyond [`ProductsParams`]: its grid, a fourth dimension, experts.
///
/// With experts the planes of the input are pairs: [`ProductsParams::ne2`] indices of each token, and the matrices of
/// an expert are those planes of the weights that its index says.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct MatVecParams {
    /// Work-groups with which the second and the third matrix begin.
    pub begin: [u32; 2],
    /// How many times a wavefront takes rows.
    pub passes: u32,
    /// Logarithm of the number of wavefronts that share rows.
    pub split: u32,
    /// Fourth extent of the input over that of the matrix.
    pub r3: u32,
    /// Stride of the matrices two outwards.
    pub nb03: u32,
    /// Stride of the input two outwards.
    pub nb13: u32,
    /// Experts; 0 where there are no indices.
    pub experts: u32,
    /// Strides of the experts' indices: indices, tokens.
    pub nb2: [u32; 2],
    /// Indices of which each result is the weighted sum; 0 where every index has a result.
    pub summed: u32,
    /// Strides of the weights of that sum: indices, tokens.
    pub nbf: [u32; 2],
}

/// MUL_MAT_ID: `d[m, used, tokens] = sum over k of a[k, m, ids[used, tokens]] * b[k, used, tokens]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct MulMatIdParams {
    /// Rows of each matrix of `a`.
    pub m: u32,
    /// Length of the rows in elements.
    pub k: u32,
    /// Matrices of `a`.
    pub experts: u32,
    /// Indices for each token.
    pub used: u32,
    /// Tokens.
    pub tokens: u32,
    /// Strides of `a` in blocks: rows, matrices.
    pub nb0: [u32; 2],
    /// Strides of `b`: rows (0 where all indices share one), tokens.
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
    /// First matrix of `a` in the window (operands larger than a window are split by matrices): pairs whose index is
    /// outside `first_expert .. first_expert + window_experts` are left alone by this dispatch.
    pub first_expert: u32,
    /// Matrices in the window.
    pub window_experts: u32,
}

impl MulMatIdParams {
    /// From a MUL_MAT_ID node. `off` is that of the node's operands (a, b, ids) and the result.
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

/// Products of one input with one or two matrices of each chosen expert, and what stands after them: each may have a bias,
/// the two may be gate and `up` of a GLU, and the results of a token's experts may be summed with weights, and then a
/// residual be added. The second matrix of an expert is as the first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct ExpertsParams {
    /// The first product; offset and strides of the result are those of the group's.
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
    /// From a group, or from a single MUL_MAT_ID as one. `remainder` gives the offset of a tensor.
    ///
    /// # Errors
    /// A second matrix of other strides, and what does not fit 32 bits.
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
            (p.alpha, p.limit) = glu.op.clamped.map_or((0.0, 0.0), |c| (c.alpha, c.limit));
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

/// FLASH_ATTN_EXT. Operands: q, k, v, mask (q again where there is none), sinks (q again where there are none).
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
    /// Offsets of q, k, v, mask, sinks, result. The result is contiguous.
    pub off: [u32; 6],
    /// 0 no mask, 1 F32, 2 F16; 4 more where there are sinks.
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
    /// Bit of `mask_type` that says that there are sinks.
    pub const SINKS: u32 = 4;

    /// From a FLASH_ATTN_EXT node. `off` is that of the node's operands and the result.
    pub fn new(graph: &Graph, node: TensorId, off: Offsets<'_>) -> Result<Self> {
        let d = graph.tensor(node);
        let Some(Op::FlashAttnExt(op)) = d.op() else { return Err(wrong(d)) };
        let s = graph.operands(node);
        let (q, k, v, mask) = (extents(s[0])?, extents(s[1])?, extents(s[2])?, s.get(3));
        let mask_ne = mask.map(|m| extents(m)).transpose()?.unwrap_or([1; 4]);
        let optional = |i: usize| if s.len() > i { offset(off, i) } else { 0 };
        Ok(FlashAttnParams {
            d: [k[0], v[0]],
            ne: [q[1], q[2], q[3]],
            kv: [k[1], k[2]],
            nbq: outer(s[0])?,
            nbk: outer(s[1])?,
            nbv: outer(s[2])?,
            nbm: mask.map(|m| outer(m)).transpose()?.unwrap_or_default(),
            mask_ne: [mask_ne[2], mask_ne[3]],
            off: [offset(off, 0), offset(off, 1), offset(off, 2), optional(3), optional(4), last(off)],
            mask_type: mask_type(mask) | if s.len() > 4 { Self::SINKS } else { 0 },
            heads_log2: floor_power_of_two(q[2]),
            scale: op.scale,
            max_bias: op.max_bias,
            logit_softcap: op.logit_softcap,
        })
    }
}
