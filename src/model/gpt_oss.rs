//! gpt-oss: a mixture of experts with biases and a bounded gate, attention sinks, every other layer with an
//! attention window, YaRN. Source: OpenAI, "gpt-oss-120b and gpt-oss-20b model card" (2025).

use super::architecture::Architecture;
use super::branch::Branch;
use super::builder::{Builder, Layer};
use super::hparams::{Experts, GPTOSS, Hparams, Window};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Glu, RopeMode};
use ggml_core::{Error, Result, TensorId};

pub(super) struct GptOss;

/// Slope and bound of the experts' gates; files do not record them.
const ALPHA: f32 = 1.702;
const LIMIT: f32 = 7.0;

impl Architecture for GptOss {
    fn name(&self) -> &'static str {
        "gpt-oss"
    }

    fn other_names(&self) -> &'static [&'static str] {
        &[GPTOSS]
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        let both = "blk.0.ffn_gate_up_exps.weight";
        if gguf.tensor(both).is_some() {
            // Rows of gates and of the others take turns there (Ollama, `gptoss/model.go`).
            let expected = "ffn_gate_exps and ffn_up_exps, which newer converters write";
            return Err(Error::model(format!("tensor '{both}'"), "from an older converter", expected));
        }
        h.sinks = true;
        h.experts = Some(Experts::read(gguf, h, true)?);
        if let Some(size) = h.window_size(gguf)? {
            h.set_window(Window::nearest(size), None, |layer| layer % 2 == 0);
        }
        Ok(())
    }

    fn norms_before(&self) -> [Option<&'static str>; 2] {
        [Some("attn_norm"), Some("post_attention_norm")]
    }

    /// Queries, keys and values may be the rows of one weight, as in the original files (Ollama, `gptoss/model.go`).
    fn project(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let heads = match b.gguf.tensor(&layer.name("attn_qkv.weight")) {
            Some(_) => b.qkv_fused(x, layer)?,
            None => b.qkv(x, layer)?,
        };
        b.rope_heads(heads, layer)
    }

    fn feed_forward(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        let experts = b.experts()?;
        b.mixture(x, experts, Glu::clamped(ALPHA, LIMIT), layer)
    }
}
