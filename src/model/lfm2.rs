//! lfm2 and lfm2moe: most layers have a short convolution between two gates, the others have attention.
//! Source: Liquid AI, "LFM2 technical report" (2025).

use super::architecture::Architecture;
use super::branch::Branch;
use super::builder::{Builder, Layer};
use super::hparams::{Experts, Hparams, MAX_TAPS, named};
use ggml_core::gguf::GgufFile;
use ggml_core::op::RopeMode;
use ggml_core::{Error, Result, TensorId};

/// Dense or mixed family.
pub(super) struct Lfm2(&'static str);

pub(super) static LFM2: Lfm2 = Lfm2("lfm2");
pub(super) static LFM2MOE: Lfm2 = Lfm2("lfm2moe");

impl Architecture for Lfm2 {
    fn name(&self) -> &'static str {
        self.0
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        h.experts = Experts::read_if_any(gguf, h, true)?;
        let key = h.key("shortconv.l_cache");
        h.taps = gguf.metadata().usize(&key)?;
        if !(2..=MAX_TAPS).contains(&h.taps) {
            return Err(Error::model(named(&key), h.taps, format!("2 to {MAX_TAPS} taps")));
        }
        Ok(())
    }

    fn project(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let heads = b.qkv(x, layer)?;
        let heads = b.normed_heads(heads, layer)?;
        b.rope_heads(heads, layer)
    }

    fn mixer(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        if layer.attention.heads_kv > 0 {
            b.attention_block(self, x, layer).map(Branch::One)
        } else {
            short_convolution(b, x, layer).map(Branch::One)
        }
    }

    fn output_norm(&self) -> &'static str {
        "token_embd_norm"
    }
}

/// Builds `out(c * convolution(b * x))`, with b, c and x from one weight.
fn short_convolution(b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<TensorId> {
    let width = b.hparams.embedding;
    let all = b.linear(x, &layer.name("shortconv.in_proj"), 3 * width)?;
    let before = b.columns(all, 0, width)?;
    let inner = b.columns(all, 2 * width, width)?;
    let gated = b.graph.mul(inner, before)?;
    b.name(gated, &layer.name("shortconv.gated"))?;
    let out = b.convolved(gated, ("shortconv.conv.weight", b.hparams.taps), layer)?;
    let out = b.needed(out, layer, "shortconv.needed")?;
    let all = b.needed(all, layer, "shortconv.in_proj.needed")?;
    let after = b.columns(all, width, width)?;
    let out = b.graph.mul(out, after)?;
    b.name(out, &layer.name("shortconv.out"))?;
    b.linear(out, &layer.name("shortconv.out_proj"), width)
}
