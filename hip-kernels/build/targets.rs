//! Targets that code objects are compiled for.

use std::fs;
use std::path::Path;

// The library exports its contents.
#[allow(unreachable_pub)]
#[path = "../src/processor.rs"]
mod processor;

/// Targets that are compiled unless `DIPTYCH_HIP_TARGETS` overrides them. PTX also runs on every later NVIDIA
/// processor; sm_80 and later have the matrix instructions that the kernels use.
const DEFAULT: &[&str] = &[
    "gfx803", "gfx900", "gfx902", "gfx906", "gfx908", "gfx90a", "gfx90c", "gfx942", "gfx1010", "gfx1012",
    "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036", "gfx1100", "gfx1101",
    "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201", "sm_70", "sm_80",
];

const NVIDIA: [&str; 2] = ["sm_70", "sm_80"];

/// Processors emulated in software, which are available on any machine.
const EMULATED: [&str; 2] = ["gfx900", "gfx906"];

/// Targets, sorted, and true if any of them was requested by name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Targets {
    pub(crate) list: Vec<String>,
    pub(crate) by_name: bool,
}

impl Targets {
    /// Parses names separated by commas, which may include `all`, `local` and `none`. `root` is the directory
    /// with `/sys` and `/dev`. The error is an invalid name.
    pub(crate) fn parse(text: &str, root: &Path) -> Result<Targets, String> {
        let mut targets = Targets { list: Vec::new(), by_name: false };
        let text = if text.trim().is_empty() { "all" } else { text };
        for name in text.split(',').map(str::trim) {
            match name {
                "none" => {}
                "all" => targets.list.extend(DEFAULT.iter().map(ToString::to_string)),
                "local" => targets.list.extend(local(root)),
                name if is_target(name) => {
                    targets.by_name = true;
                    targets.list.push(name.into());
                }
                wrong => return Err(wrong.into()),
            }
        }
        targets.list.sort();
        targets.list.dedup();
        Ok(targets)
    }
}

/// Returns true if a text can be a target: a processor and its modes.
fn is_target(text: &str) -> bool {
    let rest = text.strip_prefix("gfx").or_else(|| text.strip_prefix("sm_")).unwrap_or("");
    !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b":+-".contains(&b))
}

/// Returns this machine's cards, as the kernel drivers list them, and the emulated processors.
fn local(root: &Path) -> Vec<String> {
    let mut targets: Vec<String> = EMULATED.iter().map(ToString::to_string).collect();
    let nodes = fs::read_dir(root.join("sys/class/kfd/kfd/topology/nodes"));
    for node in nodes.into_iter().flatten().flatten() {
        let properties = fs::read_to_string(node.path().join("properties")).unwrap_or_default();
        let version = properties.lines().find_map(|line| line.strip_prefix("gfx_target_version "));
        // CPU nodes have version 0.
        if let Some(version) = version.and_then(|v| v.trim().parse().ok()).filter(|&v: &u32| v > 0) {
            targets.push(processor::processor_of_kfd(version));
        }
    }
    if root.join("dev/nvidiactl").exists() || root.join("dev/nvidia0").exists() {
        targets.extend(NVIDIA.map(String::from));
    }
    targets
}

/// The generation of all targets whose code is PTX.
pub(crate) const PTX: &str = "ptx";

/// Returns true if code for a target is PTX.
pub(crate) fn is_ptx(target: &str) -> bool {
    target.starts_with("sm_")
}

/// Returns the generation of a target. Targets of one generation have similar code and are compressed
/// together.
pub(crate) fn generation(target: &str) -> &'static str {
    match target.strip_prefix("gfx") {
        None => PTX,
        Some(rest) if rest.starts_with("10") => "gfx10",
        Some(rest) if rest.starts_with('1') => "gfx11",
        Some(_) => "gfx9",
    }
}
