//! Latent attention, with keys and values of all heads expanded from the latent vectors.

use super::{Layer, Matrix, add, rms};

impl Layer<'_> {
    /// Returns the queries of all heads at a position.
    fn latent_query(&self, x: &[f64]) -> Vec<f64> {
        match self.find("attn_q.weight") {
            Some(whole) => whole.times(x),
            None => {
                let short = self.get("attn_q_a.weight").times(x);
                self.get("attn_q_b.weight").times(&rms(&short, &self.get("attn_q_a_norm.weight"), self.f.eps))
            }
        }
    }

    pub(super) fn latent_attention(&self, stream: &mut [Vec<f64>]) {
        let f = self.f;
        let (key, value) = (self.get("attn_k_b.weight"), self.get("attn_v_b.weight"));
        let (plain, rank) = (key.columns, value.columns);
        let length = value.values.len() / rank / f.heads;
        let (compress, norm) = (self.get("attn_kv_a_mqa.weight"), self.get("attn_kv_a_norm.weight"));
        let inputs = self.inputs(stream);
        let mut heads: Vec<[Vec<Vec<f64>>; 3]> = vec![Default::default(); f.heads];
        for (position, x) in inputs.iter().enumerate() {
            let both = compress.times(x);
            let latent = rms(&both[..rank], &norm, f.eps);
            let mut rotated = both[rank..].to_vec();
            f.rotate(&mut rotated, position, self.index);
            let queries = self.latent_query(x);
            let d = plain + rotated.len();
            for (h, [q, k, v]) in heads.iter_mut().enumerate() {
                let mut query = queries[h * d..(h + 1) * d].to_vec();
                f.rotate(&mut query[plain..], position, self.index);
                q.push(query);
                let mut own = vec![0.0; plain];
                (0..rank).for_each(|i| add(&mut own, key.row(h * rank + i), latent[i]));
                k.push([own, rotated.clone()].concat());
                let rows = value.values[h * rank * length..(h + 1) * rank * length].to_vec();
                v.push(Matrix { columns: rank, values: rows.into() }.times(&latent));
            }
        }
        let output = self.get("attn_output.weight");
        for (t, x) in stream.iter_mut().enumerate() {
            let mut all = Vec::new();
            for [q, k, v] in &heads {
                let dot = |s: usize| q[t].iter().zip(&k[s]).map(|(a, b)| a * b).sum::<f64>();
                let weights: Vec<f64> = (0..=t).map(|s| (dot(s) * f.attention_scale).exp()).collect();
                let total: f64 = weights.iter().sum();
                let mut head = vec![0.0; length];
                weights.iter().zip(v).for_each(|(w, v)| add(&mut head, v, w / total));
                all.extend(head);
            }
            add(x, &output.times(&all), 1.0);
        }
    }
}
