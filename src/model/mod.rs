//! Models: a GGUF file, its architecture, and its weights on a backend.
//!
//! An architecture is one file here. It reads the hyperparameters from the metadata and builds a graph for a batch.
//!
//! [`Model::load`] puts a whole model onto one backend. [`Model::load_with`] divides it between a device and the
//! processor, after [`ModelFile::estimate`] has found that it fits:
//!
//! ```no_run
//! use diptych::model::{LoadOptions, Model, ModelFile, Offload};
//!
//! # fn main() -> diptych::Result<()> {
//! let backend = diptych::open("vulkan", &diptych::OpenOptions::default())?;
//! let options = LoadOptions::default().with_offload(Offload::Auto);
//! let file = ModelFile::open("model.gguf")?;
//! print!("{}", file.estimate(backend.as_ref(), &options)?);
//! let model = Model::load_with(file, backend, &options, &mut |_, _| ())?;
//! let session = model.session(&options.session)?;
//! # Ok(())
//! # }
//! ```
//!
//! Weights are copied only where they have to be. `cpu` and `reference` read the memory map of the file, and so does a
//! Vulkan device whose memory is the host's (an integrated GPU, a software device) if its driver imports file pages
//! (VK_EXT_external_memory_host); other Vulkan devices and all HIP devices get copies of the weights that they use.

use crate::session::{Session, SessionOptions};
use ggml_core::backend::{Backend, Slice};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, Glu, RopeMode};
use ggml_core::schedule::{Fallback, Placement};
use ggml_core::{MemoryNeed, Result, TensorId};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

mod attention;
mod batch;
mod bert;
mod best;
mod branch;
mod builder;
mod deepseek2;
mod estimate;
mod gemma2;
mod gemma3;
mod gemma4;
mod glm4moe;
mod gpt_oss;
mod granite;
mod hparams;
mod identity;
mod latent;
mod layers;
mod lfm2;
mod llama;
mod llama4;
mod mamba;
mod mistral3;
mod moe;
mod nearest;
mod nemotron;
mod offload;
mod olmo2;
mod outline;
mod phi3;
mod pooling;
mod qwen2;
mod qwen3;
mod qwen35;
mod qwen3moe;
mod recurrent;
mod weights;

pub use batch::{BatchGraph, BatchShape, GraphInputs, Places, StateKind, Want};
pub use best::BestNodes;
pub use estimate::{Estimate, LoadOptions};
pub use hparams::{Hparams, RopeScaling, Scales, SoftCaps};
pub use latent::Latent;
pub use layers::{Attention, Temperature, Window};
pub use moe::{Experts, Gating};
pub use offload::Offload;
pub(crate) use offload::{DEVICES, HOST, MAIN, Needs};
pub use outline::{Outline, OutlineStep, OutlineUnit};
pub use pooling::Pooling;
pub use recurrent::Recurrent;

use branch::Branch;
use builder::{Builder, Layer};
use offload::Division;

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
    fn mixer(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        b.attending(self, x, layer).map(Branch::One)
    }

    /// Norms in front of the mixer and the feed-forward network.
    fn norms_before(&self) -> [Option<&'static str>; 2] {
        [Some("attn_norm"), Some("ffn_norm")]
    }

    /// Whether each layer has a feed-forward network behind its mixer; else the mixers of some layers are such networks.
    fn mixes_and_feeds(&self) -> bool {
        true
    }

    /// The feed-forward network of a layer: SwiGLU, or a mixture of such where the layer has experts.
    fn feed_forward(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        match b.routed(layer) {
            Some(experts) => b.mixture(x, experts, Glu::new(Activation::Silu), layer),
            None => b.gated(x, Activation::Silu, layer).map(Branch::One),
        }
    }

    /// What a layer does with the stream at its end.
    fn finish_layer(&self, _b: &mut Builder<'_>, x: TensorId, _layer: &Layer) -> Result<TensorId> {
        Ok(x)
    }

    /// Norms of what attention and feed-forward network give.
    fn norms_after(&self) -> [Option<&'static str>; 2] {
        [None, None]
    }

    /// The stream that the first layer begins with.
    fn embed(&self, b: &mut Builder<'_>) -> Result<TensorId> {
        b.embedding()
    }

    /// The norm in front of the output layer.
    fn output_norm(&self) -> &'static str {
        "output_norm"
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
    &qwen35::QWEN35,
    &qwen35::QWEN35MOE,
    &qwen35::QWEN3NEXT,
    &phi3::Phi3,
    &granite::GRANITE,
    &granite::GRANITEHYBRID,
    &gemma2::Gemma2,
    &gemma3::Gemma3,
    &gemma4::Gemma4,
    &gpt_oss::GptOss,
    &glm4moe::Glm4Moe,
    &olmo2::Olmo2,
    &mistral3::Mistral3,
    &lfm2::LFM2,
    &lfm2::LFM2MOE,
    &llama4::Llama4,
    &deepseek2::Deepseek2,
    &nemotron::NEMOTRON_H,
    &nemotron::NEMOTRON_H_MOE,
    &bert::Bert,
];

/// A model file that has been read and checked, on no device yet.
pub struct ModelFile {
    gguf: GgufFile,
    hparams: Hparams,
    architecture: &'static dyn Architecture,
    /// See [`ModelFile::identity`]; made when it is first asked for.
    identity: OnceLock<u64>,
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
            return Err(nearest::unknown(&gguf, name, ARCHITECTURES));
        };
        let mut hparams = Hparams::read(&gguf, architecture.rope_mode())?;
        architecture.read(&gguf, &mut hparams)?;
        if let Some(experts) = hparams.experts {
            experts.check_groups(&hparams)?;
        }
        let file = ModelFile { gguf, hparams, architecture, identity: OnceLock::new() };
        // The smallest graph touches every tensor.
        let cache = ggml_core::DType::F32;
        let want = Want::Logits;
        let smallest = BatchShape { tokens: 1, kv: 1, context: 1, sequences: 1, outputs: 1, cache, want };
        file.built(&smallest, false)?.check_all_known()?;
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
        self.built(shape, false)?.finish()
    }

    /// The graph of a step whose token is state: the step before has left it there, as this one leaves its best token for
    /// the next.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a shape of anything but one token, of which the best one is wanted.
    ///
    /// [`Error::InvalidArgument`]: ggml_core::Error::InvalidArgument
    pub(crate) fn chained_graph(&self, shape: &BatchShape) -> Result<BatchGraph> {
        self.built(shape, true)?.finish()
    }

    fn built(&self, shape: &BatchShape, chained: bool) -> Result<Builder<'_>> {
        let mut builder = Builder::new(&self.gguf, &self.hparams, *shape, chained)?;
        self.architecture.build(&mut builder)?;
        Ok(builder)
    }
}

/// A model with its weights on a backend, and on the host as far as the host computes. Clones share it, also between
/// threads.
#[derive(Clone)]
pub struct Model {
    inner: Arc<Inner>,
}

struct Inner {
    file: ModelFile,
    /// The device, and the host where there is one.
    backends: Vec<Arc<dyn Backend>>,
    /// By device.
    weights: Vec<HashMap<String, Slice>>,
    /// How it is divided; `None`: the device has everything.
    estimate: Option<Estimate>,
    /// The warning of [`Model::warn_beyond_training`].
    warned: Once,
    /// Fallbacks of batches of shapes that the estimate did not look at.
    later: Mutex<Vec<Fallback>>,
}

impl Inner {
    fn new(
        file: ModelFile,
        backends: Vec<Arc<dyn Backend>>,
        weights: Vec<HashMap<String, Slice>>,
        estimate: Option<Estimate>,
    ) -> Inner {
        Inner { file, backends, weights, estimate, warned: Once::new(), later: Mutex::default() }
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("file", &self.inner.file)
            .field("device", self.backend().device())
            .field("units", &self.units())
            .finish()
    }
}

impl Model {
    /// Opens a file and loads it.
    pub fn load(path: impl AsRef<Path>, backend: Arc<dyn Backend>) -> Result<Model> {
        Model::from_file(ModelFile::open(path)?, backend)
    }

    /// Loads the weights of an open file: in place where the backend can read the memory map, else into a few large
    /// blocks of device memory. The backend has to compute everything.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] where the device says that it has less memory than the weights need, before anything is
    /// loaded ([`LoadOptions::check_memory`] is a way around it); what the backend reports.
    ///
    /// [`Error::DoesNotFit`]: ggml_core::Error::DoesNotFit
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
        let tensors = file.gguf().tensors().iter().collect();
        let weights = vec![weights::load(file.gguf(), &tensors, backend.as_ref(), true, progress)?];
        let inner = Inner::new(file, vec![backend], weights, None);
        Ok(Model { inner: Arc::new(inner) })
    }

    /// Loads part of a model onto a device and leaves the rest to the host, as the options say. Each device gets the
    /// weights that it uses; the host reads them in the memory map. What the device cannot compute goes to the host too
    /// and is listed by [`Model::fallbacks`]. `progress` as in [`Model::from_file_with`], of the device's weights.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] with numbers where a device has no room, before anything is loaded;
    /// [`Error::Unsupported`] where the host cannot compute something either; what the backends report.
    ///
    /// [`Error::DoesNotFit`]: ggml_core::Error::DoesNotFit
    /// [`Error::Unsupported`]: ggml_core::Error::Unsupported
    pub fn load_with(
        file: ModelFile,
        backend: Arc<dyn Backend>,
        options: &LoadOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Model> {
        let host = options.host_backend()?;
        let (estimate, needs) = estimate::estimate(&file, backend.as_ref(), host.as_ref(), options)?;
        if options.check_memory {
            estimate.check()?;
        }
        let backends = vec![backend, host];
        let mut weights = Vec::new();
        for (device, backend) in backends.iter().enumerate() {
            let tensors = needs.tensors(&file, device);
            let mut of_device = |done, total| {
                if device == MAIN {
                    progress(done, total)
                }
            };
            weights.push(weights::load(file.gguf(), &tensors, backend.as_ref(), false, &mut of_device)?);
        }
        let inner = Inner::new(file, backends, weights, Some(estimate));
        Ok(Model { inner: Arc::new(inner) })
    }

    /// The model's file.
    pub fn file(&self) -> &ModelFile {
        &self.inner.file
    }

    /// The hyperparameters.
    pub fn hparams(&self) -> &Hparams {
        self.inner.file.hparams()
    }

    /// The device that the model was loaded for.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.inner.backends[MAIN]
    }

    /// Units on the device, counted from the end: the output, the last layer and so on; layers + 1 is all of the model.
    pub fn units(&self) -> usize {
        self.estimate().map_or(self.hparams().layers + 1, |estimate| estimate.units)
    }

    /// How the model is divided, and what was estimated before it was loaded; for a model loaded by
    /// [`Model::load_with`].
    pub fn estimate(&self) -> Option<&Estimate> {
        self.inner.estimate.as_ref()
    }

    /// Nodes that the device should compute and that the host computes instead, with the reasons: those that were found
    /// when the model was loaded, for sessions as [`LoadOptions::session`] says, and those of batches that ran since.
    pub fn fallbacks(&self) -> Vec<Fallback> {
        let found = self.estimate().map_or(&[][..], |estimate| &estimate.fallbacks);
        found.iter().cloned().chain(self.later_fallbacks()).collect()
    }

    /// The fallbacks that the estimate does not list: of batches of shapes that it did not look at. Each is a warning
    /// in the log, once.
    pub fn later_fallbacks(&self) -> Vec<Fallback> {
        self.inner.later.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where a weight lies, by its name in the file: on the device, else on the host.
    pub fn weight(&self, name: &str) -> Option<&Slice> {
        self.inner.weights.iter().find_map(|weights| weights.get(name))
    }

    /// A session with a KV cache of its own.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] where a device says that it has less memory than the session needs
    /// ([`SessionOptions::check_memory`] is a way around it); [`Error::InvalidArgument`] for options that make no sense;
    /// what the backend reports.
    ///
    /// [`Error::DoesNotFit`]: ggml_core::Error::DoesNotFit
    /// [`Error::InvalidArgument`]: ggml_core::Error::InvalidArgument
    pub fn session(&self, options: &SessionOptions) -> Result<Session> {
        Session::new(self.clone(), options)
    }

    /// The backends by number of device: the device itself, and the host where there is one.
    pub(crate) fn backends(&self) -> &[Arc<dyn Backend>] {
        &self.inner.backends
    }

    /// Where a weight lies on a device.
    pub(crate) fn weight_on(&self, device: usize, name: &str) -> Option<&Slice> {
        self.inner.weights.get(device)?.get(name)
    }

    /// What a session needs.
    pub(crate) fn needs(&self, options: &SessionOptions) -> Result<Needs> {
        self.with_division(|division| division.needs(options))
    }

    /// That every device has room for what a session needs, as far as is known.
    pub(crate) fn check_room(&self, needs: &Needs) -> Result<()> {
        let need = |(device, backend): (usize, &Arc<dyn Backend>)| MemoryNeed {
            backend: backend.device().backend.clone(),
            weights: 0,
            state: needs.state[device] as u64,
            compute: needs.compute[device] as u64,
            free: backend.free_memory(),
        };
        estimate::check(self.backends().iter().enumerate().map(need).collect())
    }

    /// Says in the log, once for a model, that a session has room for more positions than the training had.
    pub(crate) fn warn_beyond_training(&self, context: usize) {
        let trained = self.hparams().context;
        self.inner.warned.call_once(|| {
            tracing::warn!(
                context,
                trained,
                "the context is longer than the one that the model was trained on"
            );
        });
    }

    /// What a graph needs that has its state for itself.
    #[cfg(feature = "compare")]
    pub(crate) fn needs_of(&self, graph: &BatchGraph) -> Result<Needs> {
        self.with_division(|division| {
            division.needs_of(std::slice::from_ref(graph), ggml_core::precision::Precision::Exact)
        })
    }

    /// Devices of the nodes of a graph; `state_device` is where state tensors lie.
    pub(crate) fn place(&self, graph: &BatchGraph, state_device: &[usize]) -> Result<Placement> {
        let placement = self.with_division(|division| division.place(graph, state_device))?;
        let known = self.estimate().map_or(&[][..], |estimate| &estimate.fallbacks);
        let mut later = self.inner.later.lock().unwrap_or_else(PoisonError::into_inner);
        for fallback in &placement.fallbacks {
            let is_same = |other: &Fallback| other.node == fallback.node && other.reason == fallback.reason;
            if !known.iter().chain(later.iter()).any(is_same) {
                tracing::warn!(target: "diptych::placement", "on the host: {fallback}");
                later.push(fallback.clone());
            }
        }
        Ok(placement)
    }

    fn with_division<T>(&self, act: impl FnOnce(&Division<'_>) -> T) -> T {
        let has = |name: &str| self.weight_on(MAIN, name).is_some();
        act(&Division {
            file: self.file(),
            main: self.backend().as_ref(),
            host: self.inner.backends.get(HOST).map(|b| b.as_ref()),
            units: self.units(),
            weights: Some(&has),
        })
    }
}
