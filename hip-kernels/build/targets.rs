//! What code objects are made for.

use std::fs;
use std::path::Path;

// The library exports what it holds.
#[allow(unreachable_pub)]
#[path = "../src/processor.rs"]
mod processor;

/// What is compiled unless `DIPTYCH_HIP_TARGETS` says otherwise. PTX runs on every later NVIDIA processor too; from sm_80
/// on there are the matrix instructions that the kernels use.
const DEFAULT: &[&str] = &[
    "gfx803", "gfx900", "gfx902", "gfx906", "gfx908", "gfx90a", "gfx90c", "gfx942", "gfx1010", "gfx1012",
    "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036", "gfx1100", "gfx1101",
    "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201", "sm_70", "sm_80",
];

const NVIDIA: [&str; 2] = ["sm_70", "sm_80"];

/// The processors that exist in software, wherever this is built.
const EMULATED: [&str; 2] = ["gfx900", "gfx906"];

/// Targets, sorted, and whether each of them was asked for by its name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Targets {
    pub(crate) list: Vec<String>,
    pub(crate) by_name: bool,
}

impl Targets {
    /// From names separated by commas, among which may be `all`, `local` and `none`. `root` is where `/sys` and `/dev`
    /// are looked for. The error is a name that is none.
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

/// Whether a text can be a target: a processor and its modes.
fn is_target(text: &str) -> bool {
    let rest = text.strip_prefix("gfx").or_else(|| text.strip_prefix("sm_")).unwrap_or("");
    !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b":+-".contains(&b))
}

/// This machine's cards, as the kernel drivers list them, and the emulated ones.
fn local(root: &Path) -> Vec<String> {
    let mut targets: Vec<String> = EMULATED.iter().map(ToString::to_string).collect();
    let nodes = fs::read_dir(root.join("sys/class/kfd/kfd/topology/nodes"));
    for node in nodes.into_iter().flatten().flatten() {
        let properties = fs::read_to_string(node.path().join("properties")).unwrap_or_default();
        let version = properties.lines().find_map(|line| line.strip_prefix("gfx_target_version "));
        // A node that is a CPU has version 0.
        if let Some(version) = version.and_then(|v| v.trim().parse().ok()).filter(|&v: &u32| v > 0) {
            targets.push(processor::processor_of_kfd(version));
        }
    }
    if root.join("dev/nvidiactl").exists() || root.join("dev/nvidia0").exists() {
        targets.extend(NVIDIA.map(String::from));
    }
    targets
}

/// Whether code for a target is PTX.
pub(crate) fn is_ptx(target: &str) -> bool {
    target.starts_with("sm_")
}

/// Targets whose code is much alike, which are therefore compressed together. PTX is for one target, and alone.
pub(crate) fn generation(target: &str) -> &str {
    match target.strip_prefix("gfx") {
        None => target,
        Some(rest) if rest.starts_with("10") => "gfx10",
        Some(rest) if rest.starts_with('1') => "gfx11",
        Some(_) => "gfx9",
    }
}
