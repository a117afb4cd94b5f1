//! Test cases of MUL_MAT_ID.

use super::case::{Case, Fill};
use crate::dtype::DType;
use crate::op::mul_mat::WEIGHT_TYPES;

/// Test cases: each weight type for one token and several, one row of `b` for all experts and one for each,
/// unused experts, indices out of range.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &dtype in WEIGHT_TYPES {
        let k = dtype.block().max(64);
        for (m, experts, used, rows, tokens) in [(35, 4, 2, 1, 1), (66, 5, 3, 3, 16)] {
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
    // The number of tokens of a prompt: backends may gather the tokens of an expert.
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
    // Some tokens have an activation beyond the range of F16.
    for (dtype, k) in [(DType::Q4_0, 160), (DType::TQ2_0, 256)] {
        cases.push(Case::new(format!("MUL_MAT_ID({dtype}, large activations)"), |g, c| {
            let a = c.leaf(g, "a", dtype, [k, 66, 3, 1], Fill::Uniform(-1.0, 1.0))?;
            let large = |i: usize| if i % 4000 == 3999 { 3e5 } else { (i % 159) as f32 / 80.0 - 1.0 };
            let b = Fill::Values((0..k * 150).map(large).collect());
            let b = c.leaf(g, "b", DType::F32, [k, 1, 150, 1], b)?;
            let ids = c.leaf(g, "ids", DType::I32, [2, 150, 1, 1], Fill::Distinct(3))?;
            g.mul_mat_id(a, b, ids)
        }));
    }
    // Indices are parts of longer rows, some are outside, some matrices have no tokens and one has most of them.
    for (dtype, rows) in [(DType::F16, 3), (DType::Q4_K, 1), (DType::IQ3_S, 1), (DType::Q8_0, 3)] {
        let name = format!("MUL_MAT_ID({dtype}, b={rows}, indices outside, tokens=150)");
        cases.push(Case::new(name, |g, c| {
            let (experts, tokens) = (9, 150);
            let a = c.leaf(g, "a", dtype, [256, 70, experts, 1], Fill::Uniform(-1.0, 1.0))?;
            let b = c.leaf(g, "b", DType::F32, [256, rows, tokens, 1], Fill::Uniform(-1.0, 1.0))?;
            let of = |i: usize| match (i / 5, i % 5) {
                (token, 1) if token % 7 == 3 => [-1.0, 9.0, 2147483520.0][token % 3],
                (_, 1) => 4.0,
                (token, place) => (token * place % 7) as f32,
            };
            let ids = Fill::Values((0..5 * tokens).map(of).collect());
            let all = c.leaf(g, "all", DType::I32, [5, tokens, 1, 1], ids)?;
            let ids = g.view(all, [3, tokens, 1, 1], [4, 20, 20 * tokens, 20 * tokens], 4)?;
            g.mul_mat_id(a, b, ids)
        }));
    }
    cases.push(Case::new("MUL_MAT_ID(indices outside)", |g, c| {
        let a = c.leaf(g, "a", DType::F32, [40, 9, 3, 1], Fill::Uniform(-1.0, 1.0))?;
        let b = c.leaf(g, "b", DType::F32, [40, 1, 3, 1], Fill::Uniform(-1.0, 1.0))?;
        let ids = Fill::Values(vec![2.0, 3.0, -1.0, 1.0, 0.0, 2147483520.0]);
        let ids = c.leaf(g, "ids", DType::I32, [2, 3, 1, 1], ids)?;
        g.mul_mat_id(a, b, ids)
    }));
    cases
}
