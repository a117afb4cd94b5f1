//! Metadata of a synthetic model.

use super::named::{DELTA_NETS, SINGLE};
use super::{ENCODERS, Shape};
use crate::model::{Experts, Gating, Latent};
use ggml_core::Result;
use ggml_core::gguf::{Array, GgufWriter};

/// Context of the training divided by the original context of YaRN, in models that have it.
const LONGER: usize = 4;

/// Frequency base of local layers.
const LOCAL_BASE: f32 = 10000.0;

impl Shape {
    /// Returns the number of elements of a head that are rotated.
    pub(super) fn rotated(&self) -> usize {
        match (self.architecture.as_str(), self.latent) {
            (_, Some(latent)) => latent.rotated,
            ("phi3", _) => self.head * 3 / 4 / 2 * 2,
            ("glm4moe", _) => self.head / 2 / 2 * 2,
            ("qwen35" | "qwen35moe" | "qwen3next", _) => self.head / 4 / 2 * 2,
            _ => self.head,
        }
    }

    /// True if a layer of gemma4 is local.
    pub(super) fn is_local(&self, layer: usize) -> bool {
        !(layer + 1).is_multiple_of(self.global_step)
    }

    /// Returns the number of final layers that read the keys and values of earlier ones; the first two
    /// layers, one of each kind, have their own.
    pub(super) fn shared(&self) -> usize {
        self.shared_caches.min(self.layers.saturating_sub(2))
    }

    /// True if a layer is recurrent.
    pub(super) fn is_recurrent(&self, layer: usize) -> bool {
        self.recurrent.as_ref().is_some_and(|r| r.layers.get(layer) == Some(&true))
    }

    /// True if a layer is a Mamba-2 layer.
    pub(super) fn has_mamba(&self, layer: usize) -> bool {
        self.is_recurrent(layer) && !DELTA_NETS.contains(&self.architecture.as_str())
    }

    /// True if a layer is only a feed-forward network.
    pub(super) fn feeds(&self, layer: usize) -> bool {
        self.feeding.get(layer) == Some(&true) && !self.is_recurrent(layer)
    }

    /// Returns the number of key and value heads of a layer, and the length of its heads.
    pub(super) fn heads_of(&self, layer: usize) -> [usize; 2] {
        match self.architecture.as_str() {
            _ if self.convolved.get(layer) == Some(&true) || self.feeds(layer) => [0, self.head],
            _ if self.has_mamba(layer) => [0, self.head],
            "gemma4" if !self.is_local(layer) => [self.global_heads_kv, 2 * self.head],
            _ => [self.heads_kv, self.head],
        }
    }

    /// Sets the keys of all architectures, except extents of attention.
    pub(super) fn set_common(&self, w: &mut GgufWriter<'_>) -> Result<()> {
        let key = |name: &str| format!("{}.{name}", self.architecture);
        for (name, value) in [
            ("block_count", self.layers + usize::from(self.predictor.is_some())),
            ("context_length", self.context),
            ("embedding_length", self.embedding),
            ("attention.head_count", self.heads),
            ("rope.dimension_count", self.rotated()),
            ("vocab_size", self.vocabulary),
        ] {
            w.set(key(name), value as u32)?;
        }
        w.set(key("rope.freq_base"), self.freq_base)?;
        if ENCODERS.contains(&self.architecture.as_str()) {
            w.set(key("feed_forward_length"), self.feed_forward as u32)?;
            w.set(key("attention.layer_norm_epsilon"), 1e-5f32)?;
            w.set(key("attention.causal"), false)?;
            // Mean pooling.
            w.set(key("pooling_type"), 1u32)?;
        } else if SINGLE.contains(&self.architecture.as_str()) {
            let width = |layer| if self.feeds(layer) { self.feed_forward as u32 } else { 0 };
            let widths: Vec<u32> = (0..self.layers).map(width).collect();
            w.set(key("feed_forward_length"), Array::from(&widths[..]))?;
            w.set(key("attention.layer_norm_epsilon"), 1e-5f32)?;
        } else {
            w.set(key("feed_forward_length"), self.feed_forward as u32)?;
            w.set(key("attention.layer_norm_rms_epsilon"), 1e-5f32)?;
        }
        Ok(())
    }

    /// Sets the heads of attention, and the layers with a window.
    pub(super) fn set_attention(&self, w: &mut GgufWriter<'_>) -> Result<()> {
        let key = |name: &str| format!("{}.{name}", self.architecture);
        let heads: Vec<u32> = (0..self.layers).map(|layer| self.heads_of(layer)[0] as u32).collect();
        if let Some(latent) = self.latent {
            return self.set_latent(latent, w);
        }
        if heads.iter().any(|&n| n == 0 || n != heads[0]) {
            w.set(key("attention.head_count_kv"), Array::from(&heads[..]))?;
        } else {
            w.set(key("attention.head_count_kv"), heads[0])?;
        }
        let gemma4 = self.architecture == "gemma4";
        let head = if gemma4 { 2 * self.head } else { self.head } as u32;
        w.set(key("attention.key_length"), head)?;
        w.set(key("attention.value_length"), head)?;
        if let Some(window) = self.window {
            w.set(key("attention.sliding_window"), window as u32)?;
        }
        if gemma4 {
            let local: Vec<bool> = (0..self.layers).map(|layer| self.is_local(layer)).collect();
            w.set(key("attention.sliding_window_pattern"), Array::from(&local[..]))?;
            w.set(key("attention.key_length_swa"), self.head as u32)?;
            w.set(key("attention.value_length_swa"), self.head as u32)?;
            w.set(key("rope.dimension_count"), head)?;
            w.set(key("rope.dimension_count_swa"), self.head as u32)?;
            w.set(key("rope.freq_base_swa"), LOCAL_BASE)?;
            w.set(key("attention.shared_kv_layers"), self.shared() as u32)?;
            w.set(key("embedding_length_per_layer_input"), self.per_layer_embedding as u32)?;
        }
        Ok(())
    }

    fn set_latent(&self, latent: Latent, w: &mut GgufWriter<'_>) -> Result<()> {
        for (name, value) in [
            ("head_count_kv", 1),
            ("key_length", latent.rank + latent.rotated),
            ("value_length", latent.rank),
            ("kv_lora_rank", latent.rank),
            ("key_length_mla", latent.plain + latent.rotated),
            ("value_length_mla", latent.value_length),
        ] {
            w.set(format!("{}.attention.{name}", self.architecture), value as u32)?;
        }
        if latent.query_rank > 0 {
            w.set(format!("{}.attention.q_lora_rank", self.architecture), latent.query_rank as u32)?;
        }
        Ok(())
    }

    pub(super) fn set_experts(&self, w: &mut GgufWriter<'_>, experts: Experts) -> Result<()> {
        let key = |name: &str| format!("{}.{name}", self.architecture);
        for (name, value) in [
            ("expert_count", experts.count),
            ("expert_used_count", experts.used),
            ("expert_feed_forward_length", experts.feed_forward),
        ] {
            w.set(key(name), value as u32)?;
        }
        // Files of architectures without a choice omit these keys.
        if ["glm4moe", "deepseek2", "lfm2moe", "nemotron_h_moe"].contains(&self.architecture.as_str()) {
            let gating = if experts.gating == Gating::Sigmoid { 2u32 } else { 1 };
            if self.architecture != "nemotron_h_moe" {
                w.set(key("expert_gating_func"), gating)?;
            }
            w.set(key("expert_weights_norm"), experts.normalised)?;
            w.set(key("expert_weights_scale"), experts.scale)?;
            w.set(key("expert_group_count"), experts.groups as u32)?;
            w.set(key("expert_group_used_count"), experts.groups_used as u32)?;
            w.set(key("leading_dense_block_count"), experts.dense as u32)?;
        }
        if experts.shared > 0 {
            w.set(key("expert_shared_feed_forward_length"), experts.shared as u32)?;
        }
        if self.architecture == "llama4" {
            w.set(key("interleave_moe_layer_step"), experts.step as u32)?;
        }
        Ok(())
    }

    /// Sets the keys that only some architectures have.
    pub(super) fn set_special(&self, w: &mut GgufWriter<'_>) -> Result<()> {
        let key = |name: &str| format!("{}.{name}", self.architecture);
        if self.predictor.is_some() {
            w.set(key("nextn_predict_layers"), 1u32)?;
        }
        if let Some(original) = self.original_context {
            w.set(key("rope.scaling.original_context_length"), original as u32)?;
            // Factor of magnitudes as defined in LongRoPE's paper.
            let longer = (self.context as f32 / original as f32).max(1.0);
            w.set(key("rope.scaling.attn_factor"), (1.0 + longer.ln() / (original as f32).ln()).sqrt())?;
        }
        if let Some(experts) = self.experts {
            self.set_experts(w, experts)?;
        }
        if let Some(r) = &self.recurrent {
            w.set(key("ssm.conv_kernel"), r.taps as u32)?;
            w.set(key("ssm.state_size"), r.key_length as u32)?;
            w.set(key("ssm.group_count"), r.key_heads as u32)?;
            w.set(key("ssm.time_step_rank"), r.value_heads as u32)?;
            w.set(key("ssm.inner_size"), (r.value_length * r.value_heads) as u32)?;
            if DELTA_NETS.contains(&self.architecture.as_str()) {
                w.set(key("attention.recurrent_layers"), Array::from(&r.layers[..]))?;
            } else {
                // There are no positions.
                w.set(key("rope.scaling.finetuned"), false)?;
            }
        }
        if !self.convolved.is_empty() {
            w.set(key("shortconv.l_cache"), Shape::TAPS as u32)?;
        }
        if ["gpt-oss", "mistral3", "deepseek2"].contains(&self.architecture.as_str()) {
            w.set(key("rope.scaling.type"), "yarn")?;
            w.set(key("rope.scaling.factor"), LONGER as f32)?;
            w.set(key("rope.scaling.original_context_length"), (self.context / LONGER) as u32)?;
        }
        match self.architecture.as_str() {
            "mistral3" => {
                w.set(key("rope.scaling.yarn_log_multiplier"), 1.0f32)?;
                w.set(key("attention.temperature_scale"), 0.1f32)?;
            }
            "llama4" => {
                // Chunks and the steps in the growth of queries have the same length.
                if let Some(window) = self.window {
                    w.set(key("attention.temperature_length"), window as u32)?;
                }
            }
            "deepseek2" => {
                w.set(key("rope.scaling.yarn_log_multiplier"), 0.1f32)?;
            }
            "granite" | "granitehybrid" => {
                w.set(key("embedding_scale"), 12.0f32)?;
                w.set(key("residual_scale"), 0.22f32)?;
                w.set(key("attention.scale"), 1.0 / self.head as f32)?;
                w.set(key("logit_scale"), 8.0f32)?;
            }
            _ => {}
        }
        Ok(())
    }
}
