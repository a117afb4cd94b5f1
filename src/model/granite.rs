//! granite 3 and 4 (dense) and granitehybrid (4 H): llama with factors on embedding, residual branches,
//! attention scores and logits; most layers of the hybrid have Mamba-2 in place of attention. Sources: IBM,
//! "Granite 3.0 language models" (2024) and "Granite 4.0" (model cards, 2025); the factors are those of Yang
//! and Hu, "Tensor programs V" (2022).

use super::architecture::Architecture;
use super::branch::Branch;
use super::builder::{Builder, Layer};
use super::hparams::{Experts, Hparams, Recurrent, factor, positive};
use ggml_core::gguf::GgufFile;
use ggml_core::op::RopeMode;
use ggml_core::{Result, TensorId};

/// Dense or hybrid family.
pub(super) struct Granite(&'static str);

pub(super) static GRANITE: Granite = Granite("granite");
pub(super) static GRANITEHYBRID: Granite = Granite("granitehybrid");

impl Architecture for Granite {
    fn name(&self) -> &'static str {
        self.0
    }

    /// Same order of rows as in files of llama.
    fn rope_mode(&self) -> RopeMode {
        RopeMode::Normal
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        let m = gguf.metadata();
        h.scales.embedding = factor(gguf, &h.key("embedding_scale"), 1.0)?;
        h.scales.residual = factor(gguf, &h.key("residual_scale"), 1.0)?;
        // The file stores a divisor.
        let key = h.key("logit_scale");
        h.scales.logits = 1.0 / positive(&key, m.f32(&key)?)?;
        // In these files the key decides if there are positions at all.
        if m.opt_bool(&h.key("rope.scaling.finetuned"))? == Some(false) {
            h.without_positions();
        }
        h.experts = Experts::read_if_any(gguf, h, true)?;
        let recurrent: Vec<bool> = h.attention.iter().map(|a| a.heads_kv == 0).collect();
        if recurrent.contains(&true) {
            h.recurrent = Some(Recurrent::read(gguf, h, recurrent)?);
        }
        Ok(())
    }

    fn mixer(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        match &b.hparams.recurrent {
            Some(r) if r.layers[layer.index] => b.mamba(x, r, layer).map(Branch::One),
            _ => b.attention_block(self, x, layer).map(Branch::One),
        }
    }
}
