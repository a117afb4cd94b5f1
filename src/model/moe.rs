//! Mixtures of experts: a router chooses a few of many feed-forward networks for each token.
//!
//! Sources: Shazeer et al., "Outrageously large neural networks: the sparsely-gated mixture-of-experts layer" (2017). The
//! weights of the chosen experts are the soft-max of their scores alone, which is the soft-max over all experts,
//! normalised over the chosen ones; or what DeepSeek-AI, "DeepSeek-V3 technical report" (2024) has in its place: sigmoids,
//! a bias that counts for the choice only, groups of experts, and an expert that is shared by all tokens.

use super::Hparams;
use super::branch::Branch;
use super::builder::{Builder, Layer, SQUARED};
use super::hparams::{checked, named, positive};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, Glu, SoftMax};
use ggml_core::{Error, Result, TensorId};
use serde::Serialize;

/// What makes probabilities of a router's scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Gating {
    /// The soft-max over all experts.
    SoftMax,
    /// The sigmoid of each.
    Sigmoid,
}

/// The experts of a model, and how they are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Experts {
    /// Experts of each layer that has some.
    pub count: usize,
    /// Experts that compute a token.
    pub used: usize,
    /// Width of an expert's feed-forward network.
    pub feed_forward: usize,
    /// Width of the network that computes every token beside the chosen experts; 0: there is none.
    pub shared: usize,
    /// What makes probabilities of scores.
    pub gating: Gating,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub normalised: bool,
    /// Factor of the weights.
    pub scale: f32,
    /// Groups that the experts are divided into.
    pub groups: usize,
    /// Groups that a token's experts come from.
    pub groups_used: usize,
    /// Whether an expert has a gate; else it is `down(max(up x, 0)^2)`, and so is the shared network.
    pub gated: bool,
    /// Whether an expert's weight is a factor of its input, not of its result.
    pub weighs_input: bool,
    /// Layers at the beginning that have none.
    pub dense: usize,
    /// Of those behind them every layer of this number has experts.
    pub step: usize,
}

/// The most experts of a token: each makes nodes of its own. Known models use no more than a few dozen.
const MAX_USED: usize = 256;

impl Experts {
    /// Experts whose weights are the soft-max of their scores.
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

    /// By the sum of how many of its experts a group is chosen: the two best ones (DeepSeek-V3 report, 2.1.2), where
    /// probabilities are a soft-max the best one alone (DeepSeek-V2 report, 2.2.2).
    fn best_of_group(&self) -> usize {
        if self.gating == Gating::SoftMax { 1 } else { 2 }
    }

    /// Whether a layer has experts.
    pub fn has(&self, layer: usize) -> bool {
        layer >= self.dense && (layer + 1).is_multiple_of(self.step)
    }

    /// Reads the experts of a model that may have none.
    pub(super) fn read_if_any(gguf: &GgufFile, h: &Hparams, normalised: bool) -> Result<Option<Experts>> {
        let count = gguf.metadata().opt_usize(&h.key("expert_count"))?.unwrap_or(0);
        if count > 0 { Experts::read(gguf, h, normalised).map(Some) } else { Ok(None) }
    }

    /// Reads and checks the experts; `normalised`: whether weights are normalised where the file does not say.
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
            // 3: the soft-max over the chosen ones, which is the normalised one over all.
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

    /// That groups are of one size, and those that are used have enough experts. How groups are chosen has to be known: an
    /// architecture may change what makes probabilities after [`Experts::read`].
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

/// The last of an expert's matrices.
const LAST: &str = "ffn_down_exps";

/// What a router's score of an expert counts for that must not be chosen.
const NEVER: f32 = -1e30;

/// The experts that were chosen for each token.
struct Chosen {
    /// I32 `[used, tokens]`.
    ids: TensorId,
    /// F32 `[1, used, tokens]`.
    weights: TensorId,
}

impl Builder<'_> {
    /// The experts of the model.
    pub(super) fn experts(&self) -> Result<Experts> {
        let missing = || Error::model("experts", "none", "some: the architecture is a mixture");
        self.hparams.experts.ok_or_else(missing)
    }

    /// The experts of a layer, if it has some.
    pub(super) fn routed(&self, layer: &Layer) -> Option<Experts> {
        self.hparams.experts.filter(|experts| experts.has(layer.index))
    }

    /// Feed-forward network of a layer: the weighted sum of `down(glu(gate x, up x))` of the chosen experts, and what the
    /// shared network gives, if there is one.
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
        // Which of them is there first is added first: a shared network needs no router, but has a gate behind it.
        let gate = layer.name("ffn_gate_inp_shexp.weight");
        let both = if self.gguf.tensor(&gate).is_some() { [sum, shared] } else { [shared, sum] };
        Ok(Branch::Two(both))
    }

    /// The network that computes every token; where the file has a gate for it, a sigmoid says how much of it counts.
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

    /// The weighted sum of what the experts give for `x` that a router's scores choose.
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

    /// `glu(gate x, up x)` of the chosen experts, or the squares of those without a gate; gate and up may be the halves of
    /// one weight, `ffn_gate_up_exps`.
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
                // The product with a multiple of the input.
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
        // Without more, the largest scores are the largest probabilities.
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

    /// Whether the weights of the results have the scales of the last products in them: nothing stands between the two.
    fn weights_have_scales(&self, experts: Experts, layer: &Layer) -> bool {
        !experts.weighs_input && self.gguf.tensor(&layer.name(&format!("{LAST}.bias"))).is_none()
    }

    /// What the file has as `name.scale` for the results of the chosen experts, `[1, used, tokens]`.
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

    /// Probabilities of chosen experts over their sum, from their scores `x`: the soft-max of the logarithms, which for a
    /// sigmoid are `-softplus(-x)`, and for a soft-max `x` but for a number that all have in common.
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

    /// Candidates `[count, tokens]` of the groups that are used; the others count [`NEVER`].
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

    /// Of candidates `[size, groups, tokens]` the sums of the `n` largest, `[groups, tokens]`.
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

    /// Product with the matrices of the chosen experts, times their scales and plus their biases where the file has them.
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

    /// `[width, used, tokens]` to `[width, tokens]`.
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
