//! [`virtual_vulkan`] as a driver that Vulkan's loader finds through a manifest, so that any program that keeps to compute
//! with buffers runs on a virtual Vega:
//!
//! ```text
//! cargo build --release -p virtual-vulkan-icd
//! VK_DRIVER_FILES=virtual-vulkan/icd/virtual_vega.json DIPTYCH_VIRTUAL_CARD=vega20 program
//! ```
//!
//! What goes wrong is said on standard error (`RUST_LOG` chooses how much), because most programs do not ask for
//! `VK_EXT_device_fault`.
#![deny(missing_docs)]

use ash::vk;
use std::ffi::c_char;

/// The version of the interface between loader and drivers that this driver speaks.
const INTERFACE: u32 = 5;

/// Agrees on the version of the interface.
///
/// # Safety
/// `version` is valid, as the loader's interface has it.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn vk_icdNegotiateLoaderICDInterfaceVersion(version: *mut u32) -> vk::Result {
    // A program in Rust may have a subscriber of its own; then that one is told.
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("virtual_vulkan=info"));
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
    // SAFETY: the caller's promise.
    unsafe { *version = (*version).min(INTERFACE) };
    vk::Result::SUCCESS
}

/// A function by its name.
///
/// # Safety
/// `instance` is null or an instance of this driver, and `name` a text.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn vk_icdGetInstanceProcAddr(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    let get = virtual_vulkan::get_instance_proc_addr();
    // SAFETY: the caller's promise.
    unsafe { get(instance, name) }
}
