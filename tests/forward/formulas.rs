//! Differences between the architectures, and the formulas of a head.

use super::{Matrix, decode};
use diptych::model::ModelFile;

/// Parameters in which the architectures differ, from the metadata.
pub(super) struct Formulas {
    /// Elements per head in each layer.
    pub(super) d: Vec<usize>,
    pub(super) heads: usize,
    /// Key and value heads in each layer.
    pub(super) heads_kv: Vec<usize>,
    pub(super) layers: usize,
    pub(super) eps: f64,
    /// True if rotated pairs are adjacent (llama's files) rather than in two halves (qwen's).
    neighbours: bool,
    /// Number of rotated elements per head.
    rotated: usize,
    base: f64,
    /// Divisors of the frequencies.
    factors: Option<Matrix>,
    /// Factor on rotated elements.
    magnitude: f64,
    /// Number of positions visible in a layer with a window.
    window: Option<usize>,
    gemma: bool,
    pub(super) gemma4: bool,
    llama4: bool,
    /// True if attention uses positions at all.
    positions: bool,
    /// True if a layer is either a feed-forward network or a mixing block, but not both.
    pub(super) one_part: bool,
    /// Width of each layer's feed-forward network.
    pub(super) feed_forward: Vec<usize>,
    /// Number of layers with their own keys and values.
    own_caches: usize,
    /// True if q and k are normed as a whole rather than per head.
    pub(super) norms_whole: bool,
    /// True if the result of attention is normed.
    pub(super) norms_results: bool,
    /// Growth of queries: scale, length in positions, and offset added to a position.
    growth: Option<(f64, f64, f64)>,
    /// The last of this many layers is global; with 1 none is.
    period: usize,
    /// Frequency base of local layers.
    local_base: f64,
    /// YaRN: factor and training context.
    pub(super) yarn: Option<(f64, f64)>,
    /// Soft caps of scores and logits.
    pub(super) caps: [Option<f64>; 2],
    pub(super) embedding_scale: f64,
    pub(super) residual_scale: f64,
    pub(super) attention_scale: f64,
    pub(super) logit_divisor: f64,
}

impl Formulas {
    pub(super) fn new(file: &ModelFile, context: usize) -> Formulas {
        let m = file.gguf().metadata();
        let architecture = m.str("general.architecture").unwrap();
        let key = |name: &str| format!("{architecture}.{name}");
        let int = |name: &str| m.usize(&key(name)).unwrap();
        let float = |name: &str, default: f64| m.opt_f64(&key(name)).unwrap().unwrap_or(default);
        let gemma = architecture.starts_with("gemma");
        let (gemma2, gemma4, llama4) =
            (architecture == "gemma2", architecture == "gemma4", architecture == "llama4");
        let one_part = architecture.starts_with("nemotron_h");
        let (layers, d) = (int("block_count"), int("attention.key_length"));
        let original = m.opt_usize(&key("rope.scaling.original_context_length")).unwrap();
        let yarn = ["gpt-oss", "mistral3", "deepseek2"]
            .contains(&architecture)
            .then(|| (float("rope.scaling.factor", 0.0), original.expect("YaRN's context") as f64));
        let heads_kv = match m.value(&key("attention.head_count_kv")).is_some_and(|v| v.as_array().is_some())
        {
            true => m.array_usize(&key("attention.head_count_kv")).unwrap(),
            false => vec![int("attention.head_count_kv"); layers],
        };
        let window = m.opt_usize(&key("attention.sliding_window")).unwrap();
        // Every other layer of gemma4 is local, starting with the first.
        let head = |layer: usize| if gemma4 && layer % 2 == 0 { int("attention.key_length_swa") } else { d };
        let growth = match architecture {
            "mistral3" => Some((0.1, original.expect("a context") as f64, 0.0)),
            "llama4" => Some((0.1, window.unwrap_or(8192) as f64, 1.0)),
            _ => None,
        };
        // YaRN's multiplier applies to the scores in deepseek2: twice, for queries and keys.
        let longer = float("rope.scaling.yarn_log_multiplier", 0.0) * float("rope.scaling.factor", 1.0).ln();
        let attention_scale = match architecture {
            "gemma4" => 1.0,
            "deepseek2" => (1.0 + longer).powi(2) / (int("attention.key_length_mla") as f64).sqrt(),
            _ => float("attention.scale", 1.0 / (d as f64).sqrt()),
        };
        let base = float("rope.freq_base", 0.0);
        let kind = if original.is_some_and(|original| context > original) { "long" } else { "short" };
        Formulas {
            d: (0..layers).map(head).collect(),
            heads: int("attention.head_count"),
            heads_kv,
            layers,
            eps: float("attention.layer_norm_rms_epsilon", float("attention.layer_norm_epsilon", f64::NAN)),
            neighbours: ["llama", "granite", "mistral3", "llama4", "deepseek2"].contains(&architecture),
            rotated: int("rope.dimension_count"),
            base,
            local_base: if architecture == "gemma3" || gemma4 { 10000.0 } else { base },
            yarn,
            caps: [gemma2.then_some(50.0), (gemma2 || gemma4).then_some(30.0)],
            period: match architecture {
                "gemma2" | "gemma4" | "gpt-oss" => 2,
                "llama4" | "olmo2" => 4,
                "gemma3" => 6,
                _ => 1,
            },
            factors: decode(file, &format!("rope_factors_{kind}.weight"))
                .or_else(|| decode(file, "rope_freqs.weight")),
            magnitude: yarn
                .filter(|_| architecture == "gpt-oss")
                .map_or(float("rope.scaling.attn_factor", 1.0), |(factor, _)| 1.0 + 0.1 * factor.ln()),
            window,
            gemma,
            gemma4,
            llama4,
            one_part,
            positions: !one_part && m.opt_bool(&key("rope.scaling.finetuned")).unwrap() != Some(false),
            feed_forward: if one_part { m.array_usize(&key("feed_forward_length")).unwrap() } else { vec![] },
            own_caches: layers - m.opt_usize(&key("attention.shared_kv_layers")).unwrap().unwrap_or(0),
            norms_whole: architecture == "olmo2",
            norms_results: gemma || architecture == "olmo2",
            growth,
            embedding_scale: if gemma {
                (int("embedding_length") as f64).sqrt()
            } else {
                float("embedding_scale", 1.0)
            },
            residual_scale: float("residual_scale", 1.0),
            attention_scale,
            logit_divisor: float("logit_scale", 1.0),
        }
    }

    /// Returns true for local layers, which precede a global one. With a period of 1, a window applies to all
    /// layers.
    fn is_local(&self, layer: usize) -> bool {
        self.window.is_some() && (self.period == 1 || (layer + 1) % self.period != 0)
    }

    /// Returns true if a layer uses positions; not all layers of llama4 do.
    fn has_positions(&self, layer: usize) -> bool {
        self.positions && (!self.llama4 || (layer + 1) % 4 != 0)
    }

    /// Returns true if heads of q and k are normed, without weights, after rotation.
    pub(super) fn norms_rotated(&self, layer: usize) -> bool {
        self.llama4 && self.has_positions(layer)
    }

    /// Returns the factor on the queries at a position.
    pub(super) fn growth(&self, position: usize, layer: usize) -> f64 {
        match self.growth {
            Some((scale, length, shift)) if !self.norms_rotated(layer) => {
                1.0 + scale * (1.0 + ((position as f64 + shift) / length).floor()).ln()
            }
            _ => 1.0,
        }
    }

    /// Returns the layer whose keys and values a layer of gemma4 reads: the last one of the same kind with
    /// its own.
    pub(super) fn shares(&self, layer: usize) -> Option<usize> {
        let own = self.own_caches;
        (layer >= own).then(|| (0..own).rev().find(|i| i % 2 == layer % 2).expect("a layer of the kind"))
    }

    /// Returns the radians per position for pair `i` of `n / 2`. YaRN: pairs that rotate more than 32 times
    /// within the training context are unchanged, those that rotate less than once are divided by the factor,
    /// those in between are interpolated.
    fn frequency(&self, i: usize, n: usize, base: f64) -> f64 {
        let n = n as f64;
        let plain = base.powf(-2.0 * i as f64 / n);
        let Some((factor, context)) = self.yarn else { return plain };
        let pair = |turns: f64| n * (context / (turns * std::f64::consts::TAU)).ln() / (2.0 * base.ln());
        let (low, high) = (pair(32.0).floor().max(0.0), pair(1.0).ceil().min(n - 1.0));
        let stretched = ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
        plain * (1.0 - stretched) + plain / factor * stretched
    }

    /// Rotates the pairs of a head (RoPE).
    pub(super) fn rotate(&self, head: &mut [f64], position: usize, layer: usize) {
        if !self.has_positions(layer) {
            return;
        }
        let local = self.is_local(layer);
        let n = if self.gemma4 { head.len() } else { self.rotated };
        let base = if local { self.local_base } else { self.base };
        let factors = self.factors.as_ref().filter(|_| !(self.gemma4 && local));
        for i in 0..n / 2 {
            let factor = factors.map_or(1.0, |f| f.values[i]);
            let angle = position as f64 * self.frequency(i, n, base) / factor;
            let (cos, sin) = (angle.cos() * self.magnitude, angle.sin() * self.magnitude);
            let (a, b) = if self.neighbours { (2 * i, 2 * i + 1) } else { (i, i + n / 2) };
            let (x, y) = (head[a], head[b]);
            head[a] = x * cos - y * sin;
            head[b] = x * sin + y * cos;
        }
    }

    pub(super) fn gate(&self, x: f64) -> f64 {
        if self.gemma {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        } else {
            x / (1.0 + (-x).exp())
        }
    }

    /// Returns the soft-max of the scores of query head `head` at position `t`, times the values.
    pub(super) fn attend(
        &self,
        [q, k, v]: [&[Vec<f64>]; 3],
        t: usize,
        head: usize,
        layer: usize,
        sinks: Option<&Matrix>,
    ) -> Vec<f64> {
        let d = self.d[layer];
        let kv = head / (self.heads / self.heads_kv[layer]) * d;
        let first = match self.window.filter(|_| self.is_local(layer)) {
            Some(chunk) if self.llama4 => t / chunk * chunk,
            Some(window) => (t + 1).saturating_sub(window),
            None => 0,
        };
        let query = &q[t][head * d..(head + 1) * d];
        let dot = |key: &[f64]| query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>();
        let capped = |x: f64| self.caps[0].map_or(x, |cap| cap * (x / cap).tanh());
        let score = |s: usize| capped(dot(&k[s][kv..kv + d]) * self.attention_scale);
        let scores: Vec<f64> = (first..=t).map(score).collect();
        let sink = sinks.map(|sinks| sinks.values[head]);
        let max = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().copied().chain(sink).map(|s| (s - max).exp()).sum();
        let mut out = vec![0.0; d];
        for (s, score) in scores.iter().enumerate() {
            for i in 0..d {
                out[i] += (score - max).exp() / total * v[first + s][kv + i];
            }
        }
        out
    }
}
