//! Test cases of SOFT_MAX.

use super::case::{Case, Fill};
use crate::dtype::DType;
use crate::op::SoftMax;

/// Test cases: rows around the work-group, masks of both types, broadcasting, ALiBi, large scores, empty
/// rows.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for ne in [[1, 1, 1, 1], [32, 4, 2, 1], [65, 3, 1, 2], [257, 2, 3, 1], [1024, 1, 1, 1], [3001, 2, 1, 1]] {
        cases.push(Case::new(format!("SOFT_MAX({ne:?})"), |g, c| {
            let x = c.leaf(g, "x", DType::F32, ne, Fill::Uniform(-8.0, 8.0))?;
            g.soft_max(SoftMax { scale: 1.0, max_bias: 0.0 }, x, None)
        }));
        for (mask, max_bias) in [(DType::F32, 0.0), (DType::F16, 8.0)] {
            cases.push(Case::new(format!("SOFT_MAX({ne:?}, mask={mask}, max_bias={max_bias})"), |g, c| {
                let x = c.leaf(g, "x", DType::F32, ne, Fill::Uniform(-8.0, 8.0))?;
                let m = c.leaf(g, "mask", mask, [ne[0], ne[1], 1, ne[3]], Fill::Causal)?;
                g.soft_max(SoftMax { scale: 0.125, max_bias }, x, Some(m))
            }));
        }
    }
    cases.push(Case::new("SOFT_MAX(large scores, everything masked in one row)", |g, c| {
        let x = c.leaf(
            g,
            "x",
            DType::F32,
            [4, 2, 1, 1],
            Fill::Values(vec![1e4, -1e4, 9e3, 1e4, 1.0, 2.0, 3.0, 4.0]),
        )?;
        let mask = [vec![0.0; 4], vec![f32::NEG_INFINITY; 4]].concat();
        let mask = c.leaf(g, "mask", DType::F32, [4, 2, 1, 1], Fill::Values(mask))?;
        g.soft_max(SoftMax { scale: 1.0, max_bias: 0.0 }, x, Some(mask))
    }));
    cases.push(Case::new("SOFT_MAX(rows with NaN)", |g, c| {
        // NaN in the middle of a row, at its end, and in all of its elements.
        let nan = [70 + 5..70 + 6, 3 * 70 - 1..3 * 70, 4 * 70..5 * 70].map(|at| (at, f32::NAN));
        let x = c.leaf(g, "x", DType::F32, [70, 6, 1, 1], Fill::Uniform(-8.0, 8.0).but(nan))?;
        g.soft_max(SoftMax { scale: 0.5, max_bias: 0.0 }, x, None)
    }));
    for (n, mask, max_bias) in [(70, DType::F32, 0.0), (1100, DType::F16, 8.0)] {
        cases.push(Case::new(format!("SOFT_MAX(NaN and hidden elements, n={n}, mask={mask})"), |g, c| {
            // Row 1 has a NaN in its mask, row 2 sees a single element, a NaN, and row 3 sees nothing. The
            // last elements of `x` are hidden from all rows.
            let odd =
                [(n - 3..n - 2, f32::INFINITY), (n - 2..n - 1, f32::NEG_INFINITY), (n - 1..n, f32::NAN)];
            let odd = (0..5)
                .flat_map(|row| odd.clone().map(|(at, value)| (at.start + row * n..at.end + row * n, value)));
            let x = Fill::Uniform(-8.0, 8.0).but(odd.chain([(2 * n + 9..2 * n + 10, f32::NAN)]));
            let x = c.leaf(g, "x", DType::F32, [n, 5, 2, 1], x)?;
            let hidden = (1..6).map(|row| (row * n - 3..row * n, f32::NEG_INFINITY));
            let rows = [
                (n + 7..n + 8, f32::NAN),
                (2 * n..2 * n + 9, f32::NEG_INFINITY),
                (2 * n + 10..4 * n, f32::NEG_INFINITY),
            ];
            let m = Fill::Uniform(-2.0, 0.0).but(hidden.chain(rows));
            let m = c.leaf(g, "mask", mask, [n, 5, 1, 1], m)?;
            g.soft_max(SoftMax { scale: 0.125, max_bias }, x, Some(m))
        }));
    }
    cases
}
