//! MUL_MAT: the matrix product of ggml.

use super::{Computed, Operation, Output, operands, rule, typed};
use crate::bound::Bound;
use crate::catalogue::{Case, Fill};
use crate::dtype::DType;
use crate::plan::Precision;
use crate::reference::{Operand, OperandMut, list};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Types that `a` may have.
pub const WEIGHT_TYPES: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q6_K,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::MXFP4,
    DType::IQ2_XXS,
    DType::IQ2_XS,
    DType::IQ2_S,
    DType::IQ3_XXS,
    DType::IQ3_S,
    DType::IQ1_S,
    DType::IQ1_M,
    DType::TQ1_0,
    DType::TQ2_0,
    DType::NVFP4,
    DType::Q1_0,
    DType::Q2_0,
];

/// The bound of a product, of [`MulMat`] and [`MulMatId`](super::MulMatId) alike. Under [`Precision::Fast`] activations may be rounded to the
/// type that the weights are multiplied in: F16 (to 2^-12 of an element at the most: an NMSE of 4e-8), BF16 (2e-6), 8
/// bits for blocks (1e-5 to 1e-4, the largest of 32 being 2 to 6 times the mean). Of the results of one column the one
/// that is farthest off has some ten times the mean.
pub(super) fn bound_of_product(weights: DType, precision: Precision) -> Bound {
    match (precision, weights) {
        (Precision::Exact, _) | (Precision::Fast, DType::F32) => Bound::F32,
        (Precision::Fast, DType::F16) => Bound { nmse: 5e-7, row: 5e-7 },
        (Precision::Fast, DType::BF16) => Bound { nmse: 1e-5, row: 1e-4 },
        (Precision::Fast, _) => Bound { nmse: 5e-4, row: 5e-3 },
    }
}

/// Whether a type has all cases. The kernels of the others are those of a type that has, with another decoder of blocks.
pub(super) fn thorough(dtype: DType) -> bool {
    WEIGHT_TYPES[..6].contains(&dtype)
}

/// Whether a type is one of those of few bits, which have the fewest cases.
fn few_bits(dtype: DType) -> bool {
    WEIGHT_TYPES[16..].contains(&dtype)
}

/// Matrix product.
///
/// * `a`: `[k, m, a2, a3]`, one of [`WEIGHT_TYPES`], rows contiguous
/// * `b`: F32 `[k, n, b2, b3]`, `a2` divides `b2` and `a3` divides `b3`, rows contiguous
///
/// Result: F32 `[m, n, b2, b3]`, `out[i, j, s, t] = sum over l of a[l, i, s / (b2 / a2), t / (b3 / a3)] * b[l, j, s, t]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulMat {}

impl Operation for MulMat {
    fn name(&self) -> &'static str {
        "MUL_MAT"
    }

    fn output(&self, src: &[&Tensor]) -> Result<Output, String> {
        operands(src, 2, 2)?;
        let (a, b) = (src[0], src[1]);
        typed(a, WEIGHT_TYPES, "a")?;
        typed(b, &[DType::F32], "b")?;
        rule(a.ne[0] == b.ne[0], || "a and b must have rows of the same length".into())?;
        rule(a.ne[2] > 0 && b.ne[2] % a.ne[2] == 0, || "the third extent of a must divide that of b".into())?;
        rule(a.ne[3] > 0 && b.ne[3] % a.ne[3] == 0, || {
            "the fourth extent of a must divide that of b".into()
        })?;
        rule(a.rows_contiguous() && b.rows_contiguous(), || "rows must be contiguous".into())?;
        Ok(Output::new(DType::F32, [a.ne[1], b.ne[1], b.ne[2], b.ne[3]]))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let (a, b) = (&src[0], &src[1]);
        let (k, [m, n, b2, b3]) = (a.ne[0], out.ne);
        let (r2, r3) = (b2 / a.ne[2], b3 / a.ne[3]);
        for t in 0..b3 {
            for s in 0..b2 {
                let columns = list((0..n).flat_map(|j| (0..k).map(move |l| b.at([l, j, s, t]))))?;
                for i in 0..m {
                    let row = a.row([i, s / r2, t / r3])?;
                    for (j, column) in columns.chunks_exact(k).enumerate() {
                        out.set([i, j, s, t], row.iter().zip(column).map(|(x, y)| x * y).sum());
                    }
                }
            }
        }
        Ok(())
    }

    fn bound(&self, operand: DType, precision: Precision) -> Bound {
        bound_of_product(operand, precision)
    }
}

/// Test cases: mat-vec and mat-mul for each type, extents around tile borders, broadcasting, strides. Types that are not
/// `thorough` have some of them.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &dtype in WEIGHT_TYPES {
        let block = dtype.block();
        // (k in blocks of 32 or elements, m, n): one column, few columns, tiles and their borders.
        let k = |blocks: usize, odd: usize| match block {
            1 => odd,
            // Blocks of 256: an eighth of them makes rows as long.
            256 => blocks.div_ceil(8) * block + if blocks > 2 { block } else { 0 },
            _ => blocks * block,
        };
        let shapes = [
            (k(1, 1), 1, 1),
            (k(2, 64), 64, 1),
            (k(8, 255), 67, 1),
            (k(9, 288), 33, 2),
            (k(3, 97), 16, 5),
            (k(8, 256), 128, 8),
            (k(4, 128), 64, 64),
            (k(5, 161), 65, 67),
            (k(8, 256), 130, 33),
        ];
        // One column, some, tiles; for types of more bits two columns too.
        let some = [shapes[2], shapes[4], shapes[7], shapes[3]];
        let some = if few_bits(dtype) { &some[..3] } else { &some[..] };
        for &(k, m, n) in if thorough(dtype) { &shapes[..] } else { some } {
            cases.push(Case::new(format!("MUL_MAT({dtype}, k={k}, m={m}, n={n})"), |g, c| {
                let a = c.leaf(g, "a", dtype, [k, m, 1, 1], Fill::Uniform(-1.0, 1.0))?;
                let b = c.leaf(g, "b", DType::F32, [k, n, 1, 1], Fill::Uniform(-1.0, 1.0))?;
                g.mul_mat(a, b)
            }));
        }
        let planes = [(3, 2, 3, 2, 9), (2, 1, 4, 3, 1), (1, 1, 2, 2, 40)];
        let taken = if thorough(dtype) { planes.len() } else { usize::from(!few_bits(dtype)) };
        for &(a2, a3, b2, b3, n) in &planes[..taken] {
            cases.push(Case::new(
                format!("MUL_MAT({dtype}, a=[{a2}, {a3}], b=[{b2}, {b3}], n={n})"),
                |g, c| {
                    let k = block.max(64);
                    let a = c.leaf(g, "a", dtype, [k, 21, a2, a3], Fill::Uniform(-1.0, 1.0))?;
                    let b = c.leaf(g, "b", DType::F32, [k, n, b2, b3], Fill::Uniform(-1.0, 1.0))?;
                    g.mul_mat(a, b)
                },
            ));
        }
    }
    // Enough rows to fill a device, where backends have other kernels than for few; the rows of b are no multiple of
    // what a wavefront takes.
    for (dtype, k) in [(DType::F16, 1288), (DType::Q8_0, 1312), (DType::Q4_0, 1312), (DType::Q6_K, 1280)] {
        for n in [1, 2, 7, 12] {
            cases.push(Case::new(format!("MUL_MAT({dtype}, k={k}, m=2050, n={n})"), |g, c| {
                let a = c.leaf(g, "a", dtype, [k, 2050, 1, 1], Fill::Uniform(-1.0, 1.0))?;
                let b = c.leaf(g, "b", DType::F32, [k, n, 1, 1], Fill::Uniform(-1.0, 1.0))?;
                g.mul_mat(a, b)
            }));
        }
    }
    cases.push(Case::new("MUL_MAT(Q4_K, k=1280, m=2050, n=1)", |g, c| {
        let a = c.leaf(g, "a", DType::Q4_K, [1280, 2050, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let b = c.leaf(g, "b", DType::F32, [1280, 1, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        g.mul_mat(a, b)
    }));
    // One column of rows that are long enough for kernels of their own.
    for (dtype, k) in [(DType::Q4_1, 1312), (DType::Q5_0, 1312), (DType::Q5_1, 1312), (DType::Q5_K, 1280)] {
        cases.push(Case::new(format!("MUL_MAT({dtype}, k={k}, m=258, n=1)"), |g, c| {
            let a = c.leaf(g, "a", dtype, [k, 258, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let b = c.leaf(g, "b", DType::F32, [k, 1, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            g.mul_mat(a, b)
        }));
    }
    // Few long rows and many columns.
    for (dtype, n) in [(DType::F16, 70), (DType::Q4_K, 37)] {
        cases.push(Case::new(format!("MUL_MAT({dtype}, k=1024, m=18, n={n})"), |g, c| {
            let a = c.leaf(g, "a", dtype, [1024, 18, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let b = c.leaf(g, "b", DType::F32, [1024, n, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            g.mul_mat(a, b)
        }));
    }
    for n in [1, 11] {
        cases.push(Case::new(format!("MUL_MAT(F16 permuted heads, n={n})"), |g, c| {
            let a = c.leaf(g, "a", DType::F16, [64, 2, 37, 1], Fill::Uniform(-1.0, 1.0))?;
            let a = g.permute(a, [0, 2, 1, 3])?;
            let b = c.leaf(g, "b", DType::F32, [64, 4, n, 1], Fill::Uniform(-1.0, 1.0))?;
            let b = g.permute(b, [0, 2, 1, 3])?;
            g.mul_mat(a, b)
        }));
    }
    // Beyond what F16 holds, and before that sums that are: models have such activations.
    for (dtype, n) in [(DType::Q4_0, 40), (DType::Q6_K, 33)] {
        cases.push(Case::new(format!("MUL_MAT({dtype}, large activations, n={n})"), |g, c| {
            let a = c.leaf(g, "a", dtype, [512, 67, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let large = |i: usize| match i % 512 {
                300 => 4e5,
                60 | 200 => -3e4,
                rest => rest as f32 / 256.0 - 1.0,
            };
            let b = Fill::Values((0..512 * n).map(large).collect());
            let b = c.leaf(g, "b", DType::F32, [512, n, 1, 1], b)?;
            g.mul_mat(a, b)
        }));
    }
    cases.push(Case::new("MUL_MAT(Q8_0 window of rows)", |g, c| {
        let a = c.leaf(g, "a", DType::Q8_0, [64, 40, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let a = g.view(a, [64, 19, 1, 1], [34, 68, 68 * 19, 68 * 19], 68 * 7)?;
        let b = c.leaf(g, "b", DType::F32, [64, 3, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        g.mul_mat(a, b)
    }));
    cases
}
