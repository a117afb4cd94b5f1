//! Mixtures of experts: a router chooses a few of many feed-forward networks for each token.
//!
//! Source: Shazeer et al., "Outrageously large neural networks: the sparsely-gated mixture-of-experts layer" (2017). The
//! weights of the chosen experts are the soft-max of their scores alone; that is the soft-max over all experts,
//! normalised over the chosen ones.

use super::Hparams;
use super::builder::{Builder, Layer};
use super::hparams::{checked, named};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Glu, SoftMax};
use ggml_core::{Error, Result, TensorId};
use serde::Serialize;

/// Extents of the experts of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Experts {
    /// Experts of each layer.
    pub count: usize,
    /// Experts that compute a token.
    pub used: usize,
    /// Width of an expert's feed-forward network.
    pub feed_forward: usize,
}

/// The most experts of a token: each makes nodes of its own. Known models use no more than a few dozen.
const MAX_USED: usize = 256;

impl Experts {
    /// Reads and checks the extents.
    pub(super) fn read(gguf: &GgufFile, h: &Hparams) -> Result<Experts> {
        let m = gguf.metadata();
        let extent = |name: &str| checked(&h.key(name), m.usize(&h.key(name))?);
        let (count, used) = (extent("expert_count")?, extent("expert_used_count")?);
        if used > count || used > MAX_USED {
            let found = format!("{used} of {count} experts");
            let expected = format!("no more than there are, and at most {MAX_USED}");
            return Err(Error::model(named(&h.key("expert_used_count")), found, expected));
        }
        let key = h.key("expert_feed_forward_length");
        let feed_forward = checked(&key, m.opt_usize(&key)?.unwrap_or(h.feed_forward))?;
        Ok(Experts { count, used, feed_forward })
    }
}

/// The experts that were chosen for each token.
struct Chosen {
    /// I32 `[used, tokens]`.
    ids: TensorId,
    /// F32 `[1, used, tokens]`.
    weights: TensorId,
}

impl Builder<'_> {
    /// Feed-forward network of a layer: the weighted sum of `down(glu(gate x, up x))` of the chosen experts.
    pub(super) fn mixture(&mut self, x: TensorId, glu: Glu, layer: &Layer) -> Result<TensorId> {
        let experts = self
            .hparams
            .experts
            .ok_or_else(|| Error::model("experts", "none", "some: the architecture is a mixture"))?;
        let [width, tokens, ..] = self.graph.tensor(x).ne;
        let chosen = self.route(x, experts, layer)?;
        let x = self.graph.reshape(x, [width, 1, tokens, 1])?;
        let gate = self.expert(x, "ffn_gate_exps", experts.feed_forward, experts, &chosen, layer)?;
        let up = self.expert(x, "ffn_up_exps", experts.feed_forward, experts, &chosen, layer)?;
        let inner = self.graph.glu(glu, gate, Some(up))?;
        self.name(inner, &layer.name("ffn_glu"))?;
        let out = self.expert(inner, "ffn_down_exps", width, experts, &chosen, layer)?;
        let weighted = self.graph.mul(out, chosen.weights)?;
        self.name(weighted, &layer.name("ffn_weighted"))?;
        self.sum_of_experts(weighted, layer)
    }

    fn route(&mut self, x: TensorId, experts: Experts, layer: &Layer) -> Result<Chosen> {
        let tokens = self.graph.tensor(x).ne[1];
        let scores = self.linear(x, &layer.name("ffn_gate_inp"), experts.count)?;
        let ids = self.graph.top_k(scores, experts.used)?;
        self.name(ids, &layer.name("experts"))?;
        let scores = self.graph.reshape(scores, [1, experts.count, tokens, 1])?;
        let best = self.graph.get_rows(scores, ids)?;
        self.name(best, &layer.name("experts.scores"))?;
        let best = self.graph.reshape(best, [experts.used, tokens, 1, 1])?;
        let weights = self.graph.soft_max(SoftMax { scale: 1.0, max_bias: 0.0 }, best, None)?;
        self.name(weights, &layer.name("experts.weights"))?;
        let weights = self.graph.reshape(weights, [1, experts.used, tokens, 1])?;
        Ok(Chosen { ids, weights })
    }

    /// Product with the matrices of the chosen experts, plus their biases where the file has them.
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
        let product = self.graph.mul_mat_id(weight, x, chosen.ids)?;
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
