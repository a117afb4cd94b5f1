//! RADV's compiler for GPUs that need not be present: it compiles for the family in RADV_FORCE_FAMILY without
//! any hardware. Each family runs in a separate process, because the variable is read once and because a
//! compiler crash must not end the tests of other families.
#![allow(dead_code, unreachable_pub)]

use crate::common::user_cache;
use backend_vulkan::{Matrices, VulkanOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns the path of RADV's driver manifest, or `None` with a message.
pub fn manifest() -> Option<PathBuf> {
    let dirs = ["/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d"];
    let files =
        dirs.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten().map(|e| e.path());
    let is_radv = |path: &PathBuf| {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with("radeon_icd") && name.ends_with(".json")
    };
    let found = files.into_iter().find(is_radv);
    if found.is_none() {
        eprintln!("skipped: RADV's driver manifest (radeon_icd*.json) is not installed");
    }
    found
}

/// Runs a test of this program for a family, with one additional variable, and returns its output.
pub fn child(manifest: &Path, family: &str, test: &str, (variable, value): (&str, &str)) -> Output {
    Command::new(std::env::current_exe().expect("a test has a path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(variable, value)
        .env("RADV_FORCE_FAMILY", family)
        .env("VK_DRIVER_FILES", manifest)
        .env("VK_ICD_FILENAMES", manifest)
        .env("MESA_SHADER_CACHE_DISABLE", "true")
        .output()
        .expect("the test can start itself")
}

/// Returns the folder in the user's cache that holds compiler statistics of earlier runs. `DIPTYCH_AUDIT=new` compiles
/// everything again.
pub fn known() -> Option<PathBuf> {
    std::env::var_os("DIPTYCH_AUDIT").is_none().then(|| user_cache("audits")).flatten()
}

/// Returns the options of the child: matrix units are used.
pub fn options() -> VulkanOptions {
    VulkanOptions { matrices: Some(Matrices::Units), pipeline_cache_dir: None, ..VulkanOptions::default() }
}
