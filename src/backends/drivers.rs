//! Opens the drivers that are compiled in, with the settings of [`OpenOptions`].

use super::OpenOptions;
#[cfg(feature = "virtual")]
use crate::backend_name::{BackendName, VirtualTarget};
use crate::view::View;
#[cfg(feature = "hip")]
use backend_hip::options::Breadcrumbs;
#[cfg(feature = "virtual")]
use backend_hip::virtual_gpu;
#[cfg(feature = "hip")]
use backend_hip::{HipBackend, HipOptions, nvidia};
#[cfg(feature = "vulkan")]
use backend_vulkan::arch::ArchClass;
#[cfg(feature = "vulkan")]
use backend_vulkan::{DeviceKind, VulkanBackend, VulkanOptions};
#[cfg(feature = "vulkan")]
use ggml_core::Error;
use ggml_core::Result;
#[cfg(feature = "virtual")]
use ggml_core::{Missing, Phase};

#[cfg(feature = "vulkan")]
pub(super) fn vulkan(device: Option<usize>, options: &OpenOptions) -> Result<VulkanBackend> {
    vulkan_with(VulkanOptions { device, ..VulkanOptions::default() }, options)
}

#[cfg(feature = "virtual")]
pub(super) fn vulkan_virtual(target: VirtualTarget, options: &OpenOptions) -> Result<VulkanBackend> {
    vulkan_with(VulkanOptions::for_name(&format!("vulkan-virtual:{}", target.card()))?, options)
}

#[cfg(feature = "vulkan")]
fn vulkan_with(base: VulkanOptions, options: &OpenOptions) -> Result<VulkanBackend> {
    let class = |name: &str| {
        name.parse::<ArchClass>().map_err(|e| Error::argument("Vulkan architecture class", e, ""))
    };
    VulkanBackend::open(VulkanOptions {
        arch: options.vulkan_arch.as_deref().map(class).transpose()?,
        memory: options.vulkan_memory.as_deref().map(str::parse).transpose()?,
        deadlines: options.deadlines.clone(),
        validation: options.vulkan_validation,
        breadcrumbs: options.breadcrumbs || base.breadcrumbs,
        routes: options.routes.clone(),
        routes_dir: options.routes_folder.clone().or(base.routes_dir.clone()),
        ..base
    })
}

#[cfg(feature = "hip")]
pub(super) fn hip(device: Option<usize>, options: &OpenOptions) -> Result<HipBackend> {
    HipBackend::open(hip_options(device, options)?)
}

#[cfg(feature = "hip")]
pub(super) fn hip_nvidia(device: Option<usize>, options: &OpenOptions) -> Result<HipBackend> {
    nvidia::open(hip_options(device, options)?)
}

#[cfg(feature = "virtual")]
pub(super) fn hip_virtual(target: VirtualTarget, options: &OpenOptions) -> Result<HipBackend> {
    // Verdicts on an emulated card are read only from a folder that is named: tests must not depend on earlier runs.
    let routes_dir = options.routes_folder.clone();
    virtual_gpu::open(target.name(), HipOptions { routes_dir, ..hip_options(None, options)? })
}

#[cfg(feature = "virtual")]
pub(super) fn hip_kfd(target: VirtualTarget, options: &OpenOptions) -> Result<HipBackend> {
    if !crate::virtual_kfd::is_loaded() {
        return Err(Error::Unavailable {
            backend: BackendName::HipKfd(target).to_string(),
            phase: Phase::LoadRuntime,
            missing: Missing::Library,
            reason: crate::virtual_kfd::missing(),
        });
    }
    HipBackend::open(hip_options(None, options)?)
}

/// Returns the options of the environment, overridden by the caller's.
#[cfg(feature = "hip")]
fn hip_options(device: Option<usize>, options: &OpenOptions) -> Result<HipOptions> {
    let mut base = HipOptions::from_env()?;
    if options.routes.is_some() {
        // Variables that name single routes and numbers do not change what an application chose.
        base.tune = None;
        base.matrix_units = Default::default();
        base.graphs = Default::default();
        base.copies = Default::default();
        base.host_weights = Default::default();
    }
    let library = options.hip_library.clone().or(base.library.clone());
    let breadcrumbs = if options.breadcrumbs { Breadcrumbs::EveryLaunch } else { base.breadcrumbs };
    let deadlines = options.deadlines.clone();
    let routes = options.routes.clone().or(base.routes.clone());
    let routes_dir = options.routes_folder.clone().or(base.routes_dir.clone());
    let device = device.unwrap_or(0);
    Ok(HipOptions { device, deadlines, library, breadcrumbs, routes, routes_dir, ..base })
}

/// Lists the Vulkan devices that this library can open.
#[cfg(feature = "vulkan")]
pub(super) fn vulkan_views(options: &OpenOptions) -> Result<Vec<View>> {
    let base = VulkanOptions { deadlines: options.deadlines.clone(), ..VulkanOptions::default() };
    let usable = backend_vulkan::enumerate(&base)?.into_iter().filter(|device| device.unusable.is_none());
    let view = |device: backend_vulkan::DeviceSummary| View {
        backend: format!("vulkan:{}", device.index),
        pci: device.pci.map(|[domain, bus, device]| format!("{domain:04x}:{bus:02x}:{device:02x}")),
        uuid: Some(device.uuid),
        memory: Some(device.memory),
        is_processor: device.kind == DeviceKind::Cpu,
        arch: device.arch.name().into(),
        driver: device.driver,
        name: device.name,
    };
    Ok(usable.map(view).collect())
}

/// Lists the devices of AMD's runtime.
#[cfg(feature = "hip")]
pub(super) fn hip_views(options: &OpenOptions) -> Result<Vec<View>> {
    Ok(backend_hip::devices(&hip_options(None, options)?)?.iter().map(View::of).collect())
}

/// Lists the devices of NVIDIA's driver.
#[cfg(feature = "hip")]
pub(super) fn hip_nvidia_views(options: &OpenOptions) -> Result<Vec<View>> {
    Ok(nvidia::devices(&hip_options(None, options)?)?.iter().map(View::of).collect())
}

/// Lists the installed copies of AMD's runtime.
#[cfg(feature = "hip")]
pub(super) fn hip_libraries(options: &OpenOptions) -> Vec<std::path::PathBuf> {
    let options = hip_options(None, options).unwrap_or_default();
    backend_hip::installed::installed(&options).copies.into_iter().map(|copy| copy.path).collect()
}

/// Returns the default folder of the verdicts on routes.
#[cfg(feature = "compare")]
pub(crate) fn routes_folder() -> Option<std::path::PathBuf> {
    #[cfg(feature = "vulkan")]
    return VulkanOptions::default().routes_dir;
    #[cfg(not(feature = "vulkan"))]
    return HipOptions::from_env().ok()?.routes_dir;
}

/// Returns this library's folder in the user's cache.
#[cfg(feature = "vulkan")]
pub(super) fn cache_folder() -> Option<std::path::PathBuf> {
    Some(VulkanOptions::default().pipeline_cache_dir?.parent()?.into())
}
