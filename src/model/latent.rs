//! Latent attention: keys and values of all heads come from one short vector for each position, and only this
//! vector is cached.
//!
//! Source: DeepSeek-AI, "DeepSeek-V2" (2024). The matrices that make keys and values from the vector are
//! multiplied into queries and results here (the paper's absorbed form). So all heads attend to the vectors
//! themselves, as to one head of keys.

use super::builder::{Builder, Layer};
use super::hparams::Latent;
use ggml_core::{Result, TensorId};

impl Builder<'_> {
    /// Builds latent attention on the normed input of a layer.
    pub(super) fn latent_attention(&mut self, x: TensorId, l: Latent, layer: &Layer) -> Result<TensorId> {
        let [both, k] = self.latent_keys(x, l, layer)?;
        let (kv, nb) = (self.shape.kv, self.graph.tensor(k).nb);
        let v = self.graph.view(k, [l.rank, kv, 1, 1], nb, 0)?;
        let q = self.latent_queries(x, both, l, layer)?;
        let attended = self.attend(q, [k, v], layer)?;
        self.latent_values(attended, l, layer)
    }

    /// Writes the vectors of the batch to the cache. Returns their projection, a row of `rank + rotated` elements for each
    /// token, and the cached vectors that attention reads.
    pub(super) fn latent_keys(&mut self, x: TensorId, l: Latent, layer: &Layer) -> Result<[TensorId; 2]> {
        let both = self.linear(x, &layer.name("attn_kv_a_mqa"), l.rank + l.rotated)?;
        let latent = self.columns(both, 0, l.rank)?;
        let latent = self.norm(latent, &layer.name("attn_kv_a_norm"))?;
        let latent = self.heads(latent, 0, l.rank, 1)?;
        let rotated = self.heads(both, l.rank, l.rotated, 1)?;
        let rotated = self.rope(rotated, layer, "k_rope")?;
        let k = self.concatenated(both, [latent, rotated], &layer.name("k"))?;
        let k = self.cached(k, layer, layer.attention.key_length, "latent")?;
        Ok([both, k])
    }

    /// Builds queries of all heads for the cached vectors, only for the needed rows: `[rank + rotated, heads,
    /// tokens]`. `row` is a tensor whose rows have `rank + rotated` elements.
    fn latent_queries(&mut self, x: TensorId, row: TensorId, l: Latent, layer: &Layer) -> Result<TensorId> {
        let (heads, d) = (layer.attention.heads, l.plain + l.rotated);
        let mut wanted_rows = self.needed(x, layer, "attn_norm.needed")?;
        let mut part = "attn_q";
        if l.query_rank > 0 {
            let short = self.linear(wanted_rows, &layer.name("attn_q_a"), l.query_rank)?;
            wanted_rows = self.norm(short, &layer.name("attn_q_a_norm"))?;
            part = "attn_q_b";
        }
        let q = self.linear(wanted_rows, &layer.name(part), d * heads)?;
        let tokens = self.graph.tensor(q).ne[1];
        let strides = [4, 4 * d, 4 * d * heads, 4 * d * heads * tokens];
        let rotated = self.graph.view(q, [l.rotated, heads, tokens, 1], strides, 4 * l.plain)?;
        let rotated = self.rope(rotated, layer, "q_rope")?;
        let plain = self.graph.view(q, [l.plain, heads, tokens, 1], strides, 0)?;
        let plain = self.times_head_matrices(plain, "attn_k_b", [l.plain, l.rank], layer)?;
        self.concatenated(row, [plain, rotated], &layer.name("q"))
    }

    /// Turns the attention results of the heads, `[rank * heads, tokens]`, into their values, and applies the
    /// output layer.
    fn latent_values(&mut self, attended: TensorId, l: Latent, layer: &Layer) -> Result<TensorId> {
        let heads = layer.attention.heads;
        let attended = self.heads(attended, 0, l.rank, heads)?;
        let values = self.times_head_matrices(attended, "attn_v_b", [l.rank, l.value_length], layer)?;
        let values = self.graph.cont(values)?;
        self.name(values, &layer.name("attn_values"))?;
        let tokens = self.graph.tensor(values).ne[2];
        let values = self.graph.reshape(values, [l.value_length * heads, tokens, 1, 1])?;
        self.linear(values, &layer.name("attn_output"), self.hparams.embedding)
    }

    /// Multiplies each head by its own matrix: `x` `[columns, heads, tokens]` to `[rows, heads, tokens]`.
    fn times_head_matrices(
        &mut self,
        x: TensorId,
        part: &str,
        [columns, rows]: [usize; 2],
        layer: &Layer,
    ) -> Result<TensorId> {
        let name = layer.name(part);
        let weight = self.weight(&format!("{name}.weight"), &[columns, rows, layer.attention.heads])?;
        let x = self.graph.permute(x, [0, 2, 1, 3])?;
        let product = self.graph.mul_mat(weight, x)?;
        let product = self.times_scale(product, &name)?;
        self.name(product, &name)?;
        self.graph.permute(product, [0, 2, 1, 3])
    }

    /// Concatenates the rows of two tensors `[n, heads, tokens]`. `like` is a tensor whose rows have as many
    /// elements as both together.
    fn concatenated(&mut self, like: TensorId, [a, b]: [TensorId; 2], name: &str) -> Result<TensorId> {
        let ([first, heads, tokens, _], second) = (self.graph.tensor(a).ne, self.graph.tensor(b).ne[0]);
        let both = self.graph.view(like, [first + second, heads, tokens, 1], [4, 0, 0, 0], 0)?;
        let both = self.graph.cont(both)?;
        self.name(both, name)?;
        let nb = self.graph.tensor(both).nb;
        for (part, ordinal, first_column, n) in [(a, "first", 0, first), (b, "second", first, second)] {
            let target = self.graph.view(both, [n, heads, tokens, 1], nb, 4 * first_column)?;
            let copied = self.graph.cpy(part, target)?;
            self.name(copied, &format!("{name}.{ordinal}"))?;
        }
        Ok(both)
    }
}
