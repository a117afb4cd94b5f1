//! Backends by name: `reference`, `cpu`, `vulkan[:N]`, `hip[:N]`, `hip-nvidia[:N]`,
//! `vulkan-virtual[:vega20|:vega10|:navi31|:gfx1151]`,
//! `hip-virtual[:gfx906|:gfx900|:gfx90a|:gfx942|:gfx1100|:gfx1151]`, `auto`, and `null[=fault]` for tests.
//! An emulated card has two names, both accepted: `vulkan-virtual:gfx906` is `vulkan-virtual:vega20`.
//!
//! Two drivers of one card are joined by a plus sign: `vulkan+hip` keeps weights and caches once in the card's memory,
//! and runs prompts and decode steps on the faster driver of each ([`Pair`](ggml_core::pair::Pair)).
//!
//! `auto` is the fastest backend that works on this machine, see [`choose`].
//!
//! The features of this crate select the drivers that are compiled in: `vulkan`, `hip` (also `hip-nvidia`)
//! and `virtual` (`vulkan-virtual`, `hip-virtual`). A name whose driver was left out still parses; opening it
//! returns an [`Error::Unavailable`] that names the feature.

use ggml_core::backend::Backend;
use ggml_core::cpu::{CpuBackend, CpuOptions};
use ggml_core::null::{Fault, NullBackend, NullOptions};
use ggml_core::phase::Deadlines;
use ggml_core::reference::ReferenceBackend;
use ggml_core::routes::Routes;
use ggml_core::setters;
use ggml_core::{Error, Missing, Phase, Result};
use std::path::PathBuf;
use std::sync::Arc;

mod auto;
mod devices;
#[cfg(any(feature = "vulkan", feature = "hip"))]
mod drivers;
pub(crate) mod files;
pub(crate) mod measure;
mod pair;

pub use crate::backend_name::{BackendName, NAMES, VirtualTarget};
pub use crate::view::{Pairing, View};
pub use crate::virtual_kfd::is_usable as hip_kfd_is_usable;
pub(crate) use auto::open_chosen;
pub use auto::{Choice, Tried, choose};
#[cfg(feature = "compare")]
pub(crate) use devices::{DRIVERS, views};
pub use devices::{Device, DeviceList, devices};
#[cfg(all(feature = "compare", any(feature = "vulkan", feature = "hip")))]
pub(crate) use drivers::routes_folder;

/// Options for opening a backend. A backend ignores the options that do not apply to it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Deadlines of all phases.
    pub deadlines: Deadlines,
    /// Threads of the `cpu` backend; default: all cores.
    pub threads: Option<usize>,
    /// Vulkan: the architecture class to tune for, by name ("AMD_GCN"), instead of the device's own.
    pub vulkan_arch: Option<String>,
    /// Vulkan: the memory budget in bytes, or `ignore` for as much as the driver provides. Default: the value
    /// of `DIPTYCH_VULKAN_MEMORY`, else the free memory that the driver reports.
    pub vulkan_memory: Option<String>,
    /// Vulkan: run under the validation layers.
    pub vulkan_validation: bool,
    /// Record which node is running, so that an error can name the node of a hang or a lost device. Costs a
    /// little time on GPUs.
    pub breadcrumbs: bool,
    /// HIP: the runtime library to load.
    pub hip_library: Option<PathBuf>,
    /// GPUs: the choice of routes. Default: the value of `DIPTYCH_ROUTES`, else those that were verified on the device or
    /// are known to work on devices like it.
    pub routes: Option<Routes>,
    /// GPUs: the folder of the verdicts on routes. Default: `diptych/routes` in the user's cache folder.
    pub routes_folder: Option<PathBuf>,
    /// Two drivers of a card: an error if they share no memory, instead of the first one alone.
    pub(crate) both_drivers: bool,
    /// `null`: the function that a simulated crash calls.
    pub(crate) crash: Option<fn()>,
}

setters!(OpenOptions {
    with_deadlines => deadlines: Deadlines,
    with_threads => threads: impl Into<Option<usize>>,
    with_vulkan_arch => vulkan_arch: impl Into<Option<String>>,
    with_vulkan_memory => vulkan_memory: impl Into<Option<String>>,
    with_vulkan_validation => vulkan_validation: bool,
    with_breadcrumbs => breadcrumbs: bool,
    with_hip_library => hip_library: impl Into<Option<PathBuf>>,
    with_routes => routes: impl Into<Option<Routes>>,
    with_routes_folder => routes_folder: impl Into<Option<PathBuf>>,
});

/// Opens a backend by name.
pub fn open(name: &str, options: &OpenOptions) -> Result<Arc<dyn Backend>> {
    open_named(&name.parse()?, options)
}

/// Opens a backend.
pub fn open_named(name: &BackendName, options: &OpenOptions) -> Result<Arc<dyn Backend>> {
    let deadlines = options.deadlines.clone();
    Ok(match name {
        BackendName::Reference => Arc::new(ReferenceBackend::new(deadlines)),
        BackendName::Cpu => {
            let options = CpuOptions::default().with_threads(options.threads).with_deadlines(deadlines);
            Arc::new(CpuBackend::open(options)?)
        }
        #[cfg(feature = "vulkan")]
        BackendName::Vulkan(device) => Arc::new(drivers::vulkan(*device, options)?),
        #[cfg(feature = "hip")]
        BackendName::Hip(device) => Arc::new(drivers::hip(*device, options)?),
        #[cfg(feature = "hip")]
        BackendName::HipNvidia(device) => Arc::new(drivers::hip_nvidia(*device, options)?),
        #[cfg(feature = "virtual")]
        BackendName::VulkanVirtual(target) => Arc::new(drivers::vulkan_virtual(*target, options)?),
        #[cfg(feature = "virtual")]
        BackendName::HipVirtual(target) => Arc::new(drivers::hip_virtual(*target, options)?),
        #[cfg(feature = "virtual")]
        BackendName::HipKfd(target) => Arc::new(drivers::hip_kfd(*target, options)?),
        BackendName::Pair(both) => return pair::open(both, options),
        BackendName::Auto => return auto::open(options),
        BackendName::Null(fault) => {
            let fault = fault.as_deref().map(Fault::parse).transpose()?;
            let options =
                NullOptions::default().with_fault(fault).with_deadlines(deadlines).with_crash(options.crash);
            Arc::new(NullBackend::open(options)?)
        }
        #[allow(unreachable_patterns, reason = "with all features no backend is left out")]
        left_out => return Err(unavailable(left_out)),
    })
}

/// Returns the user's cache folder that the Vulkan driver uses; `None` without that driver.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    #[cfg(feature = "vulkan")]
    return drivers::cache_folder();
    #[cfg(not(feature = "vulkan"))]
    None
}

/// Returns the default folder of the verdicts on routes: none without a driver.
#[cfg(all(feature = "compare", not(any(feature = "vulkan", feature = "hip"))))]
pub(crate) fn routes_folder() -> Option<PathBuf> {
    None
}

/// Returns the feature that a backend needs; `None` if it needs none.
fn feature(name: &BackendName) -> Option<&'static str> {
    match name {
        BackendName::Vulkan(_) => Some("vulkan"),
        BackendName::Hip(_) | BackendName::HipNvidia(_) => Some("hip"),
        BackendName::VulkanVirtual(_) | BackendName::HipVirtual(_) | BackendName::HipKfd(_) => {
            Some("virtual")
        }
        BackendName::Pair(both) => both.iter().find_map(feature),
        BackendName::Reference | BackendName::Cpu | BackendName::Auto | BackendName::Null(_) => None,
    }
}

/// Returns the error for a backend whose driver was left out of this build.
fn unavailable(name: &BackendName) -> Error {
    Error::Unavailable {
        backend: name.to_string(),
        phase: Phase::LoadRuntime,
        missing: Missing::Build,
        reason: format!("it needs feature '{}' of the crate diptych", feature(name).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "vulkan")]
    use ggml_core::backend::Usage;

    /// A driver that was left out is reported as unavailable, not as an unknown name.
    #[test]
    fn what_was_left_out_is_said() {
        for name in ["vulkan", "hip:1", "hip-nvidia", "hip-virtual"] {
            let name = name.parse::<BackendName>().unwrap();
            let here = match feature(&name).unwrap() {
                "vulkan" => cfg!(feature = "vulkan"),
                "hip" => cfg!(feature = "hip"),
                _ => cfg!(feature = "virtual"),
            };
            let error = open_named(&name, &OpenOptions::default()).map(|_| ()).err();
            let left_out = matches!(error, Some(Error::Unavailable { missing: Missing::Build, .. }));
            assert_eq!(left_out, !here, "{error:?}");
            let text = unavailable(&name).to_string();
            assert!(text.contains("left out of this program") && text.contains("needs feature '"), "{text}");
        }
    }

    #[cfg(feature = "vulkan")]
    #[test]
    fn the_memory_budget_reaches_vulkan() {
        let open =
            |memory: &str| open("vulkan", &OpenOptions::default().with_vulkan_memory(memory.to_string()));
        let wrong = open("16G").map(|_| ()).unwrap_err();
        assert!(matches!(wrong, Error::InvalidArgument { .. }), "{wrong}");
        match open("67108864") {
            Ok(backend) => {
                let refused = backend.allocate(100 << 20, Usage::Weights).map(|_| ()).unwrap_err();
                assert!(matches!(refused, Error::OutOfMemory { .. }), "{refused}");
            }
            Err(e) => assert!(matches!(e, Error::Unavailable { .. }), "{e}"),
        }
    }
}
