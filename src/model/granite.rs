//! granite 3 and 4 (dense): llama with factors on embedding, residual branches, attention scores and logits. Source:
//! IBM, "Granite 3.0 language models" (2024); the factors are those of Yang and Hu, "Tensor programs V" (2022).

use super::hparams::{factor, named, positive};
use super::{Architecture, Hparams};
use ggml_core::gguf::GgufFile;
use ggml_core::op::RopeMode;
use ggml_core::{Error, Result};

pub(super) struct Granite;

impl Architecture for Granite {
    fn name(&self) -> &'static str {
        "granite"
    }

    /// As in files of llama.
    fn rope_mode(&self) -> RopeMode {
        RopeMode::Normal
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        let m = gguf.metadata();
        h.scales.embedding = factor(gguf, &h.key("embedding_scale"), 1.0)?;
        h.scales.residual = factor(gguf, &h.key("residual_scale"), 1.0)?;
        // The file's number is a divisor.
        let key = h.key("logit_scale");
        h.scales.logits = 1.0 / positive(&key, m.f32(&key)?)?;
        // In these files the key says whether there are positions at all.
        let key = h.key("rope.scaling.finetuned");
        if m.opt_bool(&key)? == Some(false) {
            return Err(Error::model(
                named(&key),
                "false",
                "true: attention without positions is not supported",
            ));
        }
        Ok(())
    }
}
