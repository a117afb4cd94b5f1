//! gemma2: every other layer with an attention window, norms before and after attention and feed-forward
//! network, scores and logits bounded by a hyperbolic tangent, a scaled embedding, GELU in the gate. Source:
//! Gemma team, "Gemma 2: improving open language models at a practical size" (2024).

use super::architecture::Architecture;
use super::branch::Branch;
use super::builder::{Builder, Layer};
use super::hparams::{Hparams, SoftCaps, Window, factor};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, RopeMode};
use ggml_core::{Result, TensorId};

pub(super) struct Gemma2;

/// Number of layers of the 27B model.
const LAYERS_27B: usize = 46;

/// Default attention window.
const WINDOW: usize = 4096;

impl Architecture for Gemma2 {
    fn name(&self) -> &'static str {
        "gemma2"
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        h.scales.embedding = (h.embedding as f32).sqrt();
        // As in gemma3, the largest model scales queries differently, and files do not record it.
        if h.layers == LAYERS_27B && gguf.metadata().value(&h.key("attention.scale")).is_none() {
            h.scales.attention = 1.0 / (h.embedding as f32 / h.attention[0].heads as f32).sqrt();
        }
        h.soft_caps = SoftCaps {
            scores: factor(gguf, &h.key("attn_logit_softcapping"), 50.0)?,
            logits: factor(gguf, &h.key("final_logit_softcapping"), 30.0)?,
        };
        let size = h.window_size(gguf)?.unwrap_or(WINDOW);
        h.set_window(Window::nearest(size), None, |layer| layer % 2 == 0);
        Ok(())
    }

    fn feed_forward(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        b.gated(x, Activation::Gelu, layer).map(Branch::One)
    }

    fn norms_after(&self) -> [Option<&'static str>; 2] {
        [Some("post_attention_norm"), Some("post_ffw_norm")]
    }
}
