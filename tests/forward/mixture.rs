//! Mixtures of experts.

use super::{Layer, Matrix, add};

impl Layer<'_> {
    /// Returns an expert's product, with its bias if there is one.
    fn expert(&self, part: &str, expert: usize, rows: usize, x: &[f64]) -> Vec<f64> {
        let all = self.get(&format!("{part}.weight"));
        let matrix = &all.values[expert * rows * all.columns..(expert + 1) * rows * all.columns];
        let mut y = Matrix { columns: all.columns, values: matrix.into() }.times(x);
        if let Some(bias) = self.find(&format!("{part}.bias")) {
            add(&mut y, bias.row(expert), 1.0);
        }
        y
    }

    fn metadata(&self, name: &str) -> f64 {
        let key = format!("{}.{name}", self.file.hparams().architecture);
        let m = self.file.gguf().metadata();
        let flag = || m.opt_bool(&key).ok().flatten().map(|flag| f64::from(u8::from(flag)));
        let int = || m.opt_usize(&key).ok().flatten().map(|n| n as f64);
        flag().or_else(int).or_else(|| m.opt_f64(&key).ok().flatten()).unwrap_or(f64::NAN)
    }

    /// Returns the experts with the highest probabilities within the best groups, and their weights. A bias
    /// may change the probabilities for this choice only. Groups are compared by the sum of their two best
    /// experts; with soft-max by the best one.
    fn choose(&self, x: &[f64]) -> Vec<(usize, f64)> {
        let mut scores = self.get("ffn_gate_inp.weight").times(x);
        if let Some(bias) = self.find("ffn_gate_inp.bias") {
            add(&mut scores, &bias.values, 1.0);
        }
        let llama4 = self.file.hparams().architecture == "llama4";
        let sigmoid = llama4 || self.f.one_part || self.metadata("expert_gating_func") == 2.0;
        let total: f64 = scores.iter().map(|s| s.exp()).sum();
        let probability = |s: &f64| if sigmoid { 1.0 / (1.0 + (-s).exp()) } else { s.exp() / total };
        let probabilities: Vec<f64> = scores.iter().map(probability).collect();
        let mut candidates = probabilities.clone();
        if let Some(bias) = self.find("exp_probs_b.bias") {
            add(&mut candidates, &bias.values, 1.0);
        }
        let groups = self.metadata("expert_group_count");
        if groups > 1.0 {
            let size = candidates.len() / groups as usize;
            let mut sums: Vec<(f64, usize)> = Vec::new();
            for (group, of) in candidates.chunks(size).enumerate() {
                let mut of = of.to_vec();
                of.sort_by(|a, b| b.total_cmp(a));
                sums.push((if sigmoid { of[0] + of[1] } else { of[0] }, group));
            }
            sums.sort_by(|a, b| b.0.total_cmp(&a.0));
            for (_, group) in &sums[self.metadata("expert_group_used_count") as usize..] {
                candidates[group * size..(group + 1) * size].fill(f64::NEG_INFINITY);
            }
        }
        let used = self.metadata("expert_used_count") as usize;
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| candidates[b].total_cmp(&candidates[a]));
        let normalised = !llama4 && self.metadata("expert_weights_norm") != 0.0;
        let sum: f64 = order[..used].iter().map(|&e| probabilities[e]).sum();
        let scale = Some(self.metadata("expert_weights_scale")).filter(|s| !s.is_nan()).unwrap_or(1.0);
        let of_results = self.find("ffn_down_exps.scale");
        let weight = |e: usize| {
            let weight = probabilities[e] / if normalised { sum } else { 1.0 } * scale;
            (e, weight * of_results.as_ref().map_or(1.0, |scales| scales.values[e]))
        };
        order[..used].iter().map(|&e| weight(e)).collect()
    }

    /// Returns the experts' result for `x`, with the router's choice for `routed`, plus the shared network.
    pub(super) fn mixture(&self, x: &[f64], routed: &[f64]) -> Vec<f64> {
        let n = self.get("ffn_down_exps.weight").columns;
        let bounded = self.find("ffn_up_exps.bias").is_some();
        let glu = |(&g, &u): (&f64, &f64)| {
            if !bounded {
                return self.f.gate(g) * u;
            }
            let (g, u) = (g.min(7.0), u.clamp(-7.0, 7.0));
            g / (1.0 + (-1.702 * g).exp()) * (u + 1.0)
        };
        let mut out = vec![0.0; x.len()];
        for (expert, weight) in self.choose(routed) {
            // In llama4 the weight applies to the input.
            let before = if self.file.hparams().architecture == "llama4" { weight } else { 1.0 };
            let input: Vec<f64> = x.iter().map(|x| x * before).collect();
            if self.f.one_part {
                let up = self.expert("ffn_up_exps", expert, n, x);
                let inner: Vec<f64> = up.iter().map(|u| u.max(0.0).powi(2)).collect();
                add(&mut out, &self.expert("ffn_down_exps", expert, x.len(), &inner), weight);
                continue;
            }
            let (gate, up) = if self.find("ffn_gate_up_exps.weight").is_some() {
                let both = self.expert("ffn_gate_up_exps", expert, 2 * n, &input);
                (both[..n].to_vec(), both[n..].to_vec())
            } else {
                (
                    self.expert("ffn_gate_exps", expert, n, &input),
                    self.expert("ffn_up_exps", expert, n, &input),
                )
            };
            let inner: Vec<f64> = gate.iter().zip(&up).map(glu).collect();
            add(&mut out, &self.expert("ffn_down_exps", expert, x.len(), &inner), weight / before);
        }
        if self.find("ffn_up_shexp.weight").is_some() {
            let gate = self.find("ffn_gate_inp_shexp.weight");
            let share = gate.map_or(1.0, |gate| 1.0 / (1.0 + (-gate.times(x)[0]).exp()));
            add(&mut out, &self.dense(x, "_shexp"), share);
        }
        out
    }
}
