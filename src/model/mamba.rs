//! Layers of Mamba-2: a selective state space between a short convolution and a gate.
//!
//! Source: Dao and Gu, "Transformers are SSMs: generalized models and efficient algorithms through structured
//! state space duality" (2024).

use super::batch::StateKind;
use super::builder::{Builder, Layer};
use super::hparams::Recurrent;
use ggml_core::op::{Activation, Glu};
use ggml_core::{DType, Result, TensorId};

impl Builder<'_> {
    /// Builds Mamba-2 on the normed input of a layer. One weight gives the gate, then the input of the
    /// convolution (values, keys, queries), then the steps.
    pub(super) fn mamba(&mut self, x: TensorId, r: &Recurrent, layer: &Layer) -> Result<TensorId> {
        let (inner, heads) = (r.inner(), r.value_heads);
        let all = self.linear(x, &layer.name("ssm_in"), inner + r.channels() + heads)?;
        let out = self.scanned(all, r, layer)?;
        let out = self.needed(out, layer, "scan.needed")?;
        let wanted_rows = self.needed(all, layer, "ssm_in.needed")?;
        let z = self.columns(wanted_rows, 0, inner)?;
        let gated = self.graph.glu(Glu::new(Activation::Silu), z, Some(out))?;
        self.name(gated, &layer.name("scan.gated"))?;
        // Each group has its own norm.
        let (tokens, groups) = (self.graph.tensor(gated).ne[1], r.key_heads);
        let gated = self.graph.reshape(gated, [inner / groups, groups, tokens, 1])?;
        let normed = self.rms(gated, &layer.name("ssm_norm.rms"))?;
        let weight = self.plain(&layer.name("ssm_norm.weight"), &[inner / groups, groups])?;
        let normed = self.graph.mul(normed, weight)?;
        self.name(normed, &layer.name("ssm_norm"))?;
        let normed = self.graph.reshape(normed, [inner, tokens, 1, 1])?;
        self.linear(normed, &layer.name("ssm_out"), self.hparams.embedding)
    }

    /// Builds convolution and scan of the columns after the gate, including the path that bypasses the state:
    /// `[inner, tokens]`.
    fn scanned(&mut self, all: TensorId, r: &Recurrent, layer: &Layer) -> Result<TensorId> {
        let tokens = self.graph.tensor(all).ne[1];
        let (inner, heads, keys) = (r.inner(), r.value_heads, r.key_length * r.key_heads);
        let mixed = self.columns(all, inner, r.channels())?;
        let mut mixed = self.convolved(mixed, ("ssm_conv1d.weight", r.taps), layer)?;
        if let Some(bias) = self.optional_vector(&layer.name("ssm_conv1d.bias"), r.channels())? {
            mixed = self.graph.add(mixed, bias)?;
            self.name(mixed, &layer.name("conv.biased"))?;
        }
        let mixed = self.graph.unary(Activation::Silu, mixed)?;
        self.name(mixed, &layer.name("conv.silu"))?;
        let x = self.heads(mixed, 0, r.value_length, heads)?;
        let b = self.heads(mixed, inner, r.key_length, r.key_heads)?;
        let c = self.heads(mixed, inner + keys, r.key_length, r.key_heads)?;
        let dt = self.columns(all, inner + r.channels(), heads)?;
        let bias = self.vector(&self.name_of_step_bias(layer), heads)?;
        let dt = self.graph.add(dt, bias)?;
        self.name(dt, &layer.name("ssm_dt.sum"))?;
        let a = self.plain(&layer.name("ssm_a"), &[1, heads])?;
        let ne = [r.key_length, r.value_length, heads, self.shape.sequences];
        let state = self.state(&layer.name("scan.state"), DType::F32, ne, StateKind::Slots)?;
        let runs = self.runs()?;
        let both = self.graph.ssm_scan([x, dt, a, b, c, state, runs])?;
        self.name(both, &layer.name("scan"))?;
        self.store_state(both, state, tokens, &layer.name("scan.state.kept"))?;
        let row = 4 * inner;
        let out = self.graph.view(both, [inner, tokens, 1, 1], [4, row, row * tokens, row * tokens], 0)?;
        let d = self.plain(&layer.name("ssm_d"), &[1, heads])?;
        let passed = self.graph.mul(x, d)?;
        self.name(passed, &layer.name("scan.passed"))?;
        let passed = self.graph.reshape(passed, [inner, tokens, 1, 1])?;
        let sum = self.graph.add(out, passed)?;
        self.name(sum, &layer.name("scan.sum"))
    }
}
