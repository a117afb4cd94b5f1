//! Which tensors a synthetic model has, and what they hold.

use super::Shape;
use crate::model::{Experts, Recurrent};
use ggml_core::DType;
use ggml_core::rng::Rng;

/// Adds a tensor to a layer: name, type, extents and contents.
type AddTensor<'a> = dyn FnMut(&str, DType, &[usize], Fill) + 'a;

/// Name, type, extents and contents of a tensor.
pub(super) type NewTensor = (String, DType, Vec<usize>, Fill);

#[derive(Clone, Copy)]
pub(super) enum Fill {
    Matrix,
    Norm,
    Bias,
    Factor,
    Decay,
}

impl Fill {
    pub(super) fn value(self, rng: &mut Rng, columns: usize) -> f32 {
        match self {
            Fill::Matrix => rng.normal() / (columns as f32).sqrt(),
            Fill::Norm => 1.0 + 0.1 * rng.normal(),
            Fill::Bias => 0.1 * rng.normal(),
            Fill::Factor => 1.0 + rng.normal().abs(),
            Fill::Decay => -(0.5 * rng.normal()).exp(),
        }
    }
}

/// The type, or where rows are no multiple of its blocks the next one that fits: Q8_0, then F16.
fn fitting(dtype: DType, columns: usize) -> DType {
    let fits = |dtype: &DType| columns.is_multiple_of(dtype.block());
    [dtype, DType::Q8_0].into_iter().find(fits).unwrap_or(DType::F16)
}

impl Shape {
    pub(super) fn tensors(&self) -> Vec<NewTensor> {
        let e = self.embedding;
        let tensor = |name: &str, dtype, ne: &[usize], fill| {
            (name.to_string(), fitting(dtype, ne[0]), ne.to_vec(), fill)
        };
        let mut all =
            vec![tensor("token_embd.weight", self.embedding_type, &[e, self.vocabulary], Fill::Matrix)];
        if self.original_context.is_some() {
            for name in ["rope_factors_short.weight", "rope_factors_long.weight"] {
                all.push(tensor(name, DType::F32, &[self.rotated() / 2], Fill::Factor));
            }
        }
        for layer in 0..self.layers {
            let mut add = |name: &str, dtype: DType, ne: &[usize], fill: Fill| {
                all.push((format!("blk.{layer}.{name}"), fitting(dtype, ne[0]), ne.to_vec(), fill));
            };
            add("attn_norm.weight", DType::F32, &[e], Fill::Norm);
            match &self.recurrent {
                Some(r) if r.layers.get(layer) == Some(&true) => self.recurrent_tensors(r, &mut add),
                _ => self.attention_tensors(&mut add),
            }
            self.feed_forward_tensors(&mut add);
        }
        all.push(tensor("output_norm.weight", DType::F32, &[e], Fill::Norm));
        if !self.tied {
            all.push(tensor("output.weight", self.embedding_type, &[e, self.vocabulary], Fill::Matrix));
        }
        all
    }

    fn attention_tensors(&self, add: &mut AddTensor<'_>) {
        let (e, q, kv) = (self.embedding, self.heads * self.head, self.heads_kv * self.head);
        let architecture = self.architecture.as_str();
        if architecture == "phi3" {
            add("attn_qkv.weight", self.attention_type, &[e, q + 2 * kv], Fill::Matrix);
        } else {
            // qwen35: each query with a gate.
            let q = if architecture == "qwen35" { 2 * q } else { q };
            for (name, rows) in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)] {
                add(&format!("{name}.weight"), self.attention_type, &[e, rows], Fill::Matrix);
                if ["qwen2", "gpt-oss"].contains(&architecture) {
                    add(&format!("{name}.bias"), DType::F32, &[rows], Fill::Bias);
                }
            }
        }
        if ["qwen3", "qwen3moe", "qwen35", "gemma3"].contains(&architecture) {
            add("attn_q_norm.weight", DType::F32, &[self.head], Fill::Norm);
            add("attn_k_norm.weight", DType::F32, &[self.head], Fill::Norm);
        }
        add("attn_output.weight", self.attention_type, &[q, e], Fill::Matrix);
        if architecture == "gpt-oss" {
            add("attn_output.bias", DType::F32, &[e], Fill::Bias);
            add("attn_sinks.weight", DType::F32, &[self.heads], Fill::Bias);
        }
        if ["gemma2", "gemma3"].contains(&architecture) {
            add("post_attention_norm.weight", DType::F32, &[e], Fill::Norm);
        }
    }

    fn recurrent_tensors(&self, r: &Recurrent, add: &mut AddTensor<'_>) {
        let (e, heads, inner) = (self.embedding, r.value_heads, r.value_length * r.value_heads);
        let channels = 2 * r.key_length * r.key_heads + inner;
        for (name, rows) in
            [("attn_qkv", channels), ("attn_gate", inner), ("ssm_alpha", heads), ("ssm_beta", heads)]
        {
            add(&format!("{name}.weight"), self.attention_type, &[e, rows], Fill::Matrix);
        }
        add("ssm_conv1d.weight", DType::F32, &[r.taps, channels], Fill::Matrix);
        add("ssm_dt.bias", DType::F32, &[heads], Fill::Bias);
        add("ssm_a", DType::F32, &[heads], Fill::Decay);
        add("ssm_norm.weight", DType::F32, &[r.value_length], Fill::Norm);
        add("ssm_out.weight", self.attention_type, &[inner, e], Fill::Matrix);
    }

    fn expert_tensors(&self, experts: Experts, add: &mut AddTensor<'_>) {
        let (e, n, count) = (self.embedding, experts.feed_forward, experts.count);
        let biases = self.architecture == "gpt-oss";
        add("ffn_gate_inp.weight", DType::F32, &[e, count], Fill::Matrix);
        if biases {
            add("ffn_gate_inp.bias", DType::F32, &[count], Fill::Bias);
        }
        for (name, columns, rows) in [("ffn_gate_exps", e, n), ("ffn_up_exps", e, n), ("ffn_down_exps", n, e)]
        {
            add(&format!("{name}.weight"), self.feed_forward_type, &[columns, rows, count], Fill::Matrix);
            if biases {
                add(&format!("{name}.bias"), DType::F32, &[rows, count], Fill::Bias);
            }
        }
    }

    fn feed_forward_tensors(&self, add: &mut AddTensor<'_>) {
        let (e, n, dtype) = (self.embedding, self.feed_forward, self.feed_forward_type);
        // The same norm has two names.
        let norm = if ["qwen35", "gpt-oss"].contains(&self.architecture.as_str()) {
            "post_attention_norm.weight"
        } else {
            "ffn_norm.weight"
        };
        add(norm, DType::F32, &[e], Fill::Norm);
        if let Some(experts) = self.experts {
            return self.expert_tensors(experts, add);
        }
        if self.architecture == "phi3" {
            add("ffn_up.weight", dtype, &[e, 2 * n], Fill::Matrix);
        } else {
            add("ffn_gate.weight", dtype, &[e, n], Fill::Matrix);
            add("ffn_up.weight", dtype, &[e, n], Fill::Matrix);
        }
        add("ffn_down.weight", dtype, &[n, e], Fill::Matrix);
        if ["gemma2", "gemma3"].contains(&self.architecture.as_str()) {
            add("post_ffw_norm.weight", DType::F32, &[e], Fill::Norm);
        }
    }
}
