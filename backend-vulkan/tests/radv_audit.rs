//! Every pipeline through RADV's compiler, for GPUs that are not there.
//!
//! RADV compiles for the family that RADV_FORCE_FAMILY names without any hardware. Each family gets a process of its
//! own, because the variable is read once and because a compiler bug must not take the other families with it. The
//! tables are what a change of a kernel is judged by; registers that spill or scratch memory are failures.

use backend_vulkan::{Matrices, VulkanOptions, audit};
use std::path::PathBuf;
use std::process::Command;

/// One of each class: GCN without and with 4x8-bit dot products, RDNA1 to RDNA4, the APU, CDNA.
const FAMILIES: [&str; 9] =
    ["polaris10", "vega10", "vega20", "navi10", "navi21", "navi31", "gfx1151", "gfx1201", "mi100"];

const CHILD: &str = "DIPTYCH_AUDIT_CHILD";

fn radv() -> Option<PathBuf> {
    let dirs = ["/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d"];
    let files =
        dirs.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten().map(|e| e.path());
    let is_radv = |path: &PathBuf| {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with("radeon_icd") && name.ends_with(".json")
    };
    files.into_iter().find(is_radv)
}

/// Runs in a child process only.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let matrices = Some(Matrices::Units);
    let options = VulkanOptions { matrices, pipeline_cache_dir: None, ..VulkanOptions::default() };
    let audit = audit::compile_all(options).expect("RADV opens a null device");
    println!("{}", audit.table());
    let bad: Vec<String> =
        audit.rows.iter().filter(|r| r.spills() > 0.0).map(|r| r.pipeline.to_string()).collect();
    assert!(audit.failures.is_empty(), "{:?}", audit.failures);
    assert!(!audit.rows.is_empty(), "no pipeline is listed");
    assert!(audit.rows.iter().all(|r| r.statistic("VGPRs").is_some()), "RADV reports registers");
    assert!(bad.is_empty(), "registers spill: {bad:#?}");
}

#[test]
fn no_pipeline_spills_on_any_family() {
    let Some(icd) = radv() else {
        eprintln!("skipped: RADV's driver manifest (radeon_icd*.json) is not installed");
        return;
    };
    let mut failed = Vec::new();
    for family in FAMILIES {
        let output = Command::new(std::env::current_exe().expect("a test has a path"))
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .env("RADV_FORCE_FAMILY", family)
            .env("VK_DRIVER_FILES", &icd)
            .env("VK_ICD_FILENAMES", &icd)
            .env("MESA_SHADER_CACHE_DISABLE", "true")
            .output()
            .expect("the test can start itself");
        let text = String::from_utf8_lossy(&output.stdout);
        println!("== {family}\n{text}");
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            failed.push(format!("{family}: {}\n{error}", output.status));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
