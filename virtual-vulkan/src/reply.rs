//! Vulkan result codes.

use ash::vk;

/// Result of a Vulkan function; the error is its code.
pub(crate) type Reply<T = ()> = Result<T, vk::Result>;

/// Logs an unknown handle: the caller broke a rule of Vulkan, or an object was destroyed too early.
pub(crate) fn unknown(what: &str, handle: u64) -> vk::Result {
    tracing::error!(what, handle, "unknown handle");
    vk::Result::ERROR_UNKNOWN
}
