//! Incidents reported by users, simulated by an emulated device.

use crate::common;

use backend_hip::virtual_gpu::{Faults, Target, VirtualOptions, open_with};
use backend_hip::{HipBackend, HipOptions};
use common::{compare, example, file, flat, hip_library, record, result, stdout, tiny};
use diptych::ggml::backend::{Backend, Usage};
use diptych::ggml::phase::Deadlines;
use diptych::synthesize::{self, Shape};
use diptych::{DType, Error, Model, SessionOptions};
use serde_json::Value;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns a device on which the allocation after `n` small ones never returns.
fn device(n: usize, limit: Duration) -> (HipBackend, Faults) {
    let faults = Faults::default().hang_after_small_allocations(n);
    let device = VirtualOptions { faults: faults.clone(), ..VirtualOptions::new(Target::Gfx906) };
    let options = HipOptions { deadlines: Deadlines::all(limit), ..HipOptions::default() };
    (open_with(device, options).expect("the device opens"), faults)
}

/// RX 7900 XT, ROCm 7.1: 24 allocations of 7 MB succeed, then one of many of 3,584 bytes never returns. A
/// loader that allocates per tensor gets a timeout; this library's loader makes few allocations and is not
/// affected.
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

/// A driver's library ends the process with exit status 0: no result is reported, even if the output folder
/// contains results of an earlier run.
#[cfg(unix)]
#[test]
fn a_library_that_leaves() {
    for (on_load, init, phase) in [("exit(0)", "0", "load_runtime"), ("", "(exit(0), 0)", "enumerate")] {
        let dir = tempfile::tempdir().unwrap();
        let Some(library) = hip_library(dir.path(), on_load, init) else { return };
        let args = ["--backends", "cpu,hip", "--per-node", "isolated", "--hip-library"];
        let args = [&args[..], &[library.to_str().unwrap()]].concat();
        let out = dir.path().join("out");
        let model = [&["--predict", "1"], &args[..]].concat();
        let (output, result) = compare(&out, &model);
        check(&output, &result, phase);
        // Results that an earlier run could have left.
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

/// A driver's library prints non-UTF-8 bytes to standard output, which the child process uses to report to
/// its parent.
#[cfg(unix)]
#[test]
fn a_library_that_prints() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = hip_library(dir.path(), r#"(void)!write(1, "\xff\n{\nno end", 10)"#, "0") else {
        return;
    };
    let args = ["--ops", "RELU", "--backends", "cpu,hip", "--hip-library", library.to_str().unwrap()];
    let (output, result) = compare(&dir.path().join("out"), &args);
    assert_eq!(output.status.code(), Some(1), "a backend that was named cannot run: {}", stdout(&output));
    assert_eq!(record(&result, "hip")["status"], "unsupported", "a library without a device");
}

/// Checks that the CPU agrees and the library's exit is a crash.
#[cfg(unix)]
fn check(output: &Output, result: &Value, phase: &str) {
    assert_eq!(output.status.code(), Some(1), "{}", stdout(output));
    let r = record(result, "hip");
    assert_eq!((&r["status"], &r["phase"]), (&"crash".into(), &phase.into()), "{r}");
    assert!(
        r["message"].as_str().unwrap().starts_with("exited with status 0 before its work was done"),
        "{r}"
    );
    let compared = result["comparisons"].as_array().unwrap();
    assert_eq!(compared.iter().map(|c| c["lhs"].as_str().unwrap()).collect::<Vec<_>>(), ["cpu"]);
    assert_eq!(result["verdict"]["findings"].as_array().unwrap().len(), 1);
}

/// An APU whose uploads, and then whose first graph, never complete (the copy is accepted but never done):
/// the message names phase, call and node, and an alternative.
#[test]
fn uploads_and_the_first_graph_hang() {
    for (fault, phase, place) in [
        ("stall@hipMemcpyAsync", "upload", "hung waiting for hipMemcpyAsync"),
        ("hang@hipMemcpyAsync", "upload", "hung after the call of hipMemcpyAsync"),
        ("stall@hipModuleLaunchKernel", "first_compute", "hung waiting for hipModuleLaunchKernel at node '"),
        ("hang@hipModuleLaunchKernel", "first_compute", "hung after the call of hipModuleLaunchKernel"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let backend = "hip-virtual:gfx906";
        let args = ["--predict", "2", "--timeout-s", "2", "--reference", "cpu", "--backends"];
        let output = Command::new(example("compare"))
            .args(args)
            .args([&format!("{backend},reference"), "--out"])
            .arg(dir.path())
            .env("DIPTYCH_VIRTUAL_FAULTS", fault)
            .output()
            .unwrap();
        let text = flat(&output);
        assert_eq!(output.status.code(), Some(1), "{fault}: {text}");
        let result = result(dir.path());
        let r = record(&result, backend);
        assert_eq!((&r["status"], &r["phase"]), (&"hang".into(), &phase.into()), "{fault}: {r}");
        let finding = format!("{backend}: hang in phase {phase}");
        for part in [
            &finding,
            &format!("{backend} {place}"),
            "reference agrees with cpu: use --backend cpu (nothing faster",
        ] {
            assert!(text.contains(part), "{fault}: {part}: {text}");
        }
        let last = stdout(&output).lines().last().unwrap().to_string();
        assert!(last.ends_with(" s a request)"), "{last}");
    }
}

/// A Vega with a driver that crashes in an operation used only by a hybrid of delta nets and attention,
/// during decoding. With no layers on the card it completes; a model without the operation completes.
#[test]
fn a_driver_dies_in_one_operation_at_a_decode_step() {
    let dir = tempfile::tempdir().unwrap();
    let bad = "null=crash@compute:delta";
    let path = |name: &str| dir.path().join(format!("{name}.gguf"));
    synthesize::write(&Shape { layers: 4, ..tiny("qwen35", DType::F32) }, 1, &path("qwen35")).unwrap();
    synthesize::write(&Shape { original_context: None, ..tiny("phi3", DType::F32) }, 1, &path("phi3"))
        .unwrap();
    let run = |name: &str, args: &[&str]| {
        let model = path(name);
        let all = [&["--model", model.to_str().unwrap(), "--predict", "4", "--backends", bad], args].concat();
        compare(&dir.path().join(name), &all)
    };
    let of = |result: &Value, offload: i64| {
        let records = result["records"].as_array().unwrap();
        let own = |r: &&Value| r["backend"] == bad && r["offload"] == offload;
        records.iter().find(own).expect("a record").clone()
    };
    let (output, result) = run("qwen35", &["--reference", "cpu", "--offload", "0,1,3,-1"]);
    let text = flat(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(
        (&of(&result, 0)["status"], &of(&result, 1)["status"]),
        (&"ok".into(), &"ok".into()),
        "{text}"
    );
    for offload in [3, -1] {
        let r = of(&result, offload);
        assert_eq!((&r["status"], &r["signal"]), (&"crash".into(), &"SIGSEGV".into()), "{r}");
        assert_eq!((&r["phase"], &r["step"]), (&"compute".into(), &"decode step 2".into()), "{r}");
    }
    for part in [
        &format!("{bad} offload 3: crash in phase compute"),
        "in decode step 2",
        "died of SIGSEGV",
        &format!("{bad} works at offload 0, differs at 1, dies at 3 and -1: 2 of 2 runs, "),
        "after the start, in phase compute",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Compared with a backend that also computes zeros, only the fault could differ.
    let (output, result) = run("phi3", &["--reference", "null"]);
    assert_eq!(output.status.code(), Some(0), "{}", flat(&output));
    assert_eq!(of(&result, -1)["status"], "ok");
}
