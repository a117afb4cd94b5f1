//! glm4moe (GLM-4.5 to 4.7): biases in q, k and v, positions in half of each head, mixtures of experts after
//! the first layers. Source: GLM team, "GLM-4.5: agentic, reasoning and coding foundation models" (2025). The
//! larger models norm the heads of q and k.

use super::architecture::Architecture;
use super::builder::{Builder, Layer};
use super::hparams::{Experts, Hparams};
use ggml_core::gguf::GgufFile;
use ggml_core::op::RopeMode;
use ggml_core::{Result, TensorId};

pub(super) struct Glm4Moe;

impl Architecture for Glm4Moe {
    fn name(&self) -> &'static str {
        "glm4moe"
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        h.experts = Some(Experts::read(gguf, h, true)?);
        Ok(())
    }

    fn predicts(&self) -> bool {
        true
    }

    fn norms_before(&self) -> [Option<&'static str>; 2] {
        [Some("attn_norm"), Some("post_attention_norm")]
    }

    fn project(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let mut heads = b.qkv(x, layer)?;
        if b.gguf.tensor(&layer.name("attn_q_norm.weight")).is_some() {
            heads = b.normed_heads(heads, layer)?;
        }
        b.rope_heads(heads, layer)
    }
}
