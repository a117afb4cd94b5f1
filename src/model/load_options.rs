//! Options for loading a model.

use super::offload::Offload;
use super::session_options::SessionOptions;
use ggml_core::Result;
use ggml_core::backend::Backend;
use ggml_core::cpu::{CpuBackend, CpuOptions};
use ggml_core::setters;
use std::sync::Arc;

/// Options for loading a model.
#[derive(Clone)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Part of the model that goes to the device.
    pub offload: Offload,
    /// Backend that computes the rest; `None`: `cpu` with all cores.
    pub host: Option<Arc<dyn Backend>>,
    /// Options of the session to reserve memory for.
    pub session: SessionOptions,
    /// True if a model is refused when it needs more memory than a device reports as free. Turn this off for
    /// drivers that report wrong values.
    pub check_memory: bool,
}

setters!(LoadOptions {
    with_offload => offload: Offload,
    with_host => host: impl Into<Option<Arc<dyn Backend>>>,
    with_session => session: SessionOptions,
    with_check_memory => check_memory: bool,
});

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            offload: Offload::default(),
            host: None,
            session: SessionOptions::default(),
            check_memory: true,
        }
    }
}

impl std::fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadOptions")
            .field("offload", &self.offload)
            .field("host", &self.host.as_ref().map(|host| &host.device().backend))
            .field("session", &self.session)
            .field("check_memory", &self.check_memory)
            .finish()
    }
}

impl LoadOptions {
    /// Returns the backend for the host's part.
    pub(super) fn host_backend(&self) -> Result<Arc<dyn Backend>> {
        match &self.host {
            Some(host) => Ok(host.clone()),
            None => Ok(Arc::new(CpuBackend::open(CpuOptions::default())?)),
        }
    }
}
