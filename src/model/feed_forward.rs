//! Dense feed-forward networks, with and without a gate.

use super::builder::{Builder, Layer};
use ggml_core::op::{Activation, Glu};
use ggml_core::{Result, TensorId};

/// `max(x, 0) x`, the square of ReLU, if both operands are the same tensor.
pub(super) const SQUARED: Glu = Glu { activation: Activation::Relu, swapped: false, clamped: None };

impl Builder<'_> {
    /// Builds the feed-forward network of a layer: `down(activation(gate x) * up x)`.
    pub(super) fn gated(&mut self, x: TensorId, activation: Activation, layer: &Layer) -> Result<TensorId> {
        self.gated_by(x, activation, "", self.hparams.width(layer.index), layer)
    }

    /// Builds a gated feed-forward network of width `n` with the weights `ffn_gate`, `ffn_up` and `ffn_down`.
    /// The names of weights and nodes end with `suffix`.
    pub(super) fn gated_by(
        &mut self,
        x: TensorId,
        activation: Activation,
        suffix: &str,
        n: usize,
        layer: &Layer,
    ) -> Result<TensorId> {
        let name = |part: &str| layer.name(&format!("{part}{suffix}"));
        let gate = self.linear(x, &name("ffn_gate"), n)?;
        let up = self.linear(x, &name("ffn_up"), n)?;
        let glu = self.graph.glu(Glu::new(activation), gate, Some(up))?;
        self.name(glu, &name("ffn_glu"))?;
        self.linear(glu, &name("ffn_down"), self.hparams.embedding)
    }

    /// Builds a feed-forward network without a gate: `down(max(up x, 0)^2)`.
    pub(super) fn squared(&mut self, x: TensorId, suffix: &str, n: usize, layer: &Layer) -> Result<TensorId> {
        let name = |part: &str| layer.name(&format!("{part}{suffix}"));
        let up = self.linear(x, &name("ffn_up"), n)?;
        let squares = self.graph.glu(SQUARED, up, Some(up))?;
        self.name(squares, &name("ffn_glu"))?;
        self.linear(squares, &name("ffn_down"), self.hparams.embedding)
    }

    /// Builds the feed-forward network of a layer whose gate and up are the two halves of one weight,
    /// `ffn_up`.
    pub(super) fn gated_fused(
        &mut self,
        x: TensorId,
        activation: Activation,
        layer: &Layer,
    ) -> Result<TensorId> {
        let both = self.linear(x, &layer.name("ffn_up"), 2 * self.hparams.feed_forward[layer.index])?;
        let glu = self.graph.glu(Glu::new(activation), both, None)?;
        self.name(glu, &layer.name("ffn_glu"))?;
        self.linear(glu, &layer.name("ffn_down"), self.hparams.embedding)
    }
}
