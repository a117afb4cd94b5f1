//! MUL_MAT: the matrix product of ggml.

use super::{Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut, Rounding, list};
use crate::metrics::Bound;
use crate::precision::Precision;
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// Types of `a`.
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

/// Returns the bound of a product, for [`MulMat`] and [`MulMatId`](super::MulMatId). With [`Precision::Fast`]
/// activations may be rounded to the type in which the weights are multiplied: F16 (by at most 2^-12 of an
/// element: an NMSE of 4e-8), BF16 (2e-6), or 8 bits for blocks (1e-5 to 1e-4, because the largest of 32 is 2
/// to 6 times the mean). Among the results of one column, the largest error is about ten times the mean.
pub(super) fn bound_of_product(weights: DType, precision: Precision) -> Bound {
    match (precision, weights) {
        (Precision::Exact, _) | (Precision::Fast, DType::F32) => Bound::plain(precision),
        (Precision::Fast, DType::F16) => Bound { nmse: 5e-7, row: 5e-7 },
        (Precision::Fast, DType::BF16) => Bound { nmse: 1e-5, row: 1e-4 },
        (Precision::Fast, _) => Bound { nmse: 5e-4, row: 5e-3 },
    }
}

/// Returns the rounding of the activations of a product, its second operand, for [`MulMat`] and
/// [`MulMatId`](super::MulMatId).
pub(super) fn rounding_of_activations(weights: DType, precision: Precision) -> &'static [(usize, Rounding)] {
    match (precision, weights) {
        (Precision::Exact, _) | (Precision::Fast, DType::F32) => &[],
        (Precision::Fast, DType::F16) => &[(1, Rounding::F16)],
        (Precision::Fast, DType::BF16) => &[(1, Rounding::BF16)],
        (Precision::Fast, _) => &[(1, Rounding::Blocks8)],
    }
}

/// Matrix product.
///
/// * `a`: `[k, m, a2, a3]`, one of [`WEIGHT_TYPES`], rows contiguous
/// * `b`: F32 `[k, n, b2, b3]`, `a2` divides `b2` and `a3` divides `b3`, rows contiguous
///
/// Result: F32 `[m, n, b2, b3]`,
/// `out[i, j, s, t] = sum over l of a[l, i, s / (b2 / a2), t / (b3 / a3)] * b[l, j, s, t]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulMat {}

impl Operation for MulMat {
    fn name(&self) -> &'static str {
        "MUL_MAT"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
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

    fn rounds(&self, operand: DType, precision: Precision) -> &'static [(usize, Rounding)] {
        rounding_of_activations(operand, precision)
    }
}
