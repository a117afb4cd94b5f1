//! RMS_NORM. Source: Zhang and Sennrich, "Root mean square layer normalization" (2019).

use super::{Computed, Operation, Output, operands, rule, typed};
use crate::catalogue::{Case, Fill};
use crate::dtype::DType;
use crate::reference::{Operand, OperandMut};
use crate::tensor::Tensor;
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

    fn output(&self, src: &[&Tensor]) -> Result<Output, String> {
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

/// Test cases: one element, rows shorter and longer than a work-group, odd sizes, strides, tiny and zero rows.
pub fn cases() -> Vec<Case> {
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
