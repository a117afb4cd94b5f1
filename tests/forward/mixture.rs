//! Mixtures of experts.

use super::{Layer, Matrix, add, rms};

impl Layer<'_> {
    /// An expert's product, with its bias where there is one.
    fn expert(&self, part: &str, expert: usize, rows: usize, x: &[f64]) -> Vec<f64> {
        let all = self.get(&format!("{part}.weight"));
        let matrix = &all.values[expert * rows * all.columns..(expert + 1) * rows * all.columns];
        let mut y = Matrix { columns: all.columns, values: matrix.to_vec() }.times(x);
        if let Some(bias) = self.find(&format!("{part}.bias")) {
            add(&mut y, bias.row(expert), 1.0);
        }
        y
    }

    /// The experts with the highest scores, and the soft-max of those scores.
    fn choose(&self, x: &[f64]) -> Vec<(usize, f64)> {
        let mut scores = self.get("ffn_gate_inp.weight").times(x);
        if let Some(bias) = self.find("ffn_gate_inp.bias") {
            add(&mut scores, &bias.values, 1.0);
        }
        let architecture = self.file.hparams().architecture.as_str();
        let used = self.file.gguf().metadata().usize(&format!("{architecture}.expert_used_count")).unwrap();
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let total: f64 = order[..used].iter().map(|&e| scores[e].exp()).sum();
        order[..used].iter().map(|&e| (e, scores[e].exp() / total)).collect()
    }

    pub(super) fn mixture(&self, stream: &mut [Vec<f64>], norm: &Matrix) {
        let n = self.get("ffn_down_exps.weight").columns;
        let bounded = self.find("ffn_up_exps.bias").is_some();
        let glu = |(&g, &u): (&f64, &f64)| {
            if !bounded {
                return self.f.gate(g) * u;
            }
            let (g, u) = (g.min(7.0), u.clamp(-7.0, 7.0));
            g / (1.0 + (-1.702 * g).exp()) * (u + 1.0)
        };
        for x in stream {
            let normed = rms(x, norm, self.f.eps);
            let width = normed.len();
            for (expert, weight) in self.choose(&normed) {
                let gate = self.expert("ffn_gate_exps", expert, n, &normed);
                let up = self.expert("ffn_up_exps", expert, n, &normed);
                let inner: Vec<f64> = gate.iter().zip(&up).map(glu).collect();
                add(x, &self.expert("ffn_down_exps", expert, width, &inner), weight);
            }
        }
    }
}
