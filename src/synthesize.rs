//! Models with seeded random weights, written as GGUF: the same file on every machine for the same seed.
//!
//! Weights are normal with a standard deviation of `1 / sqrt(columns)`, so that activations keep their size from
//! layer to layer; norm weights lie around 1, biases around 0. Such a model says nothing sensible, and computes
//! exactly what a trained one of its shape computes. Its vocabulary spells bytes, and has made-up words for the rest.

mod tensors;
mod vocabulary;

use crate::model::{Experts, Recurrent};
use ggml_core::encode::encode;
use ggml_core::gguf::{Array, GgufWriter, TensorData};
use ggml_core::rng::Rng;
use ggml_core::{DType, Error, Result};
use rayon::prelude::*;
use std::path::Path;
use tensors::Fill;

/// Architectures that can be synthesized.
pub const ARCHITECTURES: [&str; 10] =
    ["llama", "qwen2", "qwen3", "qwen3moe", "qwen35", "phi3", "granite", "gemma2", "gemma3", "gpt-oss"];

/// Known models: name; architecture; layers, embedding, feed-forward, heads, KV heads, head, vocabulary; base of ROPE's
/// frequencies; whether the output layer is the embedding. From their published configurations; scaling of positions
/// beyond the context of the training is left out.
#[allow(clippy::type_complexity)]
pub const NAMED: &[(&str, &str, [usize; 7], f32, bool)] = &[
    ("qwen2.5-0.5b", "qwen2", [24, 896, 4864, 14, 2, 64, 151_936], 1e6, true),
    ("qwen2.5-1.5b", "qwen2", [28, 1536, 8960, 12, 2, 128, 151_936], 1e6, true),
    ("qwen3-0.6b", "qwen3", [28, 1024, 3072, 16, 8, 128, 151_936], 1e6, true),
    ("llama-3.2-1b", "llama", [16, 2048, 8192, 32, 8, 64, 128_256], 5e5, true),
    ("llama-3.1-8b", "llama", [32, 4096, 14336, 32, 8, 128, 128_256], 5e5, false),
    ("phi4-mini", "phi3", [32, 3072, 8192, 24, 8, 128, 200_064], 1e4, true),
    ("gemma3-1b", "gemma3", [26, 1152, 6912, 4, 1, 256, 262_144], 1e6, true),
    ("gemma2-2b", "gemma2", [26, 2304, 9216, 8, 4, 256, 256_000], 1e4, true),
    ("qwen3-30b-a3b", "qwen3moe", [48, 2048, 6144, 32, 4, 128, 151_936], 1e6, false),
    ("gpt-oss-20b", "gpt-oss", [24, 2880, 2880, 64, 8, 64, 201_088], 1.5e5, false),
    ("qwen3.5-2b", "qwen35", [24, 2048, 6144, 8, 2, 256, 248_320], 1e7, true),
];

/// Experts of the known models that have some.
const NAMED_EXPERTS: &[(&str, Experts)] = &[
    ("qwen3-30b-a3b", Experts { count: 128, used: 8, feed_forward: 768 }),
    ("gpt-oss-20b", Experts { count: 32, used: 4, feed_forward: 2880 }),
];

/// What the names of small models begin with.
const SMALL: &str = "small-";

/// Extents and types of a synthetic model.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// One of [`ARCHITECTURES`].
    pub architecture: String,
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub embedding: usize,
    /// Width of the feed-forward network.
    pub feed_forward: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub heads_kv: usize,
    /// Elements of a head.
    pub head: usize,
    /// Rows of the embedding.
    pub vocabulary: usize,
    /// Context length.
    pub context: usize,
    /// Base of ROPE's frequencies.
    pub freq_base: f32,
    /// Positions that layers with an attention window see (phi3: all layers; gemma3: five of six; gemma2, gpt-oss: every
    /// other).
    pub window: Option<usize>,
    /// Experts of the feed-forward networks.
    pub experts: Option<Experts>,
    /// Extents of recurrent layers, and which layers those are.
    pub recurrent: Option<Recurrent>,
    /// Context up to which phi3 takes the short factors of LongRoPE; `None`: no factors.
    pub original_context: Option<usize>,
    /// Whether the output layer is the token embedding.
    pub tied: bool,
    /// Type of attention matrices.
    pub attention_type: DType,
    /// Type of feed-forward matrices.
    pub feed_forward_type: DType,
    /// Type of embedding and output layer.
    pub embedding_type: DType,
}

impl Shape {
    /// The model that `compare` runs when it is given none: four layers, 6 million weights, Q8_0 attention, Q4_0
    /// feed-forward, F16 embedding, so that three weight types are exercised.
    pub fn small(architecture: &str) -> Shape {
        Shape {
            architecture: architecture.into(),
            layers: 4,
            embedding: 256,
            feed_forward: 768,
            heads: 8,
            heads_kv: 2,
            head: 64,
            vocabulary: 2048,
            context: 2048,
            freq_base: if architecture == "gemma3" { 1_000_000.0 } else { 10000.0 },
            window: ["gemma2", "gemma3", "gpt-oss"].contains(&architecture).then_some(512),
            experts: ["qwen3moe", "gpt-oss"].contains(&architecture).then_some(Experts {
                count: 8,
                used: 2,
                feed_forward: 256,
            }),
            recurrent: (architecture == "qwen35").then(|| recurrent([64, 2, 64, 4], 4)),
            original_context: (architecture == "phi3").then_some(1024),
            tied: true,
            attention_type: DType::Q8_0,
            feed_forward_type: DType::Q4_0,
            embedding_type: DType::F16,
        }
    }

    /// Names that [`Shape::named`] takes: the known models, and a small one of each architecture.
    pub fn names() -> impl Iterator<Item = String> {
        let small = ARCHITECTURES.iter().map(|architecture| format!("{SMALL}{architecture}"));
        NAMED.iter().map(|row| row.0.to_string()).chain(small)
    }

    /// The shape of a known model, one of [`NAMED`], or [`Shape::small`] as "small-llama", "small-qwen35" ...; all matrices
    /// Q8_0.
    pub fn named(name: &str) -> Option<Shape> {
        if let Some(architecture) = name.strip_prefix(SMALL).filter(|a| ARCHITECTURES.contains(a)) {
            return Some(Shape::small(architecture).with_type(DType::Q8_0));
        }
        let row = NAMED.iter().find(|row| row.0 == name)?;
        let &(
            _,
            architecture,
            [layers, embedding, feed_forward, heads, heads_kv, head, vocabulary],
            base,
            tied,
        ) = row;
        let shape = Shape {
            layers,
            embedding,
            feed_forward,
            heads,
            heads_kv,
            head,
            vocabulary,
            context: 32768,
            freq_base: base,
            tied,
            experts: NAMED_EXPERTS.iter().find(|row| row.0 == name).map(|row| row.1),
            recurrent: (architecture == "qwen35").then(|| recurrent([128, 16, 128, 16], layers)),
            ..Shape::small(architecture)
        };
        Some(shape.with_type(DType::Q8_0))
    }

    /// The same shape with all matrices of one type.
    pub fn with_type(mut self, dtype: DType) -> Shape {
        (self.attention_type, self.feed_forward_type, self.embedding_type) = (dtype, dtype, dtype);
        self
    }

    /// Elements of a head that are rotated.
    fn rotated(&self) -> usize {
        match self.architecture.as_str() {
            "phi3" => self.head * 3 / 4 / 2 * 2,
            "qwen35" => self.head / 4 / 2 * 2,
            _ => self.head,
        }
    }

    /// Keys that not every architecture has.
    fn set_special(&self, w: &mut GgufWriter<'_>) -> Result<()> {
        let key = |name: &str| format!("{}.{name}", self.architecture);
        if let Some(window) = self.window {
            w.set(key("attention.sliding_window"), window as u32)?;
        }
        if let Some(original) = self.original_context {
            w.set(key("rope.scaling.original_context_length"), original as u32)?;
            // The factor of magnitudes as LongRoPE's paper defines it.
            let longer = (self.context as f32 / original as f32).max(1.0);
            w.set(key("rope.scaling.attn_factor"), (1.0 + longer.ln() / (original as f32).ln()).sqrt())?;
        }
        if let Some(experts) = self.experts {
            w.set(key("expert_count"), experts.count as u32)?;
            w.set(key("expert_used_count"), experts.used as u32)?;
            w.set(key("expert_feed_forward_length"), experts.feed_forward as u32)?;
        }
        if let Some(r) = &self.recurrent {
            w.set(key("ssm.conv_kernel"), r.taps as u32)?;
            w.set(key("ssm.state_size"), r.key_length as u32)?;
            w.set(key("ssm.group_count"), r.key_heads as u32)?;
            w.set(key("ssm.time_step_rank"), r.value_heads as u32)?;
            w.set(key("ssm.inner_size"), (r.value_length * r.value_heads) as u32)?;
            w.set(key("attention.recurrent_layers"), Array::from(&r.layers[..]))?;
        }
        if self.architecture == "gpt-oss" {
            let longer = 4;
            w.set(key("rope.scaling.type"), "yarn")?;
            w.set(key("rope.scaling.factor"), longer as f32)?;
            w.set(key("rope.scaling.original_context_length"), (self.context / longer) as u32)?;
        }
        if self.architecture == "granite" {
            w.set(key("embedding_scale"), 12.0f32)?;
            w.set(key("residual_scale"), 0.22f32)?;
            w.set(key("attention.scale"), 1.0 / self.head as f32)?;
            w.set(key("logit_scale"), 8.0f32)?;
        }
        Ok(())
    }
}

/// A delta net of `[key_length, key_heads, value_length, value_heads]` in three of four layers.
fn recurrent([key_length, key_heads, value_length, value_heads]: [usize; 4], layers: usize) -> Recurrent {
    let layers = (1..=layers).map(|n| n % 4 != 0).collect();
    Recurrent { taps: 4, key_length, key_heads, value_length, value_heads, layers }
}

/// Values encoded at a time by a thread.
const CHUNK: usize = 1 << 16;

/// Chunks made in parallel before they are written.
const GROUP: usize = 64;

/// A model as a writer; the weights are made when it is written, a chunk at a time.
fn writer(shape: &Shape, seed: u64) -> Result<GgufWriter<'static>> {
    if !ARCHITECTURES.contains(&shape.architecture.as_str()) {
        let expected = format!("one of {}", ARCHITECTURES.join(", "));
        return Err(Error::argument("architecture", format!("'{}'", shape.architecture), expected));
    }
    let key = |name: &str| format!("{}.{name}", shape.architecture);
    let mut w = GgufWriter::new();
    w.set("general.architecture", shape.architecture.as_str())?;
    w.set("general.name", format!("synthetic {} (seed {seed})", shape.architecture))?;
    for (name, value) in [
        ("block_count", shape.layers),
        ("context_length", shape.context),
        ("embedding_length", shape.embedding),
        ("feed_forward_length", shape.feed_forward),
        ("attention.head_count", shape.heads),
        ("attention.head_count_kv", shape.heads_kv),
        ("attention.key_length", shape.head),
        ("attention.value_length", shape.head),
        ("rope.dimension_count", shape.rotated()),
        ("vocab_size", shape.vocabulary),
    ] {
        w.set(key(name), value as u32)?;
    }
    w.set(key("rope.freq_base"), shape.freq_base)?;
    w.set(key("attention.layer_norm_rms_epsilon"), 1e-5f32)?;
    shape.set_special(&mut w)?;
    vocabulary::add(&mut w, shape.vocabulary)?;
    for (name, dtype, ne, fill) in shape.tensors() {
        w.tensor(&name, dtype, &ne, contents(name.clone(), seed, dtype, &ne, fill))?;
    }
    Ok(w)
}

/// The contents of a tensor, made when they are written: each chunk of rows from a generator of its own, so that threads can
/// share the work.
fn contents(name: String, seed: u64, dtype: DType, ne: &[usize], fill: Fill) -> TensorData<'static> {
    let (count, columns) = (ne.iter().product::<usize>(), ne[0]);
    let step = (CHUNK / columns.max(1)).max(1) * columns.max(1);
    TensorData::stream(move |sink| {
        let chunks: Vec<usize> = (0..count.div_ceil(step)).collect();
        for group in chunks.chunks(GROUP) {
            let make = |&chunk: &usize| {
                let mut rng = Rng::named(&format!("{name}/{chunk}"), seed);
                let n = step.min(count - chunk * step);
                let values: Vec<f32> = (0..n).map(|_| fill.value(&mut rng, columns)).collect();
                encode(dtype, columns, &values)
            };
            let encoded = group.par_iter().map(make).collect::<Result<Vec<_>>>()?;
            encoded.iter().try_for_each(|bytes| sink.put(bytes))?;
        }
        Ok(())
    })
}

/// Bytes of weights that a shape's file has, without its metadata.
pub fn weight_bytes(shape: &Shape) -> usize {
    let bytes =
        |dtype: DType, ne: &[usize]| dtype.row_bytes(ne[0]).unwrap_or(0) * ne[1..].iter().product::<usize>();
    shape.tensors().iter().map(|(_, dtype, ne, _)| bytes(*dtype, ne)).sum()
}

/// Writes a model.
pub fn write(shape: &Shape, seed: u64, path: &Path) -> Result<()> {
    writer(shape, seed)?.write_to(path)
}

/// A model in memory.
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
        // Published numbers of parameters, in millions; norms and biases are few.
        // qwen3.5-2b is published with a vision tower; 1881 is its text model by its configuration.
        let published = [494, 1544, 596, 1236, 8030, 3836, 1000, 2614, 30532, 20914, 1881];
        assert_eq!(NAMED.len(), published.len());
        for (row, wanted) in NAMED.iter().zip(published) {
            let shape = Shape::named(row.0).expect("a name of the list").with_type(DType::F16);
            let (count, wanted) = (weight_bytes(&shape) as f64 / 2.0, f64::from(wanted) * 1e6);
            assert!((count / wanted - 1.0).abs() < 0.01, "{}: {count}", row.0);
        }
        assert!(NAMED_EXPERTS.iter().all(|row| Shape::named(row.0).is_some()));
        assert!(Shape::named("llama").is_none() && Shape::named("small-mamba").is_none());
    }

    #[test]
    fn small_shapes_are_small_and_can_chat() {
        let small: Vec<String> = Shape::names().filter(|name| name.starts_with(SMALL)).collect();
        assert_eq!(small.len(), ARCHITECTURES.len());
        for name in small {
            let shape = Shape::named(&name).expect("a name of the list");
            assert!((1_000_000..20_000_000).contains(&weight_bytes(&shape)), "{name}");
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
