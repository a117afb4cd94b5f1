//! Settings that may help where a driver hangs or fails.

use crate::backend_name::BackendName;

/// Returns what can be tried in a phase of a driver.
pub(crate) fn remedy(backend: &str, phase: &str) -> Option<&'static str> {
    let has_driver = backend.parse::<BackendName>().is_ok_and(|name| name.has_driver());
    let other = has_driver.then_some("another driver of the card, or --backend cpu");
    setting(backend, phase).or(other)
}

/// Returns a setting that can be tried in a phase of a driver.
pub(crate) fn setting(backend: &str, phase: &str) -> Option<&'static str> {
    let name = backend.parse::<BackendName>().ok()?;
    let is_amds = name.loads_libamdhip64();
    let is_hip = is_amds || matches!(name, BackendName::HipNvidia(_) | BackendName::HipVirtual(_));
    match phase {
        _ if !is_hip => None,
        "upload" | "readback" => Some("DIPTYCH_HIP_COPIES=kernel: a kernel copies, not the DMA engines"),
        "first_compute" | "compute" => {
            Some("DIPTYCH_HIP_GRAPHS=off and DIPTYCH_HIP_STREAM=null start kernels in other ways")
        }
        // The other kinds load no library of AMD.
        "load_runtime" | "enumerate" | "open_device" if is_amds => {
            Some("DIPTYCH_HIP_LIBRARY=PATH loads another copy of libamdhip64; probe lists the copies")
        }
        _ => None,
    }
}
