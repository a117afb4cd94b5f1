//! Codes of Vulkan's.

use ash::vk;

/// What a Vulkan function gives inside: the code of its failure.
pub(crate) type Reply<T = ()> = Result<T, vk::Result>;

/// A handle that stands for nothing: the caller broke a rule of Vulkan's, or an object was destroyed too early.
pub(crate) fn unknown(what: &str, handle: u64) -> vk::Result {
    tracing::error!(what, handle, "unknown handle");
    vk::Result::ERROR_UNKNOWN
}
