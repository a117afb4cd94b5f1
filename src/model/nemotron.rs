//! nemotron_h and nemotron_h_moe (Nemotron-H, Nemotron 3 Nano): each layer is one of Mamba-2, attention
//! without positions, or a feed-forward network of squared ReLU. The mixed family has mixtures of these
//! networks. Sources: NVIDIA, "Nemotron-H: a family of accurate and efficient hybrid Mamba-Transformer
//! models" (2025), "Nemotron 3 Nano" (2025).

use super::architecture::Architecture;
use super::branch::Branch;
use super::builder::{Builder, Layer};
use super::feed_forward::SQUARED;
use super::hparams::{Experts, Gating, Hparams, Recurrent};
use ggml_core::gguf::GgufFile;
use ggml_core::op::RopeMode;
use ggml_core::{Result, TensorId};

/// Dense or mixed family.
pub(super) struct Nemotron(&'static str);

pub(super) static NEMOTRON_H: Nemotron = Nemotron("nemotron_h");
pub(super) static NEMOTRON_H_MOE: Nemotron = Nemotron("nemotron_h_moe");

impl Architecture for Nemotron {
    fn name(&self) -> &'static str {
        self.0
    }

    /// Unused: there are no positions.
    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        h.without_positions();
        // Files do not record that probabilities are sigmoids.
        h.experts = Experts::read_if_any(gguf, h, true)?.map(|e| Experts {
            gating: Gating::Sigmoid,
            gated: false,
            ..e
        });
        let kinds = h.attention.iter().zip(&h.feed_forward);
        let recurrent: Vec<bool> = kinds.map(|(a, &n)| a.heads_kv == 0 && n == 0).collect();
        h.recurrent = Some(Recurrent::read(gguf, h, recurrent)?);
        Ok(())
    }

    fn mixer(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        match &b.hparams.recurrent {
            Some(r) if r.layers[layer.index] => b.mamba(x, r, layer).map(Branch::One),
            _ if layer.attention.heads_kv > 0 => b.attention_block(self, x, layer).map(Branch::One),
            _ => {
                let x = b.needed(x, layer, "attn_norm.needed")?;
                self.feed_forward(b, x, layer)
            }
        }
    }

    fn mixes_and_feeds(&self) -> bool {
        false
    }

    fn feed_forward(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        match b.routed(layer) {
            Some(experts) => b.mixture(x, experts, SQUARED, layer),
            None => b.squared(x, "", b.hparams.feed_forward[layer.index], layer).map(Branch::One),
        }
    }
}
