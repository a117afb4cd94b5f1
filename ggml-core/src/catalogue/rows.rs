//! Test cases of GET_ROWS and SET_ROWS.

use super::case::{Case, Fill};
use super::mul_mat::thorough;
use crate::dtype::DType;
use crate::op::flash_attn::CACHE_TYPES;
use crate::op::mul_mat::WEIGHT_TYPES;

/// Test cases: every type, batches, repeated and invalid indices, destinations with strides.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in WEIGHT_TYPES.iter().copied().chain([DType::I32]) {
        let n = if dtype.block() > 1 { 3 * dtype.block() } else { 77 };
        let all = thorough(dtype) || dtype == DType::I32;
        let ids = if all { 300 } else { 30 };
        let shapes = [(40, 9, 1, 1), (11, ids, 2, 3), (1, 1, 1, 1)];
        for (rows, ids, b2, b3) in shapes.into_iter().take(if all { 3 } else { 2 }) {
            cases.push(Case::new(
                format!("GET_ROWS({dtype}, rows={rows}, ids={ids}, [{b2}, {b3}])"),
                |g, c| {
                    let fill = if dtype == DType::I32 { Fill::Ids(1000) } else { Fill::Uniform(-1.0, 1.0) };
                    let a = c.leaf(g, "a", dtype, [n, rows, b2, b3], fill)?;
                    let ids = c.leaf(g, "ids", DType::I32, [ids, b2, b3, 1], Fill::Ids(rows))?;
                    g.get_rows(a, ids)
                },
            ));
        }
    }
    cases.push(Case::new("GET_ROWS(indices outside)", |g, c| {
        let a = c.leaf(g, "a", DType::F32, [40, 3, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let ids = Fill::Values(vec![2.0, 3.0, -1.0, 1.0, 2147483520.0]);
        let ids = c.leaf(g, "ids", DType::I32, [5, 1, 1, 1], ids)?;
        g.get_rows(a, ids)
    }));
    for &dtype in CACHE_TYPES {
        for (n, rows, ids, b2) in [(64, 32, 1, 1), (65, 100, 17, 1), (33, 50, 50, 3)] {
            let n = if dtype.is_quantized() { n / 32 * 32 } else { n };
            cases.push(Case::new(
                format!("SET_ROWS({dtype}, n={n}, rows={rows}, ids={ids}, b2={b2})"),
                |g, c| {
                    let dst = c.state(g, "dst", dtype, [n, rows, b2, 1], Fill::Uniform(-1.0, 1.0))?;
                    let values =
                        c.leaf(g, "values", DType::F32, [n, ids, b2, 1], Fill::Uniform(-1.0, 1.0))?;
                    let ids = c.leaf(g, "ids", DType::I32, [ids, 1, 1, 1], Fill::Distinct(rows))?;
                    g.set_rows(dst, values, ids)
                },
            ));
        }
        cases.push(Case::new(format!("SET_ROWS({dtype}, other rows of each matrix)"), |g, c| {
            let dst = c.state(g, "dst", dtype, [32, 5, 6, 1], Fill::Uniform(-1.0, 1.0))?;
            let values = c.leaf(g, "values", DType::F32, [32, 3, 6, 1], Fill::Uniform(-1.0, 1.0))?;
            let ids = c.leaf(g, "ids", DType::I32, [3, 6, 1, 1], Fill::Distinct(5))?;
            g.set_rows(dst, values, ids)
        }));
        cases.push(Case::new(format!("SET_ROWS({dtype}, indices outside, strided destination)"), |g, c| {
            // Rows of 96 elements, or of 96 blocks.
            let (b, unit) = (dtype.block_bytes(), dtype.block());
            let whole = c.state(g, "whole", dtype, [96 * unit, 8, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let n = 40 * unit;
            let dst = g.view(whole, [n, 8, 1, 1], [b, 96 * b, 768 * b, 768 * b], 5 * b)?;
            let values = c.leaf(g, "values", DType::F32, [n, 4, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let ids = Fill::Values(vec![7.0, -1.0, 8.0, 0.0]);
            let ids = c.leaf(g, "ids", DType::I32, [4, 1, 1, 1], ids)?;
            g.set_rows(dst, values, ids)
        }));
    }
    cases
}
