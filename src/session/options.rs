//! How to make a session.

use crate::backends::BackendName;
use crate::model::Hparams;
use ggml_core::backend::Backend;
use ggml_core::op::flash_attn::CACHE_TYPES;
use ggml_core::precision::Precision;
use ggml_core::setters;
use ggml_core::{DType, Error, Result};

/// How to make a session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Positions that each sequence has room for; `None`: the smaller of the model's context and 4096.
    pub context: Option<usize>,
    /// Sequences that are kept side by side; memory grows with them.
    pub sequences: usize,
    /// Tokens of one batch; longer work is done in several. `None`: see [`SessionOptions::batch_on`].
    pub batch: Option<usize>,
    /// Type of the cache: F32, F16, Q8_0 or Q4_0. The last two need heads of a multiple of 32 elements. `None`: see
    /// [`SessionOptions::cache_on`].
    pub cache: Option<DType>,
    /// How much rounding is allowed.
    pub precision: Precision,
    /// Whether the device goes on with its best token before the application has asked for that, where the application takes
    /// nothing but the best ([`Session::append`](super::Session::append) of one token with `Want::Best(1)`, greedy text) from
    /// a session with one sequence. What comes out is the same.
    pub ahead: bool,
    /// Whether a session is refused that needs more memory than a device says is free. A way around drivers that say
    /// something wrong.
    pub check_memory: bool,
}

setters!(SessionOptions {
    with_context => context: impl Into<Option<usize>>,
    with_sequences => sequences: usize,
    with_batch => batch: impl Into<Option<usize>>,
    with_cache => cache: impl Into<Option<DType>>,
    with_precision => precision: Precision,
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
            ahead: true,
            check_memory: true,
        }
    }
}

/// The type of a cache where none is asked for.
pub(crate) fn default_cache(precision: Precision) -> DType {
    match precision {
        Precision::Exact => DType::F32,
        Precision::Fast => DType::F16,
    }
}

impl SessionOptions {
    /// The type of the cache of a session on a model that was loaded for this backend. Where none is asked for: F16, but
    /// F32 in `exact` precision and on `reference`.
    pub fn cache_on(&self, backend: &dyn Backend) -> DType {
        let reference = backend.device().backend == BackendName::Reference.to_string();
        let precision = if reference { Precision::Exact } else { self.precision };
        self.cache.unwrap_or_else(|| default_cache(precision))
    }

    /// Tokens of a batch of a session on a model that was loaded for this backend. Where no number is asked for: 512 on
    /// processors, whose caches hold what such a batch makes, and 1024 on GPUs, which read and decode the weights half as often
    /// then and fill their compute units better. Memory for what is computed grows with it.
    ///
    /// (2048 tokens of 8 billion Q4_K on an H100: 9,170 tokens per second with 512 and 9,870 with 1024 on `vulkan`, 12,500 and
    /// 13,370 on `hip-nvidia`. Half a billion Q4_K on a thread of `cpu`: 203 and 188.)
    pub fn batch_on(&self, backend: &dyn Backend) -> usize {
        let device = backend.device();
        let ours = [BackendName::Reference, BackendName::Cpu].map(|name| name.to_string());
        // A software driver of Vulkan's has this class.
        let processor = ours.contains(&device.backend) || device.arch == "CPU";
        self.batch.unwrap_or(if processor { 512 } else { 1024 })
    }

    /// Positions that each sequence of a model has room for.
    pub(crate) fn room(&self, hparams: &Hparams) -> usize {
        self.context.unwrap_or(hparams.context.min(4096))
    }

    /// That there can be such a session.
    pub(crate) fn check(&self, hparams: &Hparams) -> Result<()> {
        let (context, sequences) = (self.room(hparams), self.sequences);
        let batch = self.batch.unwrap_or(1);
        for (what, value) in [("context", context), ("sequences", sequences), ("batch", batch)] {
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
