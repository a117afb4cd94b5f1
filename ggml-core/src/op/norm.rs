//! RMS_NORM. Source: Zhang and Sennrich, "Root mean square layer normalization" (2019).

use super::{Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// `x / sqrt(mean(x^2) + eps)` for each row of an F32 tensor with contiguous rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RmsNorm {
    /// Added to the mean square; at least 0.
    #[serde(with = "super::lossless")]
    pub eps: f32,
}

impl Operation for RmsNorm {
    fn name(&self) -> &'static str {
        "RMS_NORM"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 1, 1)?;
        typed(src[0], &[DType::F32], "x")?;
        rule(src[0].rows_contiguous(), || "rows must be contiguous".into())?;
        rule(self.eps >= 0.0, || "eps must not be negative".into())?;
        Ok(Output::new(DType::F32, src[0].ne))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let [n, n1, n2, n3] = out.ne;
        for i3 in 0..n3 {
            for i2 in 0..n2 {
                for i1 in 0..n1 {
                    let row = src[0].row([i1, i2, i3])?;
                    let mean = row.iter().map(|x| x * x).sum::<f64>() / n as f64;
                    let scale = 1.0 / (mean + f64::from(self.eps)).sqrt();
                    for (i0, x) in row.iter().enumerate() {
                        out.set([i0, i1, i2, i3], x * scale);
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
