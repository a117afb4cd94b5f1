//! Graph builder shared by the architectures: inputs, weights, state, and the products and norms that all of
//! them use.

use super::batch::{BatchGraph, BatchShape, GraphInputs, MaskInputs, Predictor, StateKind, Want};
use super::best::BestNodes;
use super::hparams::{Attention, Hparams, Window};
use ggml_core::gguf::GgufFile;
use ggml_core::op::CacheMask;
use ggml_core::op::ssm_conv::Tokens;
use ggml_core::{DType, Error, Graph, Result, Source, TensorId};
use std::collections::{HashMap, HashSet};

/// Layer of a model.
pub(super) struct Layer {
    pub(super) index: usize,
    pub(super) attention: Attention,
}

impl Layer {
    /// Returns the name of a tensor or node of the layer.
    pub(super) fn name(&self, part: &str) -> String {
        format!("blk.{}.{part}", self.index)
    }
}

/// Largest number of tokens whose masks the host makes. Masks of a decode step, or of a few parallel ones,
/// take some kilobytes; an extra dispatch would take longer than filling and copying them. Masks of more
/// tokens grow with both extents, to megabytes; the device makes them from 8 bytes for each row of the cache
/// and for each token.
const TOKENS_OF_HOST_MASKS: usize = 8;

/// Graph of a batch under construction.
pub(super) struct Builder<'a> {
    pub(super) hparams: &'a Hparams,
    pub(super) graph: Graph,
    pub(super) shape: BatchShape,
    pub(super) gguf: &'a GgufFile,
    pub(super) inputs: GraphInputs,
    /// Keys and values of the layers so far, for layers that read the cache of an earlier layer.
    pub(super) caches: HashMap<usize, [TensorId; 2]>,
    /// Inputs of all layers that an architecture computes from the embedding.
    pub(super) per_layer_embedding: Option<TensorId>,
    weights: Vec<(TensorId, String)>,
    known: HashSet<String>,
    state: Vec<TensorId>,
    state_kinds: Vec<StateKind>,
    pub(super) logits: Option<TensorId>,
    pub(super) best: Option<BestNodes>,
    /// True if the best token becomes the token of the next step.
    chained: bool,
    /// Tokens that the graph drafts, and the nodes that select them.
    pub(super) drafts: Vec<BestNodes>,
    /// Ordinal of the draft that is being built; its nodes have it in their names.
    pub(super) draft: Option<usize>,
    /// Number of state tensors before those of the predictor.
    pub(super) before_predictor: usize,
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
        let shape = if hparams.causal { shape } else { BatchShape { kv: shape.tokens, ..shape } };
        if chained && (shape.tokens, shape.want) != (1, Want::Best(1)) {
            return Err(Error::argument(
                "batch shape",
                format!("{shape:?}"),
                "one token, of which only the best logit is wanted",
            ));
        }
        let mut graph = Graph::new();
        let source = if chained { Source::State } else { Source::Input };
        let tokens = graph.leaf("tokens", DType::I32, [shape.tokens, 1, 1, 1], source)?;
        let mut ids = |name: &str, n: usize| graph.leaf(name, DType::I32, [n, 1, 1, 1], Source::Input);
        let positions = ids("positions", shape.positions())?;
        let cache_rows = ids("cache_rows", shape.positions())?;
        let partial = shape.outputs < shape.tokens;
        let output_rows = if partial { Some(ids("output_rows", shape.outputs)?) } else { None };
        let mut fields =
            |name: &str, n: usize, fields| graph.leaf(name, DType::I32, [n, fields, 1, 1], Source::Input);
        let mask_inputs = if shape.tokens > TOKENS_OF_HOST_MASKS {
            let words = CacheMask::words(shape.sequences);
            let cells = fields("cells", shape.kv, 1 + words)?;
            Some(MaskInputs { cells, tokens: fields("places", shape.tokens, 2)? })
        } else {
            None
        };
        let mut mask = |name: &str, window| match mask_inputs {
            Some(MaskInputs { cells, tokens }) => {
                let mask = graph.cache_mask(Window::mask(window, hparams.causal), cells, tokens)?;
                graph.name(mask, name).map(|()| mask)
            }
            None => {
                let ne = [shape.mask_columns(), shape.positions(), 1, 1];
                graph.leaf(name, DType::F16, ne, Source::Input)
            }
        };
        let drafts = matches!(shape.predictor, Predictor::Drafts { .. });
        let window = hparams.window.filter(|window| window.size < shape.context && !drafts);
        let window_mask = window.map(|window| mask("window_mask", Some(window))).transpose()?;
        let mask = mask("mask", None)?;
        let inputs = GraphInputs {
            tokens,
            positions,
            cache_rows,
            mask,
            window_mask,
            mask_inputs,
            output_rows,
            runs: None,
            query_factors: None,
            predictor: None,
        };
        Ok(Builder {
            hparams,
            graph,
            shape,
            gguf,
            inputs,
            caches: HashMap::new(),
            per_layer_embedding: None,
            weights: Vec::new(),
            known: HashSet::new(),
            state: Vec::new(),
            state_kinds: Vec::new(),
            logits: None,
            best: None,
            chained,
            drafts: Vec::new(),
            draft: None,
            before_predictor: 0,
            units: Vec::new(),
        })
    }

    pub(super) fn finish(self) -> Result<BatchGraph> {
        let logits = self.logits.ok_or_else(|| Error::model("graph", "no logits", ""))?;
        let mut graph = self.graph;
        let (mut state, mut state_kinds) = (self.state, self.state_kinds);
        let of_predictor = match self.shape.predictor {
            Predictor::Unused => 0,
            Predictor::Follows | Predictor::Drafts { .. } => state.len() - self.before_predictor,
        };
        state.rotate_left(self.before_predictor);
        state_kinds.rotate_left(self.before_predictor);
        for drafts in &self.drafts {
            drafts.outputs().into_iter().try_for_each(|id| graph.output(id))?;
        }
        match &self.best {
            None if !self.drafts.is_empty() => {}
            Some(best) => {
                // The logits too: they are read if the sums are not finite.
                best.outputs().into_iter().chain([logits]).try_for_each(|id| graph.output(id))?;
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
            state,
            state_kinds,
            of_predictor,
            window: self.hparams.window,
            temperature: self.hparams.temperature,
            causal: self.hparams.causal,
            logits,
            best: self.best,
            drafts: self.drafts.iter().map(|best| best.tokens).collect(),
            units: self.units,
        })
    }

    /// Returns the names of the tensors that the architecture knows.
    pub(super) fn known(&self) -> &HashSet<String> {
        &self.known
    }

    /// Returns the first of several names that the file has a tensor of, or else the first of all: converters
    /// do not agree on some names.
    pub(super) fn stored_name(&self, layer: &Layer, names: [&str; 2]) -> String {
        let stored = names.iter().find(|name| self.gguf.tensor(&layer.name(name)).is_some());
        layer.name(stored.unwrap_or(&names[0]))
    }

    /// Returns a weight's type and its four extents, after checking the extents.
    pub(super) fn known_weight(&mut self, name: &str, ne: &[usize]) -> Result<(DType, [usize; 4])> {
        let info = self.gguf.require(name)?;
        let mut wanted = [1; 4];
        wanted[..ne.len()].copy_from_slice(ne);
        if info.ne != wanted {
            let (found, expected) = (format!("{:?}", info.shape()), format!("{ne:?}"));
            return Err(Error::model(format!("extents of tensor '{name}'"), found, expected));
        }
        if !info.dtype.info().computable {
            let expected = "a type that operations support";
            return Err(Error::model(format!("type of tensor '{name}'"), info.dtype, expected));
        }
        self.known.insert(name.to_string());
        Ok((info.dtype, wanted))
    }

    /// Returns a weight of the file as a leaf, after checking its extents.
    pub(super) fn weight(&mut self, name: &str, ne: &[usize]) -> Result<TensorId> {
        let (dtype, ne) = self.known_weight(name, ne)?;
        self.weight_leaf(name, dtype, ne)
    }

    /// Returns a table with a row for each token as a leaf. It may have more rows, which are left out.
    pub(super) fn token_table(&mut self, name: &str, width: usize) -> Result<TensorId> {
        let wanted = self.hparams.vocabulary;
        let rows = self.gguf.require(name)?.ne[1].max(wanted);
        let (dtype, _) = self.known_weight(name, &[width, rows])?;
        self.weight_leaf(name, dtype, [width, wanted, 1, 1])
    }

    fn weight_leaf(&mut self, name: &str, dtype: DType, ne: [usize; 4]) -> Result<TensorId> {
        if let Some((id, _)) = self.weights.iter().find(|(_, known)| known == name) {
            return Ok(*id);
        }
        let id = self.graph.leaf(name, dtype, ne, Source::Weight)?;
        self.weights.push((id, name.to_string()));
        Ok(id)
    }

    /// Returns a weight, or `None` if the file has none of this name.
    pub(super) fn optional_weight(&mut self, name: &str, ne: &[usize]) -> Result<Option<TensorId>> {
        if self.gguf.tensor(name).is_none() { Ok(None) } else { self.weight(name, ne).map(Some) }
    }

    /// Returns a vector, which must be F32 (norm weights, biases, factors).
    pub(super) fn vector(&mut self, name: &str, n: usize) -> Result<TensorId> {
        self.plain(name, &[n])
    }

    /// Returns an F32 vector, or `None` if the file has none of this name.
    pub(super) fn optional_vector(&mut self, name: &str, n: usize) -> Result<Option<TensorId>> {
        if self.gguf.tensor(name).is_none() { Ok(None) } else { self.vector(name, n).map(Some) }
    }

    /// Returns a weight that must be F32.
    pub(super) fn plain(&mut self, name: &str, ne: &[usize]) -> Result<TensorId> {
        match self.known_weight(name, ne)?.0 {
            DType::F32 => self.weight(name, ne),
            other => Err(Error::model(format!("type of tensor '{name}'"), other, "F32")),
        }
    }

    pub(super) fn name(&mut self, id: TensorId, name: &str) -> Result<TensorId> {
        match self.draft {
            Some(ordinal) => self.graph.name(id, &format!("{name}@{ordinal}"))?,
            None => self.graph.name(id, name)?,
        }
        Ok(id)
    }

    /// Starts the next unit: tensors added from now on belong to the next layer, or to the output.
    pub(super) fn begin_unit(&mut self) {
        self.units.push(TensorId(self.graph.tensors().len() as u32));
    }

    /// Builds the lookup of the token embeddings, scaled if the model has a factor for them.
    pub(super) fn embedding(&mut self) -> Result<TensorId> {
        let table = self.token_table("token_embd.weight", self.hparams.embedding)?;
        let x = self.graph.get_rows(table, self.inputs.tokens)?;
        let x = self.name(x, "embedding")?;
        self.scaled(x, self.hparams.scales.embedding, "embedding.scaled")
    }

    /// Returns `x * factor` as a node called `name`, or `x` itself if the factor is 1.
    pub(super) fn scaled(&mut self, x: TensorId, factor: f32, name: &str) -> Result<TensorId> {
        if factor == 1.0 {
            return Ok(x);
        }
        let scaled = self.graph.scale(x, factor, 0.0)?;
        self.name(scaled, name)
    }

    /// Builds RMS_NORM without a weight; the node is called `name`.
    pub(super) fn rms(&mut self, x: TensorId, name: &str) -> Result<TensorId> {
        let normed = self.graph.rms_norm(x, self.hparams.eps)?;
        self.name(normed, name)
    }

    /// Builds RMS_NORM with the weight `name.weight`; the node is called `name`.
    pub(super) fn norm(&mut self, x: TensorId, name: &str) -> Result<TensorId> {
        let n = self.graph.tensor(x).ne[0];
        let weight = self.vector(&format!("{name}.weight"), n)?;
        let normed = self.rms(x, &format!("{name}.rms"))?;
        let scaled = self.graph.mul(normed, weight)?;
        self.name(scaled, name)
    }

    /// Multiplies a product with `name.weight` by the value `name.scale`, if the file has it. Weights of
    /// small floats store their common factor there.
    pub(super) fn times_scale(&mut self, product: TensorId, name: &str) -> Result<TensorId> {
        let scale = format!("{name}.scale");
        // gemma4 has a vector of this name for the input of its routers; it is no scale.
        if self.gguf.tensor(&scale).is_none_or(|t| t.ne != [1; 4]) {
            return Ok(product);
        }
        self.name(product, &format!("{name}.unscaled"))?;
        let scale = self.vector(&scale, 1)?;
        self.graph.mul(product, scale)
    }

    /// Builds layer norm with the weight `name.weight` and the bias `name.bias`: the RMS norm of the input
    /// minus its mean.
    pub(super) fn layer_norm(&mut self, x: TensorId, name: &str) -> Result<TensorId> {
        let n = self.graph.tensor(x).ne[0];
        let weight = self.vector(&format!("{name}.weight"), n)?;
        let bias = self.vector(&format!("{name}.bias"), n)?;
        // The mean is the product with a vector of equal values.
        let shares = self.graph.scale(weight, 0.0, -1.0 / n as f32)?;
        self.name(shares, &format!("{name}.shares"))?;
        let mean = self.graph.mul_mat(shares, x)?;
        self.name(mean, &format!("{name}.mean"))?;
        let centred = self.graph.add(x, mean)?;
        self.name(centred, &format!("{name}.centred"))?;
        let normed = self.rms(centred, &format!("{name}.rms"))?;
        let scaled = self.graph.mul(normed, weight)?;
        self.name(scaled, &format!("{name}.scaled"))?;
        let sum = self.graph.add(scaled, bias)?;
        self.name(sum, name)
    }

    /// Builds the product with the weight `name.weight` of `rows` rows, times `name.scale` and plus
    /// `name.bias` if the file has them.
    pub(super) fn linear(&mut self, x: TensorId, name: &str, rows: usize) -> Result<TensorId> {
        let columns = self.graph.tensor(x).ne[0];
        let weight = self.weight(&format!("{name}.weight"), &[columns, rows])?;
        let bias = format!("{name}.bias");
        let product = self.graph.mul_mat(weight, x)?;
        let product = self.times_scale(product, name)?;
        if self.gguf.tensor(&bias).is_none() {
            return self.name(product, name);
        }
        self.name(product, &format!("{name}.product"))?;
        let bias = self.vector(&bias, rows)?;
        let sum = self.graph.add(product, bias)?;
        self.name(sum, name)
    }

    /// Selects the rows of `x` (one for each token) that later nodes need. In the last layer that writes
    /// state these are the wanted rows, as only the state needs the others; in other layers all rows. The
    /// node is called `name`.
    pub(super) fn needed(&mut self, x: TensorId, layer: &Layer, name: &str) -> Result<TensorId> {
        // The predictor needs the hidden states of all tokens.
        let last = layer.index == self.hparams.last_writer() && self.shape.predictor == Predictor::Unused;
        let Some(rows) = self.inputs.output_rows.filter(|_| last) else { return Ok(x) };
        let picked = self.graph.get_rows(x, rows)?;
        self.name(picked, &layer.name(name))
    }

    /// Returns `x` with a row for each token of the batch, or only its wanted rows if a layer computes with
    /// `tokens` rows, fewer than the batch has.
    pub(super) fn matching(
        &mut self,
        x: TensorId,
        tokens: usize,
        layer: &Layer,
        name: &str,
    ) -> Result<TensorId> {
        match self.inputs.output_rows.filter(|_| tokens < self.shape.tokens) {
            Some(rows) => {
                let picked = self.graph.get_rows(x, rows)?;
                self.name(picked, &layer.name(name))
            }
            None => Ok(x),
        }
    }

    /// Returns a state tensor as a leaf.
    pub(super) fn state(
        &mut self,
        name: &str,
        dtype: DType,
        ne: [usize; 4],
        kind: StateKind,
    ) -> Result<TensorId> {
        if let Some(known) = self.graph.find(name).filter(|id| self.state.contains(id)) {
            return Ok(known);
        }
        let id = self.graph.leaf(name, dtype, ne, Source::State)?;
        self.state.push(id);
        self.state_kinds.push(kind);
        Ok(id)
    }

    /// Returns the number of state tensors so far.
    pub(super) fn states(&self) -> usize {
        self.state.len()
    }

    /// Returns the operand `runs` of recurrent operations.
    pub(super) fn runs(&mut self) -> Result<TensorId> {
        if let Some(runs) = self.inputs.runs {
            return Ok(runs);
        }
        let fields = if self.shape.drafts { Tokens::WITH_KEPT } else { 3 };
        let runs =
            self.graph.leaf("runs", DType::I32, [fields, self.shape.sequences, 1, 1], Source::Input)?;
        self.inputs.runs = Some(runs);
        Ok(runs)
    }
}
