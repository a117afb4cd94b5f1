//! What the architectures build their graphs with.

use super::Hparams;
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, FlashAttnExt, Glu};
use ggml_core::{DType, Error, Graph, Result, Source, TensorId};

/// Extents of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// Tokens of the batch.
    pub tokens: usize,
    /// Positions of the cache that attention looks at (masked ones included).
    pub kv: usize,
    /// Positions that the cache has room for.
    pub context: usize,
    /// Rows of logits: the last tokens of the batch, or all of them.
    pub outputs: usize,
    /// Type of the cache: F32 or F16.
    pub cache: DType,
}

/// The inputs of a batch graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphInputs {
    /// I32 `[tokens]`: token ids.
    pub tokens: TensorId,
    /// I32 `[tokens]`: positions.
    pub positions: TensorId,
    /// I32 `[tokens]`: rows of the cache that the batch writes.
    pub cache_rows: TensorId,
    /// F32 `[kv, tokens]`: 0 where a token sees a row of the cache, minus infinity elsewhere.
    pub mask: TensorId,
    /// I32 `[outputs]`: tokens of the batch whose logits are wanted; absent where all are.
    pub output_rows: Option<TensorId>,
}

/// A graph for one batch shape.
#[derive(Clone, Debug)]
pub struct BatchGraph {
    /// The graph; its output is `logits`.
    pub graph: Graph,
    /// Its shape.
    pub shape: BatchShape,
    /// Its inputs.
    pub inputs: GraphInputs,
    /// Weights with their names in the file.
    pub weights: Vec<(TensorId, String)>,
    /// State tensors, in an order that is the same for every shape.
    pub state: Vec<TensorId>,
    /// F32 `[vocabulary, outputs]`.
    pub logits: TensorId,
}

pub(super) struct Builder<'a> {
    pub(super) hparams: &'a Hparams,
    pub(super) graph: Graph,
    shape: BatchShape,
    gguf: &'a GgufFile,
    inputs: GraphInputs,
    weights: Vec<(TensorId, String)>,
    state: Vec<TensorId>,
    logits: Option<TensorId>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(gguf: &'a GgufFile, hparams: &'a Hparams, shape: BatchShape) -> Result<Builder<'a>> {
        let mut graph = Graph::new();
        let mut ids = |name: &str, n: usize| graph.leaf(name, DType::I32, [n, 1, 1, 1], Source::Input);
        let tokens = ids("tokens", shape.tokens)?;
        let positions = ids("positions", shape.tokens)?;
        let cache_rows = ids("cache_rows", shape.tokens)?;
        let partial = shape.outputs < shape.tokens;
        let output_rows = if partial { Some(ids("output_rows", shape.outputs)?) } else { None };
        let mask = graph.leaf("mask", DType::F32, [shape.kv, shape.tokens, 1, 1], Source::Input)?;
        let inputs = GraphInputs { tokens, positions, cache_rows, mask, output_rows };
        Ok(Builder {
            hparams,
            graph,
            shape,
            gguf,
            inputs,
            weights: Vec::new(),
            state: Vec::new(),
            logits: None,
        })
    }

    pub(super) fn finish(self) -> Result<BatchGraph> {
        let logits = self.logits.ok_or_else(|| Error::model("the architecture built no logits"))?;
        let mut graph = self.graph;
        graph.output(logits);
        Ok(BatchGraph {
            graph,
            shape: self.shape,
            inputs: self.inputs,
            weights: self.weights,
            state: self.state,
            logits,
        })
    }

    /// A weight of the file as a leaf, its extents checked.
    pub(super) fn weight(&mut self, name: &str, ne: &[usize]) -> Result<TensorId> {
        let info = self.gguf.require(name)?;
        let mut wanted = [1; 4];
        wanted[..ne.len()].copy_from_slice(ne);
        if info.ne != wanted {
            return Err(Error::model(format!(
                "tensor '{name}' is {:?}, the model needs {ne:?}",
                info.shape()
            )));
        }
        if !info.dtype.info().computable {
            return Err(Error::model(format!(
                "tensor '{name}' has type {}, which is not supported",
                info.dtype
            )));
        }
        if let Some((id, _)) = self.weights.iter().find(|(_, known)| known == name) {
            return Ok(*id);
        }
        let id = self.graph.leaf(name, info.dtype, wanted, Source::Weight)?;
        self.weights.push((id, name.to_string()));
        Ok(id)
    }

    /// A weight that a file may lack.
    pub(super) fn optional_weight(&mut self, name: &str, ne: &[usize]) -> Result<Option<TensorId>> {
        if self.gguf.tensor(name).is_none() { Ok(None) } else { self.weight(name, ne).map(Some) }
    }

    /// A vector that must be F32 (norm weights, biases, factors).
    fn vector(&mut self, name: &str, n: usize) -> Result<TensorId> {
        let id = self.weight(name, &[n])?;
        match self.graph.tensor(id).dtype {
            DType::F32 => Ok(id),
            other => Err(Error::model(format!("tensor '{name}' must be F32, not {other}"))),
        }
    }

    fn name(&mut self, id: TensorId, name: &str) -> Result<TensorId> {
        self.graph.name(id, name)?;
        Ok(id)
    }

    /// Rows of the token embedding.
    pub(super) fn embedding(&mut self) -> Result<TensorId> {
        let table = self.weight("token_embd.weight", &[self.hparams.embedding, self.hparams.vocabulary])?;
        let x = self.graph.get_rows(table, self.inputs.tokens)?;
        self.name(x, "embedding")
    }

    /// RMS_NORM with the weight `name.weight`; the node is called `name`.
    pub(super) fn norm(&mut self, x: TensorId, name: &str) -> Result<TensorId> {
        let n = self.graph.tensor(x).ne[0];
        let weight = self.vector(&format!("{name}.weight"), n)?;
        let normed = self.graph.rms_norm(x, self.hparams.eps)?;
        self.name(normed, &format!("{name}.rms"))?;
        let scaled = self.graph.mul(normed, weight)?;
        self.name(scaled, name)
    }

    /// Product with the weight `name.weight` of `rows` rows, plus `name.bias` where the file has it.
    pub(super) fn linear(&mut self, x: TensorId, name: &str, rows: usize) -> Result<TensorId> {
        let columns = self.graph.tensor(x).ne[0];
        let weight = self.weight(&format!("{name}.weight"), &[columns, rows])?;
        let bias = format!("{name}.bias");
        let product = self.graph.mul_mat(weight, x)?;
        if self.gguf.tensor(&bias).is_none() {
            return self.name(product, name);
        }
        self.name(product, &format!("{name}.product"))?;
        let bias = self.vector(&bias, rows)?;
        let sum = self.graph.add(product, bias)?;
        self.name(sum, name)
    }

    /// `x + y`, called `name`.
    pub(super) fn add(&mut self, x: TensorId, y: TensorId, name: &str) -> Result<TensorId> {
        let sum = self.graph.add(x, y)?;
        self.name(sum, name)
    }

    /// Splits the rows of `x` `[heads * d, tokens]` into heads: `[d, heads, tokens]`.
    pub(super) fn heads(&mut self, x: TensorId, d: usize, heads: usize) -> Result<TensorId> {
        self.graph.reshape(x, [d, heads, self.shape.tokens, 1])
    }

    /// q, k and v of a layer with positions in q and k.
    pub(super) fn turned(&mut self, [q, k, v]: [TensorId; 3], prefix: &str) -> Result<[TensorId; 3]> {
        let q = self.rope(q, &format!("{prefix}.q_rope"))?;
        let k = self.rope(k, &format!("{prefix}.k_rope"))?;
        Ok([q, k, v])
    }

    /// ROPE of `[d, heads, tokens]` with the factors of the file, if it has them; called `name`.
    fn rope(&mut self, x: TensorId, name: &str) -> Result<TensorId> {
        let rope = self.hparams.rope;
        let factors = match self.gguf.tensor("rope_freqs.weight") {
            Some(_) => Some(self.vector("rope_freqs.weight", rope.n_dims / 2)?),
            None => None,
        };
        let turned = self.graph.rope(rope, x, self.inputs.positions, factors)?;
        self.name(turned, name)
    }

    /// The rows of a layer's cache that attention sees, after writing those of the batch: `[d, kv, heads_kv]`.
    fn cached(&mut self, x: TensorId, d: usize, name: &str) -> Result<TensorId> {
        let (heads, kv) = (self.hparams.heads_kv, self.shape.kv);
        let (row, dtype) = (d * heads, self.shape.cache);
        let cache = self.graph.leaf(
            &format!("{name}.cache"),
            dtype,
            [row, self.shape.context, 1, 1],
            Source::State,
        )?;
        self.state.push(cache);
        let rows = self.graph.reshape(x, [row, self.shape.tokens, 1, 1])?;
        let written = self.graph.set_rows(cache, rows, self.inputs.cache_rows)?;
        self.name(written, &format!("{name}.cache.written"))?;
        let unit = dtype.block_bytes();
        self.graph.view(written, [d, kv, heads, 1], [unit, row * unit, d * unit, row * kv * unit], 0)
    }

    /// Causal attention of layer `prefix` over its cache: `q` `[d, heads, tokens]`, `k` `[d, heads_kv, tokens]`, `v`
    /// `[dv, heads_kv, tokens]` to `[dv * heads, tokens]`.
    pub(super) fn attention(
        &mut self,
        q: TensorId,
        k: TensorId,
        v: TensorId,
        prefix: &str,
    ) -> Result<TensorId> {
        let h = self.hparams;
        let k = self.cached(k, h.key_length, &format!("{prefix}.k"))?;
        let v = self.cached(v, h.value_length, &format!("{prefix}.v"))?;
        let q = self.graph.permute(q, [0, 2, 1, 3])?;
        let op =
            FlashAttnExt { scale: 1.0 / (h.key_length as f32).sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
        let out = self.graph.flash_attn_ext(op, q, k, v, Some(self.inputs.mask))?;
        self.name(out, &format!("{prefix}.attn"))?;
        self.graph.reshape(out, [h.value_length * h.heads, self.shape.tokens, 1, 1])
    }

    /// SWIGLU feed-forward of layer `prefix`.
    pub(super) fn feed_forward(&mut self, x: TensorId, prefix: &str) -> Result<TensorId> {
        let (n, width) = (self.hparams.feed_forward, self.hparams.embedding);
        let gate = self.linear(x, &format!("{prefix}.ffn_gate"), n)?;
        let up = self.linear(x, &format!("{prefix}.ffn_up"), n)?;
        let glu = self.graph.glu(Glu { activation: Activation::Silu, swapped: false }, gate, Some(up))?;
        self.name(glu, &format!("{prefix}.ffn_glu"))?;
        self.linear(glu, &format!("{prefix}.ffn_down"), width)
    }

    /// Final norm and output layer, for the rows that are wanted.
    pub(super) fn output(&mut self, x: TensorId) -> Result<()> {
        let x = match self.inputs.output_rows {
            Some(rows) => {
                let picked = self.graph.get_rows(x, rows)?;
                self.name(picked, "output_rows.picked")?
            }
            None => x,
        };
        let x = self.norm(x, "output_norm")?;
        let (width, n) = (self.hparams.embedding, self.hparams.vocabulary);
        let weight = match self.optional_weight("output.weight", &[width, n])? {
            Some(weight) => weight,
            // Tied: the token embedding is the output layer too.
            None => self.weight("token_embd.weight", &[width, n])?,
        };
        let logits = self.graph.mul_mat(weight, x)?;
        self.logits = Some(self.name(logits, "logits")?);
        Ok(())
    }

    /// The decoder of llama and its kin: for each layer attention, then feed-forward, each on a normed copy of the
    /// residual stream. `project` makes q, k and v of a layer, positions included.
    pub(super) fn decoder(
        &mut self,
        project: impl Fn(&mut Builder<'_>, TensorId, &str) -> Result<[TensorId; 3]>,
    ) -> Result<()> {
        let mut x = self.embedding()?;
        for layer in 0..self.hparams.layers {
            let prefix = format!("blk.{layer}");
            let normed = self.norm(x, &format!("{prefix}.attn_norm"))?;
            let [q, k, v] = project(self, normed, &prefix)?;
            let attended = self.attention(q, k, v, &prefix)?;
            let attended = self.linear(attended, &format!("{prefix}.attn_output"), self.hparams.embedding)?;
            x = self.add(x, attended, &format!("{prefix}.attn_residual"))?;
            let normed = self.norm(x, &format!("{prefix}.ffn_norm"))?;
            let out = self.feed_forward(normed, &prefix)?;
            x = self.add(x, out, &format!("{prefix}.residual"))?;
        }
        self.output(x)
    }

    /// q, k and v of a layer as `[d, heads, tokens]`, biases included, without positions.
    pub(super) fn qkv(&mut self, x: TensorId, prefix: &str) -> Result<[TensorId; 3]> {
        let h = self.hparams;
        let q = self.linear(x, &format!("{prefix}.attn_q"), h.key_length * h.heads)?;
        let k = self.linear(x, &format!("{prefix}.attn_k"), h.key_length * h.heads_kv)?;
        let v = self.linear(x, &format!("{prefix}.attn_v"), h.value_length * h.heads_kv)?;
        let q = self.heads(q, h.key_length, h.heads)?;
        let k = self.heads(k, h.key_length, h.heads_kv)?;
        let v = self.heads(v, h.value_length, h.heads_kv)?;
        Ok([q, k, v])
    }
}
