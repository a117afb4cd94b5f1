//! deepseek2 (DeepSeek V2, V2-Lite, V3 and R1, Kimi K2, GLM-4.7-Flash): latent attention, see
//! [`super::latent`], and mixtures of experts after the first layers, see [`super::moe`]. Sources:
//! DeepSeek-AI, "DeepSeek-V2" (2024), "DeepSeek-V3 technical report" (2024).

use super::architecture::Architecture;
use super::branch::Branch;
use super::builder::{Builder, Layer};
use super::hparams::{Experts, GLM4MOELITE, Hparams, Latent, RopeScaling, factor};
use ggml_core::gguf::GgufFile;
use ggml_core::op::RopeMode;
use ggml_core::{Error, Result, TensorId};

pub(super) struct Deepseek2;

impl Architecture for Deepseek2 {
    fn name(&self) -> &'static str {
        "deepseek2"
    }

    fn other_names(&self) -> &'static [&'static str] {
        &[GLM4MOELITE]
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Normal
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        let older = "blk.0.attn_kv_b.weight";
        if gguf.tensor(older).is_some() && gguf.tensor("blk.0.attn_k_b.weight").is_none() {
            let expected = "attn_k_b and attn_v_b, which newer converters write";
            return Err(Error::model(format!("tensor '{older}'"), "from an older converter", expected));
        }
        h.experts = Experts::read_if_any(gguf, h, false)?;
        h.latent = Some(Latent::read(gguf, h)?);
        // If the file has a multiplier of its logarithm, YaRN's magnitude factor applies to the scores here.
        let multiplier = factor(gguf, &h.key("rope.scaling.yarn_log_multiplier"), 0.0)?;
        if let RopeScaling::Yarn { factor, .. } = h.scaling
            && multiplier != 0.0
        {
            h.divide_magnitudes(1.0 + 0.1 * factor.ln());
            h.scales.attention *= (1.0 + multiplier * factor.ln()).powi(2);
        }
        Ok(())
    }

    fn predicts(&self) -> bool {
        true
    }

    fn mixer(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        b.latent_attention(x, latent(b)?, layer).map(Branch::One)
    }

    fn remember(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<()> {
        b.latent_keys(x, latent(b)?, layer).map(|_| ())
    }
}

fn latent(b: &Builder<'_>) -> Result<Latent> {
    let missing = || Error::model("latent attention", "no extents", "extents in the metadata");
    b.hparams.latent.ok_or_else(missing)
}
