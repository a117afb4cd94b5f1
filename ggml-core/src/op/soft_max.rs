//! SOFT_MAX of rows with scale, mask and ALiBi.

use super::flash_attn::alibi_slope;
use super::{Operation, Output, operands, rule, typed};
use crate::catalogue::{Case, Fill};
use crate::dtype::DType;
use crate::reference::{Operand, OperandMut};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// `soft_max(scale * x + slope * mask)` of each row.
///
/// * `x`: F32 `[n, rows, heads, batch]`, rows contiguous
/// * `mask` (may be absent): F16 or F32 `[n, >= rows, m2, m3]`, `m2` divides `heads`, `m3` divides `batch`
///
/// Result: F32 with the extents of `x`. A row whose scores are all minus infinity gives zeros.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftMax {
    /// Factor of `x`.
    pub scale: f32,
    /// ALiBi's largest bias: 0 for none (slope 1).
    pub max_bias: f32,
}

impl Operation for SoftMax {
    fn name(&self) -> &'static str {
        "SOFT_MAX"
    }

    fn output(&self, src: &[&Tensor]) -> Result<Output, String> {
        operands(src, 1, 2)?;
        let x = src[0];
        typed(x, &[DType::F32], "x")?;
        rule(x.rows_contiguous(), || "rows must be contiguous".into())?;
        if let Some(mask) = src.get(1) {
            typed(mask, &[DType::F32, DType::F16], "mask")?;
            rule(mask.ne[0] == x.ne[0] && mask.ne[1] >= x.ne[1], || "mask must cover the rows of x".into())?;
            let fits = mask.ne[2] > 0
                && mask.ne[3] > 0
                && x.ne[2].is_multiple_of(mask.ne[2])
                && x.ne[3].is_multiple_of(mask.ne[3]);
            rule(fits, || "the outer extents of mask must divide those of x".into())?;
            rule(mask.rows_contiguous(), || "mask rows must be contiguous".into())?;
        } else {
            rule(self.max_bias == 0.0, || "max_bias needs a mask".into())?;
        }
        Ok(Output::new(DType::F32, x.ne))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) {
        let (x, mask) = (&src[0], src.get(1));
        let [n, rows, heads, batch] = out.ne;
        for b in 0..batch {
            for h in 0..heads {
                let slope = alibi_slope(f64::from(self.max_bias), h, heads);
                for r in 0..rows {
                    let mut row = x.row([r, h, b]);
                    row.iter_mut().for_each(|v| *v *= f64::from(self.scale));
                    if let Some(mask) = mask {
                        let bias = mask.row([r, h % mask.ne[2], b % mask.ne[3]]);
                        row.iter_mut()
                            .zip(&bias)
                            .for_each(|(v, m)| *v += if *m == 0.0 { 0.0 } else { slope * m });
                    }
                    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = row.iter().map(|v| (v - max).exp()).sum();
                    for (i, v) in row.iter().enumerate().take(n) {
                        let value = if max == f64::NEG_INFINITY { 0.0 } else { (v - max).exp() / sum };
                        out.set([i, r, h, b], value);
                    }
                }
            }
        }
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }
}

/// Test cases: rows around the work-group, masks of both types, broadcasting, ALiBi, large scores, empty rows.
pub fn cases() -> Vec<Case> {
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
    cases
}
