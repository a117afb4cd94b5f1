//! Test cases of views.

use super::case::{Case, Fill};
use crate::dtype::DType;

/// Test cases: a chain of views, with a copy that makes it visible.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("RESHAPE, PERMUTE, VIEW, TRANSPOSE, CONT", |g, c| {
            let x = c.leaf(g, "x", DType::F32, [24, 10, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let x = g.reshape(x, [6, 4, 10, 1])?;
            let x = g.permute(x, [0, 2, 1, 3])?;
            let x = g.view(x, [6, 5, 4, 1], [4, 192, 24, 960], 96)?;
            let x = g.transpose(x)?;
            g.cont(x)
        }),
        Case::new("VIEW(one element)", |g, c| {
            let x = c.leaf(g, "x", DType::F32, [7, 1, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let x = g.view(x, [1, 1, 1, 1], [4, 4, 4, 4], 24)?;
            g.scale(x, 2.0, 0.0)
        }),
    ]
}
