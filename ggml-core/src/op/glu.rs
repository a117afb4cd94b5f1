//! Gated linear units. Source: Shazeer, "GLU variants improve Transformer" (2020).

use super::{Activation, Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut, indices};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// `activation(gate) * up`.
///
/// Two operands: `gate` and `up`, F32 of the same extents. One operand F32 `[2 n, ...]`: its first half is
/// the gate, its second half `up` (exchanged if `swapped`); the result has `n` columns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Glu {
    /// Function of the gate: SILU for SWIGLU, GELU for GEGLU, RELU for REGLU.
    pub activation: Activation,
    /// True if the second half of the one operand is the gate.
    pub swapped: bool,
    /// Parameters of SWIGLU_OAI, the form of gpt-oss; `activation` is then ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clamped: Option<Clamped>,
}

/// SWIGLU_OAI: `x / (1 + exp(-alpha x)) * (1 + y)` with the gate `x = min(gate, limit)` and `y = up` between
/// `-limit` and `limit`. Source: OpenAI, "gpt-oss model card" (2025).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clamped {
    /// Slope of the gate's sigmoid.
    #[serde(with = "super::lossless")]
    pub alpha: f32,
    /// Bound of gate and `up`; greater than 0.
    #[serde(with = "super::lossless")]
    pub limit: f32,
}

impl Glu {
    /// `activation(gate) * up`.
    pub fn new(activation: Activation) -> Glu {
        Glu { activation, swapped: false, clamped: None }
    }

    /// SWIGLU_OAI.
    pub fn clamped(alpha: f32, limit: f32) -> Glu {
        Glu { clamped: Some(Clamped { alpha, limit }), ..Glu::new(Activation::Silu) }
    }

    fn apply(&self, gate: f64, up: f64) -> f64 {
        let Some(Clamped { alpha, limit }) = self.clamped else { return self.activation.apply(gate) * up };
        let (alpha, limit) = (f64::from(alpha), f64::from(limit));
        let (x, y) = (gate.min(limit), up.clamp(-limit, limit));
        x / (1.0 + (-alpha * x).exp()) * (1.0 + y)
    }
}

impl Operation for Glu {
    fn name(&self) -> &'static str {
        match self.activation {
            _ if self.clamped.is_some() => "SWIGLU_OAI",
            Activation::Silu => "SWIGLU",
            Activation::Gelu => "GEGLU",
            Activation::GeluErf => "GEGLU_ERF",
            Activation::GeluQuick => "GEGLU_QUICK",
            Activation::Relu => "REGLU",
            Activation::Sigmoid => "GLU",
            Activation::Softplus => "SOFTPLUS_GLU",
            Activation::Tanh => "TANH_GLU",
        }
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 1, 2)?;
        rule(self.clamped.is_none_or(|c| c.limit > 0.0 && c.alpha.is_finite()), || {
            "the limit must be positive, alpha finite".into()
        })?;
        for t in src {
            typed(t, &[DType::F32], "operand")?;
            rule(t.rows_contiguous(), || "rows must be contiguous".into())?;
        }
        if let [gate, up] = src {
            rule(gate.ne == up.ne, || "gate and up must have the same extents".into())?;
            rule(!self.swapped, || "swapped is for one operand".into())?;
            return Ok(Output::new(DType::F32, gate.ne));
        }
        let [n, rest @ ..] = src[0].ne;
        rule(n % 2 == 0, || "one operand must have an even number of columns".into())?;
        Ok(Output::new(DType::F32, [n / 2, rest[0], rest[1], rest[2]]))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let n = out.ne[0];
        for i in indices(out.ne) {
            let [column, rest @ ..] = i;
            let half =
                |second: bool| src[0].at([column + if second { n } else { 0 }, rest[0], rest[1], rest[2]]);
            let (gate, up) = match src.get(1) {
                Some(up) => (src[0].at(i), up.at(i)),
                None => (half(self.swapped), half(!self.swapped)),
            };
            out.set(i, self.apply(gate, up));
        }
        Ok(())
    }

    fn in_place(&self) -> &'static [usize] {
        // With one operand the extents differ, so the planner does not reuse the storage.
        &[0, 1]
    }
}
