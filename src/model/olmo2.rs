//! olmo2 (OLMo 2 and 3): norms after attention and feed-forward network, none before them; q and k are normed
//! as a whole, before they are divided into heads. Sources: OLMo team, "2 OLMo 2 furious" (2024); "Olmo 3"
//! (2025), whose local layers have a window and ordinary positions, without YaRN.

use super::architecture::Architecture;
use super::builder::{Builder, Layer};
use super::hparams::{Hparams, OLMO3, Window, window_layers};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Rope, RopeMode};
use ggml_core::{Result, TensorId};

pub(super) struct Olmo2;

/// Default period of the global layers in a file with a window: every fourth layer.
const PERIOD: usize = 4;

impl Architecture for Olmo2 {
    fn name(&self) -> &'static str {
        "olmo2"
    }

    fn other_names(&self) -> &'static [&'static str] {
        &[OLMO3]
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        let Some(size) = h.window_size(gguf)? else { return Ok(()) };
        let covered = window_layers(gguf, h, PERIOD)?;
        let rope = h.attention[0].rope.map(|rope| Rope::plain(rope.mode, rope.n_dims, rope.freq_base));
        h.set_window(Window::nearest(size), rope, |layer| covered[layer]);
        Ok(())
    }

    fn norms_before(&self) -> [Option<&'static str>; 2] {
        [None, None]
    }

    fn norms_after(&self) -> [Option<&'static str>; 2] {
        [Some("post_attention_norm"), Some("post_ffw_norm")]
    }

    fn project(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let products = b.projections(x, layer)?;
        let normed = b.normed_heads(products, layer)?;
        let heads = b.in_heads(normed, layer)?;
        b.rope_heads(heads, layer)
    }
}
