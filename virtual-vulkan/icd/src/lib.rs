//! [`virtual_vulkan`] as a driver that Vulkan's loader finds through a manifest. Any program that uses only
//! compute and buffers runs on a virtual AMD card:
//!
//! ```text
//! cargo build --release -p virtual-vulkan-icd
//! VK_DRIVER_FILES=virtual-vulkan/icd/virtual_vega.json DIPTYCH_VIRTUAL_CARD=vega20 program
//! ```
//!
//! Errors are logged to standard error (`RUST_LOG` sets the level), because most programs do not query
//! `VK_EXT_device_fault`.
#![deny(missing_docs)]

use ash::vk;
use std::ffi::c_char;

/// Version of the loader-driver interface that this driver supports.
const INTERFACE: u32 = 5;

/// Negotiates the version of the loader-driver interface.
///
/// # Safety `version` is valid, as the loader's interface requires.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn vk_icdNegotiateLoaderICDInterfaceVersion(version: *mut u32) -> vk::Result {
    // A Rust program may have its own subscriber; that one is used.
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("virtual_vulkan=info"));
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
    // SAFETY: the caller's promise.
    unsafe { *version = (*version).min(INTERFACE) };
    vk::Result::SUCCESS
}

/// Returns a function by its name.
///
/// # Safety `instance` is null or an instance of this driver, and `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn vk_icdGetInstanceProcAddr(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    let get = virtual_vulkan::get_instance_proc_addr();
    // SAFETY: the caller's promise.
    unsafe { get(instance, name) }
}
