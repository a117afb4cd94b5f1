//! MUL_MAT_ID: products with matrices that are chosen for each token, the experts of a mixture.
//!
//! Source of the method: Shazeer et al., "Outrageously large neural networks: the sparsely-gated
//! mixture-of-experts layer" (2017).

use super::mul_mat::{WEIGHT_TYPES, bound_of_product, rounding_of_activations};
use super::{Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut, Rounding};
use crate::metrics::Bound;
use crate::precision::Precision;
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// Product with chosen matrices.
///
/// * `a`: `[k, m, experts]` of a weight type, rows contiguous
/// * `b`: F32 `[k, used or 1, tokens]`, rows contiguous
/// * `ids`: I32 `[used, tokens]`, each in `0..experts`, rows contiguous
///
/// Result: F32 `[m, used, tokens]`, `out[i, u, t] = sum over l of a[l, i, ids[u, t]] * b[l, u or 0, t]`. An
/// index outside `0..experts` gives zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulMatId {}

impl Operation for MulMatId {
    fn name(&self) -> &'static str {
        "MUL_MAT_ID"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 3, 3)?;
        let (a, b, ids) = (src[0], src[1], src[2]);
        typed(a, WEIGHT_TYPES, "a")?;
        typed(b, &[DType::F32], "b")?;
        typed(ids, &[DType::I32], "ids")?;
        rule(a.ne[0] == b.ne[0], || "a and b must have rows of the same length".into())?;
        rule(a.ne[3] == 1 && b.ne[3] == 1 && ids.ne[2] == 1 && ids.ne[3] == 1, || {
            "a and b have three extents, ids two".into()
        })?;
        rule(b.ne[2] == ids.ne[1], || "b and ids must have as many tokens".into())?;
        rule(b.ne[1] == 1 || b.ne[1] == ids.ne[0], || "b needs one row for each index, or one".into())?;
        rule([a, b, ids].iter().all(|t| t.rows_contiguous()), || "rows must be contiguous".into())?;
        Ok(Output::new(DType::F32, [a.ne[1], ids.ne[0], ids.ne[1], 1]))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let (a, b, ids) = (&src[0], &src[1], &src[2]);
        let [m, used, tokens, _] = out.ne;
        for t in 0..tokens {
            for u in 0..used {
                let expert = ids.at([u, t, 0, 0]);
                let column = b.row([u % b.ne[1], t, 0])?;
                for i in 0..m {
                    let valid = expert >= 0.0 && expert < a.ne[2] as f64;
                    let sum = if valid {
                        let row = a.row([i, expert as usize, 0])?;
                        row.iter().zip(&column).map(|(x, y)| x * y).sum()
                    } else {
                        0.0
                    };
                    out.set([i, u, t, 0], sum);
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
