//! Options of a session. They determine the memory that a model needs, so they belong to the model.

use super::hparams::Hparams;
use crate::backends::BackendName;
use ggml_core::backend::Backend;
use ggml_core::op::flash_attn::CACHE_TYPES;
use ggml_core::precision::Precision;
use ggml_core::setters;
use ggml_core::{DType, Error, Result};

/// Options of a session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Maximum number of positions of each sequence; `None`: the smaller of the model's context and 4096.
    pub context: Option<usize>,
    /// Number of sequences held at the same time; memory grows with it.
    pub sequences: usize,
    /// Tokens of one batch; longer prompts are computed in several. `None`: see [`SessionOptions::batch_on`].
    pub batch: Option<usize>,
    /// Type of the cache: F32, F16, Q8_0 or Q4_0. The last two need heads of a multiple of 32 elements.
    /// `None`: see [`SessionOptions::cache_on`].
    pub cache: Option<DType>,
    /// Amount of rounding that is allowed.
    pub precision: Precision,
    /// Positions between two checkpoints of recurrent state, to which a sequence can go back, see
    /// [`Session::truncate`](crate::Session::truncate); batches of prompts end there. `None`: as many as a batch has, but
    /// where computing them takes less than 32 times as long as a checkpoint, more.
    pub checkpoint_every: Option<usize>,
    /// Maximum bytes of the checkpoints of all sequences, in host memory; 0 for none. It is allocated when checkpoints
    /// are made. One takes as much as the recurrent state of a sequence (20 MB in a Qwen3.5 of 2 billion parameters).
    pub checkpoint_memory: u64,
    /// True to use the layer of the file that predicts further tokens: generations then draft with it, see
    /// [`GenerateOptions::draft`](crate::generate::GenerateOptions::draft). The file must have such a layer, see
    /// [`ModelFile::has_predictor`](super::ModelFile::has_predictor). Its cache takes as much memory as that of another
    /// layer, and each batch takes a little longer.
    pub predictor: bool,
    /// True if the device starts the step of its best token before the application requests it. This applies
    /// to a session with one sequence and to [`Session::append`](crate::Session::append) of one token with
    /// `Want::Best(1)` (greedy text). The results are the same.
    pub ahead: bool,
    /// True if a session is refused when it needs more memory than a device reports as free. Turn this off
    /// for drivers that report wrong values.
    pub check_memory: bool,
}

setters!(SessionOptions {
    with_context => context: impl Into<Option<usize>>,
    with_sequences => sequences: usize,
    with_batch => batch: impl Into<Option<usize>>,
    with_cache => cache: impl Into<Option<DType>>,
    with_precision => precision: Precision,
    with_checkpoint_every => checkpoint_every: impl Into<Option<usize>>,
    with_checkpoint_memory => checkpoint_memory: u64,
    with_predictor => predictor: bool,
    with_ahead => ahead: bool,
    with_check_memory => check_memory: bool,
});

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            context: None,
            sequences: 1,
            batch: None,
            cache: None,
            precision: Precision::default(),
            checkpoint_every: None,
            checkpoint_memory: 1 << 30,
            predictor: false,
            ahead: true,
            check_memory: true,
        }
    }
}

/// Returns the default type of the cache.
pub(crate) fn default_cache(precision: Precision) -> DType {
    match precision {
        Precision::Exact => DType::F32,
        Precision::Fast => DType::F16,
    }
}

/// Returns true if a backend computes on processors.
pub(crate) fn is_processor(backend: &dyn Backend) -> bool {
    let device = backend.device();
    let ours = [BackendName::Reference, BackendName::Cpu].map(|name| name.to_string());
    // Software drivers of Vulkan have this class.
    ours.contains(&device.backend) || device.arch == "CPU"
}

impl SessionOptions {
    /// Returns the type of the cache of a session on a model that was loaded for this backend. The default is
    /// F16, but F32 in `exact` precision and on `reference`.
    pub fn cache_on(&self, backend: &dyn Backend) -> DType {
        let reference = backend.device().backend == BackendName::Reference.to_string();
        let precision = if reference { Precision::Exact } else { self.precision };
        self.cache.unwrap_or_else(|| default_cache(precision))
    }

    /// Returns the tokens of a batch of a session on a model that was loaded for this backend. The default is
    /// 512 on processors, whose caches hold the intermediates of a batch of this size. It is 1024 on GPUs,
    /// which then read and decode the weights half as often and fill their compute units better. Memory for
    /// intermediates grows with it.
    ///
    /// (2048 tokens of 8 billion Q4_K on an H100: 9,170 tokens per second with 512 and 9,870 with 1024 on
    /// `vulkan`, 12,500 and 13,370 on `hip-nvidia`. Half a billion Q4_K on a thread of `cpu`: 203 and 188.)
    pub fn batch_on(&self, backend: &dyn Backend) -> usize {
        self.batch.unwrap_or(if is_processor(backend) { 512 } else { 1024 })
    }

    /// Returns the maximum number of positions of each sequence on a model.
    pub(crate) fn room(&self, hparams: &Hparams) -> usize {
        self.context.unwrap_or(hparams.context.min(4096))
    }

    /// Checks the options for a model.
    pub(crate) fn check(&self, hparams: &Hparams) -> Result<()> {
        let (context, sequences) = (self.room(hparams), self.sequences);
        let [batch, every] = [self.batch, self.checkpoint_every].map(|n| n.unwrap_or(1));
        let extents =
            [("context", context), ("sequences", sequences), ("batch", batch), ("checkpoint_every", every)];
        for (what, value) in extents {
            if value == 0 {
                return Err(Error::argument(what, value, "at least 1"));
            }
        }
        // Rows of the cache are I32 in a graph.
        if context.checked_mul(sequences).is_none_or(|cells| cells > i32::MAX as usize) {
            let found = format!("{sequences} sequences of {context} positions");
            return Err(Error::argument("session", found, format!("at most {} positions in all", i32::MAX)));
        }
        if let Some(cache) = self.cache.filter(|cache| !CACHE_TYPES.contains(cache)) {
            let names: Vec<&str> = CACHE_TYPES.iter().map(|dtype| dtype.name()).collect();
            return Err(Error::argument("cache type", cache, format!("one of {}", names.join(", "))));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::null::{NullBackend, NullOptions};
    use ggml_core::reference::ReferenceBackend;

    #[test]
    fn a_batch_is_as_long_as_asked_for_or_as_suits_the_device() {
        let gpu = NullBackend::open(NullOptions::default()).expect("it needs nothing");
        let options = SessionOptions::default();
        assert_eq!((options.batch_on(&gpu), options.batch_on(&ReferenceBackend::default())), (1024, 512));
        let options = options.with_batch(7);
        assert_eq!((options.batch_on(&gpu), options.batch_on(&ReferenceBackend::default())), (7, 7));
        assert_eq!(options.with_batch(None).batch, None);
    }
}
