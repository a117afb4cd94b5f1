//! Test cases of RMS_NORM.

use super::case::{Case, Fill};
use crate::dtype::DType;

/// Test cases: one element, rows shorter and longer than a work-group, odd sizes, strides, tiny and zero rows.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for ne in [[1, 1, 1, 1], [64, 5, 3, 2], [63, 2, 1, 1], [256, 3, 1, 1], [1025, 2, 1, 1], [4096, 1, 1, 1]] {
        for eps in [0.0, 1e-6, 1e-2] {
            cases.push(Case::new(format!("RMS_NORM({ne:?}, eps={eps})"), |g, c| {
                let x = c.leaf(g, "x", DType::F32, ne, Fill::Uniform(-3.0, 5.0))?;
                g.rms_norm(x, eps)
            }));
        }
    }
    cases.push(Case::new("RMS_NORM(permuted heads)", |g, c| {
        let x = c.leaf(g, "x", DType::F32, [32, 4, 6, 1], Fill::Uniform(-1.0, 1.0))?;
        let x = g.permute(x, [0, 2, 1, 3])?;
        g.rms_norm(x, 1e-5)
    }));
    cases.push(Case::new("RMS_NORM(window)", |g, c| {
        let x = c.leaf(g, "x", DType::F32, [100, 9, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let x = g.view(x, [70, 9, 1, 1], [4, 400, 3600, 3600], 20)?;
        g.rms_norm(x, 1e-5)
    }));
    cases.push(Case::new("RMS_NORM(zero row)", |g, c| {
        let x = c.leaf(g, "x", DType::F32, [40, 1, 1, 1], Fill::Values(vec![0.0; 40]))?;
        g.rms_norm(x, 1e-6)
    }));
    cases
}
