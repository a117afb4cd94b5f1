//! Element-wise functions of one operand: activations and SCALE.

use super::{Operation, Output, operands, typed};
use crate::catalogue::{Case, Fill};
use crate::dtype::DType;
use crate::reference::{Operand, OperandMut, indices};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// An activation function. The numbers are those that kernels use.
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
}

impl Activation {
    /// Every function.
    pub const ALL: [Activation; 5] =
        [Activation::Silu, Activation::Gelu, Activation::GeluErf, Activation::GeluQuick, Activation::Relu];

    /// The definition.
    pub(crate) fn apply(self, x: f64) -> f64 {
        match self {
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::Gelu => {
                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
            }
            Activation::GeluErf => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
            Activation::GeluQuick => x / (1.0 + (-1.702 * x).exp()),
            Activation::Relu => x.max(0.0),
        }
    }
}

/// The error function in f64: its Maclaurin series below 3, the continued fraction of erfc above (Abramowitz and
/// Stegun 7.1.5 and 7.1.14).
fn erf(x: f64) -> f64 {
    let a = x.abs();
    let value = if a < 3.0 {
        let (mut term, mut sum) = (a, a);
        for n in 1..200 {
            term *= -a * a / n as f64;
            let add = term / (2 * n + 1) as f64;
            sum += add;
            if add.abs() < 1e-18 {
                break;
            }
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let fraction = (1..60).rev().fold(a, |f, n| a + n as f64 / 2.0 / f);
        1.0 - (-a * a).exp() / (fraction * std::f64::consts::PI.sqrt())
    };
    value.copysign(x)
}

/// An activation applied to every element of an F32 tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unary {
    /// The function.
    pub activation: Activation,
}

/// `x * scale + bias` for every element of an F32 tensor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Factor.
    pub scale: f32,
    /// Summand.
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
        }
    }

    fn output(&self, src: &[&Tensor]) -> Result<Output, String> {
        operands(src, 1, 1)?;
        typed(src[0], &[DType::F32], "x")?;
        Ok(Output::new(DType::F32, src[0].ne))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) {
        for i in indices(out.ne) {
            out.set(i, self.activation.apply(src[0].at(i)));
        }
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }
}

impl Operation for Scale {
    fn name(&self) -> &'static str {
        "SCALE"
    }

    fn output(&self, src: &[&Tensor]) -> Result<Output, String> {
        operands(src, 1, 1)?;
        typed(src[0], &[DType::F32], "x")?;
        Ok(Output::new(DType::F32, src[0].ne))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) {
        for i in indices(out.ne) {
            out.set(i, src[0].at(i) * f64::from(self.scale) + f64::from(self.bias));
        }
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }
}

/// Test cases: every function on ordinary, large, tiny and strided operands; SCALE with and without bias.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for activation in Activation::ALL {
        let op = Unary { activation };
        for ne in [[1, 1, 1, 1], [129, 4, 1, 1], [1000, 3, 2, 1]] {
            cases.push(Case::new(format!("{}({ne:?})", op.name()), |g, c| {
                let x = c.leaf(g, "x", DType::F32, ne, Fill::Uniform(-10.0, 10.0))?;
                g.unary(activation, x)
            }));
        }
        cases.push(Case::new(format!("{}(transposed)", op.name()), |g, c| {
            let x = c.leaf(g, "x", DType::F32, [20, 14, 1, 1], Fill::Uniform(-2.0, 2.0))?;
            let x = g.transpose(x)?;
            g.unary(activation, x)
        }));
        cases.push(Case::new(format!("{}(large arguments)", op.name()), |g, c| {
            let values = vec![-1e4, -200.0, -90.0, -1e-3, -0.0, 0.0, 1e-6, 90.0, 200.0, 1e4];
            let x = c.leaf(g, "x", DType::F32, [10, 1, 1, 1], Fill::Values(values))?;
            g.unary(activation, x)
        }));
    }
    for (scale, bias) in [(0.125, 0.0), (-3.0, 1.5)] {
        cases.push(Case::new(format!("SCALE(scale={scale}, bias={bias})"), |g, c| {
            let x = c.leaf(g, "x", DType::F32, [123, 5, 1, 2], Fill::Uniform(-10.0, 10.0))?;
            g.scale(x, scale, bias)
        }));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_agrees_with_tables() {
        // Abramowitz and Stegun, table 7.1.
        for (x, want) in [(0.0, 0.0), (0.5, 0.5204998778), (1.0, 0.8427007929), (2.0, 0.9953222650)] {
            assert!((erf(x) - want).abs() < 1e-10 && (erf(-x) + want).abs() < 1e-10);
        }
        assert!((erf(3.5) - 0.999999256901628).abs() < 1e-14);
        assert_eq!(erf(10.0), 1.0);
    }
}
