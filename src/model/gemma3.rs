//! gemma3 (text): local and global layers, each kind with its own ROPE; norms before and after attention and
//! feed-forward network; normed heads of q and k; a scaled embedding; GELU in the gate. Source: Gemma team,
//! "Gemma 3 technical report" (2025).

use super::architecture::Architecture;
use super::branch::Branch;
use super::builder::{Builder, Layer};
use super::hparams::{Hparams, Window, positive, window_layers};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, Rope, RopeMode};
use ggml_core::{Result, TensorId};

pub(super) struct Gemma3;

/// Default period of the global layers: every sixth layer.
const PERIOD: usize = 6;

/// Default frequency base of the local layers.
const LOCAL_BASE: f32 = 10000.0;

/// Number of layers of the 27B model.
const LAYERS_27B: usize = 62;

impl Architecture for Gemma3 {
    fn name(&self) -> &'static str {
        "gemma3"
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        let m = gguf.metadata();
        h.scales.embedding = (h.embedding as f32).sqrt();
        // The 27B model scales queries by the width of the residual stream divided by the number of heads,
        // the others by the length of a head. Files do not record it, so it is derived from the number of
        // layers.
        if h.layers == LAYERS_27B && m.value(&h.key("attention.scale")).is_none() {
            h.scales.attention = 1.0 / (h.embedding as f32 / h.attention[0].heads as f32).sqrt();
        }
        let Some(size) = h.window_size(gguf)? else { return Ok(()) };
        let covered = window_layers(gguf, h, PERIOD)?;
        let key = h.key("rope.freq_base_swa");
        let base = positive(&key, m.opt_f32(&key)?.unwrap_or(LOCAL_BASE))?;
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
