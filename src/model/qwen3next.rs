//! qwen3next: the mixtures of [`super::qwen35`], whose files hold the value heads of a key head one behind the other.
//! Source: Qwen team, "Qwen3-Next" (model card and configuration, 2025).

use super::builder::{Builder, Layer};
use super::moe::Experts;
use super::qwen35::{NORMS_BEFORE, delta_or_attention, read_recurrent};
use super::{Architecture, Hparams, Recurrent};
use ggml_core::gguf::GgufFile;
use ggml_core::op::RopeMode;
use ggml_core::{Result, TensorId};

pub(super) struct Qwen3Next;

impl Architecture for Qwen3Next {
    fn name(&self) -> &'static str {
        "qwen3next"
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        h.experts = Experts::read_if_any(gguf, h, true)?;
        h.recurrent = Some(Recurrent { grouped: true, ..read_recurrent(gguf, h)? });
        Ok(())
    }

    fn norms_before(&self) -> [Option<&'static str>; 2] {
        NORMS_BEFORE
    }

    fn mixer(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<TensorId> {
        delta_or_attention(b, x, layer)
    }
}
