//! llama (1, 2, 3) and mistral. Sources: Touvron et al., "LLaMA" (2023); Jiang et al., "Mistral 7B" (2023). llama-3's
//! position scaling comes as the tensor `rope_freqs.weight`.

use super::Architecture;
use ggml_core::op::RopeMode;

pub(super) struct Llama;

impl Architecture for Llama {
    fn name(&self) -> &'static str {
        "llama"
    }

    /// GGUF files hold the rows of q and k in the order in which neighbours are pairs.
    fn rope_mode(&self) -> RopeMode {
        RopeMode::Normal
    }
}
