//! SOFT_MAX of rows with scale, mask and ALiBi.
//!
//! Source of the linear bias: Press et al., "Train short, test long" (ALiBi, 2022).

use super::{Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut, list};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// `soft_max(scale * x + slope * mask)` of each row.
///
/// * `x`: F32 `[n, rows, heads, batch]`, rows contiguous
/// * `mask` (may be absent): F16 or F32 `[n, >= rows, m2, m3]`, `m2` divides `heads`, `m3` divides `batch`
///
/// Result: F32 with the extents of `x`. An element whose mask is minus infinity is hidden: its `x` is not
/// read, whatever it is, and its result is 0. A row whose scores are all minus infinity gives zeros. A row
/// with a NaN in the mask, or in an `x` that is not hidden, is all NaN.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftMax {
    /// Factor of `x`.
    #[serde(with = "super::lossless")]
    pub scale: f32,
    /// Maximum bias of ALiBi; 0 disables it (slope 1).
    #[serde(with = "super::lossless")]
    pub max_bias: f32,
}

impl Operation for SoftMax {
    fn name(&self) -> &'static str {
        "SOFT_MAX"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
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
        rule(self.max_bias >= 0.0 && self.max_bias.is_finite(), || {
            format!("max_bias is {}, not a number from 0 on", self.max_bias)
        })?;
        Ok(Output::new(DType::F32, x.ne))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let (x, mask) = (&src[0], src.get(1));
        let [n, rows, heads, batch] = out.ne;
        for b in 0..batch {
            for h in 0..heads {
                let slope = alibi_slope(self.max_bias, h, heads);
                for r in 0..rows {
                    let bias = mask.map(|m| m.row([r, h % m.ne[2], b % m.ne[3]])).transpose()?;
                    let score = |i: usize| match bias.as_ref().map_or(0.0, |bias| bias[i]) {
                        f64::NEG_INFINITY => f64::NEG_INFINITY,
                        bias => f64::from(self.scale) * x.at([i, r, h, b]) + slope * bias,
                    };
                    for (i, weight) in soft_max(list((0..n).map(score))?).into_iter().enumerate() {
                        out.set([i, r, h, b], weight);
                    }
                }
            }
        }
        Ok(())
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }
}

/// Computes the soft-max of a row of scores: zeros if all are minus infinity, all NaN if one is NaN.
pub(super) fn soft_max(mut row: Vec<f64>) -> Vec<f64> {
    if row.iter().all(|score| *score == f64::NEG_INFINITY) {
        row.fill(0.0);
        return row;
    }
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.iter_mut().for_each(|x| *x = (*x - max).exp());
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|x| *x /= sum);
    row
}

/// Returns ALiBi's slope of head `h` of `n`; 1 if `max_bias` is 0. For a power of two, the slopes are a
/// geometric sequence that ends at `2^-max_bias`. For other numbers of heads, they are the slopes of the next
/// lower power of two, then every other slope of the next higher one.
pub(super) fn alibi_slope(max_bias: f32, h: usize, n: usize) -> f64 {
    let geometric = |h: usize, n: usize| (-f64::from(max_bias) * (h + 1) as f64 / n as f64).exp2();
    let below = (0..).map(|i| 1usize << i).take_while(|power| *power <= n).last().unwrap_or(1);
    if h < below { geometric(h, below) } else { geometric(2 * (h - below), 2 * below) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_of_the_paper() {
        // Press et al.: 8 heads, bias 8: 1/2, 1/4, ... 1/256.
        for h in 0..8 {
            assert!((alibi_slope(8.0, h, 8) - 0.5f64.powi(h as i32 + 1)).abs() < 1e-15);
        }
        // 12 heads: the slopes of 8, then every other one of 16.
        assert!((alibi_slope(8.0, 7, 12) - 0.5f64.powi(8)).abs() < 1e-15);
        assert!((alibi_slope(8.0, 8, 12) - 0.5f64.powf(0.5)).abs() < 1e-15);
        assert!((alibi_slope(8.0, 9, 12) - 0.5f64.powf(1.5)).abs() < 1e-15);
        assert_eq!(alibi_slope(0.0, 3, 4), 1.0);
    }

    #[test]
    fn nan_makes_a_row_nan() {
        let kinds = |row: Vec<f64>| soft_max(row).iter().map(|w| w.is_nan()).collect::<Vec<_>>();
        let (nan, hidden) = (f64::NAN, f64::NEG_INFINITY);
        assert_eq!(kinds(vec![1.0, nan, hidden]), [true; 3]);
        assert_eq!(kinds(vec![hidden, nan]), [true; 2]);
        assert_eq!(kinds(vec![f64::INFINITY, 0.0]), [true; 2]);
        assert_eq!(soft_max(vec![hidden; 2]), [0.0; 2]);
        assert_eq!(soft_max(vec![hidden, 5.0]), [0.0, 1.0]);
    }
}
