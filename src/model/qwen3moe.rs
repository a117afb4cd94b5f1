//! qwen3moe: qwen3 with a mixture of experts in every layer. Source: Yang et al., "Qwen3 technical report" (2025).

use super::architecture::Architecture;
use super::builder::{Builder, Layer};
use super::hparams::{Experts, Hparams};
use ggml_core::gguf::GgufFile;
use ggml_core::op::RopeMode;
use ggml_core::{Result, TensorId};

pub(super) struct Qwen3Moe;

impl Architecture for Qwen3Moe {
    fn name(&self) -> &'static str {
        "qwen3moe"
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        h.experts = Some(Experts::read(gguf, h, true)?);
        Ok(())
    }

    fn project(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let heads = b.qkv(x, layer)?;
        let heads = b.normed_heads(heads, layer)?;
        b.rope_heads(heads, layer)
    }
}
