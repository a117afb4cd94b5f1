//! llama: the plain decoder; mistral, and llama 1 to 3 (whose position scaling comes as the tensor `rope_freqs.weight`);
//! mixtral, whose layers have experts. Sources: Touvron et al., "LLaMA" (2023); Jiang et al., "Mixtral of experts" (2024).

use super::builder::{Builder, Layer};
use super::moe::Experts;
use super::{Architecture, Hparams};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, Glu, RopeMode};
use ggml_core::{Result, TensorId};

pub(super) struct Llama;

impl Architecture for Llama {
    fn name(&self) -> &'static str {
        "llama"
    }

    /// GGUF files hold the rows of q and k in the order in which neighbours are pairs.
    fn rope_mode(&self) -> RopeMode {
        RopeMode::Normal
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        let experts = gguf.metadata().opt_usize(&h.key("expert_count"))?.unwrap_or(0);
        h.experts = if experts > 0 { Some(Experts::read(gguf, h)?) } else { None };
        Ok(())
    }

    fn feed_forward(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<TensorId> {
        match b.hparams.experts {
            Some(_) => b.mixture(x, Glu::new(Activation::Silu), layer),
            None => b.gated(x, Activation::Silu, layer),
        }
    }
}
