//! Layers with a gated delta net, and gated attention.

use super::{Layer, add, rms};

fn unit(x: &[f64]) -> Vec<f64> {
    let length = (x.iter().map(|v| v * v).sum::<f64>() + 1e-6).sqrt();
    x.iter().map(|v| v / length).collect()
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

impl Layer<'_> {
    /// Returns the gates of attention at each position, if the query weight contains gates.
    pub(super) fn gates(&self, inputs: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
        let all = self.find("attn_q.weight")?;
        let gates = all.halves(self.d()).1;
        let has = all.values.len() == 2 * self.f.heads * self.d() * all.columns;
        has.then(|| inputs.iter().map(|x| gates.times(x)).collect())
    }

    pub(super) fn delta_net(&self, stream: &mut [Vec<f64>]) {
        let architecture = self.file.hparams().architecture.as_str();
        let int =
            |name: &str| self.file.gguf().metadata().usize(&format!("{architecture}.ssm.{name}")).unwrap();
        let (d, heads_k, heads_v) = (int("state_size"), int("group_count"), int("time_step_rank"));
        let (dv, keys) = (int("inner_size") / heads_v, d * heads_k);
        let norm = self.get("attn_norm.weight");
        let inputs: Vec<_> = stream.iter().map(|x| rms(x, &norm, self.f.eps)).collect();
        let product = |name: &str| -> Vec<Vec<f64>> {
            let matrix = self.get(&format!("{name}.weight"));
            inputs.iter().map(|x| matrix.times(x)).collect()
        };
        let (mixed, z) = (product("attn_qkv"), product("attn_gate"));
        // In qwen3next files the value heads of a key head are contiguous, and so are their alpha and beta
        // values.
        let per_key = heads_v / heads_k;
        let grouped = self.find("ssm_ba.weight").is_some();
        let [alpha, beta] = if grouped {
            let both = product("ssm_ba");
            [per_key, 0].map(|first| {
                let of = |h: usize| h / per_key * 2 * per_key + first + h % per_key;
                both.iter()
                    .map(|row| (0..heads_v).map(|h| row[of(h)]).collect::<Vec<_>>())
                    .collect::<Vec<_>>()
            })
        } else {
            ["ssm_alpha", "ssm_beta"].map(product)
        };
        let (a, dt, taps) = (self.get("ssm_a"), self.get("ssm_dt.bias"), self.get("ssm_conv1d.weight"));
        let (head_norm, output) = (self.get("ssm_norm.weight"), self.get("ssm_out.weight"));
        // One matrix from keys to values per value head.
        let mut states = vec![vec![vec![0.0; dv]; d]; heads_v];
        for t in 0..inputs.len() {
            let convolve = |c: usize| -> f64 {
                let n = taps.columns;
                (0..n).filter(|i| t + 1 + i >= n).map(|i| taps.row(c)[i] * mixed[t + 1 + i - n][c]).sum()
            };
            let qkv: Vec<f64> = (0..mixed[t].len()).map(|c| silu(convolve(c))).collect();
            let mut out = Vec::new();
            for (h, state) in states.iter_mut().enumerate() {
                let at = if grouped { h / per_key } else { h % heads_k } * d;
                let (q, k) = (unit(&qkv[at..at + d]), unit(&qkv[keys + at..keys + at + d]));
                let v = &qkv[2 * keys + h * dv..2 * keys + (h + 1) * dv];
                let decay = (a.values[h] * (alpha[t][h] + dt.values[h]).exp().ln_1p()).exp();
                let write = 1.0 / (1.0 + (-beta[t][h]).exp());
                state.iter_mut().flatten().for_each(|x| *x *= decay);
                let known: Vec<f64> = (0..dv).map(|j| (0..d).map(|i| state[i][j] * k[i]).sum()).collect();
                for i in 0..d {
                    (0..dv).for_each(|j| state[i][j] += k[i] * write * (v[j] - known[j]));
                }
                let read = |j: usize| (0..d).map(|i| state[i][j] * q[i]).sum::<f64>() / (d as f64).sqrt();
                let head: Vec<f64> = (0..dv).map(read).collect();
                let gate = &z[t][h * dv..(h + 1) * dv];
                out.extend(rms(&head, &head_norm, self.f.eps).iter().zip(gate).map(|(x, &z)| x * silu(z)));
            }
            add(&mut stream[t], &output.times(&out), 1.0);
        }
    }
}
