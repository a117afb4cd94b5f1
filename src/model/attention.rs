//! Attention building blocks: heads, their norms and positions, the KV cache, and attention itself.

use super::batch::StateKind;
use super::builder::{Builder, Layer};
use super::hparams::{RopeScaling, rope_factors};
use ggml_core::op::FlashAttnExt;
use ggml_core::{DType, Error, Result, Source, TensorId};

impl Builder<'_> {
    /// Views columns of `x` `[columns, tokens]` as heads: `[d, heads, tokens]`, starting at column `first`.
    pub(super) fn heads(&mut self, x: TensorId, first: usize, d: usize, heads: usize) -> Result<TensorId> {
        let t = self.graph.tensor(x);
        let tokens = t.ne[1];
        if t.ne[0] == d * heads {
            return self.graph.reshape(x, [d, heads, tokens, 1]);
        }
        let (unit, row) = (t.nb[0], t.nb[1]);
        self.graph.view(x, [d, heads, tokens, 1], [unit, d * unit, row, tokens * row], first * unit)
    }

    /// Views `n` columns of `x` `[columns, tokens]`, starting at column `first`: `[n, tokens]`.
    pub(super) fn columns(&mut self, x: TensorId, first: usize, n: usize) -> Result<TensorId> {
        let t = self.graph.tensor(x);
        let (tokens, [unit, row, ..]) = (t.ne[1], t.nb);
        self.graph.view(x, [n, tokens, 1, 1], [unit, row, row * tokens, row * tokens], first * unit)
    }

    /// Returns the products with `attn_q`, `attn_k` and `attn_v`, biases included: `[elements of all heads,
    /// tokens]`. q has only the needed rows, see [`Builder::needed`].
    pub(super) fn projections(&mut self, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let a = layer.attention;
        let wanted_rows = self.needed(x, layer, "attn_norm.needed")?;
        let q = self.linear(wanted_rows, &layer.name("attn_q"), a.key_length * a.heads)?;
        let k = self.linear(x, &layer.name("attn_k"), a.key_length * a.heads_kv)?;
        let v = self.linear(x, &layer.name("attn_v"), a.value_length * a.heads_kv)?;
        Ok([q, k, v])
    }

    /// Returns keys and values of a layer alone, without positions.
    pub(super) fn keys_and_values(&mut self, x: TensorId, layer: &Layer) -> Result<[TensorId; 2]> {
        let a = layer.attention;
        let k = self.linear(x, &layer.name("attn_k"), a.key_length * a.heads_kv)?;
        let v = self.linear(x, &layer.name("attn_v"), a.value_length * a.heads_kv)?;
        Ok([self.heads(k, 0, a.key_length, a.heads_kv)?, self.heads(v, 0, a.value_length, a.heads_kv)?])
    }

    /// Divides the results of [`Builder::projections`] into heads.
    pub(super) fn in_heads(&mut self, [q, k, v]: [TensorId; 3], layer: &Layer) -> Result<[TensorId; 3]> {
        let a = layer.attention;
        let q = self.heads(q, 0, a.key_length, a.heads)?;
        let k = self.heads(k, 0, a.key_length, a.heads_kv)?;
        let v = self.heads(v, 0, a.value_length, a.heads_kv)?;
        Ok([q, k, v])
    }

    /// Returns q, k and v of a layer as `[d, heads, tokens]`, with biases and without positions; q has only
    /// the needed rows.
    pub(super) fn qkv(&mut self, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let products = self.projections(x, layer)?;
        self.in_heads(products, layer)
    }

    /// Returns the same from one weight, `attn_qkv`: rows of q, then k, then v.
    pub(super) fn qkv_fused(&mut self, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let a = layer.attention;
        let (q, k, v) = (a.key_length * a.heads, a.key_length * a.heads_kv, a.value_length * a.heads_kv);
        let all = self.linear(x, &layer.name("attn_qkv"), q + k + v)?;
        let wanted_rows = self.needed(all, layer, "attn_qkv.needed")?;
        Ok([
            self.heads(wanted_rows, 0, a.key_length, a.heads)?,
            self.heads(all, q, a.key_length, a.heads_kv)?,
            self.heads(all, q + k, a.value_length, a.heads_kv)?,
        ])
    }

    /// Normalises the heads of q and k with `attn_q_norm` and `attn_k_norm`; returns v unchanged.
    pub(super) fn normed_heads(&mut self, [q, k, v]: [TensorId; 3], layer: &Layer) -> Result<[TensorId; 3]> {
        let q = self.norm(q, &layer.name("attn_q_norm"))?;
        let k = self.norm(k, &layer.name("attn_k_norm"))?;
        Ok([q, k, v])
    }

    /// Applies ROPE to q and k; returns v unchanged.
    pub(super) fn rope_heads(&mut self, [q, k, v]: [TensorId; 3], layer: &Layer) -> Result<[TensorId; 3]> {
        let q = self.rope(q, layer, "q_rope")?;
        let k = self.rope(k, layer, "k_rope")?;
        Ok([q, k, v])
    }

    /// Applies the layer's ROPE, if it has one, to `[d, heads, tokens]`; the node is called `name`.
    pub(super) fn rope(&mut self, x: TensorId, layer: &Layer, name: &str) -> Result<TensorId> {
        let Some(rope) = layer.attention.rope else { return Ok(x) };
        let factors = if layer.attention.factors { self.rope_factors(rope.n_dims / 2)? } else { None };
        let tokens = self.graph.tensor(x).ne[2];
        let mut positions = self.inputs.positions;
        if tokens < self.shape.tokens {
            let column = self.graph.reshape(positions, [1, self.shape.tokens, 1, 1])?;
            let picked = self.matching(column, tokens, layer, &format!("{name}.positions"))?;
            positions = self.graph.reshape(picked, [tokens, 1, 1, 1])?;
        }
        let rotated = self.graph.rope(rope, x, positions, factors)?;
        self.name(rotated, &layer.name(name))
    }

    /// Returns the divisors of ROPE's frequencies. For LongRoPE the context of the session selects the short
    /// or the long ones.
    fn rope_factors(&mut self, n: usize) -> Result<Option<TensorId>> {
        let RopeScaling::LongRope { original_context } = self.hparams.scaling else {
            return self.optional_vector("rope_freqs.weight", n);
        };
        let (short, long) = (rope_factors("short"), rope_factors("long"));
        self.known_weight(&short, &[n])?;
        self.known_weight(&long, &[n])?;
        self.vector(if self.shape.context > original_context { &long } else { &short }, n).map(Some)
    }

    /// Multiplies queries `[d, heads, tokens]` by the factor of their position, see
    /// [`Temperature`](super::hparams::Temperature).
    pub(super) fn tempered(&mut self, q: TensorId, layer: &Layer) -> Result<TensorId> {
        if self.hparams.temperature.is_none() {
            return Ok(q);
        }
        let factors = match self.inputs.query_factors {
            Some(factors) => factors,
            None => {
                let ne = [1, self.shape.tokens, 1, 1];
                let factors = self.graph.leaf("query_factors", DType::F32, ne, Source::Input)?;
                *self.inputs.query_factors.insert(factors)
            }
        };
        let tokens = self.graph.tensor(q).ne[2];
        let factors = self.matching(factors, tokens, layer, "query_factors.needed")?;
        let factors = self.graph.reshape(factors, [1, 1, tokens, 1])?;
        let tempered = self.graph.mul(q, factors)?;
        self.name(tempered, &layer.name("q_tempered"))
    }

    /// Writes the rows of the batch to a layer's cache and returns the rows that attention reads: `[d, kv,
    /// heads_kv]`.
    pub(super) fn cached(&mut self, x: TensorId, layer: &Layer, d: usize, part: &str) -> Result<TensorId> {
        let (name, heads, kv) = (layer.name(part), layer.attention.heads_kv, self.shape.kv);
        let (row, dtype) = (d * heads, self.shape.cache);
        let block = dtype.block();
        if !d.is_multiple_of(block) {
            let found = format!("{dtype}, with heads of {d} elements");
            return Err(Error::argument(
                "cache type",
                found,
                format!("heads of a multiple of {block} elements"),
            ));
        }
        let ne = [row, self.shape.cells(), 1, 1];
        let cache = self.state(&format!("{name}.cache"), dtype, ne, StateKind::Rows)?;
        // If one projection gives q, k and v, consecutive rows of x are not adjacent in memory.
        let (tokens, [unit, _, next, _]) = (self.shape.tokens, self.graph.tensor(x).nb);
        let rows = self.graph.view(x, [row, tokens, 1, 1], [unit, next, next * tokens, next * tokens], 0)?;
        let written = self.graph.set_rows(cache, rows, self.inputs.cache_rows)?;
        self.name(written, &format!("{name}.cache.written"))?;
        let bytes = |elements: usize| elements / block * dtype.block_bytes();
        let nb = [dtype.block_bytes(), bytes(row), bytes(d), kv * bytes(row)];
        self.graph.view(written, [d, kv, heads, 1], nb, 0)
    }

    /// Builds attention of a layer: `q` `[d, heads, tokens]`, `k` `[d, heads_kv, tokens]` and `v` `[dv,
    /// heads_kv, tokens]` to `[dv * heads, tokens]`. Causal models attend to the layer's cache, others to the
    /// batch. `q` may have only the needed rows; the result then has the same rows.
    pub(super) fn attention(&mut self, [q, k, v]: [TensorId; 3], layer: &Layer) -> Result<TensorId> {
        if !self.hparams.causal {
            // The batch contains the whole text.
            let [k, v] = [self.graph.permute(k, [0, 2, 1, 3])?, self.graph.permute(v, [0, 2, 1, 3])?];
            return self.attend(q, [k, v], layer);
        }
        let both = self.cached_heads([k, v], layer)?;
        self.caches.insert(layer.index, both);
        self.attend(q, both, layer)
    }

    /// Writes keys and values of the batch to a layer's cache and returns the rows that attention reads.
    pub(super) fn cached_heads(&mut self, [k, v]: [TensorId; 2], layer: &Layer) -> Result<[TensorId; 2]> {
        let k = self.cached(k, layer, layer.attention.key_length, "k")?;
        Ok([k, self.cached(v, layer, layer.attention.value_length, "v")?])
    }

    /// Builds attention over rows of a cache, `k` `[d, kv, heads_kv]` and `v` `[dv, kv, heads_kv]`.
    pub(super) fn attend(&mut self, q: TensorId, [k, v]: [TensorId; 2], layer: &Layer) -> Result<TensorId> {
        let (h, a) = (self.hparams, layer.attention);
        let tokens = self.graph.tensor(q).ne[2];
        let q = self.graph.permute(q, [0, 2, 1, 3])?;
        let mask = self.inputs.window_mask.filter(|_| a.windowed).unwrap_or(self.inputs.mask);
        let mask = self.matching(mask, tokens, layer, "mask.needed")?;
        let op = FlashAttnExt { scale: h.scales.attention, max_bias: 0.0, logit_softcap: h.soft_caps.scores };
        let out = if h.sinks {
            let sinks =
                self.vector(&self.stored_name(layer, ["attn_sinks.weight", "attn_sinks"]), a.heads)?;
            self.graph.flash_attn_sinks(op, [q, k, v], mask, sinks)?
        } else {
            self.graph.flash_attn_ext(op, q, k, v, Some(mask))?
        };
        self.name(out, &layer.name("attn"))?;
        self.graph.reshape(out, [a.value_length * a.heads, tokens, 1, 1])
    }
}
