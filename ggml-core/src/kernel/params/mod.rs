//! Parameter structures, one for each family of kernels, and their constructors from nodes.
//!
//! Field order is part of the interface: shaders and HIP kernels declare the same structures. All fields have
//! four bytes, so there is no padding.

use super::{extents, strides};
use crate::error::{Error, Result};
use crate::op::Glu;
use crate::tensor::Tensor;

mod cache_mask;
mod elementwise;
mod gate;
mod heads;
mod norm;
mod products;
mod recurrent;
mod rows;
mod top_k;

pub use cache_mask::CacheMaskParams;
pub use elementwise::{BinaryParams, CopyParams, GluParams, UnaryParams};
pub use gate::GateParams;
pub use heads::{HeadsOperands, HeadsParams};
pub use norm::NormParams;
pub use products::{
    ExpertSumParams, ExpertsParams, FlashAttnParams, MatVecParams, MulMatIdParams, MulMatParams,
    ProductsParams,
};
pub use recurrent::{ConvParams, DeltaNetParams, SsmConvParams, SsmScanParams};
pub use rows::{GetRowsParams, RopeParams, SetRowsParams, SoftMaxParams};
pub use top_k::{BestParams, TopKParams};

/// Largest parameter structure in bytes: every Vulkan device has 128 bytes of push constants.
pub const MAX_PARAM_BYTES: usize = 128;

/// Remainders of the offsets of the operands and the result after their windows were aligned, in blocks.
/// Operands in order, the result last.
pub type Offsets<'a> = &'a [u32];

fn wrong(node: &Tensor) -> Error {
    Error::argument("kernel parameters", node.describe(), "a node of their family")
}

fn offset(off: Offsets<'_>, i: usize) -> u32 {
    off.get(i).copied().unwrap_or(0)
}

fn last(off: Offsets<'_>) -> u32 {
    off.last().copied().unwrap_or(0)
}

/// Returns the offset of operand `i`, or 0 if the node does not have it.
fn optional(off: Offsets<'_>, operands: &[&Tensor], i: usize) -> u32 {
    if operands.len() > i { offset(off, i) } else { 0 }
}

/// Layout of a mask.
struct Mask {
    /// Strides: rows and outer dimensions; zeros if the mask is missing.
    nb: [u32; 3],
    /// Outer extents; 1 if the mask is missing.
    ne: [u32; 2],
    /// 0 for no mask, 1 for F32, 2 for F16.
    code: u32,
}

impl Mask {
    fn new(mask: Option<&&Tensor>) -> Result<Mask> {
        let Some(mask) = mask else { return Ok(Mask { nb: [0; 3], ne: [1; 2], code: 0 }) };
        let [_, _, ne2, ne3] = extents(mask)?;
        let code = if mask.dtype == crate::DType::F16 { 2 } else { 1 };
        Ok(Mask { nb: outer(mask)?, ne: [ne2, ne3], code })
    }
}

/// Returns the slope and the bound of a SWIGLU_OAI; zeros for all other functions.
fn clamp(glu: &Glu) -> (f32, f32) {
    glu.clamped.map_or((0.0, 0.0), |c| (c.alpha, c.limit))
}

fn floor_power_of_two(n: u32) -> u32 {
    if n == 0 { 1 } else { 1 << (31 - n.leading_zeros()) }
}

fn outer(t: &Tensor) -> Result<[u32; 3]> {
    let [_, nb1, nb2, nb3] = strides(t)?;
    Ok([nb1, nb2, nb3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::fuse::{GluPart, Product, Products};
    use crate::graph::Graph;
    use crate::op::Activation;
    use crate::tensor::Source;

    #[test]
    fn structures_fit_push_constants() {
        let sizes = [
            size_of::<BinaryParams>(),
            size_of::<UnaryParams>(),
            size_of::<GluParams>(),
            size_of::<NormParams>(),
            size_of::<RopeParams>(),
            size_of::<HeadsParams>(),
            size_of::<SoftMaxParams>(),
            size_of::<CopyParams>(),
            size_of::<GetRowsParams>(),
            size_of::<SetRowsParams>(),
            size_of::<MulMatParams>(),
            size_of::<ProductsParams>(),
            size_of::<FlashAttnParams>(),
            size_of::<CacheMaskParams>(),
            size_of::<MulMatIdParams>(),
            size_of::<ExpertSumParams>(),
            size_of::<ExpertsParams>(),
            size_of::<SsmConvParams>(),
            size_of::<ConvParams>(),
            size_of::<DeltaNetParams>(),
            size_of::<SsmScanParams>(),
            size_of::<TopKParams>(),
            size_of::<BestParams>(),
            size_of::<GateParams>(),
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

    /// A GLU of the halves of one product uses them as its two matrices; the offset of the second is larger
    /// by the rows of the first.
    #[test]
    fn products_are_those_of_their_group() {
        let mut g = Graph::new();
        let mut weight = |name: &str, ne: [usize; 2], dtype| {
            g.leaf(name, dtype, [ne[0], ne[1], 1, 1], Source::Weight).unwrap()
        };
        let (a, b) = (weight("a", [64, 10], DType::Q8_0), weight("b", [64, 6], DType::Q8_0));
        let bias = weight("bias", [6, 1], DType::F32);
        let x = g.leaf("x", DType::F32, [64, 3, 1, 1], Source::Input).unwrap();
        let (first, second) = (g.mul_mat(a, x).unwrap(), g.mul_mat(b, x).unwrap());
        let sum = g.add(second, bias).unwrap();
        let product = |weight, node, bias, result| Product { weight, node, bias, result };
        let products = vec![product(a, first, None, first), product(b, second, Some(bias), sum)];
        let group = Products { norm: None, input: x, products, glu: None, residual: None };
        let p = ProductsParams::new(&g, &group, |id| id.index() as u32).unwrap();
        assert_eq!((p.k, p.n, p.m, p.rows, p.nb0), (64, 3, [10, 6, 0], [0, 16], [2, 0]));
        assert_eq!(p.off0, [a, b].map(|id| id.index() as u32).into_iter().chain([0]).collect::<Vec<_>>()[..]);
        assert_eq!((p.parts, p.offb[1]), (ProductsParams::BIAS << 1, bias.index() as u32));

        let op = Glu { swapped: true, ..Glu::new(Activation::Gelu) };
        let glu = g.glu(op, first, None).unwrap();
        let products = vec![product(a, first, None, first)];
        let group = Products { products, glu: Some(GluPart { op, node: glu }), ..group };
        let p = ProductsParams::new(&g, &group, |_| 7).unwrap();
        assert_eq!((p.m, p.rows, p.off0), ([5, 5, 0], [0, 5], [7 + 10, 7, 0]));
        assert_eq!((p.parts, p.op), (ProductsParams::GLU, Activation::Gelu as u32));
    }
}
