//! Test cases of CPY and CONT.

use super::case::{Case, Fill};
use crate::dtype::DType;

/// Test cases: every pair of types, permutations, other extents, offsets.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let floats = [DType::F32, DType::F16, DType::BF16];
    for from in floats {
        for to in floats {
            cases.push(Case::new(format!("CPY({from} -> {to})"), |g, c| {
                let a = c.leaf(g, "a", from, [65, 3, 2, 1], Fill::Uniform(-300.0, 300.0))?;
                let dst = c.leaf(g, "dst", to, [13, 15, 2, 1], Fill::Uniform(-1.0, 1.0))?;
                g.cpy(a, dst)
            }));
        }
    }
    cases.push(Case::new("CPY(F32 permuted -> window of F16)", |g, c| {
        let a = c.leaf(g, "a", DType::F32, [7, 5, 3, 2], Fill::Uniform(-3.0, 3.0))?;
        let a = g.permute(a, [2, 0, 1, 3])?;
        let dst = c.leaf(g, "dst", DType::F16, [40, 12, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let window = g.view(dst, [21, 10, 1, 1], [2, 80, 960, 960], 86)?;
        g.cpy(a, window)
    }));
    cases.push(Case::new("CPY(I32 -> I32)", |g, c| {
        let a = c.leaf(g, "a", DType::I32, [33, 2, 1, 1], Fill::Ids(100000))?;
        let dst = c.leaf(g, "dst", DType::I32, [66, 1, 1, 1], Fill::Ids(2))?;
        g.cpy(a, dst)
    }));
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32] {
        for axes in [[0, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1, 3], [3, 2, 1, 0]] {
            cases.push(Case::new(format!("CONT({dtype}, axes={axes:?})"), |g, c| {
                let fill = if dtype == DType::I32 { Fill::Ids(9999) } else { Fill::Uniform(-9.0, 9.0) };
                let a = c.leaf(g, "a", dtype, [34, 5, 3, 2], fill)?;
                let a = g.permute(a, axes)?;
                g.cont(a)
            }));
        }
    }
    cases.push(Case::new("CONT(F32, rows repeated)", |g, c| {
        let a = c.leaf(g, "a", DType::F32, [70, 2, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let a = g.view(a, [64, 3, 5, 1], [4, 0, 0, 0], 24)?;
        g.cont(a)
    }));
    cases.push(Case::new("CONT(F32 transposed, larger than one work-group)", |g, c| {
        let a = c.leaf(g, "a", DType::F32, [100, 77, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let a = g.transpose(a)?;
        g.cont(a)
    }));
    cases
}
