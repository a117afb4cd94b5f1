//! Hyperparameters from GGUF metadata, checked.

mod attention;
mod experts;
mod latent;
mod ollama;
mod pooling;
mod recurrent;
mod rope;
mod values;

pub(super) use attention::window_layers;
pub use attention::{Attention, Temperature, Window};
pub use experts::{Experts, Gating};
pub use latent::Latent;
pub(super) use ollama::{GLM4MOELITE, GPTOSS, OLMO3};
pub use pooling::Pooling;
pub use recurrent::Recurrent;
pub(super) use recurrent::{MAX_TAPS, delta_net_layers};
pub use rope::RopeScaling;
pub(super) use rope::rope_factors;
pub(super) use values::{checked, factor, named, positive};

use ggml_core::gguf::{Array, GgufFile};
use ggml_core::op::{Rope, RopeMode};
use ggml_core::{Error, Result};
use rope::read_scaling;
use serde::Serialize;
use values::per_layer;

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
    /// Size of the vocabulary. The token embedding may have more rows, which are left out.
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
    /// True if the file is for ranking texts (pooling type 4) by an output layer that is left out.
    #[serde(skip)]
    pub ranks: bool,
    /// Rows of a learnt table of positions, the most that a text may have; `None` if positions are computed.
    #[serde(skip)]
    pub positions: Option<usize>,
    /// Layers after the last one that predict further tokens; ordinary decoding does not use them.
    pub further_layers: usize,
}

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
        let (pooling, ranks) = pooling::read(gguf, &key("pooling_type"))?;
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
            pooling,
            ranks,
            positions: None,
            further_layers,
            architecture,
        })
    }

    /// Returns the pooling of texts: the file's, or else the default of the architecture. Causal models give
    /// the vector of the last token, which has seen all others. Others give the mean, or the first vector if
    /// the file is for ranking.
    pub fn usual_pooling(&self) -> Pooling {
        let default = match (self.causal, self.ranks) {
            (true, _) => Pooling::Last,
            (false, true) => Pooling::First,
            (false, false) => Pooling::Mean,
        };
        self.pooling.unwrap_or(default)
    }

    /// True if a tensor is a scale for rounding activations to 4 bits, which nothing uses.
    pub(super) fn is_rounding_scale(tensor: &str) -> bool {
        tensor.ends_with(".input_scale")
    }

    /// True if a tensor belongs to a layer that predicts further tokens.
    pub(super) fn is_of_further_layer(&self, tensor: &str) -> bool {
        let layer =
            tensor.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        layer.is_some_and(|layer| (self.layers..self.layers + self.further_layers).contains(&layer))
    }

    /// Returns the number of tokens of the file's vocabulary, if it has one.
    pub(super) fn tokens(gguf: &GgufFile) -> Result<Option<usize>> {
        Ok(gguf.metadata().opt_array("tokenizer.ggml.tokens")?.map(Array::len))
    }

    /// Returns the key `name` of this architecture.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// Returns the width of the feed-forward network of a layer; layers that predict further tokens have that of the last
    /// one.
    pub(super) fn width(&self, layer: usize) -> usize {
        self.feed_forward.get(layer).or(self.feed_forward.last()).copied().unwrap_or(0)
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
    let eps = match ollama::eps(architecture).filter(|_| m.value(&key).is_none()) {
        Some(default) => default,
        None => m.f32(&key)?,
    };
    if eps.is_finite() && eps >= 0.0 {
        Ok(eps)
    } else {
        Err(Error::model(named(&key), eps, "a finite number of at least 0"))
    }
}

/// Returns the size of the vocabulary: `vocab_size` or the number of tokens, whichever is larger. The token
/// embedding may have more rows, and only as many if the file gives neither.
fn read_vocabulary(gguf: &GgufFile, architecture: &str) -> Result<usize> {
    let rows = gguf.require("token_embd.weight")?.ne[1];
    let key = format!("{architecture}.vocab_size");
    let declared = gguf.metadata().opt_usize(&key)?;
    if let Some(declared) = declared.filter(|&declared| declared > rows || declared == 0) {
        let expected = format!("1 to {rows}, the rows of the token embedding");
        return Err(Error::model(named(&key), declared, expected));
    }
    // The output layer may have rows for text only.
    let output = gguf.tensor("output.weight").map(|t| t.ne[1]).filter(|&rows| Some(rows) >= declared);
    let most = output.filter(|_| declared.is_some()).unwrap_or(rows).min(rows).max(1);
    Ok(declared.max(Hparams::tokens(gguf)?).unwrap_or(rows).clamp(1, most))
}
