//! MUL_MAT_ID: matrix products with matrices that are chosen for each token, the experts of a mixture.
//!
//! Source of the method: Shazeer et al., "Outrageously large neural networks: the sparsely-gated mixture-of-experts
//! layer" (2017).

use super::mul_mat::{WEIGHT_TYPES, bound_of_product};
use super::{Computed, Operation, Output, operands, rule, typed};
use crate::bound::Bound;
use crate::catalogue::{Case, Fill};
use crate::dtype::DType;
use crate::plan::Precision;
use crate::reference::{Operand, OperandMut};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Product with chosen matrices.
///
/// * `a`: `[k, m, experts]` of a weight type, rows contiguous
/// * `b`: F32 `[k, used or 1, tokens]`, rows contiguous
/// * `ids`: I32 `[used, tokens]`, each in `0..experts`, rows contiguous
///
/// Result: F32 `[m, used, tokens]`, `out[i, u, t] = sum over l of a[l, i, ids[u, t]] * b[l, u or 0, t]`. An index outside
/// `0..experts` gives zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulMatId {}

impl Operation for MulMatId {
    fn name(&self) -> &'static str {
        "MUL_MAT_ID"
    }

    fn output(&self, src: &[&Tensor]) -> Result<Output, String> {
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
}

/// Test cases: each weight type for one token and several, one row of `b` for all experts and one for each, experts that
/// nobody chose, indices outside.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &dtype in WEIGHT_TYPES {
        let k = dtype.block().max(64);
        for (m, experts, used, rows, tokens) in [(35, 4, 2, 1, 1), (66, 5, 3, 3, 19)] {
            let name = format!(
                "MUL_MAT_ID({dtype}, k={k}, m={m}, experts={experts}, used={used}, b={rows}, tokens={tokens})"
            );
            cases.push(Case::new(name, |g, c| {
                let a = c.leaf(g, "a", dtype, [k, m, experts, 1], Fill::Uniform(-1.0, 1.0))?;
                let b = c.leaf(g, "b", DType::F32, [k, rows, tokens, 1], Fill::Uniform(-1.0, 1.0))?;
                let ids = c.leaf(g, "ids", DType::I32, [used, tokens, 1, 1], Fill::Distinct(experts))?;
                g.mul_mat_id(a, b, ids)
            }));
        }
    }
    // As many tokens as a prompt has: backends may gather those of an expert.
    for (dtype, used) in [(DType::F16, 2), (DType::Q8_0, 4)] {
        cases.push(Case::new(
            format!("MUL_MAT_ID({dtype}, k=160, m=130, experts=8, used={used}, tokens=150)"),
            |g, c| {
                let a = c.leaf(g, "a", dtype, [160, 130, 8, 1], Fill::Uniform(-1.0, 1.0))?;
                let b = c.leaf(g, "b", DType::F32, [160, 1, 150, 1], Fill::Uniform(-1.0, 1.0))?;
                let ids = c.leaf(g, "ids", DType::I32, [used, 150, 1, 1], Fill::Distinct(8))?;
                g.mul_mat_id(a, b, ids)
            },
        ));
    }
    // Some tokens have an activation beyond what F16 holds.
    cases.push(Case::new("MUL_MAT_ID(Q4_0, large activations)", |g, c| {
        let a = c.leaf(g, "a", DType::Q4_0, [160, 66, 3, 1], Fill::Uniform(-1.0, 1.0))?;
        let large = |i: usize| if i % 4000 == 3999 { 3e5 } else { (i % 159) as f32 / 80.0 - 1.0 };
        let b = Fill::Values((0..160 * 150).map(large).collect());
        let b = c.leaf(g, "b", DType::F32, [160, 1, 150, 1], b)?;
        let ids = c.leaf(g, "ids", DType::I32, [2, 150, 1, 1], Fill::Distinct(3))?;
        g.mul_mat_id(a, b, ids)
    }));
    cases.push(Case::new("MUL_MAT_ID(indices outside)", |g, c| {
        let a = c.leaf(g, "a", DType::F32, [40, 9, 3, 1], Fill::Uniform(-1.0, 1.0))?;
        let b = c.leaf(g, "b", DType::F32, [40, 1, 3, 1], Fill::Uniform(-1.0, 1.0))?;
        let ids = Fill::Values(vec![2.0, 3.0, -1.0, 1.0, 0.0, 2147483520.0]);
        let ids = c.leaf(g, "ids", DType::I32, [2, 3, 1, 1], ids)?;
        g.mul_mat_id(a, b, ids)
    }));
    cases
}
