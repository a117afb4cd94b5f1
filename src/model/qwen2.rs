//! qwen2 and qwen2.5: llama with biases on q, k and v. Source: Yang et al., "Qwen2 technical report" (2024).

use super::architecture::Architecture;
use ggml_core::op::RopeMode;

pub(super) struct Qwen2;

impl Architecture for Qwen2 {
    fn name(&self) -> &'static str {
        "qwen2"
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }
}
