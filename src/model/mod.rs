//! Models: a GGUF file, its architecture, and its weights on a backend.
//!
//! An architecture is one file here. It reads the hyperparameters from the metadata and builds a graph for a batch.

use crate::session::{Session, SessionOptions};
use ggml_core::backend::{Backend, Slice};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, RopeMode};
use ggml_core::{Error, Result, TensorId};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

mod builder;
mod gemma2;
mod gemma3;
mod gpt_oss;
mod granite;
mod hparams;
mod llama;
mod moe;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen35;
mod qwen3moe;
mod recurrent;
mod weights;

pub use builder::{BatchGraph, BatchShape, GraphInputs, StateKind};
pub use hparams::{Hparams, RopeScaling, Scales, SoftCaps, Window};
pub use moe::Experts;
pub use recurrent::Recurrent;

use builder::{Builder, Layer};

/// An architecture: how a family of models is computed.
trait Architecture: Sync {
    /// Name in `general.architecture`.
    fn name(&self) -> &'static str;

    /// Pairing of ROPE.
    fn rope_mode(&self) -> RopeMode;

    /// Reads the hyperparameters that not every architecture has.
    fn read(&self, _gguf: &GgufFile, _hparams: &mut Hparams) -> Result<()> {
        Ok(())
    }

    /// q, k and v of a layer as `[d, heads, tokens]`, positions included, from its normed input.
    fn project(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let heads = b.qkv(x, layer)?;
        b.turned(heads, layer)
    }

    /// What a layer makes of its normed input before the feed-forward network: attention.
    fn mixer(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<TensorId> {
        let heads = self.project(b, x, layer)?;
        let attended = b.attention(heads, layer)?;
        b.linear(attended, &layer.name("attn_output"), b.hparams.embedding)
    }

    /// The norm in front of the feed-forward network.
    fn feed_forward_norm(&self) -> &'static str {
        "ffn_norm"
    }

    /// The feed-forward network of a layer: SwiGLU.
    fn feed_forward(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<TensorId> {
        b.gated(x, Activation::Silu, layer)
    }

    /// Norms of what attention and feed-forward network give.
    fn norms_after(&self) -> [Option<&'static str>; 2] {
        [None, None]
    }

    /// Adds the whole model to a graph.
    fn build(&self, b: &mut Builder<'_>) -> Result<()> {
        b.decoder(self)
    }
}

static ARCHITECTURES: &[&dyn Architecture] = &[
    &llama::Llama,
    &qwen2::Qwen2,
    &qwen3::Qwen3,
    &qwen3moe::Qwen3Moe,
    &qwen35::Qwen35,
    &phi3::Phi3,
    &granite::Granite,
    &gemma2::Gemma2,
    &gemma3::Gemma3,
    &gpt_oss::GptOss,
];

/// A model file that has been read and checked, on no device yet.
pub struct ModelFile {
    gguf: GgufFile,
    hparams: Hparams,
    architecture: &'static dyn Architecture,
}

impl std::fmt::Debug for ModelFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelFile").field("hparams", &self.hparams).finish_non_exhaustive()
    }
}

impl ModelFile {
    /// Opens a file: format, architecture, hyperparameters and the presence, shape and type of every tensor that the
    /// architecture needs are checked. A tensor that it does not know is an error.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile> {
        let path = path.as_ref();
        ModelFile::from_gguf(GgufFile::open(path)?).map_err(|e| e.with_path(path))
    }

    /// From a GGUF file that is open already.
    pub fn from_gguf(gguf: GgufFile) -> Result<ModelFile> {
        let name = gguf.metadata().str("general.architecture")?;
        let Some(architecture) = ARCHITECTURES.iter().copied().find(|a| a.name() == name) else {
            let known: Vec<&str> = ARCHITECTURES.iter().map(|a| a.name()).collect();
            let what = format!("architecture '{name}' is not supported; there are {}", known.join(", "));
            return Err(Error::model(what));
        };
        let mut hparams = Hparams::read(&gguf, architecture.rope_mode())?;
        architecture.read(&gguf, &mut hparams)?;
        let file = ModelFile { gguf, hparams, architecture };
        // The smallest graph touches every tensor.
        let cache = ggml_core::DType::F32;
        let smallest = BatchShape { tokens: 1, kv: 1, context: 1, sequences: 1, outputs: 1, cache };
        file.built(&smallest)?.check_all_known()?;
        Ok(file)
    }

    /// The hyperparameters.
    pub fn hparams(&self) -> &Hparams {
        &self.hparams
    }

    /// The file.
    pub fn gguf(&self) -> &GgufFile {
        &self.gguf
    }

    /// The graph of a batch.
    pub fn graph(&self, shape: &BatchShape) -> Result<BatchGraph> {
        self.built(shape)?.finish()
    }

    fn built(&self, shape: &BatchShape) -> Result<Builder<'_>> {
        let mut builder = Builder::new(&self.gguf, &self.hparams, *shape)?;
        self.architecture.build(&mut builder)?;
        Ok(builder)
    }
}

/// A model with its weights on a backend. Clones share it, also between threads.
#[derive(Clone)]
pub struct Model {
    inner: Arc<Inner>,
}

struct Inner {
    file: ModelFile,
    backend: Arc<dyn Backend>,
    weights: HashMap<String, Slice>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("file", &self.inner.file)
            .field("device", self.backend().device())
            .finish()
    }
}

impl Model {
    /// Opens a file and loads it.
    pub fn load(path: impl AsRef<Path>, backend: Arc<dyn Backend>) -> Result<Model> {
        Model::from_file(ModelFile::open(path)?, backend)
    }

    /// Loads the weights of an open file: in place where the backend can read the memory map, else into a few large
    /// blocks of device memory.
    pub fn from_file(file: ModelFile, backend: Arc<dyn Backend>) -> Result<Model> {
        Model::from_file_with(file, backend, &mut |_, _| ())
    }

    /// The same; `progress` is told, at the beginning, after each piece of at most 64 MiB and at the end, how many bytes
    /// of weights are on the device and how many there are.
    pub fn from_file_with(
        file: ModelFile,
        backend: Arc<dyn Backend>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Model> {
        let weights = weights::load(file.gguf(), backend.as_ref(), progress)?;
        Ok(Model { inner: Arc::new(Inner { file, backend, weights }) })
    }

    /// The model's file.
    pub fn file(&self) -> &ModelFile {
        &self.inner.file
    }

    /// The hyperparameters.
    pub fn hparams(&self) -> &Hparams {
        self.inner.file.hparams()
    }

    /// The backend that holds the weights.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.inner.backend
    }

    /// Where a weight lies, by its name in the file.
    pub fn weight(&self, name: &str) -> Option<&Slice> {
        self.inner.weights.get(name)
    }

    /// A session with a KV cache of its own.
    pub fn session(&self, options: &SessionOptions) -> Result<Session> {
        Session::new(self.clone(), options)
    }
}
