//! Conversion of result codes to typed errors.

use ash::vk;
use ggml_core::{Error, Phase};

/// Returns the Vulkan name of a result code ("VK_ERROR_DEVICE_LOST").
pub(crate) fn code_name(code: vk::Result) -> String {
    format!("VK_{code:?}")
}

/// Returns the error for a failed call.
pub(crate) fn failure(backend: &str, phase: Phase, call: &'static str, code: vk::Result) -> Error {
    match code {
        vk::Result::ERROR_DEVICE_LOST => lost(backend, phase, ""),
        _ => Error::Driver {
            backend: backend.into(),
            phase,
            node: None,
            call,
            code: i64::from(code.as_raw()),
            name: code_name(code),
        },
    }
}

/// Returns the error for a lost device, with the driver's description in `account`.
pub(crate) fn lost(backend: &str, phase: Phase, reason: &str) -> Error {
    Error::DeviceLost { backend: backend.into(), phase, node: None, reason: reason.into() }
}

/// Returns the error for a failure in this library's own code around the driver.
pub(crate) fn broken(backend: &str, phase: Phase, call: &'static str, name: String) -> Error {
    Error::Driver { backend: backend.into(), phase, node: None, call, code: 0, name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_keep_their_names() {
        let error =
            failure("vulkan:0", Phase::Compile, "vkCreateComputePipelines", vk::Result::ERROR_UNKNOWN);
        let text = error.to_string();
        assert!(
            text.contains("vkCreateComputePipelines") && text.contains("VK_ERROR_UNKNOWN (-13)"),
            "{text}"
        );
        let lost = failure("vulkan:0", Phase::Compute, "vkQueueSubmit", vk::Result::ERROR_DEVICE_LOST);
        assert!(matches!(lost, Error::DeviceLost { phase: Phase::Compute, .. }));
        assert!(code_name(vk::Result::from_raw(-77)).contains("-77"));
    }
}
