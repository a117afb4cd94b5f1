//! Features of gemma4's layers in addition to those of gemma3.

use super::formulas::Formulas;
use super::{Layer, Matrix, add, rms, weight};
use diptych::model::ModelFile;

fn unweighted(x: &[f64], eps: f64) -> Vec<f64> {
    rms(x, &Matrix { columns: x.len(), values: vec![1.0; x.len()].into() }, eps)
}

/// Returns the per-layer embeddings of each token, concatenated over layers: its own embedding plus a
/// projection of the stream's.
pub(super) fn own_embeddings(
    file: &ModelFile,
    f: &Formulas,
    tokens: &[u32],
    stream: &[Vec<f64>],
) -> Vec<Vec<f64>> {
    let Some(table) = weight(file, "per_layer_token_embd.weight") else { return Vec::new() };
    let project = weight(file, "per_layer_model_proj.weight").unwrap();
    let norm = weight(file, "per_layer_proj_norm.weight").unwrap();
    let of = |(&token, x): (&u32, &Vec<f64>)| {
        let mut own = Vec::new();
        let scaled: Vec<f64> = project.times(x).iter().map(|y| y / (x.len() as f64).sqrt()).collect();
        let rows = scaled.chunks(norm.columns).zip(table.row(token as usize).chunks(norm.columns));
        for (projected, embedding) in rows {
            let projected = rms(projected, &norm, f.eps);
            let sum = |(p, e): (&f64, &f64)| (p + e * (norm.columns as f64).sqrt()) / 2f64.sqrt();
            own.extend(projected.iter().zip(embedding).map(sum));
        }
        own
    };
    tokens.iter().zip(stream).map(of).collect()
}

impl Layer<'_> {
    /// Returns the values, normed without weights; computed with the key weight if there is no value weight.
    pub(super) fn gemma4_values(&self, inputs: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let part = if self.find("attn_v.weight").is_some() { "attn_v" } else { "attn_k" };
        let heads = self.f.heads_kv[self.index];
        let mut all = self.product(inputs, part, 0, heads);
        for head in all.iter_mut().flat_map(|y| y.chunks_exact_mut(self.d())) {
            head.copy_from_slice(&unweighted(head, self.f.eps));
        }
        all
    }

    /// Returns the sum of the dense network and the experts, each normed.
    pub(super) fn gemma4_mixture(&self, x: &[f64], normed: &[f64]) -> Vec<f64> {
        let eps = self.f.eps;
        let mut out = rms(&self.dense(normed, ""), &self.get("post_ffw_norm_1.weight"), eps);
        let scale = self.get("ffn_gate_inp.scale");
        let width = (x.len() as f64).sqrt();
        let routed: Vec<f64> =
            unweighted(x, eps).iter().zip(scale.values.iter()).map(|(x, s)| x * s / width).collect();
        let mixed = self.mixture(&rms(x, &self.get("pre_ffw_norm_2.weight"), eps), &routed);
        add(&mut out, &rms(&mixed, &self.get("post_ffw_norm_2.weight"), eps), 1.0);
        out
    }

    /// Adds the layer's own embedding, and applies the layer's output factor to the stream.
    pub(super) fn add_own_embedding(&self, stream: &mut [Vec<f64>], own: &[Vec<f64>]) {
        for (x, own) in stream.iter_mut().zip(own) {
            let gate = self.get("inp_gate.weight").times(x);
            let own = &own[self.index * gate.len()..(self.index + 1) * gate.len()];
            let gated: Vec<f64> = gate.iter().zip(own).map(|(&g, o)| self.f.gate(g) * o).collect();
            let out = self.get("proj.weight").times(&gated);
            add(x, &rms(&out, &self.get("post_norm.weight"), self.f.eps), 1.0);
        }
        if let Some(scale) = self.find("layer_output_scale.weight") {
            stream.iter_mut().flatten().for_each(|x| *x *= scale.values[0]);
        }
    }
}
