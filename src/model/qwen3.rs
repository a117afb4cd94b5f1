//! qwen3: heads of q and k are normed before they are turned. Source: Yang et al., "Qwen3 technical report" (2025).

use super::Architecture;
use super::builder::Builder;
use ggml_core::Result;
use ggml_core::op::RopeMode;

pub(super) struct Qwen3;

impl Architecture for Qwen3 {
    fn name(&self) -> &'static str {
        "qwen3"
    }

    fn rope_mode(&self) -> RopeMode {
        RopeMode::Neox
    }

    fn build(&self, b: &mut Builder<'_>) -> Result<()> {
        b.decoder(|b, x, prefix| {
            let [q, k, v] = b.qkv(x, prefix)?;
            let q = b.norm(q, &format!("{prefix}.attn_q_norm"))?;
            let k = b.norm(k, &format!("{prefix}.attn_k_norm"))?;
            b.turned([q, k, v], prefix)
        })
    }
}
