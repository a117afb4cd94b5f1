//! Contributions of the parts of a layer to the residual stream.

use super::builder::{Builder, Layer};
use ggml_core::{Result, TensorId};

/// Contribution of a part of a layer to the residual stream.
#[derive(Clone, Copy)]
pub(super) enum Branch {
    One(TensorId),
    /// Sum of two tensors; the first is computed earlier in a decode step.
    Two([TensorId; 2]),
}

impl From<TensorId> for Branch {
    fn from(out: TensorId) -> Branch {
        Branch::One(out)
    }
}

impl Builder<'_> {
    /// Adds the result `out` of a layer's attention or feed-forward network to the residual stream `x`. The
    /// result is normed first if the architecture has a norm `after` it.
    pub(super) fn residual(
        &mut self,
        x: TensorId,
        out: Branch,
        layer: &Layer,
        after: Option<&str>,
        name: &str,
    ) -> Result<TensorId> {
        let name = layer.name(name);
        let scale = self.hparams.scales.residual;
        let [x, out] = match out {
            Branch::One(out) => [x, out],
            // Add one after the other: each sum can be fused into the product that computes its operand.
            Branch::Two([first, second]) if after.is_none() && scale == 1.0 => {
                let sum = self.graph.add(x, first)?;
                [self.name(sum, &format!("{name}.first"))?, second]
            }
            Branch::Two([a, b]) => {
                let sum = self.graph.add(a, b)?;
                [x, self.name(sum, &layer.name("ffn_out"))?]
            }
        };
        let out = after.map_or(Ok(out), |norm| self.norm(out, &layer.name(norm)))?;
        let out = self.scaled(out, scale, &format!("{name}.scaled"))?;
        let sum = self.graph.add(x, out)?;
        self.name(sum, &name)
    }
}
