//! qwen3: heads of q and k are normed before they are rotated. Source: Yang et al., "Qwen3 technical report"
//! (2025).

use super::architecture::Architecture;
use super::builder::{Builder, Layer};
use ggml_core::op::RopeMode;
use ggml_core::{Result, TensorId};

pub(super) struct Qwen3;

impl Architecture for Qwen3 {
    fn name(&self) -> &'static str {
        "qwen3"
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn project(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let heads = b.qkv(x, layer)?;
        let heads = b.normed_heads(heads, layer)?;
        b.rope_heads(heads, layer)
    }
}
