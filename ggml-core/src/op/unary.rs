//! Element-wise functions of one operand: activations and SCALE.

use super::{Computed, Operation, Output, operands, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut, indices};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// Activation function. The discriminants are those that kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu = 0,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))` (Hendrycks and Gimpel 2016).
    Gelu = 1,
    /// `x / 2 * (1 + erf(x / sqrt(2)))`.
    GeluErf = 2,
    /// `x / (1 + exp(-1.702 x))`.
    GeluQuick = 3,
    /// `max(x, 0)`.
    Relu = 4,
    /// `1 / (1 + exp(-x))`.
    Sigmoid = 5,
    /// `ln(1 + exp(x))`.
    Softplus = 6,
    /// The hyperbolic tangent.
    Tanh = 7,
}

impl Activation {
    /// All functions.
    pub const ALL: [Activation; 8] = [
        Activation::Silu,
        Activation::Gelu,
        Activation::GeluErf,
        Activation::GeluQuick,
        Activation::Relu,
        Activation::Sigmoid,
        Activation::Softplus,
        Activation::Tanh,
    ];

    /// Computes the function from its definition.
    pub(super) fn apply(self, x: f64) -> f64 {
        match self {
            Activation::Silu => x / (1.0 + (-x).exp()),
            // (1 + tanh u) / 2 is 1 / (1 + exp(-2 u)), without the cancellation.
            Activation::Gelu => {
                let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                x / (1.0 + (-2.0 * u).exp())
            }
            // 1 + erf(y) is erfc(-y), which avoids the same cancellation.
            Activation::GeluErf => 0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
            Activation::GeluQuick => x / (1.0 + (-1.702 * x).exp()),
            Activation::Relu => x.max(0.0),
            Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            // Avoids overflow for large x.
            Activation::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
            Activation::Tanh => x.tanh(),
        }
    }
}

/// Computes the complementary error function in f64, with a small relative error even for tiny results: from
/// the Maclaurin series of erf below 2, the continued fraction of erfc above (Abramowitz and Stegun 7.1.5 and
/// 7.1.14).
fn erfc(x: f64) -> f64 {
    let a = x.abs();
    let tail = if a < 2.0 {
        let (mut term, mut sum) = (a, a);
        for n in 1..200 {
            term *= -a * a / f64::from(n);
            let add = term / f64::from(2 * n + 1);
            sum += add;
            if add.abs() < 1e-18 {
                break;
            }
        }
        1.0 - sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let fraction = (1..150).rev().fold(a, |f, n| a + f64::from(n) / 2.0 / f);
        (-a * a).exp() / (fraction * std::f64::consts::PI.sqrt())
    };
    if x < 0.0 { 2.0 - tail } else { tail }
}

/// Activation applied to every element of an F32 tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unary {
    /// The function.
    pub activation: Activation,
}

/// `x * scale + bias` for every element of an F32 tensor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Factor.
    #[serde(with = "super::lossless")]
    pub scale: f32,
    /// Summand.
    #[serde(with = "super::lossless")]
    pub bias: f32,
}

impl Operation for Unary {
    fn name(&self) -> &'static str {
        match self.activation {
            Activation::Silu => "SILU",
            Activation::Gelu => "GELU",
            Activation::GeluErf => "GELU_ERF",
            Activation::GeluQuick => "GELU_QUICK",
            Activation::Relu => "RELU",
            Activation::Sigmoid => "SIGMOID",
            Activation::Softplus => "SOFTPLUS",
            Activation::Tanh => "TANH",
        }
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 1, 1)?;
        typed(src[0], &[DType::F32], "x")?;
        Ok(Output::new(DType::F32, src[0].ne))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        for i in indices(out.ne) {
            out.set(i, self.activation.apply(src[0].at(i)));
        }
        Ok(())
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }
}

impl Operation for Scale {
    fn name(&self) -> &'static str {
        "SCALE"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 1, 1)?;
        typed(src[0], &[DType::F32], "x")?;
        Ok(Output::new(DType::F32, src[0].ne))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        for i in indices(out.ne) {
            out.set(i, src[0].at(i) * f64::from(self.scale) + f64::from(self.bias));
        }
        Ok(())
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erfc_agrees_with_tables() {
        // Abramowitz and Stegun, table 7.1, and the values of 5 and 10 to ten digits.
        for (x, erf) in [(0.0, 0.0), (0.5, 0.5204998778), (1.0, 0.8427007929), (2.0, 0.9953222650)] {
            assert!((1.0 - erfc(x) - erf).abs() < 1e-10 && (erfc(-x) - 1.0 - erf).abs() < 1e-10);
        }
        for (x, want) in [(5.0, 1.537459794e-12), (10.0, 2.088487584e-45)] {
            assert!((erfc(x) / want - 1.0).abs() < 1e-9, "{x}: {:e}", erfc(x));
        }
        assert!((erfc(1.9999999) / erfc(2.0000001) - 1.0).abs() < 1e-6, "both branches meet");
    }

    #[test]
    fn activations_keep_small_results() {
        // gelu(-8) by erfc(8 / sqrt 2) = 1.244192114854e-15.
        let got = Activation::GeluErf.apply(-8.0);
        assert!((got / (-4.0 * 1.244192114854e-15) - 1.0).abs() < 1e-9, "{got:e}");
        assert_eq!(Activation::Gelu.apply(-1e4), -0.0);
        assert_eq!(Activation::Gelu.apply(50.0), 50.0);
    }
}
