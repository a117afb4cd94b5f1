//! mistral3 (Ministral 3, Mistral Small 3): llama with YaRN whose magnitudes the file bounds, and queries
//! that grow with their position. Source: Mistral AI, configurations of "Ministral 3" (2025); the growth of
//! queries follows Nakanishi, "Scalable-softmax is superior for attention" (2025).

use super::architecture::Architecture;
use super::builder::{Builder, Layer};
use super::hparams::{Experts, Hparams, RopeScaling, Temperature, checked, factor, named, positive};
use ggml_core::gguf::GgufFile;
use ggml_core::op::RopeMode;
use ggml_core::{Error, Result, TensorId};

pub(super) struct Mistral3;

impl Architecture for Mistral3 {
    fn name(&self) -> &'static str {
        "mistral3"
    }

    /// Same order of rows as in files of llama.
    fn rope_mode(&self) -> RopeMode {
        RopeMode::Normal
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        h.experts = Experts::read_if_any(gguf, h, true)?;
        // YaRN's factor of rotated elements is the quotient of two multipliers' factors (`mscale`,
        // `mscale_all_dim`). Files of llama.cpp have the latter, under another name; in released models both are equal,
        // and the quotient is 1. Ollama's files have them under these names (`convert_mistral.go`).
        let ollama = factor(gguf, &h.key("rope.scaling.mscale_all_dim"), 0.0)?;
        let all = factor(gguf, &h.key("rope.scaling.yarn_log_multiplier"), ollama)?;
        let one = factor(gguf, &h.key("rope.scaling.mscale"), all)?;
        if let RopeScaling::Yarn { factor, .. } = h.scaling
            && all != 0.0
        {
            let magnitude = |multiplier: f32| 1.0 + 0.1 * multiplier * factor.ln();
            h.divide_magnitudes(magnitude(1.0) * magnitude(all) / magnitude(one));
        }
        let has = |key: &String| gguf.metadata().value(key).is_some();
        let keys = ["attention.temperature_scale", "rope.scaling_beta"].map(|k| h.key(k));
        let Some(key) = keys.into_iter().find(has) else { return Ok(()) };
        let Some(scale) = gguf.metadata().opt_f32(&key)?.filter(|&scale| scale != 0.0) else { return Ok(()) };
        let scale = positive(&key, scale)?;
        let keys = ["attention.temperature_length", "rope.scaling.original_context_length"].map(|k| h.key(k));
        let Some(key) = keys.iter().find(|key| gguf.metadata().value(key).is_some()) else {
            return Err(Error::model(
                named(&keys[1]),
                "",
                "the number of positions after which the factor of queries grows",
            ));
        };
        let length = checked(key, gguf.metadata().usize(key)?)?;
        h.temperature = Some(Temperature { scale, length, shift: 0 });
        Ok(())
    }

    fn project(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let heads = b.qkv(x, layer)?;
        let [q, k, v] = b.rope_heads(heads, layer)?;
        Ok([b.tempered(q, layer)?, k, v])
    }
}
