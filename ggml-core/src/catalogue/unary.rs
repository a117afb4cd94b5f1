//! Test cases of element-wise functions.

use super::case::{Case, Fill};
use crate::dtype::DType;
use crate::op::{Activation, Operation, Unary};

/// Test cases: every function on ordinary, large, tiny and strided operands; SCALE with and without bias.
pub(super) fn cases() -> Vec<Case> {
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
