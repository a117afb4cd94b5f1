//! Layers of Mamba-2 (Dao and Gu 2024), and networks of squared ReLU.

use super::{Layer, rms};

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

impl Layer<'_> {
    pub(super) fn mamba(&self, stream: &mut [Vec<f64>]) {
        let architecture = self.file.hparams().architecture.as_str();
        let int =
            |name: &str| self.file.gguf().metadata().usize(&format!("{architecture}.ssm.{name}")).unwrap();
        let (n, groups, heads, inner) =
            (int("state_size"), int("group_count"), int("time_step_rank"), int("inner_size"));
        let (d, channels) = (inner / heads, inner + 2 * n * groups);
        let (input, output) = (self.get("ssm_in.weight"), self.get("ssm_out.weight"));
        let parts: Vec<Vec<f64>> = self.inputs(stream).iter().map(|x| input.times(x)).collect();
        let (taps, bias) = (self.get("ssm_conv1d.weight"), self.get("ssm_conv1d.bias"));
        let (a, skip, dt) = (self.get("ssm_a"), self.get("ssm_d"), self.get("ssm_dt.bias"));
        let norm = self.get("ssm_norm.weight");
        // One matrix per head: `n` values for each of its elements.
        let mut states = vec![vec![vec![0.0; n]; d]; heads];
        for t in 0..stream.len() {
            let convolve = |c: usize| -> f64 {
                let last = taps.columns - 1;
                let tap = |back: usize| taps.row(c)[last - back] * parts[t - back][inner + c];
                (0..=last.min(t)).map(tap).sum::<f64>() + bias.values[c]
            };
            let xbc: Vec<f64> = (0..channels).map(|c| silu(convolve(c))).collect();
            let mut gated = Vec::new();
            for (h, state) in states.iter_mut().enumerate() {
                let group = h / (heads / groups);
                let b = &xbc[inner + group * n..inner + (group + 1) * n];
                let c = &xbc[inner + (groups + group) * n..inner + (groups + group + 1) * n];
                let step = (parts[t][inner + channels + h] + dt.values[h]).exp().ln_1p();
                let decay = (step * a.values[h]).exp();
                for (j, state) in state.iter_mut().enumerate() {
                    let x = xbc[h * d + j];
                    state.iter_mut().zip(b).for_each(|(s, b)| *s = *s * decay + step * x * b);
                    let y = state.iter().zip(c).map(|(s, c)| s * c).sum::<f64>() + skip.values[h] * x;
                    gated.push(y * silu(parts[t][h * d + j]));
                }
            }
            // Each group is normed separately.
            let normed: Vec<f64> = (0..groups)
                .flat_map(|g| {
                    let width = inner / groups;
                    let weight = super::Matrix { columns: width, values: norm.row(g).into() };
                    rms(&gated[g * width..(g + 1) * width], &weight, self.f.eps)
                })
                .collect();
            self.join(&mut stream[t], output.times(&normed), None);
        }
    }

    /// Returns `down(relu(up x)^2)` for weights with a suffix in their names.
    pub(super) fn squared(&self, x: &[f64], suffix: &str) -> Vec<f64> {
        let get = |part: &str| self.get(&format!("ffn_{part}{suffix}.weight"));
        let inner: Vec<f64> = get("up").times(x).iter().map(|u| u.max(0.0).powi(2)).collect();
        get("down").times(&inner)
    }
}
