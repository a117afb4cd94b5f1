//! Models: a GGUF file, its architecture, and its weights on a backend.
//!
//! Each architecture is one file here. It reads the hyperparameters from the metadata and builds a graph for
//! a batch.
//!
//! [`Model::load`] puts a whole model onto one backend. [`Model::load_with`] divides it between a device and
//! the processor, after [`ModelFile::estimate`] has found that it fits:
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
//! Weights are copied only if necessary. `cpu` and `reference` read the memory map of the file. So does a
//! Vulkan device that shares the host's memory (an integrated GPU, a software device), if its driver imports
//! file pages (VK_EXT_external_memory_host). Other Vulkan devices and all HIP devices get copies of the
//! weights that they use.

use ggml_core::backend::{Backend, Slice};
use ggml_core::schedule::{Fallback, Placement};
use ggml_core::sync::lock_until;
use ggml_core::{Deadline, MemoryNeed, Phase, Result};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

mod architecture;
mod attention;
mod batch;
mod bert;
mod best;
mod branch;
mod builder;
mod deepseek2;
mod division;
mod estimate;
mod feed_forward;
mod file;
mod gemma2;
mod gemma3;
mod gemma4;
mod glm4moe;
mod gpt_oss;
mod granite;
mod hparams;
mod identity;
mod latent;
mod left_out;
mod lfm2;
mod llama;
mod llama4;
mod load_options;
mod mamba;
mod memory;
mod mistral3;
mod moe;
mod nearest;
mod nemotron;
mod offload;
mod olmo2;
mod outline;
mod output;
mod phases;
mod phi3;
mod predictor;
mod qwen2;
mod qwen3;
mod qwen35;
mod qwen3moe;
mod read_ahead;
mod recurrent;
mod session_options;
mod weights;

pub use batch::{
    BatchGraph, BatchShape, GraphInputs, MaskInputs, Predictor, PredictorInputs, StateKind, Want,
};
pub use best::BestNodes;
pub(crate) use division::{DEVICES, HOST, MAIN, Needs};
pub use estimate::Estimate;
pub use file::ModelFile;
pub use hparams::{
    Attention, Experts, Gating, Hparams, Latent, Pooling, Recurrent, RopeScaling, Scales, SoftCaps,
    Temperature, Window,
};
pub(crate) use left_out::part_by_name;
pub use load_options::LoadOptions;
pub use offload::Offload;
pub use outline::{Outline, OutlineStep, OutlineUnit};
pub use phases::{PhaseSpeed, PhaseTable, Phases};
pub use session_options::SessionOptions;
#[cfg(feature = "compare")]
pub(crate) use session_options::default_cache;
pub(crate) use session_options::is_processor;

use division::Division;

/// Longest time in which somebody else decides on the drivers of the phases; each of its calls has a deadline of its own.
const DECIDED: Duration = Duration::from_secs(120);

/// Model with its weights on a backend, and on the host as far as the host computes. Clones share the
/// weights, also between threads.
#[derive(Clone)]
pub struct Model {
    inner: Arc<Inner>,
}

struct Inner {
    file: ModelFile,
    /// Device, and the host if there is one.
    backends: Vec<Arc<dyn Backend>>,
    /// Weights by name, for each device.
    weights: Vec<HashMap<String, Slice>>,
    /// Division of the model; `None` if the device has everything.
    estimate: Option<Estimate>,
    /// Guard that logs the warning of [`Model::warn_beyond_training`] once.
    warned: Once,
    /// Guard that logs the warning of [`Model::usual_pooling`] once.
    pooled: Once,
    /// Fallbacks of batch shapes that the estimate did not cover.
    later: Mutex<Vec<Fallback>>,
    /// Drivers of the phases, and how they were measured.
    phases: Mutex<(Option<Phases>, Option<PhaseTable>)>,
    /// Held while they are decided on.
    deciding: Mutex<()>,
}

impl Inner {
    fn new(
        file: ModelFile,
        backends: Vec<Arc<dyn Backend>>,
        weights: Vec<HashMap<String, Slice>>,
        estimate: Option<Estimate>,
    ) -> Inner {
        Inner {
            file,
            backends,
            weights,
            estimate,
            warned: Once::new(),
            pooled: Once::new(),
            later: Mutex::default(),
            phases: Mutex::default(),
            deciding: Mutex::default(),
        }
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
    ///
    /// The file is mapped into memory, and backends of the host read the weights there for as long as the model
    /// exists. It must not be shortened or overwritten meanwhile: the system ends the process with SIGBUS when it
    /// reads what is not there any more. (To rename another file to its name is safe.) For a file that others may
    /// change, pass [`ModelFile::read`] to [`Model::from_file`].
    pub fn load(path: impl AsRef<Path>, backend: Arc<dyn Backend>) -> Result<Model> {
        Model::from_file(ModelFile::open(path)?, backend)
    }

    /// Loads the weights of an open file: in place if the backend can read the memory map, otherwise into a
    /// few large blocks of device memory. The backend has to compute everything.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`], before anything is loaded, if the device reports less free memory than the
    /// weights need ([`LoadOptions::check_memory`] turns this check off); errors of the backend.
    ///
    /// [`Error::DoesNotFit`]: ggml_core::Error::DoesNotFit
    pub fn from_file(file: ModelFile, backend: Arc<dyn Backend>) -> Result<Model> {
        Model::from_file_with(file, backend, &mut |_, _| ())
    }

    /// Loads a file as [`Model::from_file`] does. `progress` receives the bytes of weights on the device and
    /// the total, at the beginning, after each chunk of at most 64 MiB, and at the end.
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

    /// Loads part of a model onto a device and leaves the rest to the host, as the options say. Each device
    /// gets the weights that it uses; the host reads them in the memory map. Nodes that the device cannot
    /// compute also go to the host and are listed by [`Model::fallbacks`]. `progress` is as in
    /// [`Model::from_file_with`], for the device's weights.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] with sizes if a device has too little memory, before anything is loaded;
    /// [`Error::Unsupported`] if the host cannot compute a node either; errors of the backends.
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

    /// Returns the model's file.
    pub fn file(&self) -> &ModelFile {
        &self.inner.file
    }

    /// Returns the hyperparameters.
    pub fn hparams(&self) -> &Hparams {
        self.inner.file.hparams()
    }

    /// Returns the device that the model was loaded for.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.inner.backends[MAIN]
    }

    /// Returns the number of units on the device, counted from the end: the output, the last layer and so on;
    /// layers + 1 is the whole model.
    pub fn units(&self) -> usize {
        self.estimate().map_or(self.hparams().layers + 1, |estimate| estimate.units)
    }

    /// Returns the division of the model and the memory estimated before it was loaded; `None` unless the
    /// model was loaded by [`Model::load_with`].
    pub fn estimate(&self) -> Option<&Estimate> {
        self.inner.estimate.as_ref()
    }

    /// Returns the nodes that the device should compute but the host computes instead, with the reasons. They
    /// include the nodes found when the model was loaded, for sessions with [`LoadOptions::session`], and
    /// those of batches that have run since.
    pub fn fallbacks(&self) -> Vec<Fallback> {
        let found = self.estimate().map_or(&[][..], |estimate| &estimate.fallbacks);
        found.iter().cloned().chain(self.later_fallbacks()).collect()
    }

    /// Returns the fallbacks of batch shapes that the estimate did not cover. Each is logged once as a
    /// warning.
    pub fn later_fallbacks(&self) -> Vec<Fallback> {
        self.inner.later.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the location of a weight, by its name in the file: on the device, otherwise on the host.
    pub fn weight(&self, name: &str) -> Option<&Slice> {
        self.inner.weights.iter().find_map(|weights| weights.get(name))
    }

    /// Returns the backends by device index: the device, and the host if there is one.
    pub(crate) fn backends(&self) -> &[Arc<dyn Backend>] {
        &self.inner.backends
    }

    /// Returns the location of a weight on a device.
    pub(crate) fn weight_on(&self, device: usize, name: &str) -> Option<&Slice> {
        self.inner.weights.get(device)?.get(name)
    }

    /// Returns the speeds of both drivers of a card (backend `vulkan+hip`) and the choice that follows. `None` for other
    /// backends, before the first session, and on emulated cards.
    pub fn phases(&self) -> Option<PhaseTable> {
        self.decision().1.clone()
    }

    /// Decides on the drivers of the phases, unless that is decided. Whoever comes while another thread decides waits for it:
    /// a session of its own would disturb the measurement, and would see what is tried and not what is decided.
    pub(crate) fn decide_phases(&self, decide: impl FnOnce() -> (Phases, Option<PhaseTable>)) {
        let deadline = Deadline::new(Phase::Compute, DECIDED);
        let Some(_deciding) = lock_until(&self.inner.deciding, &deadline) else { return };
        if self.decided().is_none() {
            let (phases, table) = decide();
            self.set_phases(phases, table);
        }
    }

    /// Sets the drivers of the phases. Prepared programs stay where they are.
    pub(crate) fn set_phases(&self, phases: Phases, table: Option<PhaseTable>) {
        *self.decision() = (Some(phases), table);
    }

    /// Returns the drivers of the phases, if it was decided.
    pub(crate) fn decided(&self) -> Option<Phases> {
        self.decision().0
    }

    /// Returns the backend of a device that runs batches of `tokens` tokens.
    pub(crate) fn backend_of(&self, device: usize, tokens: usize) -> &dyn Backend {
        let backend = self.backends()[device].as_ref();
        match backend.drivers().filter(|_| device == MAIN) {
            Some(drivers) => {
                let phases = self.decided().unwrap_or(Phases::DEFAULT);
                drivers.driver(phases.of(tokens))
            }
            None => backend,
        }
    }

    fn decision(&self) -> MutexGuard<'_, (Option<Phases>, Option<PhaseTable>)> {
        self.inner.phases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes the needs of a session.
    pub(crate) fn needs(&self, options: &SessionOptions) -> Result<Needs> {
        self.with_division(|division| division.needs(options))
    }

    /// Checks that every device has enough memory for a session, as far as the free memory is known.
    pub(crate) fn check_room(&self, needs: &Needs) -> Result<()> {
        let need = |(device, backend): (usize, &Arc<dyn Backend>)| MemoryNeed {
            backend: backend.device().backend.clone(),
            weights: 0,
            in_place: 0,
            state: memory::bytes(&needs.state[device]),
            compute: memory::bytes(&needs.compute[device]),
            free: backend.free_memory(),
        };
        memory::check_fits(self.backends().iter().enumerate().map(need).collect())
    }

    /// Logs a warning, once for a model, that a session has more positions than the training context.
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

    /// Returns the pooling of texts. Logs a warning, once for a model, if the file gives none.
    pub(crate) fn usual_pooling(&self) -> Pooling {
        let (h, pooling) = (self.hparams(), self.hparams().usual_pooling());
        if h.pooling.is_none() {
            self.inner.pooled.call_once(|| {
                tracing::warn!(%pooling, "the file gives no pooling of texts; using the architecture's default");
            });
        }
        pooling
    }

    /// Computes the needs of a graph that shares its state with no other graph.
    #[cfg(feature = "compare")]
    pub(crate) fn needs_of(&self, graph: &BatchGraph) -> Result<Needs> {
        self.with_division(|division| {
            division.needs_of(std::slice::from_ref(graph), ggml_core::precision::Precision::Exact)
        })
    }

    /// Assigns the nodes of a graph to devices; `state_device` lists the devices of the state tensors.
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
