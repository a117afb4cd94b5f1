//! The machine and the environment that a comparison runs in.

use ggml_core::environment::{HIP, OWN, VULKAN, recorded};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;

/// The host machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Name of the machine; reports for others have a number in its place.
    #[serde(default)]
    pub name: String,
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
        Environment { overrides: recorded(std::env::vars_os(), &[OWN, VULKAN, HIP]) }
    }
}

/// Converts text of the system, which need not be UTF-8.
pub(crate) fn lossy(text: OsString) -> String {
    text.to_string_lossy().into_owned()
}

/// Returns the name of this machine; empty if the system does not say it.
pub(super) fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let name = read("/proc/sys/kernel/hostname").or_else(|| read("/etc/hostname"));
    let name = name.or_else(|| std::env::var("COMPUTERNAME").ok());
    name.unwrap_or_default().trim().to_string()
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
            name: machine(),
            os: line("/etc/os-release", "PRETTY_NAME="),
            kernel: line("/proc/sys/kernel/osrelease", ""),
            cpu: line("/proc/cpuinfo", "model name"),
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            diptych: env!("CARGO_PKG_VERSION").into(),
        }
    }
}
