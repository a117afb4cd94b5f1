//! Mixtures of experts: a router chooses a few of many feed-forward networks for each token.
//!
//! Sources: Shazeer et al., "Outrageously large neural networks: the sparsely-gated mixture-of-experts layer"
//! (2017). The weights of the chosen experts are the soft-max of their scores only, which is the soft-max
//! over all experts, normalised over the chosen ones. DeepSeek-AI, "DeepSeek-V3 technical report" (2024) has
//! in its place: sigmoids, a bias that affects only the choice, groups of experts, and an expert that is
//! shared by all tokens.

use super::Hparams;
use super::branch::Branch;
use super::builder::{Builder, Layer, SQUARED};
use super::hparams::{checked, named, positive};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, Glu, SoftMax};
use ggml_core::{Error, Result, TensorId};
use serde::Serialize;

/// Function that turns a router's scores into probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Gating {
    /// Soft-max over all experts.
    SoftMax,
    /// Sigmoid of each score.
    Sigmoid,
}

/// Experts of a model, and the rule that chooses them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Experts {
    /// Experts of each layer that has any.
    pub count: usize,
    /// Experts that compute a token.
    pub used: usize,
    /// Width of an expert's feed-forward network.
    pub feed_forward: usize,
    /// Width of the shared network that computes every token in addition to the chosen experts; 0 if there is
    /// none.
    pub shared: usize,
    /// Function that turns scores into probabilities.
    pub gating: Gating,
    /// True if the weights of the chosen experts are divided by their sum.
    pub normalised: bool,
    /// Factor of the weights.
    pub scale: f32,
    /// Number of groups that the experts are divided into.
    pub groups: usize,
    /// Number of groups that a token's experts come from.
    pub groups_used: usize,
    /// True if an expert has a gate; otherwise it is `down(max(up x, 0)^2)`, and so is the shared network.
    pub gated: bool,
    /// True if an expert's weight multiplies its input instead of its result.
    pub weighs_input: bool,
    /// Number of initial layers without experts.
    pub dense: usize,
    /// Period of the layers with experts: layer `i` has experts if `i >= dense` and `step` divides `i + 1`.
    pub step: usize,
}

/// Largest number of experts of a token: each adds its own nodes. Known models use no more than a few dozen.
const MAX_USED: usize = 256;

impl Experts {
    /// Returns experts whose weights are the soft-max of their scores.
    pub const fn new(count: usize, used: usize, feed_forward: usize) -> Experts {
        Experts {
            count,
            used,
            feed_forward,
            shared: 0,
            gating: Gating::SoftMax,
            normalised: true,
            scale: 1.0,
            groups: 1,
            groups_used: 1,
            gated: true,
            weighs_input: false,
            dense: 0,
            step: 1,
        }
    }

    /// Number of best experts whose probabilities are summed to rank a group: two (DeepSeek-V3 report,
    /// 2.1.2), or one if probabilities are a soft-max (DeepSeek-V2 report, 2.2.2).
    fn best_of_group(&self) -> usize {
        if self.gating == Gating::SoftMax { 1 } else { 2 }
    }

    /// True if a layer has experts.
    pub fn has(&self, layer: usize) -> bool {
        layer >= self.dense && (layer + 1).is_multiple_of(self.step)
    }

    /// Reads the experts of a model, or `None` if it has none.
    pub(super) fn read_if_any(gguf: &GgufFile, h: &Hparams, normalised: bool) -> Result<Option<Experts>> {
        let count = gguf.metadata().opt_usize(&h.key("expert_count"))?.unwrap_or(0);
        if count > 0 { Experts::read(gguf, h, normalised).map(Some) } else { Ok(None) }
    }

    /// Reads and checks the experts. `normalised` is the default for files that do not record it.
    pub(super) fn read(gguf: &GgufFile, h: &Hparams, normalised: bool) -> Result<Experts> {
        let m = gguf.metadata();
        let extent = |name: &str| checked(&h.key(name), m.usize(&h.key(name))?);
        let optional = |name: &str, default: usize| match m.opt_usize(&h.key(name))? {
            None | Some(0) => Ok(default),
            Some(n) => checked(&h.key(name), n),
        };
        let (count, used) = (extent("expert_count")?, extent("expert_used_count")?);
        if used > count || used > MAX_USED {
            let found = format!("{used} of {count} experts");
            let expected = format!("no more than there are, and at most {MAX_USED}");
            return Err(Error::model(named(&h.key("expert_used_count")), found, expected));
        }
        let feed_forward = optional("expert_feed_forward_length", h.feed_forward[0])?;
        let shared = optional("expert_shared_count", 0)?.saturating_mul(feed_forward);
        let key = h.key("expert_gating_func");
        let gating = match m.opt_usize(&key)? {
            // 3: the soft-max over the chosen experts, which equals the normalised one over all.
            None | Some(0 | 1 | 3) => Gating::SoftMax,
            Some(2) => Gating::Sigmoid,
            Some(other) => return Err(Error::model(named(&key), other, "1 (soft-max) or 2 (sigmoid)")),
        };
        let key = h.key("expert_weights_scale");
        let scale = m.opt_f32(&key)?.filter(|&scale| scale != 0.0);
        let normalised = m.opt_bool(&h.key("expert_weights_norm"))?.unwrap_or(normalised);
        Ok(Experts {
            shared: optional("expert_shared_feed_forward_length", shared)?,
            gating,
            normalised,
            scale: scale.map_or(Ok(1.0), |scale| positive(&key, scale))?,
            groups: optional("expert_group_count", 1)?,
            groups_used: optional("expert_group_used_count", 1)?,
            dense: optional("leading_dense_block_count", 0)?,
            step: optional("interleave_moe_layer_step", 1)?,
            ..Experts::new(count, used, feed_forward)
        })
    }

    /// Checks that groups have equal size and that the used groups have enough experts. The rule that ranks
    /// groups must be known: an architecture may change the gating after [`Experts::read`].
    pub(super) fn check_groups(&self, h: &Hparams) -> Result<()> {
        let Experts { count, used, groups, groups_used, .. } = *self;
        let (size, best_of_group) = (count / groups, self.best_of_group());
        let fits = groups_used <= groups && used <= size.saturating_mul(groups_used);
        if groups == 1 || count % groups == 0 && size >= best_of_group && fits {
            return Ok(());
        }
        let found = format!("{groups_used} of {groups} groups of {count} experts, {used} of which are used");
        let expected =
            format!("equal groups of {best_of_group} experts or more, those used with enough experts");
        Err(Error::model(named(&h.key("expert_group_count")), found, expected))
    }
}

/// Name of the last of an expert's matrices.
const LAST: &str = "ffn_down_exps";

/// Router score of an expert that must not be chosen.
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
        let missing = || Error::model("experts", "none", "some: the architecture is a mixture");
        self.hparams.experts.ok_or_else(missing)
    }

    /// Returns the experts of a layer, if it has any.
    pub(super) fn routed(&self, layer: &Layer) -> Option<Experts> {
        self.hparams.experts.filter(|experts| experts.has(layer.index))
    }

    /// Builds the feed-forward network of a layer: the weighted sum of `down(glu(gate x, up x))` of the
    /// chosen experts, and the result of the shared network, if there is one.
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
        // Add the branch that finishes first as the first operand: a shared network needs no router, but may
        // have a gate after it.
        let gate = layer.name("ffn_gate_inp_shexp.weight");
        let both = if self.gguf.tensor(&gate).is_some() { [sum, shared] } else { [shared, sum] };
        Ok(Branch::Two(both))
    }

    /// Builds the network that computes every token. If the file has a gate for it, the result is multiplied
    /// by the gate's sigmoid.
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

    /// Builds the weighted sum of the results for `x` of the experts that the router's scores choose.
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

    /// Builds `glu(gate x, up x)` of the chosen experts, or the squares of experts without a gate. Gate and
    /// up may be the halves of one weight, `ffn_gate_up_exps`.
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
            if experts.weighs_input {
                // Weighting the product equals weighting the input.
                *product = self.graph.mul(*product, chosen.weights)?;
                self.name(*product, &layer.name(&format!("{part}.weighted")))?;
            }
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
            candidates = self.of_best_groups(candidates, experts, layer)?;
        }
        let ids = self.graph.top_k(candidates, experts.used)?;
        self.name(ids, &layer.name("experts"))?;
        let of = if experts.normalised { scores } else { probabilities };
        let of = self.graph.reshape(of, [1, experts.count, tokens, 1])?;
        let best = self.graph.get_rows(of, ids)?;
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

    /// True if the weights of the results include the scales of the last products, because no operation
    /// separates the two.
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

    /// Divides the probabilities of the chosen experts by their sum, from their scores `x`: the soft-max of
    /// the logarithms. For a sigmoid the logarithms are `-softplus(-x)`; for a soft-max they are `x` plus a
    /// constant common to all.
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

    /// Masks candidates `[count, tokens]` to the groups that are used; the others become [`NEVER`].
    fn of_best_groups(&mut self, candidates: TensorId, experts: Experts, layer: &Layer) -> Result<TensorId> {
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

    /// Multiplies by the matrices of the chosen experts, times their scales and plus their biases if the file
    /// has them.
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
        let Some(bias) = self.optional_weight(&format!("{name}.bias"), &[rows, experts.count])? else {
            return self.name(product, &name);
        };
        self.name(product, &format!("{name}.product"))?;
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
