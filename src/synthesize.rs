//! Synthetic models with seeded random weights, written as GGUF: the same file on every machine for the same
//! seed.
//!
//! Weights are normal with a standard deviation of `1 / sqrt(columns)`, so activations retain their magnitude
//! from layer to layer. In deep models the contributions of the layers are small compared to the stream, so
//! that rounding errors stay small. Norm weights are around 1, biases around 0. The output of the model is
//! meaningless, but it performs exactly the computations of a trained model of its shape. Its vocabulary
//! spells bytes, and has made-up words for the rest.

mod keys;
mod named;
mod tensors;
mod vocabulary;

pub use named::NAMED;

use crate::model::{Experts, Latent, Recurrent};
use ggml_core::encode::encode;
use ggml_core::gguf::{GgufWriter, TensorData};
use ggml_core::rng::Rng;
use ggml_core::{DType, Error, Result};
use rayon::prelude::*;
use std::path::Path;
use tensors::Fill;

/// Architectures that can be synthesized.
pub const ARCHITECTURES: [&str; 23] = [
    "llama",
    "qwen2",
    "qwen3",
    "qwen3moe",
    "qwen35",
    "phi3",
    "granite",
    "gemma2",
    "gemma3",
    "gpt-oss",
    "qwen35moe",
    "qwen3next",
    "glm4moe",
    "olmo2",
    "mistral3",
    "lfm2",
    "lfm2moe",
    "llama4",
    "gemma4",
    "deepseek2",
    "granitehybrid",
    "nemotron_h",
    "nemotron_h_moe",
];

/// Architectures without an output layer that can be synthesized.
pub const ENCODERS: [&str; 1] = ["bert"];

/// Architectures whose synthetic models may have a layer that predicts further tokens.
pub const PREDICTING: [&str; 5] = ["qwen35", "qwen35moe", "qwen3next", "glm4moe", "deepseek2"];

/// Drafts of a layer that predicts further tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Drafts {
    /// Random ones: the model agrees with hardly any.
    Random,
    /// Drafts of the model without its layers, whose contributions to the stream are multiplied by this factor: the smaller it
    /// is, the more drafts the model agrees with. The output layer is not the embedding then, which would repeat the last
    /// token.
    Agreeing(f32),
}

/// Extents and types of a synthetic model.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// One of [`ARCHITECTURES`] or [`ENCODERS`].
    pub architecture: String,
    /// Number of layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub embedding: usize,
    /// Width of the feed-forward network.
    pub feed_forward: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads.
    pub heads_kv: usize,
    /// Elements of a head.
    pub head: usize,
    /// Size of the vocabulary: rows of the embedding.
    pub vocabulary: usize,
    /// Context length.
    pub context: usize,
    /// Base of ROPE's frequencies.
    pub freq_base: f32,
    /// Number of positions that layers with an attention window see (phi3: all layers; gemma3: five of six;
    /// olmo2, llama4: three of four; gemma2, gpt-oss: every other; gemma4: all but every
    /// [`Shape::global_step`]-th).
    pub window: Option<usize>,
    /// Experts of the feed-forward networks.
    pub experts: Option<Experts>,
    /// Extents of recurrent layers, and the list of these layers.
    pub recurrent: Option<Recurrent>,
    /// True for each layer that is only a feed-forward network, in architectures whose layers have one part
    /// each.
    pub feeding: Vec<bool>,
    /// True for each layer with a short convolution in place of attention.
    pub convolved: Vec<bool>,
    /// Extents of latent attention.
    pub latent: Option<Latent>,
    /// gemma4: period of the layers that see all positions, the last layer of each period.
    pub global_step: usize,
    /// gemma4: key and value heads of layers that see all positions.
    pub global_heads_kv: usize,
    /// Width of the embedding that each layer adds; 0 if there is none.
    pub per_layer_embedding: usize,
    /// Number of final layers that read the keys and values of earlier ones.
    pub shared_caches: usize,
    /// Context up to which phi3 uses the short factors of LongRoPE; `None`: no factors.
    pub original_context: Option<usize>,
    /// True if the output layer is the token embedding.
    pub tied: bool,
    /// Drafts of a layer that predicts further tokens, in one of the [`PREDICTING`] architectures; `None`: no such layer.
    pub predictor: Option<Drafts>,
    /// Type of attention matrices.
    pub attention_type: DType,
    /// Type of feed-forward matrices.
    pub feed_forward_type: DType,
    /// Type of embedding and output layer.
    pub embedding_type: DType,
}

impl Shape {
    /// Taps of short convolutions.
    const TAPS: usize = 3;

    /// Returns the same shape with all matrices of one type.
    pub fn with_type(mut self, dtype: DType) -> Shape {
        (self.attention_type, self.feed_forward_type, self.embedding_type) = (dtype, dtype, dtype);
        self
    }

    /// Returns the same shape with a layer that predicts further tokens.
    pub fn with_predictor(self, drafts: Drafts) -> Shape {
        let tied = self.tied && drafts == Drafts::Random;
        Shape { predictor: Some(drafts), tied, ..self }
    }
}

/// Returns recurrent layers with states of `[key_length, key_heads, value_length, value_heads]`.
fn recurrent(
    [key_length, key_heads, value_length, value_heads]: [usize; 4],
    layers: impl Iterator<Item = bool>,
) -> Recurrent {
    let layers = layers.collect();
    Recurrent { taps: 4, key_length, key_heads, value_length, value_heads, grouped: false, layers }
}

/// Number of values that a thread encodes at a time.
const CHUNK: usize = 1 << 16;

/// Number of chunks that are made in parallel before they are written.
const GROUP: usize = 64;

/// Creates a writer for a model; the weights are made when it is written, one chunk at a time.
fn writer(shape: &Shape, seed: u64) -> Result<GgufWriter<'static>> {
    let mut known = ARCHITECTURES.iter().chain(&ENCODERS);
    if !known.any(|name| *name == shape.architecture) {
        let expected = format!("one of {}, {}", ARCHITECTURES.join(", "), ENCODERS.join(", "));
        return Err(Error::argument("architecture", format!("'{}'", shape.architecture), expected));
    }
    if shape.predictor.is_some() && !PREDICTING.contains(&shape.architecture.as_str()) {
        let expected = format!("one of {}, or no predictor", PREDICTING.join(", "));
        return Err(Error::argument("architecture", format!("'{}'", shape.architecture), expected));
    }
    let mut w = GgufWriter::new();
    w.set("general.architecture", shape.architecture.as_str())?;
    w.set("general.name", format!("synthetic {} (seed {seed})", shape.architecture))?;
    shape.set_common(&mut w)?;
    shape.set_attention(&mut w)?;
    shape.set_special(&mut w)?;
    vocabulary::add(&mut w, shape.vocabulary)?;
    for (name, dtype, ne, fill) in shape.tensors() {
        w.tensor(&name, dtype, &ne, contents(name.clone(), seed, dtype, &ne, fill))?;
    }
    Ok(w)
}

/// Returns the contents of a tensor, which are made when they are written. Each chunk of rows has its own
/// generator, so that threads can share the work.
fn contents(name: String, seed: u64, dtype: DType, ne: &[usize], fill: Fill) -> TensorData<'static> {
    let (count, columns) = (ne.iter().product::<usize>(), ne[0]);
    let step = (CHUNK / columns.max(1)).max(1) * columns.max(1);
    TensorData::stream(move |sink| {
        let chunks: Vec<usize> = (0..count.div_ceil(step)).collect();
        for group in chunks.chunks(GROUP) {
            let make = |&chunk: &usize| {
                let mut rng = Rng::named(&format!("{name}/{chunk}"), seed);
                let n = step.min(count - chunk * step);
                let first = chunk * step;
                let values: Vec<f32> = (first..first + n).map(|i| fill.value(&mut rng, columns, i)).collect();
                encode(dtype, columns, &values)
            };
            let encoded = group.par_iter().map(make).collect::<Result<Vec<_>>>()?;
            encoded.iter().try_for_each(|bytes| sink.put(bytes))?;
        }
        Ok(())
    })
}

/// Returns the bytes of weights in a shape's file, without metadata.
pub fn weight_bytes(shape: &Shape) -> usize {
    let bytes =
        |dtype: DType, ne: &[usize]| dtype.row_bytes(ne[0]).unwrap_or(0) * ne[1..].iter().product::<usize>();
    shape.tensors().iter().map(|(_, dtype, ne, _)| bytes(*dtype, ne)).sum()
}

/// Writes a model to a file.
pub fn write(shape: &Shape, seed: u64, path: &Path) -> Result<()> {
    writer(shape, seed)?.write_to(path)
}

/// Returns a model as bytes in memory.
pub fn bytes(shape: &Shape, seed: u64) -> Result<Vec<u8>> {
    writer(shape, seed)?.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelFile;
    use ggml_core::gguf::GgufFile;

    #[test]
    fn known_shapes_have_the_known_sizes() {
        // Published parameter counts, in millions; norms and biases are few. qwen3.5-2b and gemma-4-e4b are
        // published with encoders for images and sound; 1881 and 7518 are the counts of their text models
        // from their configurations.
        let published = [
            494, 1544, 596, 1236, 8030, 3836, 1000, 2614, 30532, 20914, 1881, 34660, 106_852, 15706, 1485,
            3429, 1170, 8339, 6939, 32_207, 31_578, 7518, 25_200,
        ];
        assert_eq!(NAMED.len(), published.len());
        for (row, wanted) in NAMED.iter().zip(published) {
            let shape = Shape::named(row.0).expect("a name of the list").with_type(DType::F16);
            let (count, wanted) = (weight_bytes(&shape) as f64 / 2.0, f64::from(wanted) * 1e6);
            assert!((count / wanted - 1.0).abs() < 0.01, "{}: {count}", row.0);
        }
        assert!(Shape::named("llama").is_none() && Shape::named("small-mamba").is_none());
    }

    #[test]
    fn small_shapes_are_small_and_can_chat() {
        let small: Vec<String> = Shape::names().filter(|name| name.starts_with(named::SMALL)).collect();
        assert_eq!(small.len(), ARCHITECTURES.len() + ENCODERS.len());
        for name in small {
            let shape = Shape::named(&name).expect("a name of the list");
            assert!((1_000_000..20_000_000).contains(&weight_bytes(&shape)), "{name}");
            if ENCODERS.contains(&shape.architecture.as_str()) {
                continue;
            }
            let gguf = GgufFile::from_bytes(bytes(&shape, 1).unwrap()).unwrap();
            let template = gguf.metadata().str("tokenizer.chat_template").unwrap().to_string();
            assert_eq!(template, vocabulary::TEMPLATE, "{name}");
        }
    }

    #[test]
    fn every_architecture_opens_and_seeds_matter() {
        for architecture in ARCHITECTURES {
            let shape = Shape { tied: architecture == "qwen2", ..Shape::small(architecture) };
            let a = bytes(&shape, 1).unwrap();
            assert_eq!(a, bytes(&shape, 1).unwrap());
            assert_ne!(a, bytes(&shape, 2).unwrap());
            let file = ModelFile::from_gguf(GgufFile::from_bytes(a).unwrap()).unwrap();
            assert_eq!(file.hparams().layers, 4);
        }
        assert!(bytes(&Shape::small("mamba"), 1).is_err());
    }
}
