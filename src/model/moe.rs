//! Mixtures of experts: a router chooses a few of many feed-forward networks for each token.
//!
//! Sources: Shazeer et al., "Outrageously large neural networks: the sparsely-gated mixture-of-experts layer"
//! (2017). The weights of the chosen experts are the soft-max of their scores only, which is the soft-max
//! over all experts, normalised over the chosen ones. DeepSeek-AI, "DeepSeek-V3 technical report" (2024) uses
//! sigmoids instead of the soft-max, a bias that affects only the choice, groups of experts, and an expert
//! that is shared by all tokens.

use super::branch::Branch;
use super::builder::{Builder, Layer};
use super::feed_forward::SQUARED;
use super::hparams::{Experts, Gating};
use ggml_core::op::{Activation, Glu, SoftMax};
use ggml_core::{Error, Result, TensorId};

/// Name of the matrices `down`, the last ones of the experts.
const LAST: &str = "ffn_down_exps";

/// Value that replaces the scores of experts that must not be chosen.
const NEVER: f32 = -1e30;

/// Experts chosen for each token.
struct Chosen {
    /// I32 `[used, tokens]`: expert ids.
    ids: TensorId,
    /// F32 `[1, used, tokens]`: weights of the experts.
    weights: TensorId,
}

impl Builder<'_> {
    /// Returns the experts of the model.
    pub(super) fn experts(&self) -> Result<Experts> {
        let missing = || Error::model("experts", "none", "experts, which the architecture needs");
        self.hparams.experts.ok_or_else(missing)
    }

    /// Returns the experts of a layer, if it has any.
    pub(super) fn routed(&self, layer: &Layer) -> Option<Experts> {
        self.hparams.experts.filter(|experts| experts.has(layer.index))
    }

    /// Builds the feed-forward network of a layer: the weighted sum of `down(glu(gate x, up x))` of the
    /// chosen experts plus the result of the shared network, if there is one.
    pub(super) fn mixture(
        &mut self,
        x: TensorId,
        experts: Experts,
        glu: Glu,
        layer: &Layer,
    ) -> Result<Branch> {
        let scores = self.linear(x, &layer.name("ffn_gate_inp"), experts.count)?;
        let sum = self.chosen_experts([x, scores], experts, glu, layer)?;
        if experts.shared == 0 {
            return Ok(sum.into());
        }
        let shared = self.shared_expert(x, experts, layer)?;
        // The branch that finishes first is the first operand. The shared network needs no router, so it
        // finishes first, unless a gate follows it.
        let gate = layer.name("ffn_gate_inp_shexp.weight");
        let both = if self.gguf.tensor(&gate).is_some() { [sum, shared] } else { [shared, sum] };
        Ok(Branch::Two(both))
    }

    /// Builds the shared network, which every token passes through. If the file has a gate for it, the result
    /// is multiplied by the gate's sigmoid.
    fn shared_expert(&mut self, x: TensorId, experts: Experts, layer: &Layer) -> Result<TensorId> {
        let out = if experts.gated {
            self.gated_by(x, Activation::Silu, "_shexp", experts.shared, layer)?
        } else {
            self.squared(x, "_shexp", experts.shared, layer)?
        };
        let gate = layer.name("ffn_gate_inp_shexp");
        if self.gguf.tensor(&format!("{gate}.weight")).is_none() {
            return Ok(out);
        }
        let score = self.linear(x, &gate, 1)?;
        let weight = self.graph.unary(Activation::Sigmoid, score)?;
        self.name(weight, &layer.name("shared.weight"))?;
        let weighted = self.graph.mul(out, weight)?;
        self.name(weighted, &layer.name("shared.weighted"))
    }

    /// Builds the weighted sum of the results of the experts for `x`. The router's scores choose the experts.
    pub(super) fn chosen_experts(
        &mut self,
        [x, scores]: [TensorId; 2],
        experts: Experts,
        glu: Glu,
        layer: &Layer,
    ) -> Result<TensorId> {
        let [width, tokens, ..] = self.graph.tensor(x).ne;
        let chosen = self.choose(scores, experts, layer)?;
        let x = self.graph.reshape(x, [width, 1, tokens, 1])?;
        let inner = self.inner(x, experts, glu, &chosen, layer)?;
        self.name(inner, &layer.name("ffn_glu_exps"))?;
        let out = self.expert(inner, LAST, width, experts, &chosen, layer)?;
        if experts.weighs_input {
            return self.sum_of_experts(out, layer);
        }
        let weighted = self.graph.mul(out, chosen.weights)?;
        self.name(weighted, &layer.name("ffn_weighted"))?;
        self.sum_of_experts(weighted, layer)
    }

    /// Builds `glu(gate x, up x)` of the chosen experts, or `max(up x, 0)^2` of experts without a gate. Gate
    /// and up may be the halves of one weight, `ffn_gate_up_exps`.
    fn inner(
        &mut self,
        x: TensorId,
        experts: Experts,
        glu: Glu,
        chosen: &Chosen,
        layer: &Layer,
    ) -> Result<TensorId> {
        let (n, both) = (experts.feed_forward, "ffn_gate_up_exps");
        if self.gguf.tensor(&layer.name(&format!("{both}.weight"))).is_some() {
            let both = self.expert(x, both, 2 * n, experts, chosen, layer)?;
            return self.graph.glu(glu, both, None);
        }
        if !experts.gated {
            let up = self.expert(x, "ffn_up_exps", n, experts, chosen, layer)?;
            return self.graph.glu(SQUARED, up, Some(up));
        }
        let mut products = [x; 2];
        for (product, part) in products.iter_mut().zip(["ffn_gate_exps", "ffn_up_exps"]) {
            *product = self.expert(x, part, n, experts, chosen, layer)?;
        }
        let [gate, up] = products;
        self.graph.glu(glu, gate, Some(up))
    }

    /// Chooses experts by their scores `[count, tokens]`.
    fn choose(&mut self, scores: TensorId, experts: Experts, layer: &Layer) -> Result<Chosen> {
        let tokens = self.graph.tensor(scores).ne[1];
        let bias = self.optional_vector(&layer.name("exp_probs_b.bias"), experts.count)?;
        let soft_max = experts.gating == Gating::SoftMax;
        // Without bias and groups, the largest scores are the largest probabilities.
        let plain = soft_max && experts.normalised && bias.is_none() && experts.groups == 1;
        let probabilities = if plain { scores } else { self.probabilities(scores, soft_max, layer)? };
        let mut candidates = probabilities;
        if let Some(bias) = bias {
            candidates = self.graph.add(candidates, bias)?;
            self.name(candidates, &layer.name("experts.biased"))?;
        }
        if experts.groups > 1 {
            candidates = self.mask_groups(candidates, experts, layer)?;
        }
        let ids = self.graph.top_k(candidates, experts.used)?;
        self.name(ids, &layer.name("experts"))?;
        let values = if experts.normalised { scores } else { probabilities };
        let values = self.graph.reshape(values, [1, experts.count, tokens, 1])?;
        let best = self.graph.get_rows(values, ids)?;
        self.name(best, &layer.name("experts.scores"))?;
        let mut weights = self.graph.reshape(best, [experts.used, tokens, 1, 1])?;
        if experts.normalised {
            weights = self.normalised(weights, soft_max, layer)?;
        }
        let weights = self.scaled(weights, experts.scale, &layer.name("experts.weights.scaled"))?;
        let weights = self.graph.reshape(weights, [1, experts.used, tokens, 1])?;
        if !self.weights_have_scales(experts, layer) {
            return Ok(Chosen { ids, weights });
        }
        let Some(scales) = self.scales_of_chosen(&layer.name(LAST), ids, experts)? else {
            return Ok(Chosen { ids, weights });
        };
        let weights = self.graph.mul(weights, scales)?;
        let weights = self.name(weights, &layer.name("experts.weights.of_results"))?;
        Ok(Chosen { ids, weights })
    }

    /// Returns true if the weights of the experts include the scales of `down`: if the weights multiply its
    /// results and no bias is added in between.
    fn weights_have_scales(&self, experts: Experts, layer: &Layer) -> bool {
        !experts.weighs_input && self.gguf.tensor(&layer.name(&format!("{LAST}.bias"))).is_none()
    }

    /// Returns the values of `name.scale` for the chosen experts, `[1, used, tokens]`, if the file has them.
    fn scales_of_chosen(&mut self, name: &str, ids: TensorId, experts: Experts) -> Result<Option<TensorId>> {
        let name = format!("{name}.scale");
        let Some(scales) = self.optional_vector(&name, experts.count)? else { return Ok(None) };
        let [used, tokens, ..] = self.graph.tensor(ids).ne;
        let scales = self.graph.reshape(scales, [1, experts.count, 1, 1])?;
        let ids = self.graph.reshape(ids, [used * tokens, 1, 1, 1])?;
        let scales = self.graph.get_rows(scales, ids)?;
        self.name(scales, &format!("{name}.chosen"))?;
        self.graph.reshape(scales, [1, used, tokens, 1]).map(Some)
    }

    fn probabilities(&mut self, scores: TensorId, soft_max: bool, layer: &Layer) -> Result<TensorId> {
        let probabilities = if soft_max {
            self.graph.soft_max(SoftMax { scale: 1.0, max_bias: 0.0 }, scores, None)?
        } else {
            self.graph.unary(Activation::Sigmoid, scores)?
        };
        self.name(probabilities, &layer.name("experts.probabilities"))
    }

    /// Divides the probabilities of the chosen experts by their sum, given their scores `x` (`best`). The
    /// result is the soft-max of the probabilities' logarithms. For a sigmoid the logarithms are
    /// `-softplus(-x)`; for a soft-max they are `x` plus a constant common to all.
    fn normalised(&mut self, best: TensorId, soft_max: bool, layer: &Layer) -> Result<TensorId> {
        let (logarithms, scale) = if soft_max {
            (best, 1.0)
        } else {
            let negative = self.graph.scale(best, -1.0, 0.0)?;
            self.name(negative, &layer.name("experts.negative"))?;
            let logarithms = self.graph.unary(Activation::Softplus, negative)?;
            (self.name(logarithms, &layer.name("experts.logarithms"))?, -1.0)
        };
        let weights = self.graph.soft_max(SoftMax { scale, max_bias: 0.0 }, logarithms, None)?;
        self.name(weights, &layer.name("experts.weights"))
    }

    /// Masks the candidates `[count, tokens]`: those outside the chosen groups become [`NEVER`]. The groups
    /// with the largest sums of their best candidates are chosen.
    fn mask_groups(&mut self, candidates: TensorId, experts: Experts, layer: &Layer) -> Result<TensorId> {
        let tokens = self.graph.tensor(candidates).ne[1];
        let (groups, size) = (experts.groups, experts.count / experts.groups);
        let grouped = self.graph.reshape(candidates, [size, groups, tokens, 1])?;
        let compared = self.sums_of_best(grouped, experts.best_of_group(), layer)?;
        let used = self.graph.top_k(compared, experts.groups_used)?;
        self.name(used, &layer.name("groups"))?;
        let kept = self.graph.get_rows(grouped, used)?;
        self.name(kept, &layer.name("groups.kept"))?;
        let none = self.graph.scale(grouped, 0.0, NEVER)?;
        self.name(none, &layer.name("groups.none"))?;
        let masked = self.graph.set_rows(none, kept, used)?;
        self.name(masked, &layer.name("groups.masked"))?;
        self.graph.reshape(masked, [experts.count, tokens, 1, 1])
    }

    /// Sums the `n` largest candidates of each group: `[size, groups, tokens]` to `[groups, tokens]`.
    fn sums_of_best(&mut self, grouped: TensorId, n: usize, layer: &Layer) -> Result<TensorId> {
        let [size, groups, tokens, _] = self.graph.tensor(grouped).ne;
        let best = self.graph.top_k_flat(grouped, n)?;
        self.name(best, &layer.name("groups.best"))?;
        let best = self.graph.reshape(best, [n * groups, tokens, 1, 1])?;
        let column = self.graph.reshape(grouped, [1, size * groups, tokens, 1])?;
        let best = self.graph.get_rows(column, best)?;
        self.name(best, &layer.name("groups.scores"))?;
        let row = 4 * n * groups;
        let strides = [4 * n, row, row * tokens, row * tokens];
        let mut sums = self.graph.view(best, [groups, tokens, 1, 1], strides, 0)?;
        for i in 1..n {
            let next = self.graph.view(best, [groups, tokens, 1, 1], strides, 4 * i)?;
            sums = self.graph.add(sums, next)?;
            self.name(sums, &layer.name("groups.sums"))?;
        }
        Ok(sums)
    }

    /// Multiplies `x` by the matrices `part` of the chosen experts. Then it multiplies by their scales,
    /// unless the weights of the experts include them, and by the weights of the experts, if the model weighs
    /// their inputs, and adds their biases, if the file has scales and biases.
    fn expert(
        &mut self,
        x: TensorId,
        part: &str,
        rows: usize,
        experts: Experts,
        chosen: &Chosen,
        layer: &Layer,
    ) -> Result<TensorId> {
        let (name, columns) = (layer.name(part), self.graph.tensor(x).ne[0]);
        let weight = self.weight(&format!("{name}.weight"), &[columns, rows, experts.count])?;
        let mut product = self.graph.mul_mat_id(weight, x, chosen.ids)?;
        let in_weights = part == LAST && self.weights_have_scales(experts, layer);
        let scales = if in_weights { None } else { self.scales_of_chosen(&name, chosen.ids, experts)? };
        if let Some(scales) = scales {
            self.name(product, &format!("{name}.unscaled"))?;
            product = self.graph.mul(product, scales)?;
        }
        let bias = self.optional_weight(&format!("{name}.bias"), &[rows, experts.count])?;
        self.name(product, &if bias.is_some() { format!("{name}.product") } else { name.clone() })?;
        if experts.weighs_input && part != LAST {
            // Weighting the product equals weighting the input; a bias has no weight.
            product = self.graph.mul(product, chosen.weights)?;
            self.name(product, &format!("{name}.weighted"))?;
        }
        let Some(bias) = bias else { return Ok(product) };
        let [used, tokens, ..] = self.graph.tensor(chosen.ids).ne;
        let ids = self.graph.reshape(chosen.ids, [used * tokens, 1, 1, 1])?;
        let bias = self.graph.get_rows(bias, ids)?;
        self.name(bias, &format!("{name}.bias.chosen"))?;
        let bias = self.graph.reshape(bias, [rows, used, tokens, 1])?;
        let sum = self.graph.add(product, bias)?;
        self.name(sum, &name)
    }

    /// Sums over the experts: `[width, used, tokens]` to `[width, tokens]`.
    fn sum_of_experts(&mut self, weighted: TensorId, layer: &Layer) -> Result<TensorId> {
        let t = self.graph.tensor(weighted);
        let ([width, used, tokens, _], nb) = (t.ne, t.nb);
        let part = |b: &mut Self, expert: usize| {
            let strides = [nb[0], nb[2], nb[2] * tokens, nb[2] * tokens];
            b.graph.view(weighted, [width, tokens, 1, 1], strides, expert * nb[1])
        };
        let mut sum = part(self, 0)?;
        for expert in 1..used {
            let next = part(self, expert)?;
            sum = self.graph.add(sum, next)?;
            self.name(sum, &layer.name(&format!("ffn_sum.{expert}")))?;
        }
        Ok(sum)
    }
}
