//! Models with seeded random weights, written as GGUF: the same file on every machine for the same seed.
//!
//! Weights are normal with a standard deviation of `1 / sqrt(columns)`, so that activations keep their size from
//! layer to layer; norm weights lie around 1, biases around 0. Such a model says nothing sensible, and computes
//! exactly what a trained one of its shape computes.

use ggml_core::encode::encode;
use ggml_core::gguf::{GgufWriter, TensorData};
use ggml_core::rng::Rng;
use ggml_core::{DType, Error, Result};
use std::path::Path;

/// Extents and types of a synthetic model.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// `llama`, `qwen2` or `qwen3`.
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
            freq_base: 10000.0,
            tied: true,
            attention_type: DType::Q8_0,
            feed_forward_type: DType::Q4_0,
            embedding_type: DType::F16,
        }
    }

    /// The same shape with all matrices of one type.
    pub fn with_type(mut self, dtype: DType) -> Shape {
        (self.attention_type, self.feed_forward_type, self.embedding_type) = (dtype, dtype, dtype);
        self
    }

    fn tensors(&self) -> Vec<(String, DType, Vec<usize>, Kind)> {
        let (e, q, kv) = (self.embedding, self.heads * self.head, self.heads_kv * self.head);
        let mut all =
            vec![("token_embd.weight".into(), self.embedding_type, vec![e, self.vocabulary], Kind::Matrix)];
        for layer in 0..self.layers {
            let mut add = |name: &str, dtype: DType, ne: &[usize], kind: Kind| {
                all.push((format!("blk.{layer}.{name}"), dtype, ne.to_vec(), kind));
            };
            let (attention, ffn) = (self.attention_type, self.feed_forward_type);
            add("attn_norm.weight", DType::F32, &[e], Kind::Norm);
            add("attn_q.weight", attention, &[e, q], Kind::Matrix);
            add("attn_k.weight", attention, &[e, kv], Kind::Matrix);
            add("attn_v.weight", attention, &[e, kv], Kind::Matrix);
            if self.architecture == "qwen2" {
                add("attn_q.bias", DType::F32, &[q], Kind::Bias);
                add("attn_k.bias", DType::F32, &[kv], Kind::Bias);
                add("attn_v.bias", DType::F32, &[kv], Kind::Bias);
            }
            if self.architecture == "qwen3" {
                add("attn_q_norm.weight", DType::F32, &[self.head], Kind::Norm);
                add("attn_k_norm.weight", DType::F32, &[self.head], Kind::Norm);
            }
            add("attn_output.weight", attention, &[q, e], Kind::Matrix);
            add("ffn_norm.weight", DType::F32, &[e], Kind::Norm);
            add("ffn_gate.weight", ffn, &[e, self.feed_forward], Kind::Matrix);
            add("ffn_up.weight", ffn, &[e, self.feed_forward], Kind::Matrix);
            add("ffn_down.weight", ffn, &[self.feed_forward, e], Kind::Matrix);
        }
        all.push(("output_norm.weight".into(), DType::F32, vec![e], Kind::Norm));
        if !self.tied {
            all.push(("output.weight".into(), self.embedding_type, vec![e, self.vocabulary], Kind::Matrix));
        }
        all
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Matrix,
    Norm,
    Bias,
}

impl Kind {
    fn value(self, rng: &mut Rng, columns: usize) -> f32 {
        match self {
            Kind::Matrix => rng.normal() / (columns as f32).sqrt(),
            Kind::Norm => 1.0 + 0.1 * rng.normal(),
            Kind::Bias => 0.1 * rng.normal(),
        }
    }
}

/// Values encoded at a time.
const CHUNK: usize = 1 << 16;

/// A model as a writer; the weights are made when it is written, a chunk at a time.
fn writer(shape: &Shape, seed: u64) -> Result<GgufWriter<'static>> {
    if !["llama", "qwen2", "qwen3"].contains(&shape.architecture.as_str()) {
        return Err(Error::argument(
            "architecture",
            format!("'{}' cannot be synthesized", shape.architecture),
        ));
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
        ("rope.dimension_count", shape.head),
        ("vocab_size", shape.vocabulary),
    ] {
        w.set(key(name), value as u32)?;
    }
    w.set(key("rope.freq_base"), shape.freq_base)?;
    w.set(key("attention.layer_norm_rms_epsilon"), 1e-5f32)?;
    for (name, dtype, ne, kind) in shape.tensors() {
        let (count, columns) = (ne.iter().product::<usize>(), ne[0]);
        let mut rng = Rng::named(&name, seed);
        let step = (CHUNK / columns).max(1) * columns;
        let data = TensorData::stream(move |sink| {
            let mut left = count;
            while left > 0 {
                let n = left.min(step);
                let values: Vec<f32> = (0..n).map(|_| kind.value(&mut rng, columns)).collect();
                sink.put(&encode(dtype, columns, &values)?)?;
                left -= n;
            }
            Ok(())
        });
        w.tensor(name, dtype, &ne, data)?;
    }
    Ok(w)
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
    fn every_architecture_opens_and_seeds_matter() {
        for architecture in ["llama", "qwen2", "qwen3"] {
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
