//! Tensors of a synthetic model and their contents.

use super::named::{DELTA_NETS, SINGLE};
use super::{Drafts, ENCODERS, Shape};
use crate::model::{Experts, Gating, Latent, Recurrent};
use ggml_core::DType;
use ggml_core::rng::Rng;

/// Callback that adds a tensor to a layer: name, type, extents and contents.
type AddTensor<'a> = dyn FnMut(&str, DType, &[usize], Fill) + 'a;

/// Name, type, extents and contents of a tensor.
pub(super) type NewTensor = (String, DType, Vec<usize>, Fill);

/// Matrices whose products are added to the residual stream.
const LAST: [&str; 6] =
    ["attn_output", "ssm_out", "shortconv.out_proj", "ffn_down", "ffn_down_shexp", "proj"];

/// Number of first tokens that a text consists of if its model agrees with drafts, as in trained models, whose
/// vocabularies begin with the frequent tokens.
const FREQUENT: usize = 1 << 15;

#[derive(Clone, Copy)]
pub(super) enum Fill {
    Matrix,
    Norm,
    /// Like `Matrix`, times a factor.
    MatrixTimes(f32),
    NormTimes(f32),
    /// Norms of queries in architectures without a scale in attention. Products with keys are no larger than
    /// those of rows of 64 elements, so that long rows do not attend to only one position.
    QueryNorm,
    Bias,
    Factor,
    Decay,
    Ones,
    /// The identity in the first columns, 0 in the others.
    Identity,
    /// Like `Matrix`, with small values after the first rows: these tokens are never the best ones.
    Frequent,
}

impl Fill {
    /// Returns the element at `index` of a tensor with rows of `columns` elements.
    pub(super) fn value(self, rng: &mut Rng, columns: usize, index: usize) -> f32 {
        match self {
            Fill::Matrix => rng.normal() / (columns as f32).sqrt(),
            Fill::Norm => 1.0 + 0.1 * rng.normal(),
            Fill::MatrixTimes(factor) => Fill::Matrix.value(rng, columns, index) * factor,
            Fill::NormTimes(factor) => Fill::Norm.value(rng, columns, index) * factor,
            Fill::QueryNorm => {
                Fill::Norm.value(rng, columns, index) * (64.0 / columns as f32).sqrt().min(1.0)
            }
            Fill::Bias => 0.1 * rng.normal(),
            Fill::Factor => 1.0 + rng.normal().abs(),
            Fill::Decay => -(0.5 * rng.normal()).exp(),
            Fill::Ones => 1.0,
            Fill::Frequent => {
                let factor = if index / columns < FREQUENT { 1.0 } else { 0.5 };
                Fill::Matrix.value(rng, columns, index) * factor
            }
            Fill::Identity => f32::from(u8::from(index / columns == index % columns)),
        }
    }
}

/// Returns the type, or the next one that fits if rows are no multiple of its blocks: Q8_0, then F16.
fn fitting(dtype: DType, columns: usize) -> DType {
    let fits = |dtype: &DType| columns.is_multiple_of(dtype.block());
    [dtype, DType::Q8_0].into_iter().find(fits).unwrap_or(DType::F16)
}

/// Returns a tensor's name without its layer and its suffix.
fn part_of(name: &str) -> &str {
    let name = name.split_once('.').map_or("", |(first, rest)| {
        if first == "blk" { rest.split_once('.').map_or("", |(_, name)| name) } else { first }
    });
    name.trim_end_matches(".weight")
}

/// True for the matrices whose products are added to the residual stream.
fn is_last(part: &str) -> bool {
    LAST.contains(&part) || part == "ffn_down_exps"
}

impl Shape {
    /// Largest number of layers without conditioning.
    const SHALLOW: usize = 8;

    pub(super) fn tensors(&self) -> Vec<NewTensor> {
        if self.is(&ENCODERS) {
            return self.encoder_tensors();
        }
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
        if self.architecture == "gemma4" && (0..self.layers).any(|layer| !self.is_local(layer)) {
            // Divisors of the frequencies of global layers.
            all.push(tensor("rope_freqs.weight", DType::F32, &[self.head], Fill::Factor));
        }
        if self.per_layer_embedding > 0 {
            let (d, n) = (self.per_layer_embedding, self.per_layer_embedding * self.layers);
            let dtype = self.embedding_type;
            all.push(tensor("per_layer_token_embd.weight", dtype, &[n, self.vocabulary], Fill::Matrix));
            all.push(tensor("per_layer_model_proj.weight", self.attention_type, &[e, n], Fill::Matrix));
            all.push(tensor("per_layer_proj_norm.weight", DType::F32, &[d], Fill::Norm));
        }
        (0..self.layers).for_each(|layer| self.layer_tensors(layer, &mut all));
        self.condition(&mut all);
        self.predictor_tensors(&mut all);
        let norm = if self.convolved.is_empty() { "output_norm.weight" } else { "token_embd_norm.weight" };
        all.push(tensor(norm, DType::F32, &[e], Fill::Norm));
        if !self.tied {
            let fill = if matches!(self.predictor, Some(Drafts::Agreeing(_))) {
                Fill::Frequent
            } else {
                Fill::Matrix
            };
            all.push(tensor("output.weight", self.embedding_type, &[e, self.vocabulary], fill));
        }
        all
    }

    fn layer_tensors(&self, layer: usize, all: &mut Vec<NewTensor>) {
        let e = self.embedding;
        let mut add = |name: &str, dtype: DType, ne: &[usize], fill: Fill| {
            all.push((format!("blk.{layer}.{name}"), fitting(dtype, ne[0]), ne.to_vec(), fill));
        };
        if self.architecture != "olmo2" {
            add("attn_norm.weight", DType::F32, &[e], Fill::Norm);
        }
        match (&self.recurrent, self.latent) {
            (Some(r), _) if self.has_mamba(layer) => self.mamba_tensors(r, &mut add),
            (Some(r), _) if self.is_recurrent(layer) => self.recurrent_tensors(r, &mut add),
            (_, Some(latent)) => self.latent_tensors(latent, &mut add),
            _ if self.convolved.get(layer) == Some(&true) => self.convolution_tensors(&mut add),
            _ if self.feeds(layer) => {}
            _ => self.attention_tensors(layer, &mut add),
        }
        if self.feeds(layer) || !self.is(&SINGLE) {
            self.feed_forward_tensors(layer, &mut add);
        }
    }

    /// Adds the layer that predicts further tokens. If the model shall agree with it, it copies the token's embedding to its
    /// result; its own attention and feed-forward network then have little effect.
    fn predictor_tensors(&self, all: &mut Vec<NewTensor>) {
        let Some(drafts) = self.predictor else { return };
        let (e, begin) = (self.embedding, all.len());
        self.layer_tensors(self.layers, all);
        let agrees = drafts != Drafts::Random;
        if agrees {
            for (name, .., fill) in &mut all[begin..] {
                if is_last(part_of(name)) {
                    *fill = Fill::MatrixTimes(0.01);
                }
            }
        }
        let norm = if agrees { Fill::Ones } else { Fill::Norm };
        let projection = if agrees { Fill::Identity } else { Fill::Matrix };
        for (name, dtype, ne, fill) in [
            ("enorm", DType::F32, &[e][..], norm),
            ("hnorm", DType::F32, &[e], norm),
            ("eh_proj", self.attention_type, &[2 * e, e], projection),
        ] {
            let name = format!("blk.{}.nextn.{name}.weight", self.layers);
            all.push((name, fitting(dtype, ne[0]), ne.to_vec(), fill));
        }
        // Otherwise the norm is the one in front of the output layer.
        if !agrees {
            let name = format!("blk.{}.nextn.shared_head_norm.weight", self.layers);
            all.push((name, DType::F32, vec![e], Fill::Norm));
        }
    }

    /// Makes the contributions of layers to the residual stream small compared to the stream in a deep model,
    /// as in trained ones. Random layers of full size amplify a rounding error to noise within twenty or
    /// thirty layers, and then no two backends agree. The last matrices of layers are scaled as in GPT-2
    /// ("Language Models are Unsupervised Multitask Learners", 2019, section 2.3), by 1 / sqrt(2 layers); if
    /// a norm follows, the norm is scaled instead. The stream starts with a larger magnitude. Mixtures of
    /// experts depend on it most: a rounding error decides between two experts with nearly the same score.
    fn condition(&self, all: &mut [NewTensor]) {
        let deep = self.layers > Shape::SHALLOW;
        let factor = match self.predictor {
            Some(Drafts::Agreeing(factor)) => factor,
            _ if deep => 1.0,
            _ => return,
        };
        let small = factor * if deep { 1.0 / (2.0 * self.layers as f32).sqrt() } else { 1.0 };
        let of_experts = small / self.experts.map_or(1.0, |experts| experts.scale.max(1.0));
        let gemma = self.architecture.starts_with("gemma");
        let scales_embeddings = gemma || self.is(&["granite", "granitehybrid"]);
        let mut norms = vec!["post_ffw_norm", "post_norm"];
        if gemma || self.is(&["olmo2"]) {
            norms.push("post_attention_norm");
        }
        for (name, .., fill) in all {
            let name = part_of(name);
            if name == "token_embd" && !scales_embeddings {
                *fill = Fill::MatrixTimes((self.embedding as f32).sqrt() / 2.0);
            } else if name == "ffn_down_exps" {
                *fill = Fill::MatrixTimes(of_experts);
            } else if LAST.contains(&name) {
                *fill = Fill::MatrixTimes(small);
            } else if norms.contains(&name) {
                *fill = Fill::NormTimes(small);
            }
        }
    }

    /// Returns the tensors of bert: every weight has a bias.
    fn encoder_tensors(&self) -> Vec<NewTensor> {
        let (e, n, qkv) = (self.embedding, self.feed_forward, self.heads * self.head);
        let mut all = Vec::new();
        let mut add = |name: String, dtype, ne: &[usize], fill| {
            all.push((name, fitting(dtype, ne[0]), ne.to_vec(), fill));
        };
        add("token_embd.weight".into(), self.embedding_type, &[e, self.vocabulary], Fill::Matrix);
        add("position_embd.weight".into(), DType::F32, &[e, self.context], Fill::Matrix);
        add("token_types.weight".into(), DType::F32, &[e, 2], Fill::Bias);
        let blocks = (0..self.layers).map(|layer| format!("blk.{layer}."));
        let norms = blocks.clone().flat_map(|b| ["attn_output", "layer_output"].map(|n| b.clone() + n));
        for name in norms.chain(["token_embd".into()]) {
            add(format!("{name}_norm.weight"), DType::F32, &[e], Fill::Norm);
            add(format!("{name}_norm.bias"), DType::F32, &[e], Fill::Bias);
        }
        for block in blocks {
            let (attention, network) = (self.attention_type, self.feed_forward_type);
            for (name, dtype, [columns, rows]) in [
                ("attn_q", attention, [e, qkv]),
                ("attn_k", attention, [e, qkv]),
                ("attn_v", attention, [e, qkv]),
                ("attn_output", attention, [qkv, e]),
                ("ffn_up", network, [e, n]),
                ("ffn_down", network, [n, e]),
            ] {
                add(format!("{block}{name}.weight"), dtype, &[columns, rows], Fill::Matrix);
                add(format!("{block}{name}.bias"), DType::F32, &[rows], Fill::Bias);
            }
        }
        all
    }

    fn is(&self, architectures: &[&str]) -> bool {
        architectures.contains(&self.architecture.as_str())
    }

    fn attention_tensors(&self, layer: usize, add: &mut AddTensor<'_>) {
        let ([heads_kv, head], e) = (self.heads_of(layer), self.embedding);
        let (q, kv) = (self.heads * head, heads_kv * head);
        // Layers of gemma4 that read the keys and values of another layer have none; in its mixtures, global
        // layers compute values from keys.
        let shares = self.shared() > 0 && layer + self.shared() >= self.layers;
        let no_values = self.is(&["gemma4"]) && self.experts.is_some() && !self.is_local(layer);
        if self.is(&["phi3"]) {
            add("attn_qkv.weight", self.attention_type, &[e, q + 2 * kv], Fill::Matrix);
        } else {
            // In models with delta nets, each query of the attention layers has a gate.
            let q = if self.is(&DELTA_NETS) { 2 * q } else { q };
            for (name, rows) in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)] {
                if name != "attn_q" && shares || name == "attn_v" && no_values {
                    continue;
                }
                add(&format!("{name}.weight"), self.attention_type, &[e, rows], Fill::Matrix);
                if self.is(&["qwen2", "gpt-oss", "glm4moe"]) {
                    add(&format!("{name}.bias"), DType::F32, &[rows], Fill::Bias);
                }
            }
        }
        let normed = ["qwen3", "qwen3moe", "gemma3", "gemma4", "lfm2", "lfm2moe", "olmo2"];
        if self.is(&DELTA_NETS) || self.is(&normed) {
            let whole = self.is(&["olmo2"]);
            let queries = if self.is(&["gemma4"]) { Fill::QueryNorm } else { Fill::Norm };
            for (name, width, fill) in
                [("attn_q_norm.weight", q, queries), ("attn_k_norm.weight", kv, Fill::Norm)]
            {
                if !(shares && name == "attn_k_norm.weight") {
                    add(name, DType::F32, &[if whole { width } else { head }], fill);
                }
            }
        }
        add("attn_output.weight", self.attention_type, &[q, e], Fill::Matrix);
        if self.is(&["gpt-oss"]) {
            add("attn_output.bias", DType::F32, &[e], Fill::Bias);
            add("attn_sinks.weight", DType::F32, &[self.heads], Fill::Bias);
        }
        if self.is(&["gemma2", "gemma3", "gemma4", "olmo2"]) {
            add("post_attention_norm.weight", DType::F32, &[e], Fill::Norm);
        }
    }

    fn latent_tensors(&self, l: Latent, add: &mut AddTensor<'_>) {
        let (e, heads, dtype) = (self.embedding, self.heads, self.attention_type);
        let q = heads * (l.plain + l.rotated);
        if l.query_rank > 0 {
            add("attn_q_a.weight", dtype, &[e, l.query_rank], Fill::Matrix);
            add("attn_q_a_norm.weight", DType::F32, &[l.query_rank], Fill::Norm);
            add("attn_q_b.weight", dtype, &[l.query_rank, q], Fill::Matrix);
        } else {
            add("attn_q.weight", dtype, &[e, q], Fill::Matrix);
        }
        add("attn_kv_a_mqa.weight", dtype, &[e, l.rank + l.rotated], Fill::Matrix);
        add("attn_kv_a_norm.weight", DType::F32, &[l.rank], Fill::Norm);
        add("attn_k_b.weight", dtype, &[l.plain, l.rank, heads], Fill::Matrix);
        add("attn_v_b.weight", dtype, &[l.rank, l.value_length, heads], Fill::Matrix);
        add("attn_output.weight", dtype, &[l.value_length * heads, e], Fill::Matrix);
    }

    fn convolution_tensors(&self, add: &mut AddTensor<'_>) {
        let e = self.embedding;
        add("shortconv.in_proj.weight", self.attention_type, &[e, 3 * e], Fill::Matrix);
        add("shortconv.conv.weight", DType::F32, &[Shape::TAPS, e], Fill::Matrix);
        add("shortconv.out_proj.weight", self.attention_type, &[e, e], Fill::Matrix);
    }

    fn recurrent_tensors(&self, r: &Recurrent, add: &mut AddTensor<'_>) {
        let (e, heads, inner, channels) = (self.embedding, r.value_heads, r.inner(), r.channels());
        let steps = if self.is(&["qwen3next"]) {
            vec![("ssm_ba", 2 * heads)]
        } else {
            vec![("ssm_alpha", heads), ("ssm_beta", heads)]
        };
        for (name, rows) in [("attn_qkv", channels), ("attn_gate", inner)].into_iter().chain(steps) {
            add(&format!("{name}.weight"), self.attention_type, &[e, rows], Fill::Matrix);
        }
        add("ssm_conv1d.weight", DType::F32, &[r.taps, channels], Fill::Matrix);
        add("ssm_dt.bias", DType::F32, &[heads], Fill::Bias);
        add("ssm_a", DType::F32, &[heads], Fill::Decay);
        add("ssm_norm.weight", DType::F32, &[r.value_length], Fill::Norm);
        add("ssm_out.weight", self.attention_type, &[inner, e], Fill::Matrix);
    }

    fn mamba_tensors(&self, r: &Recurrent, add: &mut AddTensor<'_>) {
        let (e, inner, heads) = (self.embedding, r.inner(), r.value_heads);
        add("ssm_in.weight", self.attention_type, &[e, inner + r.channels() + heads], Fill::Matrix);
        add("ssm_conv1d.weight", DType::F32, &[r.taps, r.channels()], Fill::Matrix);
        add("ssm_conv1d.bias", DType::F32, &[r.channels()], Fill::Bias);
        add("ssm_dt.bias", DType::F32, &[heads], Fill::Bias);
        add("ssm_a", DType::F32, &[1, heads], Fill::Decay);
        add("ssm_d", DType::F32, &[1, heads], Fill::Norm);
        add("ssm_norm.weight", DType::F32, &[inner / r.key_heads, r.key_heads], Fill::Norm);
        add("ssm_out.weight", self.attention_type, &[inner, e], Fill::Matrix);
    }

    fn expert_tensors(&self, experts: Experts, add: &mut AddTensor<'_>) {
        let (e, n, count) = (self.embedding, experts.feed_forward, experts.count);
        let dtype = self.feed_forward_type;
        add("ffn_gate_inp.weight", DType::F32, &[e, count], Fill::Matrix);
        let biases = self.is(&["gpt-oss"]);
        if biases {
            add("ffn_gate_inp.bias", DType::F32, &[count], Fill::Bias);
        }
        if experts.gating == Gating::Sigmoid && !self.is(&["llama4"]) {
            add("exp_probs_b.bias", DType::F32, &[count], Fill::Bias);
        }
        let products = if self.is(&["gemma4"]) {
            for (name, width) in [("ffn_gate_inp.scale", e), ("ffn_down_exps.scale", count)] {
                add(name, DType::F32, &[width], Fill::Norm);
            }
            vec![("ffn_gate_up_exps", e, 2 * n), ("ffn_down_exps", n, e)]
        } else {
            vec![("ffn_gate_exps", e, n), ("ffn_up_exps", e, n), ("ffn_down_exps", n, e)]
        };
        // Squared ReLU has no gate.
        let gate = usize::from(!experts.gated);
        for &(name, columns, rows) in &products[gate..] {
            add(&format!("{name}.weight"), dtype, &[columns, rows, count], Fill::Matrix);
            if biases {
                add(&format!("{name}.bias"), DType::F32, &[rows, count], Fill::Bias);
            }
        }
        if experts.shared > 0 {
            let n = experts.shared;
            for &(name, columns, rows) in &[("gate", e, n), ("up", e, n), ("down", n, e)][gate..] {
                add(&format!("ffn_{name}_shexp.weight"), dtype, &[columns, rows], Fill::Matrix);
            }
            if self.is(&DELTA_NETS) {
                add("ffn_gate_inp_shexp.weight", DType::F32, &[e, 1], Fill::Matrix);
            }
        }
    }

    fn feed_forward_tensors(&self, layer: usize, add: &mut AddTensor<'_>) {
        let (e, n, dtype) = (self.embedding, self.feed_forward, self.feed_forward_type);
        // The same norm has two names; olmo2 has none.
        if self.is(&DELTA_NETS) || self.is(&["gpt-oss", "glm4moe"]) {
            add("post_attention_norm.weight", DType::F32, &[e], Fill::Norm);
        } else if !self.is(&["olmo2"]) && !self.is(&SINGLE) {
            add("ffn_norm.weight", DType::F32, &[e], Fill::Norm);
        }
        if self.is(&["gemma4"]) {
            self.gemma4_tensors(add);
        }
        if let Some(experts) = self.experts.filter(|experts| experts.has(layer)) {
            self.expert_tensors(experts, add);
            if !self.is(&["gemma4"]) {
                return;
            }
        }
        if self.is(&["phi3"]) {
            add("ffn_up.weight", dtype, &[e, 2 * n], Fill::Matrix);
        } else {
            if !self.is(&SINGLE) {
                add("ffn_gate.weight", dtype, &[e, n], Fill::Matrix);
            }
            add("ffn_up.weight", dtype, &[e, n], Fill::Matrix);
        }
        add("ffn_down.weight", dtype, &[n, e], Fill::Matrix);
        if self.is(&["gemma2", "gemma3", "gemma4", "olmo2"]) {
            add("post_ffw_norm.weight", DType::F32, &[e], Fill::Norm);
        }
    }

    /// Adds the tensors of gemma4 layers in addition to those of gemma3.
    fn gemma4_tensors(&self, add: &mut AddTensor<'_>) {
        let (e, d) = (self.embedding, self.per_layer_embedding);
        add("layer_output_scale.weight", DType::F32, &[1], Fill::Norm);
        if d > 0 {
            add("inp_gate.weight", self.attention_type, &[e, d], Fill::Matrix);
            add("proj.weight", self.attention_type, &[d, e], Fill::Matrix);
            add("post_norm.weight", DType::F32, &[e], Fill::Norm);
        }
        if self.experts.is_some() {
            for name in ["post_ffw_norm_1.weight", "post_ffw_norm_2.weight", "pre_ffw_norm_2.weight"] {
                add(name, DType::F32, &[e], Fill::Norm);
            }
        }
    }
}
