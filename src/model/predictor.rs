//! Layer that predicts further tokens (multi-token prediction; `nextn` in files): a cheap model of what follows, whose
//! drafts the whole model verifies.
//!
//! Its input at a position is a projection of two rows: the embedding of the token there, and the hidden state that the
//! model computed for the token before, both normed. A layer of the model's own kind follows, with a cache of its own,
//! then a norm and the output layer. The normed result takes the place of the hidden state for the draft after it.
//!
//! Graphs of batches store the layer's keys and values for all tokens, and the hidden states of the last ones. A graph
//! that drafts contains only this layer, once for each draft, so that the host is not asked between them.
//!
//! Sources: DeepSeek-AI, "DeepSeek-V3 technical report" (2024), section 2.2; `MtpLayer` of transformers (2026), which
//! norms hidden states first. At position 0 there is no state before: nothing sees this position.

use super::architecture::Architecture;
use super::batch::{Predictor, PredictorInputs, StateKind};
use super::best::BestNodes;
use super::builder::{Builder, Layer};
use ggml_core::{DType, Error, Result, Source, TensorId};

/// Name of the state tensor of hidden states.
const HIDDEN: &str = "predictor.hidden";

impl Builder<'_> {
    /// Stores what the predictor needs of the batch's tokens. `hidden` are their hidden states, normed.
    pub(super) fn follow<A: Architecture + ?Sized>(
        &mut self,
        architecture: &A,
        hidden: TensorId,
    ) -> Result<()> {
        self.before_predictor = self.states();
        let layer = self.predictor_layer()?;
        let kept = self.kept_states()?;
        let tokens = self.shape.tokens;
        let ids = self.predictor_inputs(tokens, tokens > 1)?;
        let keep = self.input("predictor.keep", tokens)?;
        self.inputs.predictor = Some(PredictorInputs { keep: Some(keep), ..ids });
        let mut states = self.graph.get_rows(kept, ids.kept)?;
        self.name(states, "predictor.before")?;
        if let Some(rows) = ids.hidden {
            let here = self.graph.get_rows(hidden, rows)?;
            self.name(here, "predictor.here")?;
            states = self.graph.add(here, states)?;
            self.name(states, "predictor.states")?;
        }
        let x = self.predictor_stream(states, &layer)?;
        let normed = self.normed(x, &layer, architecture.norms_before()[0])?;
        architecture.remember(self, normed, &layer)?;
        let written = self.graph.set_rows(kept, hidden, keep)?;
        self.name(written, "predictor.hidden.written").map(|_| ())
    }

    /// Builds `count` drafts of the first `among` tokens, one after the other.
    pub(super) fn drafts<A: Architecture + ?Sized>(
        &mut self,
        architecture: &A,
        count: usize,
        among: usize,
    ) -> Result<()> {
        // All nodes belong to the output's unit.
        (0..=self.hparams.layers).for_each(|_| self.begin_unit());
        let layer = self.predictor_layer()?;
        let kept = self.kept_states()?;
        let ids = self.predictor_inputs(1, count > 1)?;
        self.inputs.predictor = Some(ids);
        let inputs = self.inputs;
        let mut hidden = None;
        for ordinal in 0..count {
            self.draft = Some(ordinal);
            self.inputs.positions = self.graph.view(inputs.positions, [1; 4], [4; 4], 4 * ordinal)?;
            self.inputs.cache_rows = self.graph.view(inputs.cache_rows, [1; 4], [4; 4], 4 * ordinal)?;
            let row = 2 * self.shape.mask_columns();
            let ne = [self.shape.kv, 1, 1, 1];
            self.inputs.mask = self.graph.view(inputs.mask, ne, [2, row, row, row], row * ordinal)?;
            let states = match hidden {
                None => self.graph.get_rows(kept, ids.kept)?,
                Some((last, rows)) => self.graph.get_rows(last, rows)?,
            };
            self.name(states, "predictor.states")?;
            let x = self.predictor_stream(states, &layer)?;
            let x = self.layer(architecture, x, &layer)?;
            let normed = self.predictor_norm(x, &layer)?;
            let logits = self.draft_logits(normed, &layer, among)?;
            let best = BestNodes::named(&mut self.graph, logits, 1, &format!("@{ordinal}"))?;
            self.inputs.tokens = self.graph.reshape(best.tokens, [1; 4])?;
            self.drafts.push(best);
            hidden = ids.hidden.map(|rows| (normed, rows));
        }
        self.inputs = inputs;
        Ok(())
    }

    /// Returns the predictor's layer: attention is that of the last layer which attends.
    fn predictor_layer(&self) -> Result<Layer> {
        let index = self.hparams.layers;
        let recurrent = |layer: usize| {
            self.hparams.recurrent.as_ref().is_some_and(|r| r.layers.get(layer) == Some(&true))
        };
        let mut all = self.hparams.attention.iter().enumerate();
        let attends = all.rfind(|(layer, a)| a.heads_kv > 0 && !recurrent(*layer));
        let (_, &attention) =
            attends.ok_or_else(|| Error::model("predictor", "no layer with attention", "one like it"))?;
        Ok(Layer { index, attention: super::hparams::Attention { cache: index, ..attention } })
    }

    /// Returns the state tensor of hidden states: rows of the last positions of each sequence.
    fn kept_states(&mut self) -> Result<TensorId> {
        let ne = [self.hparams.embedding, Predictor::KEPT * self.shape.sequences, 1, 1];
        self.state(HIDDEN, DType::F32, ne, StateKind::Hidden)
    }

    fn input(&mut self, name: &str, n: usize) -> Result<TensorId> {
        self.graph.leaf(name, DType::I32, [n, 1, 1, 1], Source::Input)
    }

    /// Returns the inputs for some tokens, `hidden` if there are hidden states before them in the graph.
    fn predictor_inputs(&mut self, tokens: usize, hidden: bool) -> Result<PredictorInputs> {
        let hidden = hidden.then(|| self.input("predictor.hidden_rows", 2 * tokens)).transpose()?;
        Ok(PredictorInputs {
            embedded: self.input("predictor.embedded", 2 * tokens)?,
            hidden,
            kept: self.input("predictor.kept_rows", 2 * tokens)?,
            keep: None,
        })
    }

    /// Builds the input of the predictor's layer from the rows of hidden states, every second of which is zero: the
    /// embeddings of the tokens take these.
    fn predictor_stream(&mut self, states: TensorId, layer: &Layer) -> Result<TensorId> {
        let (e, rows) = (self.hparams.embedding, self.graph.tensor(states).ne[1]);
        let own = layer.name("nextn.embed_tokens.weight");
        let table = if self.gguf.tensor(&own).is_some() { &own } else { "token_embd.weight" };
        let table = self.token_table(table, e)?;
        let embedded = self.graph.get_rows(table, self.inputs.tokens)?;
        self.name(embedded, "predictor.embedding")?;
        let embedded = self.scaled(embedded, self.hparams.scales.embedding, "predictor.embedding.scaled")?;
        let embedded = self.norm(embedded, &layer.name("nextn.enorm"))?;
        let missing = || Error::model("predictor", "no inputs", "those of its rows");
        let ids = self.inputs.predictor.ok_or_else(missing)?;
        let embedded = self.graph.get_rows(embedded, ids.embedded)?;
        self.name(embedded, "predictor.placed")?;
        // The norm of a row of zeros is zero.
        let states = self.norm(states, &layer.name("nextn.hnorm"))?;
        let both = self.graph.add(embedded, states)?;
        self.name(both, "predictor.both")?;
        let both = self.graph.reshape(both, [2 * e, rows / 2, 1, 1])?;
        self.linear(both, &layer.name("nextn.eh_proj"), e)
    }

    fn predictor_norm(&mut self, x: TensorId, layer: &Layer) -> Result<TensorId> {
        let own = layer.name("nextn.shared_head_norm");
        let stored = self.gguf.tensor(&format!("{own}.weight")).is_some();
        self.norm(x, if stored { &own } else { "output_norm" })
    }

    fn draft_logits(&mut self, normed: TensorId, layer: &Layer, among: usize) -> Result<TensorId> {
        let own = layer.name("nextn.shared_head_head.weight");
        let tables = [&own, "output.weight", "token_embd.weight"];
        let table = tables.into_iter().find(|name| self.gguf.tensor(name).is_some()).unwrap_or(&own);
        let logits = self.logits(normed, table, among)?;
        self.logits = Some(logits);
        Ok(logits)
    }

    /// Stores keys, normed if the file has a norm for them, and values of a layer's attention.
    pub(super) fn remember_heads(&mut self, x: TensorId, layer: &Layer) -> Result<()> {
        let [mut k, v] = self.keys_and_values(x, layer)?;
        let norm = layer.name("attn_k_norm");
        if self.gguf.tensor(&format!("{norm}.weight")).is_some() {
            k = self.norm(k, &norm)?;
        }
        let k = self.rope(k, layer, "k_rope")?;
        self.cached_heads([k, v], layer).map(|_| ())
    }
}
