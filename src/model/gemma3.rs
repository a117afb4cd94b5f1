//! gemma3 (text): local and global layers, each kind with its own ROPE; norms before and after attention and
//! feed-forward network; normed heads of q and k; a scaled embedding; GELU in the gate. Source: Gemma team,
//! "Gemma 3 technical report" (2025). Other names and defaults of keys: Ollama, `convert_gemma3.go`,
//! `gemma3/model_text.go`, `llama-ollama-compat.cpp`.

use super::architecture::Architecture;
use super::branch::Branch;
use super::builder::{Builder, Layer};
use super::hparams::{Hparams, RopeScaling, Window, positive, window_layers};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, Rope, RopeMode};
use ggml_core::{Error, Result, TensorId};

pub(super) struct Gemma3;

/// Default period of the global layers: every sixth layer.
const PERIOD: usize = 6;

/// Default frequency base of the local layers.
const LOCAL_BASE: f32 = 10000.0;

/// Default frequency base of the global layers.
const GLOBAL_BASE: f32 = 1_000_000.0;

/// Factor of positions in the global layers of the models of 4B and more, and their context
/// (`llama-ollama-compat.cpp`, after the configurations of the models).
const LONGER: (f32, usize) = (8.0, 131_072);

/// Number of layers of the 27B model.
const LAYERS_27B: usize = 62;

/// Reads a frequency base under the first key that the file has.
fn base(gguf: &GgufFile, keys: [String; 2], default: f32) -> Result<f32> {
    for key in &keys {
        if let Some(base) = gguf.metadata().opt_f32(key)? {
            return positive(key, base);
        }
    }
    Ok(default)
}

/// Adds what files of Ollama do not have to the positions of all layers: the frequency base, and the scaling of the models
/// with a long context.
fn complete_ropes(gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
    let has = |name: &str| gguf.metadata().value(&h.key(name)).is_some();
    let of_ollama = !has("attention.layer_norm_rms_epsilon")
        || ["rope.local.freq_base", "rope.global.freq_base", "mm.tokens_per_image"].into_iter().any(has);
    let scaled = of_ollama
        && h.context >= LONGER.1
        && !["rope.scaling.type", "rope.scaling.factor"].into_iter().any(has);
    let base = base(gguf, ["rope.freq_base", "rope.global.freq_base"].map(|k| h.key(k)), GLOBAL_BASE)?;
    if scaled {
        h.scaling = RopeScaling::Linear(LONGER.0);
    }
    for rope in h.attention.iter_mut().filter_map(|attention| attention.rope.as_mut()) {
        rope.freq_base = base;
        rope.freq_scale = if scaled { 1.0 / LONGER.0 } else { rope.freq_scale };
    }
    Ok(())
}

impl Architecture for Gemma3 {
    fn name(&self) -> &'static str {
        "gemma3"
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        let m = gguf.metadata();
        if gguf.tensor("dense.0.weight").is_some() {
            let found =
                "'gemma3' with 'dense.0.weight', a model that gives vectors of texts (EmbeddingGemma)";
            return Err(Error::model(
                "architecture",
                found,
                "one that predicts text: this one is not implemented",
            ));
        }
        h.scales.embedding = (h.embedding as f32).sqrt();
        complete_ropes(gguf, h)?;
        // The 27B model scales queries by the width of the residual stream divided by the number of heads,
        // the others by the length of a head. Files do not record it, so it is derived from the number of
        // layers.
        if h.layers == LAYERS_27B && m.value(&h.key("attention.scale")).is_none() {
            h.scales.attention = 1.0 / (h.embedding as f32 / h.attention[0].heads as f32).sqrt();
        }
        let Some(size) = h.window_size(gguf)? else { return Ok(()) };
        let covered = window_layers(gguf, h, PERIOD)?;
        let base = base(gguf, ["rope.freq_base_swa", "rope.local.freq_base"].map(|k| h.key(k)), LOCAL_BASE)?;
        let rope = h.attention[0].rope.map(|rope| Rope::plain(rope.mode, rope.n_dims, base));
        h.set_window(Window::nearest(size), rope, |layer| covered[layer]);
        Ok(())
    }

    fn project(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let heads = b.qkv(x, layer)?;
        let heads = b.normed_heads(heads, layer)?;
        b.rope_heads(heads, layer)
    }

    fn feed_forward(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        b.gated(x, Activation::Gelu, layer).map(Branch::One)
    }

    fn norms_after(&self) -> [Option<&'static str>; 2] {
        [Some("post_attention_norm"), Some("post_ffw_norm")]
    }
}
