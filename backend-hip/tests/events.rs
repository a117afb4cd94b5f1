//! A memory fault that the runtime reports asynchronously, through real libraries and the real loader. A C
//! compiler builds the device's library here; without a handler for the event it ends the process, as the
//! real one does.
#![cfg(unix)]

use backend_hip::options::Copies;
use backend_hip::{HipBackend, HipOptions};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Usage};
use ggml_core::phase::Deadlines;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::{DType, Error, Graph, Phase, Source};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Compiles a library of `tests/c`. Returns false if there is no C compiler.
fn compile(source: &str, to: &Path, options: &[String]) -> bool {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let compiler = std::env::var_os("CC").unwrap_or("cc".into());
    let output = Command::new(compiler)
        .args(["-shared", "-fPIC", "-pthread", "-o"])
        .arg(to)
        .args(options)
        .arg(source)
        .arg("-ldl")
        .output();
    let Ok(output) = output else {
        eprintln!("skipped: no C compiler");
        return false;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

#[test]
fn a_memory_fault_is_an_error_and_not_the_end_of_the_process() {
    if !hip_kernels::targets().contains(&"gfx906") {
        eprintln!("skipped: no code objects for gfx906 were built in");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let lib = root.path().join("opt/rocm/lib");
    std::fs::create_dir_all(&lib).unwrap();
    let hsa = lib.join("libhsa-runtime64.so.1");
    let soname = "-Wl,-soname,libhsa-runtime64.so.1".to_string();
    if !compile("hsa.c", &hsa, &[soname])
        || !compile("faulting.c", &lib.join("libamdhip64.so.6"), &[format!("-DHSA=\"{}\"", hsa.display())])
    {
        return;
    }
    let options = HipOptions {
        system_root: root.path().into(),
        deadlines: Deadlines::all(Duration::from_secs(60)),
        copies: Copies::Dma,
        ..HipOptions::default()
    };
    let backend = HipBackend::open(options.clone()).unwrap();
    let mut g = Graph::new();
    let mut y = g.leaf("x", DType::F32, [64, 1, 1, 1], Source::Input).unwrap();
    for name in ["one", "two"] {
        y = g.scale(y, 2.0, 1.0).unwrap();
        g.name(y, name).unwrap();
    }
    g.output(y).unwrap();
    let plan = Plan::debug(&g, backend.device().limits.alignment, Precision::Exact).unwrap();
    let mut program = backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default()).unwrap();
    match program.run().unwrap_err() {
        Error::DeviceLost { phase: Phase::FirstCompute, node: Some(_), reason, .. } => {
            assert_eq!(reason, "memory fault at 0x7f00dead0000: page not present (agent 0x77)");
        }
        other => panic!("{other}"),
    }
    let text = backend.allocate(1, Usage::State).unwrap_err().to_string();
    assert!(text.contains("given up after: ") && text.contains("memory fault at 0x7f00dead0000"), "{text}");
    // The device stays lost for this process.
    let error = HipBackend::open(options).unwrap_err();
    assert!(matches!(error, Error::DeviceLost { phase: Phase::OpenDevice, .. }), "{error}");
}
