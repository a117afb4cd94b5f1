//! Layers with a recurrent state, whose size does not depend on the position, and a short convolution in
//! front of it: their common parts, and gated delta nets. Mamba-2 is in [`super::mamba`].
//!
//! Source: Yang, Kautz and Hatamizadeh, "Gated delta networks: improving Mamba2 with delta rule" (2024).

use super::batch::StateKind;
use super::builder::{Builder, Layer};
use super::hparams::Recurrent;
use ggml_core::op::{Activation, Glu};
use ggml_core::{DType, Result, TensorId};

/// Epsilon added to the sum of squares of a query or key before the square root; a constant of the
/// architecture.
const EPS: f32 = 1e-6;

impl Builder<'_> {
    /// Builds a gated delta net on the normed input of a layer.
    pub(super) fn delta_net(&mut self, x: TensorId, r: &Recurrent, layer: &Layer) -> Result<TensorId> {
        let tokens = self.graph.tensor(x).ne[1];
        let inner = r.inner();
        let mixed = self.linear(x, &layer.name("attn_qkv"), r.channels())?;
        let wanted_rows = self.needed(x, layer, "attn_norm.needed")?;
        let z = self.linear(wanted_rows, &layer.name("attn_gate"), inner)?;
        let (decay, beta) = self.decay_and_beta(x, r, layer)?;
        let [q, k, v] = self.convolved_heads(mixed, r, layer)?;
        let ne = [r.key_length, r.value_length, r.value_heads, self.shape.sequences];
        let state = self.state(&layer.name("delta.state"), DType::F32, ne, StateKind::Slots)?;
        let runs = self.runs()?;
        let scale = 1.0 / (r.key_length as f32).sqrt();
        let both = self.graph.gated_delta_net(scale, [q, k, v, decay, beta, state, runs])?;
        self.name(both, &layer.name("delta"))?;
        self.store_state(both, state, tokens, &layer.name("delta.state.kept"))?;
        let row = 4 * inner;
        let out = self.graph.view(both, [inner, tokens, 1, 1], [4, row, row * tokens, row * tokens], 0)?;
        let out = self.needed(out, layer, "delta.needed")?;
        let tokens = self.graph.tensor(out).ne[1];
        let heads = [r.value_length, r.value_heads, tokens, 1];
        let mut out = self.graph.reshape(out, heads)?;
        if r.grouped {
            let [n, d] = [r.value_heads / r.key_heads, r.value_length];
            out =
                self.reordered(out, [d, r.key_heads, n, tokens], [0, 2, 1, 3], &layer.name("delta.grouped"))?;
            out = self.graph.reshape(out, heads)?;
        }
        let normed = self.norm(out, &layer.name("ssm_norm"))?;
        let z = self.graph.reshape(z, heads)?;
        let gated = self.graph.glu(Glu::new(Activation::Silu), z, Some(normed))?;
        self.name(gated, &layer.name("delta.gated"))?;
        let gated = self.graph.reshape(gated, [inner, tokens, 1, 1])?;
        self.linear(gated, &layer.name("ssm_out"), self.hparams.embedding)
    }

    /// Builds, for each head, the logarithm of its decay, a negative value times `softplus(alpha + dt)`, and
    /// the factor with which a value is written: both `[value_heads, tokens]`.
    fn decay_and_beta(&mut self, x: TensorId, r: &Recurrent, layer: &Layer) -> Result<(TensorId, TensorId)> {
        let (heads, tokens) = (r.value_heads, self.graph.tensor(x).ne[1]);
        let (groups, n) = if r.grouped { (r.key_heads, heads / r.key_heads) } else { (1, heads) };
        let [beta, alpha] = if r.grouped {
            let both = self.linear(x, &layer.name("ssm_ba"), 2 * heads)?;
            let strides = [4, 8 * n, 8 * heads, 8 * heads * tokens];
            let beta = self.graph.view(both, [n, groups, tokens, 1], strides, 0)?;
            [beta, self.graph.view(both, [n, groups, tokens, 1], strides, 4 * n)?]
        } else {
            let alpha = self.linear(x, &layer.name("ssm_alpha"), heads)?;
            [self.linear(x, &layer.name("ssm_beta"), heads)?, alpha]
        };
        // One value for each head, repeated over the tokens.
        let of_heads = |b: &mut Self, name: &str| {
            let vector = b.vector(name, heads)?;
            if r.grouped { b.graph.reshape(vector, [n, groups, 1, 1]) } else { Ok(vector) }
        };
        let dt = self.name_of_step_bias(layer);
        let dt = of_heads(self, &dt)?;
        let sum = self.graph.add(alpha, dt)?;
        self.name(sum, &layer.name("ssm_dt.sum"))?;
        let step = self.graph.unary(Activation::Softplus, sum)?;
        self.name(step, &layer.name("ssm_step"))?;
        let a = of_heads(self, &layer.name("ssm_a"))?;
        let mut decay = self.graph.mul(step, a)?;
        self.name(decay, &layer.name("ssm_decay"))?;
        let mut beta = self.graph.unary(Activation::Sigmoid, beta)?;
        self.name(beta, &layer.name("ssm_beta.sigmoid"))?;
        if r.grouped {
            for (x, name) in [(&mut decay, "ssm_decay.tiled"), (&mut beta, "ssm_beta.tiled")] {
                *x = self.reordered(*x, [n, groups, tokens, 1], [1, 0, 2, 3], &layer.name(name))?;
                *x = self.graph.reshape(*x, [heads, tokens, 1, 1])?;
            }
        }
        Ok((decay, beta))
    }

    /// Returns the name of the bias of a layer's steps: some converters write it without its suffix.
    pub(super) fn name_of_step_bias(&self, layer: &Layer) -> String {
        self.stored_name(layer, ["ssm_dt.bias", "ssm_dt"])
    }

    /// Reshapes `x` to the extents `ne`, permutes its dimensions and copies it; the node is called `name`.
    fn reordered(&mut self, x: TensorId, ne: [usize; 4], axes: [usize; 4], name: &str) -> Result<TensorId> {
        let x = if self.graph.tensor(x).ne == ne { x } else { self.graph.reshape(x, ne)? };
        let x = self.graph.permute(x, axes)?;
        let copied = self.graph.cont(x)?;
        self.name(copied, name)
    }

    /// Builds the causal convolution of `x` `[channels, tokens]` along the tokens of each sequence, with a
    /// weight of `taps` taps.
    pub(super) fn convolved(
        &mut self,
        x: TensorId,
        (weight, taps): (&str, usize),
        layer: &Layer,
    ) -> Result<TensorId> {
        let [channels, tokens, ..] = self.graph.tensor(x).ne;
        let weight = self.plain(&layer.name(weight), &[taps, channels])?;
        let ne = [channels, taps - 1, self.shape.sequences, 1];
        let state = self.state(&layer.name("conv.state"), DType::F32, ne, StateKind::Slots)?;
        let runs = self.runs()?;
        let both = self.graph.ssm_conv(x, weight, state, runs)?;
        self.name(both, &layer.name("conv"))?;
        self.store_state(both, state, tokens, &layer.name("conv.state.kept"))?;
        let row = 4 * channels;
        self.graph.view(both, [channels, tokens, 1, 1], [4, row, row * tokens, row * tokens], 0)
    }

    /// Returns q, k and v `[d, heads, tokens]` after the convolution; q and k have length 1.
    fn convolved_heads(&mut self, mixed: TensorId, r: &Recurrent, layer: &Layer) -> Result<[TensorId; 3]> {
        let tokens = self.graph.tensor(mixed).ne[1];
        let out = self.convolved(mixed, ("ssm_conv1d.weight", r.taps), layer)?;
        let qkv = self.graph.unary(Activation::Silu, out)?;
        self.name(qkv, &layer.name("conv.silu"))?;
        let keys = r.key_length * r.key_heads;
        let qk = self.heads(qkv, 0, r.key_length, 2 * r.key_heads)?;
        // x / sqrt(sum of squares + eps) is the RMS norm over sqrt(n), with eps / n.
        let n = r.key_length as f32;
        let normed = self.graph.rms_norm(qk, EPS / n)?;
        self.name(normed, &layer.name("qk.rms"))?;
        let unit = self.graph.scale(normed, 1.0 / n.sqrt(), 0.0)?;
        self.name(unit, &layer.name("qk.unit"))?;
        let (d, heads) = (r.key_length, r.key_heads);
        let strides = [4, 4 * d, 8 * keys, 8 * keys * tokens];
        let q = self.graph.view(unit, [d, heads, tokens, 1], strides, 0)?;
        let k = self.graph.view(unit, [d, heads, tokens, 1], strides, 4 * keys)?;
        let mut v = self.heads(qkv, 2 * keys, r.value_length, r.value_heads)?;
        if r.grouped {
            let (n, d, row) = (r.value_heads / r.key_heads, r.value_length, self.graph.tensor(qkv).nb[1]);
            let ne = [d, n, heads, tokens];
            let all = self.graph.view(qkv, ne, [4, 4 * d, 4 * d * n, row], 8 * keys)?;
            v = self.reordered(all, ne, [0, 2, 1, 3], &layer.name("v.tiled"))?;
            v = self.graph.reshape(v, [d, r.value_heads, tokens, 1])?;
        }
        Ok([q, k, v])
    }

    /// Copies the rows after those of the tokens into a state tensor.
    pub(super) fn store_state(
        &mut self,
        both: TensorId,
        state: TensorId,
        tokens: usize,
        name: &str,
    ) -> Result<TensorId> {
        let t = self.graph.tensor(both);
        let (row, behind) = (t.nb[1], t.ne[1] - tokens);
        let tail = self.graph.view(
            both,
            [t.ne[0], behind, 1, 1],
            [4, row, row * behind, row * behind],
            row * tokens,
        )?;
        let ne = self.graph.tensor(state).ne;
        let tail = self.graph.reshape(tail, ne)?;
        let kept = self.graph.cpy(tail, state)?;
        self.name(kept, name)
    }
}
