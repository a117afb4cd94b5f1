//! llama: the plain decoder; mistral, and llama 1 to 3 (whose position scaling comes as the tensor
//! `rope_freqs.weight`); mixtral, whose layers have experts. Sources: Touvron et al., "LLaMA" (2023); Jiang
//! et al., "Mixtral of experts" (2024).

use super::architecture::Architecture;
use super::hparams::{Experts, Hparams};
use ggml_core::Result;
use ggml_core::gguf::GgufFile;
use ggml_core::op::RopeMode;

pub(super) struct Llama;

impl Architecture for Llama {
    fn name(&self) -> &'static str {
        "llama"
    }

    /// GGUF files order the rows of q and k so that adjacent elements form pairs.
    fn rope_mode(&self) -> RopeMode {
        RopeMode::Normal
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        h.experts = Experts::read_if_any(gguf, h, true)?;
        Ok(())
    }
}
