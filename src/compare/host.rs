//! The machine and the environment that a comparison runs in.

use serde::{Deserialize, Serialize};
use std::ffi::OsString;

/// Environment variables that change the behaviour of drivers; recorded if they are set.
const OVERRIDES: &[&str] = &[
    "HSA_OVERRIDE_GFX_VERSION",
    "HSA_ENABLE_SDMA",
    "HSA_XNACK",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_MAX_HW_QUEUES",
    "AMD_SERIALIZE_KERNEL",
    "AMD_SERIALIZE_COPY",
    "HIP_LAUNCH_BLOCKING",
    "RADV_DEBUG",
    "RADV_PERFTEST",
    "RADV_FORCE_FAMILY",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_INSTANCE_LAYERS",
    "MESA_VK_DEVICE_SELECT",
    "LP_NATIVE_VECTOR_WIDTH",
    "LP_NUM_THREADS",
    "DIPTYCH_VULKAN_ARCH",
    "DIPTYCH_VULKAN_MATRIX_UNITS",
    "DIPTYCH_VULKAN_STAGED_WEIGHTS",
    "DIPTYCH_VULKAN_SHARED_TILES",
    "DIPTYCH_HIP_LIBRARY",
    "DIPTYCH_HIP_STREAM",
    "DIPTYCH_HIP_RTC",
    "DIPTYCH_CUDA_LIBRARY",
    "DIPTYCH_VIRTUAL_CHECKS",
    "DIPTYCH_VIRTUAL_FAULTS",
];

/// The host machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Name of the operating system, as it reports it.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// Name of the processor.
    pub cpu: String,
    /// Number of hardware threads.
    pub threads: usize,
    /// Version of this library.
    pub diptych: String,
}

/// Environment variables that were set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Variables that change the behaviour of drivers.
    pub overrides: Vec<(String, String)>,
}

impl Environment {
    pub(crate) fn read() -> Environment {
        let set = |name: &&str| Some((name.to_string(), lossy(std::env::var_os(name)?)));
        Environment { overrides: OVERRIDES.iter().filter_map(set).collect() }
    }
}

/// Converts text of the system, which need not be UTF-8.
pub(crate) fn lossy(text: OsString) -> String {
    text.to_string_lossy().into_owned()
}

impl Host {
    pub(crate) fn read() -> Host {
        let line = |path: &str, key: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let value = text.lines().find_map(|l| l.strip_prefix(key).map(str::to_string));
            value
                .unwrap_or_default()
                .trim_matches(|c: char| c == '"' || c == ':' || c.is_whitespace())
                .to_string()
        };
        Host {
            os: line("/etc/os-release", "PRETTY_NAME="),
            kernel: line("/proc/sys/kernel/osrelease", ""),
            cpu: line("/proc/cpuinfo", "model name"),
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            diptych: env!("CARGO_PKG_VERSION").into(),
        }
    }
}
