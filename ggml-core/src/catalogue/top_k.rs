//! Test cases of TOP_K.

use super::case::{Case, Fill};
use crate::dtype::DType;

/// Test cases: one element, all elements, rows shorter and longer than a wavefront, equal elements, windows.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (ne, k) in [
        ([1, 1, 1, 1], 1),
        ([8, 5, 1, 1], 2),
        ([32, 17, 1, 1], 4),
        ([61, 3, 2, 1], 61),
        ([128, 9, 1, 1], 8),
        ([300, 2, 1, 1], 6),
    ] {
        cases.push(Case::new(format!("TOP_K({ne:?}, k={k})"), |g, c| {
            let x = c.leaf(g, "x", DType::F32, ne, Fill::Uniform(-4.0, 4.0))?;
            g.top_k(x, k)
        }));
    }
    for (ne, k) in [([40, 7, 3, 1], 1), ([1200, 5, 2, 1], 3)] {
        cases.push(Case::new(format!("TOP_K({ne:?}, k={k}, flat)"), |g, c| {
            let x = c.leaf(g, "x", DType::F32, ne, Fill::Uniform(-4.0, 4.0))?;
            g.top_k_flat(x, k)
        }));
    }
    cases.push(Case::new("TOP_K(equal elements)", |g, c| {
        let values = vec![1.0, 3.0, -2.0, 3.0, 1.0, 0.0, -0.0, 3.0, f32::NEG_INFINITY, 1.0];
        let x = c.leaf(g, "x", DType::F32, [70, 2, 1, 1], Fill::Values(values))?;
        g.top_k(x, 30)
    }));
    cases.push(Case::new("TOP_K(window)", |g, c| {
        let x = c.leaf(g, "x", DType::F32, [50, 6, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let x = g.view(x, [33, 6, 1, 1], [4, 200, 1200, 1200], 28)?;
        g.top_k(x, 3)
    }));
    cases
}
