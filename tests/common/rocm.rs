//! AMD's user spaces that `scripts/rocm-roots.sh` unpacked into `target/rocm`, or into the folder that `ROCM_ROOTS` names.

use super::example;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user space: its version, and the program that runs others with it.
pub struct Root {
    pub version: String,
    run: PathBuf,
}

/// Returns the user spaces that are there, by version; says so if there are none.
pub fn roots() -> Vec<Root> {
    let named = std::env::var_os("ROCM_ROOTS").filter(|named| !named.is_empty()).map(PathBuf::from);
    let folder = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/rocm"));
    let mut roots: Vec<Root> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| Root {
            version: entry.file_name().to_string_lossy().into_owned(),
            run: entry.path().join("run"),
        })
        .filter(|root| root.run.is_file())
        .collect();
    roots.sort_by(|a, b| a.version.cmp(&b.version));
    if roots.is_empty() {
        eprintln!("skipped: no HIP user space in {} (scripts/rocm-roots.sh)", folder.display());
    }
    roots
}

impl Root {
    /// Returns an example program under this user space.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.run);
        command.arg(example(name)).env("DIPTYCH_VIRTUAL_KFD", preload()).env_remove("DIPTYCH_HIP_LIBRARY");
        command
    }
}

/// Returns the library to preload for the emulated card, which cargo has built for the tests.
pub fn preload() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let folders = test.ancestors().skip(1).take(2).map(|folder| folder.join("libvirtual_kfd_preload.so"));
    let found = folders.into_iter().find(|path| path.is_file());
    found.expect("libvirtual_kfd_preload.so, which `cargo test` builds")
}
