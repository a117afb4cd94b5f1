//! TOP_K: the largest elements of each row.

use super::{Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut, list};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// Indices of the `k` largest elements of each row, the largest first; the lower index first for equal
/// elements. NaN sorts last.
///
/// * `x`: F32 `[n, n1, n2, n3]`, rows contiguous, `k <= n`
///
/// Result: I32 `[k, n1, n2, n3]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopK {
    /// Number of indices for each row.
    pub k: usize,
    /// True if indices count from the beginning of the matrix `[n, n1]` that contains the row, instead of the
    /// beginning of the row: the indices of row `i1` then start at `i1 * n`.
    #[serde(default)]
    pub flat: bool,
}

impl Operation for TopK {
    fn name(&self) -> &'static str {
        "TOP_K"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
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
                    // In place: a stable sort would allocate memory.
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
