//! bert: an encoder. Every token sees the whole text, positions are learned, norms follow the residual sums,
//! and there is no output layer: the results are vectors. Source: Devlin, Chang, Lee and Toutanova, "BERT:
//! pre-training of deep bidirectional transformers for language understanding" (2018).

use super::architecture::Architecture;
use super::builder::{Builder, Layer};
use super::hparams::Hparams;
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, RopeMode};
use ggml_core::{Result, TensorId};

pub(super) struct Bert;

impl Architecture for Bert {
    fn name(&self) -> &'static str {
        "bert"
    }

    /// Unused: positions are added to the embedding.
    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, _gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        h.without_positions();
        (h.causal, h.output) = (false, false);
        h.positions = Some(h.context);
        Ok(())
    }

    fn build(&self, b: &mut Builder<'_>) -> Result<()> {
        let mut x = embedded(b)?;
        for (index, &attention) in b.hparams.attention.iter().enumerate().take(b.depth()) {
            let layer = &Layer { index, attention };
            b.begin_unit();
            let attended = b.attention_block(self, x, layer)?;
            x = b.needed(x, layer, "needed")?;
            x = summed(b, [x, attended], layer, "attn_output_norm")?;
            let up = b.linear(x, &layer.name("ffn_up"), b.hparams.feed_forward[index])?;
            let inner = b.graph.unary(Activation::GeluErf, up)?;
            b.name(inner, &layer.name("ffn_gelu"))?;
            let out = b.linear(inner, &layer.name("ffn_down"), b.hparams.embedding)?;
            x = summed(b, [x, out], layer, "layer_output_norm")?;
        }
        b.begin_unit();
        b.hidden(x)
    }
}

/// Builds the normed sum of the embeddings of token, position and token type; the type is always the first.
fn embedded(b: &mut Builder<'_>) -> Result<TensorId> {
    let (n, tokens) = (b.hparams.embedding, b.inputs.tokens);
    let table = b.token_table("token_embd.weight", n)?;
    let words = b.graph.get_rows(table, tokens)?;
    b.name(words, "embedding.words")?;
    let table = b.weight("position_embd.weight", &[n, b.hparams.context])?;
    let positions = b.graph.get_rows(table, b.inputs.positions)?;
    b.name(positions, "embedding.positions")?;
    let sum = b.graph.add(words, positions)?;
    b.name(sum, "embedding.sum")?;
    let kinds = b.gguf.require("token_types.weight")?.ne[1];
    let kinds = b.plain("token_types.weight", &[n, kinds])?;
    let first = b.graph.view(kinds, [n, 1, 1, 1], [4, 4 * n, 4 * n, 4 * n], 0)?;
    let sum = b.graph.add(sum, first)?;
    b.name(sum, "embedding.of_kind")?;
    b.layer_norm(sum, "token_embd_norm")
}

/// Builds the normed sum of the stream and the result of a part of a layer.
fn summed(b: &mut Builder<'_>, [x, out]: [TensorId; 2], layer: &Layer, norm: &str) -> Result<TensorId> {
    let sum = b.graph.add(x, out)?;
    b.name(sum, &layer.name(&format!("{norm}.sum")))?;
    b.layer_norm(sum, &layer.name(norm))
}
