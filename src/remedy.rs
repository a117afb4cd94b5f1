//! Settings that may help where a driver hangs or fails.

use crate::backend_name::BackendName;

/// True if a backend has a driver that may hang or crash.
pub(crate) fn has_driver(name: &str) -> bool {
    !matches!(name.parse(), Err(_) | Ok(BackendName::Cpu | BackendName::Reference | BackendName::Null(_)))
}

/// Returns what can be tried in a phase of a driver.
pub(crate) fn remedy(backend: &str, phase: &str) -> Option<&'static str> {
    let other = has_driver(backend).then_some("another driver of the card, or --backend cpu");
    setting(backend, phase).or(other)
}

/// Returns a setting that can be tried in a phase of a driver.
pub(crate) fn setting(backend: &str, phase: &str) -> Option<&'static str> {
    let is_hip = backend.starts_with("hip");
    match phase {
        _ if !is_hip => None,
        "upload" | "readback" => Some("DIPTYCH_HIP_COPIES=kernel: a kernel copies, not the DMA engines"),
        "first_compute" | "compute" => {
            Some("DIPTYCH_HIP_GRAPHS=off and DIPTYCH_HIP_STREAM=null start kernels in other ways")
        }
        "load_runtime" | "enumerate" | "open_device" => {
            Some("DIPTYCH_HIP_LIBRARY=PATH loads another copy of libamdhip64; probe lists the copies")
        }
        _ => None,
    }
}
