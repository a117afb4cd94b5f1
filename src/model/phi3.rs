//! phi3, phi3.5, phi4 and phi4-mini: one weight for q, k and v, one for gate and up, positions in a part of
//! each head, and LongRoPE's factors. Sources: Abdin et al., "Phi-3 technical report" (2024); Ding et al.,
//! "LongRoPE" (2024).
//!
//! The context of a session selects the short or the long factors. The magnitude of rotated elements comes
//! from the file (`rope.scaling.attn_factor`). If the file gives an attention window, every layer has it.

use super::architecture::Architecture;
use super::branch::Branch;
use super::builder::{Builder, Layer};
use super::hparams::{Hparams, Window};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, RopeMode};
use ggml_core::{Result, TensorId};

pub(super) struct Phi3;

impl Architecture for Phi3 {
    fn name(&self) -> &'static str {
        "phi3"
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        if let Some(size) = h.window_size(gguf)? {
            h.set_window(Window::nearest(size), None, |_| true);
        }
        Ok(())
    }

    fn project(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let heads = b.qkv_fused(x, layer)?;
        b.rope_heads(heads, layer)
    }

    fn feed_forward(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        b.gated_fused(x, Activation::Silu, layer).map(Branch::One)
    }
}
