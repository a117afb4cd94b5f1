//! TOP_K: the largest elements of each row.

use super::{Computed, Operation, Output, operands, rule, typed};
use crate::catalogue::{Case, Fill};
use crate::dtype::DType;
use crate::reference::{Operand, OperandMut, list};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// Indices of the `k` largest elements of each row, the largest first; of equals the lower index first. Elements that
/// are no number come last.
///
/// * `x`: F32 `[n, n1, n2, n3]`, rows contiguous, `k <= n`
///
/// Result: I32 `[k, n1, n2, n3]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopK {
    /// How many.
    pub k: usize,
    /// Whether indices count from the beginning of the matrix `[n, n1]` that a row is in, not from that of the row: row
    /// `i1` has those from `i1 * n` on.
    #[serde(default)]
    pub flat: bool,
}

impl Operation for TopK {
    fn name(&self) -> &'static str {
        "TOP_K"
    }

    fn output(&self, src: &[&Tensor]) -> Result<Output, String> {
        operands(src, 1, 1)?;
        let x = src[0];
        typed(x, &[DType::F32], "x")?;
        rule(x.rows_contiguous(), || "rows must be contiguous".into())?;
        rule(self.k >= 1 && self.k <= x.ne[0], || format!("k is {}, a row has {}", self.k, x.ne[0]))?;
        let count = if self.flat { x.ne[0].saturating_mul(x.ne[1]) } else { x.ne[0] };
        rule(i32::try_from(count).is_ok(), || "too many elements for I32 indices".into())?;
        Ok(Output::new(DType::I32, [self.k, x.ne[1], x.ne[2], x.ne[3]]))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let [k, n1, n2, n3] = out.ne;
        for i3 in 0..n3 {
            for i2 in 0..n2 {
                for i1 in 0..n1 {
                    let row = src[0].row([i1, i2, i3])?;
                    let mut order = list(0..row.len())?;
                    // In place: a stable sort would take memory of its own.
                    order.sort_unstable_by(|&a, &b| {
                        let numbers_first = row[a].is_nan().cmp(&row[b].is_nan());
                        let larger_first = row[b].partial_cmp(&row[a]).unwrap_or(Ordering::Equal);
                        numbers_first.then(larger_first).then(a.cmp(&b))
                    });
                    let first = if self.flat { i1 * row.len() } else { 0 };
                    for (i0, &index) in order[..k].iter().enumerate() {
                        out.set([i0, i1, i2, i3], (first + index) as f64);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Test cases: one element, all elements, rows shorter and longer than a wavefront, equal elements, windows.
pub fn cases() -> Vec<Case> {
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
