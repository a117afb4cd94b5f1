//! What the options leave open of the way of bytes to the device: who copies, and where weights lie.

use super::thread::DriverThread;
use crate::code::kernels::Kernels;
use crate::driver::Properties;
use crate::op::Refusal;
use crate::options::{Copies, HipOptions, HostWeights};
use crate::sync::lock;
use ggml_core::{Error, Missing, Phase, Result};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Backends of this process whose copies by DMA did not come back in time, by name. Such a backend is given up; the next
/// that opens the device does without DMA.
static TIMED_OUT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Notes that a copy of the runtime did not come back in time.
pub(super) fn timed_out(backend: &str) {
    if lock(&TIMED_OUT).insert(backend.into()) {
        tracing::warn!(
            target: "diptych::hip",
            backend,
            "a copy timed out: the next time that this process opens the device, a kernel copies"
        );
    }
}

/// Whether a kernel copies. Only AMD's runtime has been seen to hang in copies.
pub(crate) fn by_kernel(options: &HipOptions, p: &Properties, backend: &str) -> bool {
    match options.copies {
        Copies::Auto => p.arch.starts_with("gfx") && (p.integrated || lock(&TIMED_OUT).contains(backend)),
        Copies::Dma => false,
        Copies::Kernel => true,
    }
}

/// Whether weights lie in pinned memory of the host.
pub(crate) fn host_weights(options: &HipOptions, p: &Properties) -> bool {
    match options.host_weights {
        HostWeights::Auto => p.integrated,
        HostWeights::On => true,
        HostWeights::Off => false,
    }
}

/// Has a kernel copy from now on. `false` if there is none and nobody insists.
pub(crate) fn use_kernel(thread: &DriverThread, options: &HipOptions, kernels: &Kernels) -> Result<bool> {
    let backend = &thread.monitor().backend;
    let kernel = match kernels.word_copier() {
        Ok(kernel) => kernel,
        Err(Refusal(why)) if options.copies == Copies::Kernel => {
            return Err(Error::Unavailable {
                backend: backend.clone(),
                phase: Phase::OpenDevice,
                missing: Missing::Feature,
                reason: format!("copies by a kernel were asked for: {why}"),
            });
        }
        Err(Refusal(why)) => {
            tracing::warn!(target: "diptych::hip", backend, "no kernel copies: {why}");
            return Ok(false);
        }
    };
    thread.call(Phase::OpenDevice, options.deadlines.open, move |session| session.copy_with(kernel))?;
    Ok(true)
}
