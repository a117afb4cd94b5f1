//! qwen35, qwen35moe (qwen3.5, dense and mixtures) and qwen3next: most layers have a gated delta net, every
//! fourth has attention with a gate on its result. Sources: Qwen team, "Qwen3.5" and "Qwen3-Next" (model
//! cards and configurations, 2025); see also [`super::recurrent`].
//!
//! For text, the positions in all three sections of the interleaved multimodal ROPE are equal, so it is an
//! ordinary ROPE of a part of each head.

use super::architecture::Architecture;
use super::branch::Branch;
use super::builder::{Builder, Layer};
use super::hparams::{Experts, Hparams, Recurrent, delta_net_layers};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, Glu, RopeMode};
use ggml_core::{Error, Result, TensorId};

/// Family of models; every layer of the mixed families has experts, one of them shared.
pub(super) struct Qwen35 {
    name: &'static str,
    /// True if its files store the value heads of a key head consecutively.
    grouped: bool,
}

pub(super) static QWEN35: Qwen35 = Qwen35 { name: "qwen35", grouped: false };
pub(super) static QWEN35MOE: Qwen35 = Qwen35 { name: "qwen35moe", grouped: false };
pub(super) static QWEN3NEXT: Qwen35 = Qwen35 { name: "qwen3next", grouped: true };

impl Architecture for Qwen35 {
    fn name(&self) -> &'static str {
        self.name
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        let a = h.attention[0];
        if a.key_length != a.value_length {
            let found = format!("keys of {} and values of {} elements", a.key_length, a.value_length);
            return Err(Error::model("heads", found, "the same, for the gate of attention"));
        }
        h.experts = Experts::read_if_any(gguf, h, true)?;
        let layers = delta_net_layers(gguf, h)?;
        h.recurrent = Some(Recurrent { grouped: self.grouped, ..Recurrent::read(gguf, h, layers)? });
        Ok(())
    }

    fn predicts(&self) -> bool {
        true
    }

    fn norms_before(&self) -> [Option<&'static str>; 2] {
        [Some("attn_norm"), Some("post_attention_norm")]
    }

    fn mixer(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        match &b.hparams.recurrent {
            Some(r) if r.layers.get(layer.index) == Some(&true) => b.delta_net(x, r, layer).map(Branch::One),
            _ => gated_attention(b, x, layer).map(Branch::One),
        }
    }
}

/// Builds attention with gated results: for each head `attn_q` gives a query, then as many elements of a gate
/// for the result.
fn gated_attention(b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<TensorId> {
    let (d, heads) = (layer.attention.key_length, layer.attention.heads);
    let wanted_rows = b.needed(x, layer, "attn_norm.needed")?;
    let tokens = b.graph.tensor(wanted_rows).ne[1];
    let both = b.linear(wanted_rows, &layer.name("attn_q"), 2 * d * heads)?;
    let row = 8 * d * heads;
    let strides = [4, 8 * d, row, row * tokens];
    let q = b.graph.view(both, [d, heads, tokens, 1], strides, 0)?;
    let gate = b.graph.view(both, [d, heads, tokens, 1], strides, 4 * d)?;
    let [k, v] = b.keys_and_values(x, layer)?;
    let qkv = b.normed_heads([q, k, v], layer)?;
    let qkv = b.rope_heads(qkv, layer)?;
    let attended = b.attention(qkv, layer)?;
    let attended = b.graph.reshape(attended, [d, heads, tokens, 1])?;
    let gated = b.graph.glu(Glu::new(Activation::Sigmoid), gate, Some(attended))?;
    b.name(gated, &layer.name("attn_gated"))?;
    let gated = b.graph.reshape(gated, [d * heads, tokens, 1, 1])?;
    b.linear(gated, &layer.name("attn_output"), b.hparams.embedding)
}
