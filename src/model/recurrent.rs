//! Layers with a gated delta net: linear attention with a short convolution in front and a state that has the same size
//! at every position.
//!
//! Source: Yang, Kautz and Hatamizadeh, "Gated delta networks: improving Mamba2 with delta rule" (2024).

use super::Hparams;
use super::batch::StateKind;
use super::builder::{Builder, Layer};
use super::hparams::{checked, named};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, Glu};
use ggml_core::{DType, Error, Result, TensorId};
use serde::Serialize;

/// Added to the sum of squares of a query or key before its root is taken; a constant of the architecture.
const EPS: f32 = 1e-6;

/// Taps of the convolution at the most: models have four.
const MAX_TAPS: usize = 64;

/// Extents of the recurrent layers of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recurrent {
    /// Taps of the convolution.
    pub taps: usize,
    /// Elements of a key.
    pub key_length: usize,
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Elements of a value.
    pub value_length: usize,
    /// Heads of values; value head `h` belongs to key head `h mod key_heads`.
    pub value_heads: usize,
    /// Which layers are recurrent; the others attend.
    pub layers: Vec<bool>,
}

impl Recurrent {
    /// Reads and checks the extents.
    pub(super) fn read(gguf: &GgufFile, h: &Hparams) -> Result<Recurrent> {
        let m = gguf.metadata();
        let extent = |name: &str| checked(&h.key(name), m.usize(&h.key(name))?);
        let (key_heads, value_heads) = (extent("ssm.group_count")?, extent("ssm.time_step_rank")?);
        let (taps, inner) = (extent("ssm.conv_kernel")?, extent("ssm.inner_size")?);
        let possible = value_heads % key_heads == 0 && inner % value_heads == 0;
        if !possible || !(2..=MAX_TAPS).contains(&taps) {
            let found =
                format!("{key_heads} key heads, {value_heads} value heads, {inner} channels and {taps} taps");
            let expected = format!(
                "key heads that divide the value heads, those the channels, and 2 to {MAX_TAPS} taps"
            );
            return Err(Error::model("delta net", found, expected));
        }
        Ok(Recurrent {
            taps,
            key_length: extent("ssm.state_size")?,
            key_heads,
            value_length: inner / value_heads,
            value_heads,
            layers: layers(gguf, h)?,
        })
    }

    fn channels(&self) -> usize {
        2 * self.key_length * self.key_heads + self.value_length * self.value_heads
    }
}

/// Which layers are recurrent: a list in the file, or all but every n-th.
fn layers(gguf: &GgufFile, h: &Hparams) -> Result<Vec<bool>> {
    let (m, key) = (gguf.metadata(), h.key("attention.recurrent_layers"));
    if m.value(&key).is_some() {
        let listed = m.array_bool(&key)?;
        if listed.len() < h.layers {
            let found = format!("{} entries", listed.len());
            return Err(Error::model(named(&key), found, format!("one for each of {} layers", h.layers)));
        }
        return Ok(listed[..h.layers].to_vec());
    }
    let key = h.key("full_attention_interval");
    let interval = checked(&key, m.opt_usize(&key)?.unwrap_or(4))?;
    Ok((1..=h.layers).map(|n| n % interval != 0).collect())
}

impl Builder<'_> {
    /// A gated delta net on the normed input of a layer.
    pub(super) fn delta_net(&mut self, x: TensorId, r: &Recurrent, layer: &Layer) -> Result<TensorId> {
        let tokens = self.graph.tensor(x).ne[1];
        let inner = r.value_length * r.value_heads;
        let mixed = self.linear(x, &layer.name("attn_qkv"), r.channels())?;
        let asking = self.needed(x, layer, "attn_norm.needed")?;
        let z = self.linear(asking, &layer.name("attn_gate"), inner)?;
        let (decay, beta) = (self.decay(x, r, layer)?, self.beta(x, r, layer)?);
        let [q, k, v] = self.convolved(mixed, r, layer)?;
        let ne = [r.key_length, r.value_length, r.value_heads, self.shape.sequences];
        let state = self.state(&layer.name("delta.state"), DType::F32, ne, StateKind::Slots)?;
        let runs = self.runs()?;
        let scale = 1.0 / (r.key_length as f32).sqrt();
        let both = self.graph.gated_delta_net(scale, [q, k, v, decay, beta, state, runs])?;
        self.name(both, &layer.name("delta"))?;
        self.keep(both, state, tokens, &layer.name("delta.state.kept"))?;
        let row = 4 * inner;
        let out = self.graph.view(both, [inner, tokens, 1, 1], [4, row, row * tokens, row * tokens], 0)?;
        let out = self.needed(out, layer, "delta.needed")?;
        let tokens = self.graph.tensor(out).ne[1];
        let heads = [r.value_length, r.value_heads, tokens, 1];
        let out = self.graph.reshape(out, heads)?;
        let normed = self.norm(out, &layer.name("ssm_norm"))?;
        let z = self.graph.reshape(z, heads)?;
        let gated = self.graph.glu(Glu::new(Activation::Silu), z, Some(normed))?;
        self.name(gated, &layer.name("delta.gated"))?;
        let gated = self.graph.reshape(gated, [inner, tokens, 1, 1])?;
        self.linear(gated, &layer.name("ssm_out"), self.hparams.embedding)
    }

    /// The logarithm of each head's decay, `[value_heads, tokens]`: a negative number times `softplus(alpha + dt)`.
    fn decay(&mut self, x: TensorId, r: &Recurrent, layer: &Layer) -> Result<TensorId> {
        let alpha = self.linear(x, &layer.name("ssm_alpha"), r.value_heads)?;
        let dt = self.vector(&layer.name("ssm_dt.bias"), r.value_heads)?;
        let sum = self.graph.add(alpha, dt)?;
        self.name(sum, &layer.name("ssm_dt"))?;
        let step = self.graph.unary(Activation::Softplus, sum)?;
        self.name(step, &layer.name("ssm_step"))?;
        let a = self.vector(&layer.name("ssm_a"), r.value_heads)?;
        let decay = self.graph.mul(step, a)?;
        self.name(decay, &layer.name("ssm_decay"))
    }

    /// How much of a value is written, `[value_heads, tokens]`.
    fn beta(&mut self, x: TensorId, r: &Recurrent, layer: &Layer) -> Result<TensorId> {
        let raw = self.linear(x, &layer.name("ssm_beta"), r.value_heads)?;
        let beta = self.graph.unary(Activation::Sigmoid, raw)?;
        self.name(beta, &layer.name("ssm_beta.sigmoid"))
    }

    /// q, k and v `[d, heads, tokens]` after the convolution; q and k have length 1.
    fn convolved(&mut self, mixed: TensorId, r: &Recurrent, layer: &Layer) -> Result<[TensorId; 3]> {
        let (channels, tokens) = (r.channels(), self.graph.tensor(mixed).ne[1]);
        let taps = self.plain(&layer.name("ssm_conv1d.weight"), &[r.taps, channels])?;
        let ne = [channels, r.taps - 1, self.shape.sequences, 1];
        let state = self.state(&layer.name("conv.state"), DType::F32, ne, StateKind::Slots)?;
        let runs = self.runs()?;
        let both = self.graph.ssm_conv(mixed, taps, state, runs)?;
        self.name(both, &layer.name("conv"))?;
        self.keep(both, state, tokens, &layer.name("conv.state.kept"))?;
        let row = 4 * channels;
        let out = self.graph.view(both, [channels, tokens, 1, 1], [4, row, row * tokens, row * tokens], 0)?;
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
        let v = self.heads(qkv, 2 * keys, r.value_length, r.value_heads)?;
        Ok([q, k, v])
    }

    /// Copies what lies behind the rows of the tokens into a state tensor.
    fn keep(&mut self, both: TensorId, state: TensorId, tokens: usize, name: &str) -> Result<TensorId> {
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
