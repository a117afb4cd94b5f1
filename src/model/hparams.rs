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

/// How positions are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum RopeScaling {
    /// Not at all (llama-3 scaling comes as a tensor of factors).
    None,
    /// Positions divided by a factor.
    Linear(f32),
    /// YaRN with its factor and the context length of the training.
    Yarn {
        /// Factor.
        factor: f32,
        /// Context length of the training.
        original_context: usize,
    },
    /// LongRoPE: one tensor of factors for contexts up to that of the training, one for longer ones.
    LongRope {
        /// Context length of the training.
        original_context: usize,
    },
}

/// Factors of activations; 1 where an architecture has none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Scales {
    /// Of the token embedding.
    pub embedding: f32,
    /// Of what a layer's attention and its feed-forward network add to the residual stream.
    pub residual: f32,
    /// Of the scores of attention; `1 / sqrt(key_length)` for most.
    pub attention: f32,
    /// Of the logits.
    pub logits: f32,
}

/// Bounds of the form `cap tanh(x / cap)`; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SoftCaps {
    /// Of the scores of attention.
    pub scores: f32,
    /// Of the logits.
    pub logits: f32,
}

/// What a decoder-only transformer needs to know of itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hparams {
    /// `general.architecture`.
    pub architecture: String,
    /// Layers.
    pub layers: usize,
    /// Context length of the training.
    pub context: usize,
    /// Width of the residual stream.
    pub embedding: usize,
    /// Width of the feed-forward network of each layer.
    pub feed_forward: Vec<usize>,
    /// Attention of each layer.
    pub attention: Vec<Attention>,
    /// Vocabulary: rows of the token embedding.
    pub vocabulary: usize,
    /// RMS_NORM's epsilon.
    pub eps: f32,
    /// Position scaling.
    pub scaling: RopeScaling,
    /// What the layers with an attention window see.
    pub window: Option<Window>,
    /// Queries that grow with their position.
    pub temperature: Option<Temperature>,
    /// Keys and values of all heads from one short vector.
    pub latent: Option<Latent>,
    /// Factors of activations.
    pub scales: Scales,
    /// Bounds of scores and logits.
    pub soft_caps: SoftCaps,
    /// Whether the heads of attention have sinks.
    pub sinks: bool,
    /// Experts of the feed-forward networks.
    pub experts: Option<Experts>,
    /// Layers with a recurrent state.
    pub recurrent: Option<Recurrent>,
    /// Taps of the short convolution of layers that do not attend; 0: there are none.
    pub taps: usize,
    /// Width of what the embedding has for each layer; 0: nothing.
    pub per_layer_embedding: usize,
    /// Whether a token sees only those before it; else all of its text, and there is no cache.
    pub causal: bool,
    /// Whether there is an output layer; else a model gives hidden states only.
    pub output: bool,
    /// How the vectors of a text's tokens become one, if the file says it.
    pub pooling: Option<Pooling>,
    /// Layers behind the last one that predict further tokens; ordinary decoding has no use for them.
    pub further_layers: usize,
}

/// Largest value that any extent may have: more is a broken file.
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
        // Files of mixtures without any other feed-forward network give the width of the experts only.
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

    /// Whether a tensor belongs to a layer that is not computed, or says how activations could be rounded to 4 bits.
    pub(super) fn is_ignored(&self, tensor: &str) -> bool {
        if tensor.ends_with(".input_scale") {
            return true;
        }
        let layer =
            tensor.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        layer.is_some_and(|layer| (self.layers..self.layers + self.further_layers).contains(&layer))
    }

    /// Key `name` of this architecture.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// Values of a row of what is wanted.
    pub(crate) fn width(&self, want: Want) -> usize {
        match want {
            Want::Logits => self.vocabulary,
            Want::Best(k) => k.min(self.vocabulary),
            Want::Hidden(_) => self.embedding,
        }
    }

    /// The last layer that writes state: what layers behind it compute is needed for the rows that are wanted only.
    pub(super) fn last_writer(&self) -> usize {
        (0..self.layers).rev().find(|&i| self.attention[i].cache == i).unwrap_or(0)
    }

    /// Gives the attention window to those layers that `covers` names, with a ROPE of their own.
    pub(super) fn set_window(&mut self, window: Window, rope: Option<Rope>, covers: impl Fn(usize) -> bool) {
        self.window = Some(window);
        for (_, attention) in self.attention.iter_mut().enumerate().filter(|(layer, _)| covers(*layer)) {
            attention.windowed = true;
            attention.rope = rope.or(attention.rope);
        }
    }

    /// Takes the positions from attention, of a file that has turned them off.
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

    /// Size of the attention window; 0 in a file means none.
    pub(super) fn window_size(&self, gguf: &GgufFile) -> Result<Option<usize>> {
        let key = self.key("attention.sliding_window");
        let size = gguf.metadata().opt_usize(&key)?.filter(|&n| n != 0);
        size.map(|n| checked(&key, n)).transpose()
    }
}

/// Layers that are computed, and those behind them that predict further tokens.
fn read_layers(gguf: &GgufFile, architecture: &str) -> Result<(usize, usize)> {
    let m = gguf.metadata();
    let key = format!("{architecture}.block_count");
    let blocks = checked(&key, m.usize(&key)?)?;
    let further = m.opt_usize(&format!("{architecture}.nextn_predict_layers"))?.unwrap_or(0);
    if further >= blocks {
        let key = named(&format!("{architecture}.nextn_predict_layers"));
        return Err(Error::model(key, format!("{further} of {blocks} layers"), "fewer than all"));
    }
    // What is kept for each layer is then no more than the file's own list of tensors.
    let tensors = gguf.tensors().len();
    if blocks > tensors {
        return Err(Error::model(named(&key), blocks, format!("no more than the file's {tensors} tensors")));
    }
    Ok((blocks - further, further))
}

/// The epsilon of norms; some architectures keep it under the name that it has for layer norms.
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

/// Rows of the token embedding, which is what the file declares, if it declares it.
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

/// A metadata key, as errors name it.
pub(super) fn named(key: &str) -> String {
    format!("metadata key '{key}'")
}

/// A factor that a file may lack; 0 means absent too.
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

/// Name of LongRoPE's tensor of `short` or `long` factors.
pub(super) fn rope_factors(kind: &str) -> String {
    format!("rope_factors_{kind}.weight")
}

fn read_scaling(gguf: &GgufFile, architecture: &str) -> Result<RopeScaling> {
    let m = gguf.metadata();
    let key = |name: &str| format!("{architecture}.rope.scaling.{name}");
    let factor = m.opt_f32(&key("factor"))?.map(|f| positive(&key("factor"), f)).transpose()?;
    let original_context =
        || checked(&key("original_context_length"), m.usize(&key("original_context_length"))?);
    // Files of phi3 have LongRoPE's tensors and do not name the type.
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
