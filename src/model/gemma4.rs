//! gemma4 (text): local and global layers with heads of different lengths, final layers that read the keys
//! and values of earlier ones, an embedding for each layer, and mixtures of experts next to the dense
//! network. Source: Gemma team, model cards and configurations of "Gemma 4" (2026); embeddings for each layer
//! and shared keys as in "Gemma 3n" (2025).

use super::architecture::Architecture;
use super::branch::Branch;
use super::builder::{Builder, Layer};
use super::hparams::{Experts, Hparams, Window, checked, factor, named, positive, window_layers};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, Glu, Rope, RopeMode};
use ggml_core::{Error, Result, TensorId};

pub(super) struct Gemma4;

/// Default period of the global layers: every sixth layer.
const PERIOD: usize = 6;

/// Default frequency base of the local layers, and default bound of the logits.
const LOCAL_BASE: f32 = 10000.0;
const LOGIT_CAP: f32 = 30.0;

impl Architecture for Gemma4 {
    fn name(&self) -> &'static str {
        "gemma4"
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        h.experts = Experts::read_if_any(gguf, h, true)?;
        h.scales.embedding = (h.embedding as f32).sqrt();
        h.scales.attention = 1.0;
        h.soft_caps.logits = factor(gguf, &h.key("final_logit_softcapping"), LOGIT_CAP)?;
        let m = gguf.metadata();
        let key = h.key("embedding_length_per_layer_input");
        h.per_layer_embedding = match m.opt_usize(&key)?.unwrap_or(0) {
            0 => 0,
            n => checked(&key, n)?,
        };
        self.read_local(gguf, h)?;
        share_caches(gguf, h)
    }

    fn embed(&self, b: &mut Builder<'_>) -> Result<TensorId> {
        let x = b.embedding()?;
        if b.hparams.per_layer_embedding > 0 {
            b.per_layer_embedding = Some(embeddings_of_layers(b, x)?);
        }
        Ok(x)
    }

    fn norms_before(&self) -> [Option<&'static str>; 2] {
        [Some("attn_norm"), None]
    }

    fn norms_after(&self) -> [Option<&'static str>; 2] {
        [Some("post_attention_norm"), Some("post_ffw_norm")]
    }

    fn mixer(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        let a = layer.attention;
        if a.cache == layer.index {
            return b.attention_block(self, x, layer).map(Branch::One);
        }
        let q = b.linear(x, &layer.name("attn_q"), a.key_length * a.heads)?;
        let q = b.heads(q, 0, a.key_length, a.heads)?;
        let q = b.norm(q, &layer.name("attn_q_norm"))?;
        let q = b.rope(q, layer, "q_rope")?;
        let cached = b.caches.get(&a.cache).copied();
        let cached = cached.ok_or_else(|| Error::model("shared keys", "a layer without keys", ""))?;
        let attended = b.attend(q, cached, layer)?;
        b.linear(attended, &layer.name("attn_output"), b.hparams.embedding).map(Branch::One)
    }

    /// Values are normed without weights. In a layer without a weight for values, they are the projected keys
    /// before norm and ROPE.
    fn project(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let a = layer.attention;
        let wanted_rows = b.needed(x, layer, "attn_norm.needed")?;
        let q = b.linear(wanted_rows, &layer.name("attn_q"), a.key_length * a.heads)?;
        let k = b.linear(x, &layer.name("attn_k"), a.key_length * a.heads_kv)?;
        let v = match b.gguf.tensor(&layer.name("attn_v.weight")) {
            Some(_) => b.linear(x, &layer.name("attn_v"), a.value_length * a.heads_kv)?,
            None => k,
        };
        let heads = b.in_heads([q, k, v], layer)?;
        let [q, k, v] = b.normed_heads(heads, layer)?;
        let v = b.rms(v, &layer.name("v.rms"))?;
        b.rope_heads([q, k, v], layer)
    }

    fn feed_forward(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        let normed = b.norm(x, &layer.name("ffn_norm"))?;
        let dense = b.gated(normed, Activation::Gelu, layer)?;
        let Some(experts) = b.routed(layer) else { return Ok(dense.into()) };
        let dense = b.norm(dense, &layer.name("post_ffw_norm_1"))?;
        let routed = b.rms(x, &layer.name("ffn_gate_inp.rms"))?;
        let scale = b.vector(&layer.name("ffn_gate_inp.scale"), b.hparams.embedding)?;
        let routed = b.graph.mul(routed, scale)?;
        b.name(routed, &layer.name("ffn_gate_inp.weighted"))?;
        let width = b.hparams.embedding as f32;
        let routed = b.scaled(routed, 1.0 / width.sqrt(), &layer.name("ffn_gate_inp.scaled"))?;
        let scores = b.linear(routed, &layer.name("ffn_gate_inp"), experts.count)?;
        let normed = b.norm(x, &layer.name("pre_ffw_norm_2"))?;
        let mixed = b.chosen_experts([normed, scores], experts, Glu::new(Activation::Gelu), layer)?;
        let mixed = b.norm(mixed, &layer.name("post_ffw_norm_2"))?;
        Ok(Branch::Two([dense, mixed]))
    }

    fn finish_layer(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<TensorId> {
        let x = with_embedding_of_layer(b, x, layer)?;
        let Some(scale) = b.optional_vector(&layer.name("layer_output_scale.weight"), 1)? else {
            return Ok(x);
        };
        let scaled = b.graph.mul(x, scale)?;
        b.name(scaled, &layer.name("out"))
    }
}

impl Gemma4 {
    /// Reads the settings that only local layers have.
    fn read_local(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        let Some(size) = h.window_size(gguf)? else { return Ok(()) };
        let (m, covered) = (gguf.metadata(), window_layers(gguf, h, PERIOD)?);
        let global = h.attention[0];
        let optional = |name: &str, default: usize| match m.opt_usize(&h.key(name))? {
            Some(n) => checked(&h.key(name), n),
            None => Ok(default),
        };
        let key_length = optional("attention.key_length_swa", global.key_length)?;
        let value_length = optional("attention.value_length_swa", global.value_length)?;
        let rotated = optional("rope.dimension_count_swa", key_length)?;
        let key = h.key("rope.freq_base_swa");
        let base = positive(&key, m.opt_f32(&key)?.unwrap_or(LOCAL_BASE))?;
        h.set_window(Window::nearest(size), Some(Rope::plain(self.rope_mode(), rotated, base)), |i| {
            covered[i]
        });
        for attention in h.attention.iter_mut().filter(|attention| attention.windowed) {
            (attention.key_length, attention.value_length) = (key_length, value_length);
            attention.factors = false;
        }
        Ok(())
    }
}

/// Makes the final layers read the keys and values of the last layer of their kind that has its own.
fn share_caches(gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
    let key = h.key("attention.shared_kv_layers");
    let shared = gguf.metadata().opt_usize(&key)?.unwrap_or(0);
    let own = h.layers.saturating_sub(shared);
    for layer in own..h.layers {
        let kind = h.attention[layer].windowed;
        let Some(cache) = (0..own).rev().find(|&i| h.attention[i].windowed == kind) else {
            let found = format!("{shared} of {} layers", h.layers);
            return Err(Error::model(
                named(&key),
                found,
                "a layer of the same kind with its own cache before them",
            ));
        };
        let heads_kv = h.attention[cache].heads_kv;
        (h.attention[layer].cache, h.attention[layer].heads_kv) = (cache, heads_kv);
    }
    Ok(())
}

/// Builds the inputs of all layers from the embedding, `[width, layers, tokens]`: the layer's own token
/// embedding plus a projection of the stream's embedding.
fn embeddings_of_layers(b: &mut Builder<'_>, x: TensorId) -> Result<TensorId> {
    let (n, layers, tokens) = (b.hparams.per_layer_embedding, b.hparams.layers, b.shape.tokens);
    let table = b.token_table("per_layer_token_embd.weight", n * layers)?;
    let own = b.graph.get_rows(table, b.inputs.tokens)?;
    b.name(own, "per_layer.own")?;
    let own = b.scaled(own, (n as f32).sqrt(), "per_layer.own.scaled")?;
    let own = b.graph.reshape(own, [n, layers, tokens, 1])?;
    let projected = b.linear(x, "per_layer_model_proj", n * layers)?;
    let factor = 1.0 / (b.hparams.embedding as f32).sqrt();
    let projected = b.scaled(projected, factor, "per_layer.projected")?;
    let projected = b.graph.reshape(projected, [n, layers, tokens, 1])?;
    let projected = b.norm(projected, "per_layer_proj_norm")?;
    let sum = b.graph.add(projected, own)?;
    b.name(sum, "per_layer.sum")?;
    b.scaled(sum, std::f32::consts::FRAC_1_SQRT_2, "per_layer")
}

/// Adds the contribution of the layer's own embedding to `x`.
fn with_embedding_of_layer(b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<TensorId> {
    let Some(all) = b.per_layer_embedding else { return Ok(x) };
    let (n, row, tokens) = (b.hparams.per_layer_embedding, b.graph.tensor(all).nb[2], b.shape.tokens);
    let own =
        b.graph.view(all, [n, tokens, 1, 1], [4, row, row * tokens, row * tokens], 4 * n * layer.index)?;
    let rows = b.graph.tensor(x).ne[1];
    let own = b.matching(own, rows, layer, "per_layer.needed")?;
    let gate = b.linear(x, &layer.name("inp_gate"), n)?;
    let gated = b.graph.glu(Glu::new(Activation::Gelu), gate, Some(own))?;
    b.name(gated, &layer.name("per_layer.gated"))?;
    let out = b.linear(gated, &layer.name("proj"), b.hparams.embedding)?;
    let out = b.norm(out, &layer.name("post_norm"))?;
    let sum = b.graph.add(x, out)?;
    b.name(sum, &layer.name("per_layer.residual"))
}
