//! Hyperparameters from GGUF metadata, checked.

use super::batch::Want;
use super::latent::Latent;
use super::layers::{Attention, Temperature, Window, per_layer};
use super::moe::Experts;
use super::pooling::Pooling;
use super::recurrent::Recurrent;
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

/// Factors of activations; 1 if an architecture has none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Scales {
    /// Factor of the token embedding.
    pub embedding: f32,
    /// Factor of the contributions of attention and feed-forward network to the residual stream.
    pub residual: f32,
    /// Factor of attention scores; `1 / sqrt(key_length)` for most architectures.
    pub attention: f32,
    /// Factor of the logits.
    pub logits: f32,
}

/// Bounds of the form `cap tanh(x / cap)`; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SoftCaps {
    /// Bound of attention scores.
    pub scores: f32,
    /// Bound of the logits.
    pub logits: f32,
}

/// Hyperparameters of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hparams {
    /// `general.architecture`.
    pub architecture: String,
    /// Number of layers.
    pub layers: usize,
    /// Context length of the training.
    pub context: usize,
    /// Width of the residual stream.
    pub embedding: usize,
    /// Width of the feed-forward network of each layer.
    pub feed_forward: Vec<usize>,
    /// Attention of each layer.
    pub attention: Vec<Attention>,
    /// Size of the vocabulary: rows of the token embedding.
    pub vocabulary: usize,
    /// RMS_NORM's epsilon.
    pub eps: f32,
    /// Scaling of positions.
    pub scaling: RopeScaling,
    /// Attention window of the layers that have one.
    pub window: Option<Window>,
    /// Growth of queries with their position.
    pub temperature: Option<Temperature>,
    /// Latent attention: keys and values of all heads come from one short vector.
    pub latent: Option<Latent>,
    /// Factors of activations.
    pub scales: Scales,
    /// Bounds of scores and logits.
    pub soft_caps: SoftCaps,
    /// True if the attention heads have sinks.
    pub sinks: bool,
    /// Mixture of experts in the feed-forward networks.
    pub experts: Option<Experts>,
    /// Layers with a recurrent state.
    pub recurrent: Option<Recurrent>,
    /// Taps of the short convolution of layers without attention; 0 if there are none.
    pub taps: usize,
    /// Width of the embedding that each layer adds; 0 if there is none.
    pub per_layer_embedding: usize,
    /// True if a token sees only itself and earlier tokens; otherwise it sees the whole text, and there is no
    /// cache.
    pub causal: bool,
    /// True if there is an output layer; otherwise a model gives only hidden states.
    pub output: bool,
    /// Pooling of the token vectors of a text, if the file gives one.
    pub pooling: Option<Pooling>,
    /// Layers after the last one that predict further tokens; ordinary decoding does not use them.
    pub further_layers: usize,
}

/// Largest value of any extent; a larger one means a broken file.
pub(super) const MAX_EXTENT: usize = 1 << 28;

impl Hparams {
    /// Reads and checks the hyperparameters that every architecture has.
    pub fn read(gguf: &GgufFile, mode: RopeMode) -> Result<Hparams> {
        let m = gguf.metadata();
        let architecture = m.str("general.architecture")?.to_string();
        let key = |name: &str| format!("{architecture}.{name}");
        let extent = |name: &str| checked(&key(name), m.usize(&key(name))?);
        let embedding = extent("embedding_length")?;
        let (layers, further_layers) = read_layers(gguf, &architecture)?;
        let eps = read_eps(gguf, &architecture)?;
        let scaling = read_scaling(gguf, &architecture)?;
        let attention = Attention::read(gguf, &architecture, mode, [layers, embedding], scaling)?;
        // Files of mixtures without any other feed-forward network give only the width of the experts.
        let feed_forward = ["feed_forward_length", "expert_feed_forward_length"].map(key);
        let width = match per_layer(gguf, &feed_forward[0], layers)? {
            Some(widths) => widths,
            None if m.value(&feed_forward[1]).is_none() => vec![extent("feed_forward_length")?; layers],
            None => vec![extent("expert_feed_forward_length")?; layers],
        };
        let key_length = attention[0].key_length;
        Ok(Hparams {
            layers,
            context: extent("context_length")?,
            embedding,
            feed_forward: width,
            attention,
            vocabulary: read_vocabulary(gguf, &architecture)?,
            eps,
            scaling,
            window: None,
            temperature: None,
            latent: None,
            scales: Scales {
                embedding: 1.0,
                residual: 1.0,
                attention: factor(gguf, &key("attention.scale"), 1.0 / (key_length as f32).sqrt())?,
                logits: 1.0,
            },
            soft_caps: SoftCaps {
                scores: factor(gguf, &key("attn_logit_softcapping"), 0.0)?,
                logits: factor(gguf, &key("final_logit_softcapping"), 0.0)?,
            },
            sinks: false,
            experts: None,
            recurrent: None,
            taps: 0,
            per_layer_embedding: 0,
            causal: true,
            output: true,
            pooling: Pooling::read(gguf, &key("pooling_type"))?,
            further_layers,
            architecture,
        })
    }

    /// True if a tensor belongs to a layer that is not computed, or is a scale for rounding activations to 4
    /// bits.
    pub(super) fn is_ignored(&self, tensor: &str) -> bool {
        if tensor.ends_with(".input_scale") {
            return true;
        }
        let layer =
            tensor.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        layer.is_some_and(|layer| (self.layers..self.layers + self.further_layers).contains(&layer))
    }

    /// Returns the key `name` of this architecture.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// Returns the number of values in a row of the wanted result.
    pub(crate) fn width(&self, want: Want) -> usize {
        match want {
            Want::Logits => self.vocabulary,
            Want::Best(k) => k.min(self.vocabulary),
            Want::Hidden(_) => self.embedding,
        }
    }

    /// Returns the last layer that writes state: later layers are computed only for the wanted rows.
    pub(super) fn last_writer(&self) -> usize {
        (0..self.layers).rev().find(|&i| self.attention[i].cache == i).unwrap_or(0)
    }

    /// Sets the attention window, and `rope` if given, for the layers for which `covers` is true.
    pub(super) fn set_window(&mut self, window: Window, rope: Option<Rope>, covers: impl Fn(usize) -> bool) {
        self.window = Some(window);
        for (_, attention) in self.attention.iter_mut().enumerate().filter(|(layer, _)| covers(*layer)) {
            attention.windowed = true;
            attention.rope = rope.or(attention.rope);
        }
    }

    /// Removes positions from attention, for a file that disables them.
    pub(super) fn without_positions(&mut self) {
        self.attention.iter_mut().for_each(|a| a.rope = None);
    }

    /// Divides the factor of rotated elements.
    pub(super) fn divide_magnitudes(&mut self, divisor: f32) {
        self.attention
            .iter_mut()
            .filter_map(|a| a.rope.as_mut())
            .for_each(|rope| rope.attn_factor /= divisor);
    }

    /// Returns the size of the attention window; 0 in a file means none.
    pub(super) fn window_size(&self, gguf: &GgufFile) -> Result<Option<usize>> {
        let key = self.key("attention.sliding_window");
        let size = gguf.metadata().opt_usize(&key)?.filter(|&n| n != 0);
        size.map(|n| checked(&key, n)).transpose()
    }
}

/// Reads the number of computed layers, and of the layers after them that predict further tokens.
fn read_layers(gguf: &GgufFile, architecture: &str) -> Result<(usize, usize)> {
    let m = gguf.metadata();
    let key = format!("{architecture}.block_count");
    let blocks = checked(&key, m.usize(&key)?)?;
    let further = m.opt_usize(&format!("{architecture}.nextn_predict_layers"))?.unwrap_or(0);
    if further >= blocks {
        let key = named(&format!("{architecture}.nextn_predict_layers"));
        return Err(Error::model(key, format!("{further} of {blocks} layers"), "fewer than all"));
    }
    // Bounds everything stored for each layer by the length of the file's list of tensors.
    let tensors = gguf.tensors().len();
    if blocks > tensors {
        return Err(Error::model(named(&key), blocks, format!("no more than the file's {tensors} tensors")));
    }
    Ok((blocks - further, further))
}

/// Reads the epsilon of norms; some architectures store it under the key for layer norms.
fn read_eps(gguf: &GgufFile, architecture: &str) -> Result<f32> {
    let m = gguf.metadata();
    let [usual, other] = ["layer_norm_rms_epsilon", "layer_norm_epsilon"]
        .map(|name| format!("{architecture}.attention.{name}"));
    let key = if m.value(&usual).is_none() && m.value(&other).is_some() { other } else { usual };
    let eps = m.f32(&key)?;
    if eps.is_finite() && eps >= 0.0 {
        Ok(eps)
    } else {
        Err(Error::model(named(&key), eps, "a finite number from 0 on"))
    }
}

/// Returns the rows of the token embedding, which must match the file's `vocab_size` if there is one.
fn read_vocabulary(gguf: &GgufFile, architecture: &str) -> Result<usize> {
    let vocabulary = gguf.require("token_embd.weight")?.ne[1];
    let key = format!("{architecture}.vocab_size");
    match gguf.metadata().opt_usize(&key)? {
        Some(declared) if declared != vocabulary => {
            let expected = format!("{vocabulary}, the rows of the token embedding");
            Err(Error::model(named(&key), declared, expected))
        }
        _ => Ok(vocabulary),
    }
}

/// Formats a metadata key for error messages.
pub(super) fn named(key: &str) -> String {
    format!("metadata key '{key}'")
}

/// Reads a factor; returns `default` if it is absent or 0.
pub(super) fn factor(gguf: &GgufFile, key: &str, default: f32) -> Result<f32> {
    match gguf.metadata().opt_f32(key)? {
        None | Some(0.0) => Ok(default),
        Some(value) => positive(key, value),
    }
}

pub(super) fn checked(key: &str, value: usize) -> Result<usize> {
    match value {
        1..=MAX_EXTENT => Ok(value),
        _ => Err(Error::model(named(key), value, format!("1 to {MAX_EXTENT}"))),
    }
}

pub(super) fn positive(key: &str, value: f32) -> Result<f32> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(Error::model(named(key), value, "a finite number above 0"))
    }
}

/// Returns the name of LongRoPE's tensor of `short` or `long` factors.
pub(super) fn rope_factors(kind: &str) -> String {
    format!("rope_factors_{kind}.weight")
}

fn read_scaling(gguf: &GgufFile, architecture: &str) -> Result<RopeScaling> {
    let m = gguf.metadata();
    let key = |name: &str| format!("{architecture}.rope.scaling.{name}");
    let factor = m.opt_f32(&key("factor"))?.map(|f| positive(&key("factor"), f)).transpose()?;
    let original_context =
        || checked(&key("original_context_length"), m.usize(&key("original_context_length"))?);
    // Files of phi3 have LongRoPE's tensors without naming the type.
    let declared = match m.opt_str(&key("type"))? {
        None if ["short", "long"].iter().any(|kind| gguf.tensor(&rope_factors(kind)).is_some()) => {
            Some("longrope")
        }
        declared => declared,
    };
    match (declared, factor) {
        (None, None) | (Some("none"), _) => Ok(RopeScaling::None),
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
            let bound = |name: &str, default| match m.opt_f32(&key(name))? {
                Some(value) => positive(&key(name), value),
                None => Ok(default),
            };
            rope.beta_fast = bound("scaling.yarn_beta_fast", rope.beta_fast)?;
            rope.beta_slow = bound("scaling.yarn_beta_slow", rope.beta_slow)?;
            rope.truncate = m.opt_bool(&key("scaling.yarn_truncate"))?.unwrap_or(true);
        }
    }
    Ok(rope)
}
