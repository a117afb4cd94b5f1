//! What the architectures build their graphs with.

use super::batch::{BatchGraph, BatchShape, GraphInputs, StateKind, Want};
use super::best::BestNodes;
use super::hparams::rope_factors;
use super::{Architecture, Hparams, RopeScaling};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, FlashAttnExt, Glu};
use ggml_core::{DType, Error, Graph, Result, Source, TensorId};
use std::collections::HashSet;

/// A layer of a model.
pub(super) struct Layer {
    pub(super) index: usize,
}

impl Layer {
    /// Name of a tensor or node of the layer.
    pub(super) fn name(&self, part: &str) -> String {
        format!("blk.{}.{part}", self.index)
    }
}

pub(super) struct Builder<'a> {
    pub(super) hparams: &'a Hparams,
    pub(super) graph: Graph,
    pub(super) shape: BatchShape,
    gguf: &'a GgufFile,
    inputs: GraphInputs,
    weights: Vec<(TensorId, String)>,
    known: HashSet<String>,
    state: Vec<TensorId>,
    state_kinds: Vec<StateKind>,
    logits: Option<TensorId>,
    best: Option<BestNodes>,
    /// Whether the best token becomes the token of the next step.
    chained: bool,
    units: Vec<TensorId>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        gguf: &'a GgufFile,
        hparams: &'a Hparams,
        shape: BatchShape,
        chained: bool,
    ) -> Result<Builder<'a>> {
        shape.check()?;
        if chained && (shape.tokens, shape.want) != (1, Want::Best(1)) {
            return Err(Error::argument("batch shape", format!("{shape:?}"), "one token and its best"));
        }
        let mut graph = Graph::new();
        let source = if chained { Source::State } else { Source::Input };
        let tokens = graph.leaf("tokens", DType::I32, [shape.tokens, 1, 1, 1], source)?;
        let mut ids = |name: &str, n: usize| graph.leaf(name, DType::I32, [n, 1, 1, 1], Source::Input);
        let positions = ids("positions", shape.tokens)?;
        let cache_rows = ids("cache_rows", shape.tokens)?;
        let partial = shape.outputs < shape.tokens;
        let output_rows = if partial { Some(ids("output_rows", shape.outputs)?) } else { None };
        let mut mask =
            |name: &str| graph.leaf(name, DType::F32, [shape.kv, shape.tokens, 1, 1], Source::Input);
        let windowed = hparams.window.is_some_and(|w| w.size < shape.context);
        let window_mask = if windowed { Some(mask("window_mask")?) } else { None };
        let mask = mask("mask")?;
        let inputs =
            GraphInputs { tokens, positions, cache_rows, mask, window_mask, output_rows, runs: None };
        Ok(Builder {
            hparams,
            graph,
            shape,
            gguf,
            inputs,
            weights: Vec::new(),
            known: HashSet::new(),
            state: Vec::new(),
            state_kinds: Vec::new(),
            logits: None,
            best: None,
            chained,
            units: Vec::new(),
        })
    }

    pub(super) fn finish(self) -> Result<BatchGraph> {
        let logits = self.logits.ok_or_else(|| Error::model("graph", "no logits", ""))?;
        let mut graph = self.graph;
        match &self.best {
            Some(best) => {
                best.outputs().into_iter().try_for_each(|id| graph.output(id))?;
                if self.chained {
                    let next = graph.cpy(best.tokens, self.inputs.tokens)?;
                    graph.name(next, "next")?;
                }
            }
            None => graph.output(logits)?,
        }
        Ok(BatchGraph {
            graph,
            shape: self.shape,
            inputs: self.inputs,
            weights: self.weights,
            state: self.state,
            state_kinds: self.state_kinds,
            window: self.hparams.window,
            logits,
            best: self.best,
            units: self.units,
        })
    }

    /// That the file has no tensor that the architecture does not know.
    pub(super) fn check_all_known(&self) -> Result<()> {
        let unknown = |name: &String| !self.known.contains(name) && !self.hparams.is_ignored(name);
        match self.gguf.tensors().iter().find(|t| unknown(&t.name)) {
            Some(t) => {
                let found = format!("not known to architecture '{}'", self.hparams.architecture);
                Err(Error::model(format!("tensor '{}'", t.name), found, ""))
            }
            None => Ok(()),
        }
    }

    /// A weight's type and extents (four of them), the extents checked.
    fn known_weight(&mut self, name: &str, ne: &[usize]) -> Result<(DType, [usize; 4])> {
        let info = self.gguf.require(name)?;
        let mut wanted = [1; 4];
        wanted[..ne.len()].copy_from_slice(ne);
        if info.ne != wanted {
            let (found, expected) = (format!("{:?}", info.shape()), format!("{ne:?}"));
            return Err(Error::model(format!("extents of tensor '{name}'"), found, expected));
        }
        if !info.dtype.info().computable {
            let expected = "a type that can be computed";
            return Err(Error::model(format!("type of tensor '{name}'"), info.dtype, expected));
        }
        self.known.insert(name.to_string());
        Ok((info.dtype, wanted))
    }

    /// A weight of the file as a leaf, its extents checked.
    pub(super) fn weight(&mut self, name: &str, ne: &[usize]) -> Result<TensorId> {
        let (dtype, ne) = self.known_weight(name, ne)?;
        if let Some((id, _)) = self.weights.iter().find(|(_, known)| known == name) {
            return Ok(*id);
        }
        let id = self.graph.leaf(name, dtype, ne, Source::Weight)?;
        self.weights.push((id, name.to_string()));
        Ok(id)
    }

    /// A weight that a file may lack.
    pub(super) fn optional_weight(&mut self, name: &str, ne: &[usize]) -> Result<Option<TensorId>> {
        if self.gguf.tensor(name).is_none() { Ok(None) } else { self.weight(name, ne).map(Some) }
    }

    /// A vector that must be F32 (norm weights, biases, factors).
    pub(super) fn vector(&mut self, name: &str, n: usize) -> Result<TensorId> {
        self.plain(name, &[n])
    }

    /// A weight that must be F32.
    pub(super) fn plain(&mut self, name: &str, ne: &[usize]) -> Result<TensorId> {
        match self.known_weight(name, ne)?.0 {
            DType::F32 => self.weight(name, ne),
            other => Err(Error::model(format!("type of tensor '{name}'"), other, "F32")),
        }
    }

    pub(super) fn name(&mut self, id: TensorId, name: &str) -> Result<TensorId> {
        self.graph.name(id, name)?;
        Ok(id)
    }

    /// What is added from now on belongs to the next layer, or to the output.
    pub(super) fn begin_unit(&mut self) {
        self.units.push(TensorId(self.graph.tensors().len() as u32));
    }

    /// Rows of the token embedding.
    pub(super) fn embedding(&mut self) -> Result<TensorId> {
        let table = self.weight("token_embd.weight", &[self.hparams.embedding, self.hparams.vocabulary])?;
        let x = self.graph.get_rows(table, self.inputs.tokens)?;
        let x = self.name(x, "embedding")?;
        self.scaled(x, self.hparams.scales.embedding, "embedding.scaled")
    }

    /// `x * factor`, called `name`; `x` itself where the factor is 1.
    fn scaled(&mut self, x: TensorId, factor: f32, name: &str) -> Result<TensorId> {
        if factor == 1.0 {
            return Ok(x);
        }
        let scaled = self.graph.scale(x, factor, 0.0)?;
        self.name(scaled, name)
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

    /// Of the rows of `x`, one for each token, those that something depends on: in the last layer the wanted ones where
    /// only keys and values need the others. The node is called `name`.
    pub(super) fn needed(&mut self, x: TensorId, layer: &Layer, name: &str) -> Result<TensorId> {
        let last = layer.index + 1 == self.hparams.layers;
        let Some(rows) = self.inputs.output_rows.filter(|_| last) else { return Ok(x) };
        let picked = self.graph.get_rows(x, rows)?;
        self.name(picked, &layer.name(name))
    }

    /// Part of the rows of `x` `[columns, tokens]` as heads: `[d, heads, tokens]`, from column `first` on.
    pub(super) fn heads(&mut self, x: TensorId, first: usize, d: usize, heads: usize) -> Result<TensorId> {
        let t = self.graph.tensor(x);
        let tokens = t.ne[1];
        if t.ne[0] == d * heads {
            return self.graph.reshape(x, [d, heads, tokens, 1]);
        }
        let (unit, row) = (t.nb[0], t.nb[1]);
        self.graph.view(x, [d, heads, tokens, 1], [unit, d * unit, row, tokens * row], first * unit)
    }

    /// q, k and v of a layer with heads of q and k normed by `attn_q_norm` and `attn_k_norm`.
    pub(super) fn normed_heads(&mut self, [q, k, v]: [TensorId; 3], layer: &Layer) -> Result<[TensorId; 3]> {
        let q = self.norm(q, &layer.name("attn_q_norm"))?;
        let k = self.norm(k, &layer.name("attn_k_norm"))?;
        Ok([q, k, v])
    }

    /// q, k and v of a layer with positions in q and k.
    pub(super) fn turned(&mut self, [q, k, v]: [TensorId; 3], layer: &Layer) -> Result<[TensorId; 3]> {
        let q = self.rope(q, layer, "q_rope")?;
        let k = self.rope(k, layer, "k_rope")?;
        Ok([q, k, v])
    }

    /// ROPE of `[d, heads, tokens]` with the factors of the file, if it has them; called `name`.
    fn rope(&mut self, x: TensorId, layer: &Layer, name: &str) -> Result<TensorId> {
        let h = self.hparams;
        let rope = h.window.filter(|w| w.covers(layer.index)).map_or(h.rope, |w| w.rope);
        let factors = self.rope_factors(rope.n_dims / 2)?;
        let mut positions = self.inputs.positions;
        if self.graph.tensor(x).ne[2] < self.shape.tokens {
            let column = self.graph.reshape(positions, [1, self.shape.tokens, 1, 1])?;
            let picked = self.needed(column, layer, "positions.needed")?;
            positions = self.graph.reshape(picked, [self.shape.outputs, 1, 1, 1])?;
        }
        let turned = self.graph.rope(rope, x, positions, factors)?;
        self.name(turned, &layer.name(name))
    }

    /// Divisors of ROPE's frequencies; with LongRoPE the room in the cache decides which of two.
    fn rope_factors(&mut self, n: usize) -> Result<Option<TensorId>> {
        let RopeScaling::LongRope { original_context } = self.hparams.scaling else {
            let name = "rope_freqs.weight";
            return if self.gguf.tensor(name).is_none() { Ok(None) } else { self.vector(name, n).map(Some) };
        };
        let (short, long) = (rope_factors("short"), rope_factors("long"));
        self.known_weight(&short, &[n])?;
        self.known_weight(&long, &[n])?;
        self.vector(if self.shape.context > original_context { &long } else { &short }, n).map(Some)
    }

    /// The rows of a layer's cache that attention sees, after writing those of the batch: `[d, kv, heads_kv]`.
    fn cached(&mut self, x: TensorId, d: usize, name: &str) -> Result<TensorId> {
        let (heads, kv) = (self.hparams.heads_kv, self.shape.kv);
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
        // Rows of a projection that makes q, k and v at once lie apart.
        let (tokens, [unit, _, next, _]) = (self.shape.tokens, self.graph.tensor(x).nb);
        let rows = self.graph.view(x, [row, tokens, 1, 1], [unit, next, next * tokens, next * tokens], 0)?;
        let written = self.graph.set_rows(cache, rows, self.inputs.cache_rows)?;
        self.name(written, &format!("{name}.cache.written"))?;
        let bytes = |elements: usize| elements / block * dtype.block_bytes();
        let nb = [dtype.block_bytes(), bytes(row), bytes(d), kv * bytes(row)];
        self.graph.view(written, [d, kv, heads, 1], nb, 0)
    }

    /// A state tensor as a leaf.
    pub(super) fn state(
        &mut self,
        name: &str,
        dtype: DType,
        ne: [usize; 4],
        kind: StateKind,
    ) -> Result<TensorId> {
        let id = self.graph.leaf(name, dtype, ne, Source::State)?;
        self.state.push(id);
        self.state_kinds.push(kind);
        Ok(id)
    }

    /// Causal attention of a layer over its cache: `q` `[d, heads, tokens]`, `k` `[d, heads_kv, tokens]`, `v`
    /// `[dv, heads_kv, tokens]` to `[dv * heads, tokens]`. `q` may be that of the needed rows only, as is then the result.
    pub(super) fn attention(&mut self, [q, k, v]: [TensorId; 3], layer: &Layer) -> Result<TensorId> {
        let h = self.hparams;
        let k = self.cached(k, h.key_length, &layer.name("k"))?;
        let v = self.cached(v, h.value_length, &layer.name("v"))?;
        let tokens = self.graph.tensor(q).ne[2];
        let q = self.graph.permute(q, [0, 2, 1, 3])?;
        let windowed = h.window.is_some_and(|w| w.covers(layer.index));
        let mut mask = self.inputs.window_mask.filter(|_| windowed).unwrap_or(self.inputs.mask);
        if tokens < self.shape.tokens {
            mask = self.needed(mask, layer, "mask.needed")?;
        }
        let op = FlashAttnExt { scale: h.scales.attention, max_bias: 0.0, logit_softcap: h.soft_caps.scores };
        let out = if h.sinks {
            let sinks = self.vector(&layer.name("attn_sinks.weight"), h.heads)?;
            self.graph.flash_attn_sinks(op, [q, k, v], mask, sinks)?
        } else {
            self.graph.flash_attn_ext(op, q, k, v, Some(mask))?
        };
        self.name(out, &layer.name("attn"))?;
        self.graph.reshape(out, [h.value_length * h.heads, tokens, 1, 1])
    }

    /// The operand `runs` of recurrent operations.
    pub(super) fn runs(&mut self) -> Result<TensorId> {
        if let Some(runs) = self.inputs.runs {
            return Ok(runs);
        }
        let runs = self.graph.leaf("runs", DType::I32, [3, self.shape.sequences, 1, 1], Source::Input)?;
        self.inputs.runs = Some(runs);
        Ok(runs)
    }

    /// Feed-forward network of a layer: `down(activation(gate x) * up x)`.
    pub(super) fn gated(&mut self, x: TensorId, activation: Activation, layer: &Layer) -> Result<TensorId> {
        let n = self.hparams.feed_forward;
        let gate = self.linear(x, &layer.name("ffn_gate"), n)?;
        let up = self.linear(x, &layer.name("ffn_up"), n)?;
        let glu = self.graph.glu(Glu::new(activation), gate, Some(up))?;
        self.down(glu, layer)
    }

    /// Feed-forward network of a layer whose gate and up are the two halves of one weight, `ffn_up`.
    pub(super) fn gated_fused(
        &mut self,
        x: TensorId,
        activation: Activation,
        layer: &Layer,
    ) -> Result<TensorId> {
        let both = self.linear(x, &layer.name("ffn_up"), 2 * self.hparams.feed_forward)?;
        let glu = self.graph.glu(Glu::new(activation), both, None)?;
        self.down(glu, layer)
    }

    fn down(&mut self, glu: TensorId, layer: &Layer) -> Result<TensorId> {
        self.name(glu, &layer.name("ffn_glu"))?;
        self.linear(glu, &layer.name("ffn_down"), self.hparams.embedding)
    }

    /// Final norm and output layer.
    pub(super) fn output(&mut self, x: TensorId) -> Result<()> {
        self.begin_unit();
        let x = self.norm(x, "output_norm")?;
        let (width, n) = (self.hparams.embedding, self.hparams.vocabulary);
        let weight = match self.optional_weight("output.weight", &[width, n])? {
            Some(weight) => weight,
            // Tied: the token embedding is the output layer too.
            None => self.weight("token_embd.weight", &[width, n])?,
        };
        let product = self.graph.mul_mat(weight, x)?;
        let (factor, cap) = (self.hparams.scales.logits, self.hparams.soft_caps.logits);
        let logits = if cap != 0.0 {
            // cap tanh(factor x / cap)
            self.name(product, "logits.product")?;
            let inner = self.scaled(product, factor / cap, "logits.inner")?;
            let bounded = self.graph.unary(Activation::Tanh, inner)?;
            self.name(bounded, "logits.tanh")?;
            self.graph.scale(bounded, cap, 0.0)?
        } else if factor != 1.0 {
            self.name(product, "logits.product")?;
            self.graph.scale(product, factor, 0.0)?
        } else {
            product
        };
        let logits = self.name(logits, "logits")?;
        self.logits = Some(logits);
        if let Want::Best(k) = self.shape.want {
            self.best = Some(BestNodes::new(&mut self.graph, logits, k)?);
        }
        Ok(())
    }

    /// A decoder: for each layer attention, then feed-forward, each on a normed copy of the residual stream. What the last
    /// layer does after it has written its state is done for the rows that are wanted.
    pub(super) fn decoder<A: Architecture + ?Sized>(&mut self, architecture: &A) -> Result<()> {
        let [after_attention, after_feed_forward] = architecture.norms_after();
        let mut x = self.embedding()?;
        for index in 0..self.hparams.layers {
            let layer = &Layer { index };
            self.begin_unit();
            let normed = self.norm(x, &layer.name("attn_norm"))?;
            let out = architecture.mixer(self, normed, layer)?;
            x = self.needed(x, layer, "needed")?;
            x = self.residual([x, out], layer, after_attention, "attn_residual")?;
            let normed = self.norm(x, &layer.name(architecture.feed_forward_norm()))?;
            let out = architecture.feed_forward(self, normed, layer)?;
            x = self.residual([x, out], layer, after_feed_forward, "residual")?;
        }
        self.output(x)
    }

    /// The residual stream after a layer's attention or feed-forward network gave `out`, which is normed first where
    /// the architecture has a norm `after` it.
    fn residual(
        &mut self,
        [x, out]: [TensorId; 2],
        layer: &Layer,
        after: Option<&str>,
        name: &str,
    ) -> Result<TensorId> {
        let out = match after {
            Some(norm) => self.norm(out, &layer.name(norm))?,
            None => out,
        };
        let name = layer.name(name);
        let out = self.scaled(out, self.hparams.scales.residual, &format!("{name}.scaled"))?;
        let sum = self.graph.add(x, out)?;
        self.name(sum, &name)
    }

    /// q, k and v of a layer as `[d, heads, tokens]`, biases included, without positions; q of the needed rows.
    pub(super) fn qkv(&mut self, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let h = self.hparams;
        let asking = self.needed(x, layer, "attn_norm.needed")?;
        let q = self.linear(asking, &layer.name("attn_q"), h.key_length * h.heads)?;
        let k = self.linear(x, &layer.name("attn_k"), h.key_length * h.heads_kv)?;
        let v = self.linear(x, &layer.name("attn_v"), h.value_length * h.heads_kv)?;
        let q = self.heads(q, 0, h.key_length, h.heads)?;
        let k = self.heads(k, 0, h.key_length, h.heads_kv)?;
        let v = self.heads(v, 0, h.value_length, h.heads_kv)?;
        Ok([q, k, v])
    }

    /// The same from one weight, `attn_qkv`: rows of q, then k, then v.
    pub(super) fn qkv_fused(&mut self, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let h = self.hparams;
        let (q, k, v) = (h.key_length * h.heads, h.key_length * h.heads_kv, h.value_length * h.heads_kv);
        let all = self.linear(x, &layer.name("attn_qkv"), q + k + v)?;
        let asking = self.needed(all, layer, "attn_qkv.needed")?;
        Ok([
            self.heads(asking, 0, h.key_length, h.heads)?,
            self.heads(all, q, h.key_length, h.heads_kv)?,
            self.heads(all, q + k, h.value_length, h.heads_kv)?,
        ])
    }
}
