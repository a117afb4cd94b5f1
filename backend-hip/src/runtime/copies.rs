//! Choices that the options leave open: the method of copying to the device, and the memory for weights.

use super::thread::DriverThread;
use crate::code::kernels::Kernels;
use crate::driver::Properties;
use crate::op::Refusal;
use crate::options::{Copies, HipOptions};
use ggml_core::sync::lock;
use ggml_core::{Error, Missing, Phase, Result};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Names of the backends of this process whose DMA copies timed out. Such a backend is given up; the next one
/// that opens the device does not use DMA.
static TIMED_OUT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Records that a copy of the runtime timed out.
pub(super) fn record_timeout(backend: &str) {
    if lock(&TIMED_OUT).insert(backend.into()) {
        tracing::warn!(
            target: "diptych::hip",
            backend,
            "a copy timed out: when this process opens the device again, a kernel copies instead of the runtime"
        );
    }
}

/// Returns true if a kernel should copy. Only AMD's runtime has been observed to hang in copies.
pub(crate) fn by_kernel(p: &Properties, backend: &str) -> bool {
    p.arch.starts_with("gfx") && (p.integrated || lock(&TIMED_OUT).contains(backend))
}

/// Returns true if weights should be stored in pinned host memory. gfx942 (MI300A) reads its own memory faster, and
/// its firmware reserves none of it.
pub(crate) fn host_weights(p: &Properties) -> bool {
    p.integrated && p.arch.split(':').next() != Some("gfx942")
}

/// Selects a kernel for copies from now on. Returns false if there is none and the options do not require
/// one.
pub(crate) fn use_kernel(thread: &DriverThread, options: &HipOptions, kernels: &Kernels) -> Result<bool> {
    let backend = &thread.monitor().backend;
    let kernel = match kernels.word_copier() {
        Ok(kernel) => kernel,
        Err(Refusal(why)) if options.copies == Copies::Kernel => {
            return Err(Error::Unavailable {
                backend: backend.clone(),
                phase: Phase::OpenDevice,
                missing: Missing::Feature,
                reason: format!("copies by a kernel were requested: {why}"),
            });
        }
        Err(Refusal(why)) => {
            tracing::warn!(target: "diptych::hip", backend, "the runtime copies, no kernel can: {why}");
            return Ok(false);
        }
    };
    thread.call(Phase::OpenDevice, options.deadlines.open, move |session| session.use_copier(kernel))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_integrated_devices() {
        let on_host = |arch: &str, integrated| {
            host_weights(&Properties { arch: arch.into(), integrated, ..Properties::default() })
        };
        assert!(on_host("gfx1151", true));
        assert!(!on_host("gfx1100", false));
        assert!(!on_host("gfx942:sramecc+:xnack-", true));
    }
}
