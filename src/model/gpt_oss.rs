//! gpt-oss: a mixture of experts with biases and a bounded gate, attention sinks, every other layer with an attention
//! window, YaRN. Source: OpenAI, "gpt-oss-120b and gpt-oss-20b model card" (2025).

use super::builder::{Builder, Layer};
use super::moe::Experts;
use super::{Architecture, Hparams, Window};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Glu, RopeMode};
use ggml_core::{Result, TensorId};

pub(super) struct GptOss;

/// Slope and bound of the experts' gates; files do not carry them.
const ALPHA: f32 = 1.702;
const LIMIT: f32 = 7.0;

impl Architecture for GptOss {
    fn name(&self) -> &'static str {
        "gpt-oss"
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        h.sinks = true;
        h.experts = Some(Experts::read(gguf, h)?);
        h.window = h.window_size(gguf)?.map(|size| Window { size, period: 2, rope: h.rope });
        Ok(())
    }

    fn feed_forward_norm(&self) -> &'static str {
        "post_attention_norm"
    }

    fn feed_forward(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<TensorId> {
        b.mixture(x, Glu::clamped(ALPHA, LIMIT), layer)
    }
}
