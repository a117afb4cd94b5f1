//! Everything that may be missing, each case distinguished, through a real library and the real loader: a C
//! compiler builds libraries that emulate libamdhip64 on machines without a device. System paths are below a
//! directory of the test.
#![cfg(unix)]

use backend_hip::{HipBackend, HipOptions, nvidia};
use ggml_core::{Error, Missing, Phase};
use std::fs;
use std::io::{Error as IoError, ErrorKind};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Creates a system with a library in /opt/rocm/lib; `None` if there is no C compiler.
fn system(library: &str, definitions: &[&str]) -> Option<TempDir> {
    let root = tempfile::tempdir().unwrap();
    let lib = root.path().join("opt/rocm/lib");
    fs::create_dir_all(&lib).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/amdhip64.c");
    let compiler = std::env::var_os("CC").unwrap_or("cc".into());
    let output = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-o"])
        .arg(lib.join(library))
        .args(definitions)
        .arg(source)
        .output();
    let Ok(output) = output else {
        eprintln!("skipped: no C compiler");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(root)
}

fn options(root: &Path) -> HipOptions {
    HipOptions { system_root: root.into(), ..HipOptions::default() }
}

fn refusal(options: HipOptions) -> (Missing, Phase, String) {
    match HipBackend::open(options).unwrap_err() {
        Error::Unavailable { missing, phase, reason, .. } => (missing, phase, reason),
        other => panic!("{other}"),
    }
}

#[test]
fn library_device_and_permission_are_told_apart() {
    let Some(root) = system("libamdhip64.so.6", &["-DINIT=101", "-DCOUNT=100"]) else { return };
    let empty = tempfile::tempdir().unwrap();
    let (missing, phase, reason) = refusal(options(empty.path()));
    assert_eq!((missing, phase), (Missing::Library, Phase::LoadRuntime), "{reason}");
    assert!(reason.contains("opt/rocm/lib (default directory): no such directory"), "{reason}");

    let (missing, phase, reason) = refusal(options(root.path()));
    assert_eq!((missing, phase), (Missing::Device, Phase::Enumerate), "{reason}");
    for part in [
        "hipInit: hipErrorInvalidDevice (101)",
        "hipGetDeviceCount: hipErrorNoDevice (100)",
        "/dev/kfd: does not exist",
        "hip runtime: 6.3.42134",
        "opt/rocm/lib/libamdhip64.so.6",
        "library found: default directory",
    ] {
        assert!(reason.contains(part), "{part}: {reason}");
    }

    // Root may open everything, so the denial is injected.
    fs::create_dir_all(root.path().join("dev")).unwrap();
    fs::write(root.path().join("dev/kfd"), "").unwrap();
    let denied =
        HipOptions { open_node: |_| Err(IoError::from(ErrorKind::PermissionDenied)), ..options(root.path()) };
    let (missing, phase, reason) = refusal(denied);
    assert_eq!((missing, phase), (Missing::Permission, Phase::Enumerate), "{reason}");
    for part in ["/dev/kfd: ", "owner ", "group ", "render", "hipErrorNoDevice (100)"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
}

/// A runtime that returns "no error, no device".
#[test]
fn a_runtime_that_lists_nothing() {
    let Some(root) = system("libamdhip64.so.7", &["-DINIT=0", "-DCOUNT=0"]) else { return };
    let (missing, _, reason) = refusal(options(root.path()));
    assert_eq!(missing, Missing::Device);
    assert!(reason.contains("hipInit: hipSuccess (0), hipGetDeviceCount: 0 devices"), "{reason}");
}

/// A library that lacks functions is named, and no other is tried after it.
#[test]
fn a_library_that_lacks_functions() {
    let Some(root) = system("libamdhip64.so.5", &["-DINIT=0", "-DCOUNT=0", "-DOLD"]) else { return };
    let (missing, phase, reason) = refusal(options(root.path()));
    assert_eq!((missing, phase), (Missing::Library, Phase::LoadRuntime));
    assert!(reason.contains("lacks hipModuleLaunchKernel"), "{reason}");
}

/// The same checks for NVIDIA's library.
#[test]
fn no_cuda() {
    let root = tempfile::tempdir().unwrap();
    let open = |options| match nvidia::open(options).unwrap_err() {
        Error::Unavailable { missing, phase, reason, backend } => (missing, phase, reason, backend),
        other => panic!("{other}"),
    };
    let (missing, phase, reason, backend) = open(options(root.path()));
    assert_eq!((missing, phase, backend.as_str()), (Missing::Library, Phase::LoadRuntime, "hip-nvidia:0"));
    assert!(
        reason.starts_with("libcuda was not loaded: ") && reason.contains("default directory in WSL"),
        "{reason}"
    );
    let named = HipOptions { cuda_library: Some("/nowhere/libcuda.so.1".into()), ..options(root.path()) };
    let (missing, _, reason, _) = open(named);
    assert_eq!(missing, Missing::Library);
    assert!(reason.contains("/nowhere/libcuda.so.1 (named by the user): "), "{reason}");
    // A library without the functions.
    let named = HipOptions { cuda_library: Some("libc.so.6".into()), ..options(root.path()) };
    let (missing, _, reason, _) = open(named);
    assert_eq!(missing, Missing::Library);
    assert!(reason.contains("lacks cuInit, "), "{reason}");
}
