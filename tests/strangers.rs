//! Folders and arguments of strangers: nothing outside of a folder is read, written or loaded because of what the
//! folder contains.

use crate::common;

use common::{compare, example, result};
use diptych::DType;
use diptych::compare::Report;
use diptych::ggml::gguf::{GgufWriter, TensorData};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A run that every machine can make in a moment.
const RUN: [&str; 4] = ["--ops", "RELU", "--backends", "cpu"];

/// Bytes at the start of a file of events, reserved for them.
const RESERVED: usize = 256 << 10;

fn run(args: &[&str], folder: &Path) -> (Output, String) {
    let output = Command::new(example("compare")).args(args).arg(folder).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, stderr)
}

/// Makes a run that has not begun, with a changed header.
fn planned(folder: &Path, change: impl FnOnce(&mut Value)) {
    let (output, _) = compare(folder, &RUN);
    assert_eq!(output.status.code(), Some(0));
    let path = folder.join("run.json");
    let mut header: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut header);
    std::fs::write(&path, header.to_string()).unwrap();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry != path {
            std::fs::remove_file(entry).unwrap();
        }
    }
    std::fs::write(folder.join("run.events.jsonl"), vec![0; RESERVED]).unwrap();
}

/// A library is code. The one that a folder names is not loaded, not even given to a child process.
#[test]
fn a_folder_names_no_library() {
    let dir = tempfile::tempdir().unwrap();
    let evil = dir.path().join("evil.so");
    planned(dir.path(), |header| {
        header["options"]["hip_library"] = json!(evil);
        header["options"]["backends"] = json!(["cpu", "hip"]);
    });
    let (output, stderr) = run(&["--resume"], dir.path());
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("--hip-library") && stderr.contains("evil.so"), "{stderr}");
    assert!(!dir.path().join("hip.work.json").exists() && !dir.path().join("cpu.work.json").exists());

    let own = "/nowhere/own.so";
    let (_, stderr) = run(&["--hip-library", own, "--resume"], dir.path());
    assert!(stderr.contains("it opens ops RELU"), "{stderr}");
    let work: Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("hip.work.json")).unwrap()).unwrap();
    assert_eq!(work["hip_library"], own);
}

/// The model that is named is the one that is opened, whatever else the folder says.
#[test]
fn the_model_that_is_named_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    planned(dir.path(), |header| {
        header["options"]["work"] = json!({"model": "/nowhere/shown.gguf"});
        header["task"] = json!({
            "kind": "model", "model": "/nowhere/hidden.gguf", "tokens": [1], "predict": 1, "cache": "F16",
            "offload": -1, "logits": "/nowhere/x", "nodes": {"mode": "off", "out": "/nowhere/y", "reference": null},
        });
        header["runs"] = json!([{"backend": "cpu", "offload": -1, "epoch": 0}]);
    });
    let (_, stderr) = run(&["--resume"], dir.path());
    assert!(stderr.contains("it opens model /nowhere/shown.gguf"), "{stderr}");
    let work = std::fs::read_to_string(dir.path().join("cpu.work.json")).unwrap();
    assert!(
        work.contains("shown.gguf") && !work.contains("hidden.gguf") && !work.contains("nowhere/x"),
        "{work}"
    );
}

/// Links in the place of a run's files: continuing and reporting refuse them, a new run replaces them. What they
/// name is neither read nor written.
#[test]
fn links_of_a_folder_are_not_followed() {
    let names = [
        "cpu.work.json",
        "cpu.events.jsonl",
        "cpu.log",
        "cpu-2.log",
        "run.events.jsonl",
        "reference.results",
        "result.json",
        "result.json.new",
        "report.html",
        "report.html.new",
        "run.json.new",
    ];
    let dir = tempfile::tempdir().unwrap();
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "a private key").unwrap();
    let unchanged = || assert_eq!(std::fs::read_to_string(&precious).unwrap(), "a private key");
    for name in names {
        let out = dir.path().join(format!("out-{name}"));
        planned(&out, |_| ());
        let link = out.join(name);
        let _ = std::fs::remove_file(&link);
        symlink(&precious, &link).unwrap();
        for args in [&["--resume"][..], &["report"]] {
            let (output, stderr) = run(args, &out);
            assert_eq!(output.status.code(), Some(2), "{name} {args:?}: {stderr}");
            assert!(stderr.contains("is a link"), "{stderr}");
            unchanged();
        }
        let (output, _) = compare(&out, &RUN);
        assert_eq!(output.status.code(), Some(0), "{name}");
        unchanged();
        assert_eq!(result(&out)["verdict"]["agree"], true);
    }
}

/// A file of a run that has a second name elsewhere, which would change with it: the run is not continued. Its report
/// only reads.
#[test]
fn second_names_of_a_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (precious, out) = (dir.path().join("precious"), dir.path().join("out"));
    std::fs::write(&precious, "a private key").unwrap();
    planned(&out, |_| ());
    std::fs::hard_link(&precious, out.join("cpu.log")).unwrap();
    let (output, stderr) = run(&["--resume"], &out);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("second name elsewhere") && stderr.contains("compare report"), "{stderr}");
    let (output, stderr) = run(&["report"], &out);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "a private key");
}

/// The same for the files of a model's run, which also writes the model.
#[test]
fn links_of_a_models_run_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (precious, out) = (dir.path().join("precious"), dir.path().join("out"));
    std::fs::write(&precious, "a private key").unwrap();
    std::fs::create_dir(&out).unwrap();
    for name in ["model.gguf", "cpu.logits.npy", "cpu.nodes", "cpu.step.nodes", "cpu.failing.json", "again"] {
        symlink(&precious, out.join(name)).unwrap();
    }
    let args = [
        "--reference",
        "cpu",
        "--backends",
        "cpu",
        "--tokens",
        "1",
        "--predict",
        "2",
        "--per-node",
        "chained",
    ];
    let (output, report) = compare(&out, &args);
    assert_eq!(report["records"][0]["status"], "ok", "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "a private key");
}

/// Variables whose names only begin like those of drivers stay out of every file of a run.
#[test]
fn secrets_are_not_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(example("compare"))
        .args(["--ops", "RELU", "--backends", "cpu,vulkan", "--out"])
        .arg(dir.path())
        // Cargo sets it for tests.
        .env_remove("LD_LIBRARY_PATH")
        .envs([("VK_ACCESS_TOKEN", "open-sesame"), ("AMD_API_KEY", "open-sesame"), ("RADV_DEBUG", "nocache")])
        .output()
        .unwrap();
    assert!(output.status.code().is_some());
    for entry in std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()) {
        let text = String::from_utf8_lossy(&std::fs::read(&entry).unwrap()).into_owned();
        assert!(!text.contains("open-sesame"), "{}", entry.display());
    }
    assert_eq!(result(dir.path())["environment"]["overrides"], json!([["RADV_DEBUG", "nocache"]]));
}

/// Names in a model file do not control the terminal, in errors and in warnings.
#[test]
fn names_in_a_file_do_not_control_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (dir.path().join("m.gguf"), dir.path().join("out.gguf"));
    let hostile = "\u{1b}]0;x\u{7}\u{9b}2J";
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", hostile).unwrap();
    let nan = TensorData::from([f32::NAN.to_le_bytes(); 64].concat());
    writer.tensor(format!("blk.0.{hostile}.weight"), DType::F32, &[32, 2], nan).unwrap();
    writer.write_to(&model).unwrap();
    let quantize: [&OsStr; 3] = [model.as_ref(), out.as_ref(), "F16".as_ref()];
    let generate: [&OsStr; 4] = ["--model".as_ref(), model.as_ref(), "--prompt".as_ref(), "a".as_ref()];
    for (program, args) in [("quantize", &quantize[..]), ("generate", &generate)] {
        let output = Command::new(example(program)).args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("\\u{1b}]0;x\\u{7}\\u{9b}2J"), "{program}: {text:?}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{program}: {text:?}");
    }
}

/// No argument alone makes a program a child process, and a child writes only to a new file of events.
#[test]
fn arguments_make_no_child() {
    let dir = tempfile::tempdir().unwrap();
    let (work, events) = (dir.path().join("work.json"), dir.path().join("precious"));
    let child = |input: &str| {
        let mut command = Command::new(example("compare"));
        command.arg("--compare-child").args([&work, &events]).arg("7").stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // The program may not wait for it.
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes());
        child.wait_with_output().unwrap()
    };
    std::fs::write(&events, "precious").unwrap();
    for input in ["", "8\n", "7\n"] {
        for there in [false, true] {
            if there {
                std::fs::write(&work, "{}").unwrap();
            }
            assert!(!child(input).status.success());
            assert_eq!(std::fs::read_to_string(&events).unwrap(), "precious", "{input:?}");
        }
        std::fs::remove_file(&work).unwrap();
    }
    let refused = String::from_utf8_lossy(&child("").stderr).into_owned();
    assert!(refused.contains("processes that this program starts itself"), "{refused}");
}

/// Every fuzz target has seeds, without which libFuzzer ends at once, and those of run folders and reports are read.
#[test]
fn fuzzing_begins_with_runs_that_are_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = std::fs::read_to_string(root.join("scripts/fuzz.sh")).unwrap();
    let (_, targets) = script.split_once("targets=(gguf ").expect("the list of targets");
    let (targets, _) = targets.split_once(')').unwrap();
    let seeds = |target: &str| -> Vec<Vec<u8>> {
        let files = std::fs::read_dir(root.join("fuzz/seeds").join(target)).expect("a folder of seeds");
        files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
    };
    for target in targets.split_whitespace().chain(["gguf"]) {
        assert!(!seeds(target).is_empty(), "{target}");
    }
    for seed in seeds("report") {
        let report: Report = serde_json::from_slice(&seed).unwrap();
        assert!(!report.records.is_empty());
    }
    for seed in seeds("run_folder") {
        let dir = tempfile::tempdir().unwrap();
        let names = ["run.json", "run.events.jsonl", "cpu.events.jsonl", "cpu.log"];
        for (name, contents) in names.iter().zip(seed.split(|byte| *byte == 0)) {
            std::fs::write(dir.path().join(name), contents).unwrap();
        }
        let report = diptych::compare::report(&[dir.path().to_path_buf()]).unwrap();
        assert!(report.records.iter().any(|record| record.backend == "cpu"), "{:?}", report.records);
    }
}

/// A report that goes to others names no folder; the one in the run's folder has everything.
#[test]
fn a_report_for_others_is_redacted() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("of-anna");
    assert_eq!(compare(&folder, &RUN).0.status.code(), Some(0));
    let out = dir.path().join("sent/result.json");
    for (args, private) in [(&[][..], false), (&["--full"], true)] {
        let mut command = Command::new(example("compare"));
        let output = command.arg("report").arg(&folder).arg("--out").arg(&out).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        for path in [out.clone(), out.with_file_name("report.html")] {
            let text = std::fs::read_to_string(&path).unwrap();
            let parent = dir.path().to_str().unwrap();
            assert_eq!(text.contains(parent), private, "{}", path.display());
        }
    }
    let pasted =
        Command::new(example("compare")).arg("report").arg(&folder).arg("--text-report").output().unwrap();
    let text = String::from_utf8_lossy(&pasted.stdout).into_owned();
    assert!(text.starts_with("### all backends that can run here agree\n"), "{text}");
    assert!(text.contains("| `cpu` | `ok` |") && !text.contains(dir.path().to_str().unwrap()), "{text}");
}
