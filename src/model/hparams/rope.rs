//! Rotary positions: their scaling and the parameters of ROPE.

use super::ollama;
use super::values::{checked, named, positive};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Rope, RopeMode};
use ggml_core::{Error, Result};
use serde::Serialize;

/// Scaling of positions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum RopeScaling {
    /// No scaling (llama-3 scaling comes as a tensor of factors).
    None,
    /// Positions are divided by a factor.
    Linear(f32),
    /// YaRN with its factor and the context length of the training.
    Yarn {
        /// Factor of YaRN.
        factor: f32,
        /// Context length of the training.
        original_context: usize,
    },
    /// LongRoPE: one tensor of factors for contexts up to the training's, another for longer ones.
    LongRope {
        /// Context length of the training.
        original_context: usize,
    },
}

/// Returns the name of LongRoPE's tensor of `short` or `long` factors.
pub(in crate::model) fn rope_factors(kind: &str) -> String {
    format!("rope_factors_{kind}.weight")
}

/// Reads the scaling of positions.
pub(super) fn read_scaling(gguf: &GgufFile, architecture: &str) -> Result<RopeScaling> {
    let m = gguf.metadata();
    let key = |name: &str| format!("{architecture}.rope.scaling.{name}");
    // Ollama's converter of mistral3 writes all keys, with 0 and an empty text for what the model does not have
    // (`convert_mistral.go`).
    let factor = m.opt_f32(&key("factor"))?.filter(|&factor| factor != 0.0);
    let factor = factor.map(|factor| positive(&key("factor"), factor)).transpose()?;
    let original_context =
        || checked(&key("original_context_length"), m.usize(&key("original_context_length"))?);
    // Files of phi3 have LongRoPE's tensors without naming the type.
    let declared = match m.opt_str(&key("type"))?.filter(|kind| !kind.is_empty()) {
        None if ["short", "long"].iter().any(|kind| gguf.tensor(&rope_factors(kind)).is_some()) => {
            Some("longrope")
        }
        None if factor.is_some() => ollama::scaling(architecture),
        declared => declared,
    };
    match (declared, factor) {
        (None, None) | (Some("none" | "default"), _) => Ok(RopeScaling::None),
        (None | Some("linear"), Some(factor)) => Ok(RopeScaling::Linear(factor)),
        (Some("yarn"), Some(factor)) => {
            Ok(RopeScaling::Yarn { factor, original_context: original_context()? })
        }
        (Some("longrope"), _) => Ok(RopeScaling::LongRope { original_context: original_context()? }),
        (Some(kind @ ("linear" | "yarn")), None) => {
            Err(Error::model(named(&key("factor")), "", format!("a factor for scaling '{kind}'")))
        }
        (Some(other), _) => {
            let expected = "one of none, linear, yarn, longrope";
            Err(Error::model(named(&key("type")), format!("'{other}'"), expected))
        }
    }
}

/// Reads the parameters of ROPE for heads with `n_dims` rotated elements.
pub(super) fn read_rope(
    gguf: &GgufFile,
    architecture: &str,
    mode: RopeMode,
    n_dims: usize,
    s: RopeScaling,
) -> Result<Rope> {
    let m = gguf.metadata();
    let key = |name: &str| format!("{architecture}.rope.{name}");
    let base = positive(&key("freq_base"), m.opt_f32(&key("freq_base"))?.unwrap_or(10000.0))?;
    let attn = m.opt_f32(&key("scaling.attn_factor"))?.unwrap_or(1.0);
    let mut rope =
        Rope { attn_factor: positive(&key("scaling.attn_factor"), attn)?, ..Rope::plain(mode, n_dims, base) };
    match s {
        RopeScaling::None | RopeScaling::LongRope { .. } => {}
        RopeScaling::Linear(factor) => rope.freq_scale = 1.0 / factor,
        RopeScaling::Yarn { factor, original_context } => {
            rope.freq_scale = 1.0 / factor;
            rope.ext_factor = 1.0;
            rope.n_ctx_orig = original_context;
            // The second names are those of Ollama's converters (`convert_mistral.go`), with 0 for none.
            let bound = |names: [&str; 2], default| {
                for name in names {
                    if let Some(value) = m.opt_f32(&key(name))?.filter(|&value| value != 0.0) {
                        return positive(&key(name), value);
                    }
                }
                Ok(default)
            };
            rope.beta_fast = bound(["scaling.yarn_beta_fast", "scaling.beta_fast"], rope.beta_fast)?;
            rope.beta_slow = bound(["scaling.yarn_beta_slow", "scaling.beta_slow"], rope.beta_slow)?;
            rope.truncate = m.opt_bool(&key("scaling.yarn_truncate"))?.unwrap_or(true);
        }
    }
    Ok(rope)
}
