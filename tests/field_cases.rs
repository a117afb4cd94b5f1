//! Incidents that users had, played by an emulated device.

mod common;

use backend_hip::virtual_gpu::{Faults, Target, VirtualOptions, open_with};
use backend_hip::{HipBackend, HipOptions};
use common::{compare, file, library, record, stdout, tiny};
use diptych::ggml::backend::{Backend, Usage};
use diptych::ggml::phase::Deadlines;
use diptych::{DType, Error, Model, SessionOptions};
use serde_json::Value;
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A device on which the allocation after `n` small ones never returns.
fn device(n: usize, limit: Duration) -> (HipBackend, Faults) {
    let faults = Faults::default().hang_after_small_allocations(n);
    let device = VirtualOptions { faults: faults.clone(), ..VirtualOptions::new(Target::Gfx906) };
    let options = HipOptions { deadlines: Deadlines::all(limit), ..HipOptions::default() };
    (open_with(device, options).expect("the device opens"), faults)
}

/// RX 7900 XT, ROCm 7.1: 24 allocations of 7 MB are fine, then one of many of 3,584 bytes never returns. A loader that
/// allocates for each tensor learns of it in time; this library's own makes few allocations and does not meet it.
#[test]
fn many_small_allocations_hang() {
    let limit = Duration::from_millis(800);
    let (backend, faults) = device(40, limit);
    let mut held = Vec::new();
    for _ in 0..24 {
        held.push(backend.allocate(7 << 20, Usage::State).expect("large allocations work"));
    }
    let start = Instant::now();
    let error = loop {
        assert!(held.len() < 1000, "the fault never came");
        match backend.allocate(3584, Usage::Weights) {
            Ok(buffer) => held.push(buffer),
            Err(error) => break error,
        }
    };
    match &error {
        Error::Timeout { phase, after, .. } => {
            assert_eq!((phase.name(), *after), ("allocate", limit), "{error}");
        }
        other => panic!("{other}"),
    }
    assert!(start.elapsed() < Duration::from_secs(30) && held.len() >= 24 + 20, "{}", held.len());
    faults.release();

    let (backend, faults) = device(8, Duration::from_secs(60));
    let backend: Arc<dyn Backend> = Arc::new(backend);
    let model =
        Model::from_file(file(&tiny("qwen3", DType::Q8_0)), backend.clone()).expect("the model loads");
    assert!(model.file().gguf().tensors().len() > 20, "more tensors than allocations");
    assert!(backend.stats().driver_allocations <= 8, "{:?}", backend.stats());
    let mut session = model.session(&SessionOptions::default().with_context(64)).expect("state");
    session.prefill(&[1, 2, 3, 4, 5]).expect("a prompt");
    session.decode(6).expect("a token");
    faults.release();
}

/// A driver's library that ends the process, and says that all went well: no result of this run, whatever lies in the
/// output folder from the run before.
#[cfg(unix)]
#[test]
fn a_library_that_leaves() {
    for (on_load, init, phase) in [("exit(0)", "0", "load_runtime"), ("", "(exit(0), 0)", "enumerate")] {
        let dir = tempfile::tempdir().unwrap();
        let Some(library) = library(&dir.path().join("libamdhip64.so.6"), on_load, init) else { return };
        let args = ["--backends", "cpu,hip", "--per-node", "isolated", "--hip-library"];
        let args = [&args[..], &[library.to_str().unwrap()]].concat();
        let out = dir.path().join("out");
        let model = [&["--predict", "1"], &args[..]].concat();
        let (output, result) = compare(&out, &model);
        check(&output, &result, phase);
        // What an earlier run could have left.
        for kind in ["logits.npy", "nodes"] {
            std::fs::copy(out.join(format!("cpu.{kind}")), out.join(format!("hip.{kind}"))).unwrap();
        }
        let (output, result) = compare(&out, &model);
        check(&output, &result, phase);
        assert!(!out.join("hip.logits.npy").exists() && !out.join("hip.nodes").exists());

        let (output, result) = compare(&out, &[&["--ops", "RELU"], &args[..]].concat());
        check(&output, &result, phase);
    }
}

/// A driver's library that prints on standard output, where the child speaks to its parent, and no text at that.
#[cfg(unix)]
#[test]
fn a_library_that_prints() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) =
        library(&dir.path().join("libamdhip64.so.6"), r#"(void)!write(1, "\xff\n{\nno end", 10)"#, "0")
    else {
        return;
    };
    let args = ["--ops", "RELU", "--backends", "cpu,hip", "--hip-library", library.to_str().unwrap()];
    let (output, result) = compare(&dir.path().join("out"), &args);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert_eq!(record(&result, "hip")["status"], "unsupported", "a library without a device");
}

/// The CPU agrees and the library's end is a crash.
#[cfg(unix)]
fn check(output: &Output, result: &Value, phase: &str) {
    assert_eq!(output.status.code(), Some(1), "{}", stdout(output));
    let r = record(result, "hip");
    assert_eq!((&r["status"], &r["phase"]), (&"crash".into(), &phase.into()), "{r}");
    assert!(r["message"].as_str().unwrap().starts_with("left with status 0 before its work was done"), "{r}");
    let compared = result["comparisons"].as_array().unwrap();
    assert_eq!(compared.iter().map(|c| c["lhs"].as_str().unwrap()).collect::<Vec<_>>(), ["cpu"]);
    assert_eq!(result["verdict"]["findings"].as_array().unwrap().len(), 1);
}
