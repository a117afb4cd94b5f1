//! `probe` and `auto` if a runtime's library ends the process or is the wrong one: the messages that a user
//! gets.
#![cfg(unix)]

use crate::common;

use common::{compare, example, hip_library, record, tiny};
use diptych::{DType, synthesize};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs a program with these variables, without the environment's library paths and caches.
fn run(program: &str, home: &Path, variables: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(example(program));
    for name in ["DIPTYCH_HIP_LIBRARY", "ROCM_PATH", "HIP_PATH", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    command.args(args).env("XDG_CACHE_HOME", home).envs(variables.iter().copied()).output().expect("it runs")
}

/// Returns the output in one line.
fn words(text: &[u8]) -> String {
    String::from_utf8_lossy(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no '{part}' in:\n{text}");
    }
}

const KILLED: &str = "crashed in phase enumerate: died of SIGSEGV";

/// An MI50's runtime that crashes during discovery without a message: the output names the phase and a
/// remedy.
#[test]
fn a_library_that_dies_in_hip_init() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = hip_library(dir.path(), "", "*(volatile int *)0") else {
        return;
    };
    let args = ["--runs", "0", "--hip-library", library.to_str().unwrap()];
    let text = words(&run("probe", dir.path(), &[], &args).stdout);
    says(
        &text,
        &[
            KILLED,
            "ROCm 6 by its file name",
            "try another copy of it (DIPTYCH_HIP_LIBRARY)",
            "--backend vulkan",
        ],
    );
    let output = run("probe", dir.path(), &[], &[&args[..], &["--json"]].concat());
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["root"], "/");
    assert!(json.to_string().contains(KILLED), "{json}");
}

/// A library that prints to standard output and exits with status 0.
#[test]
fn a_library_that_prints_and_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let leave = r#"(void)!write(1, "all is well\n", 12); exit(0)"#;
    let Some(library) = hip_library(dir.path(), leave, "0") else { return };
    let args = ["--runs", "0", "--hip-library", library.to_str().unwrap()];
    let text = words(&run("probe", dir.path(), &[], &args).stdout);
    says(&text, &["crashed in phase load_runtime: exited with status 0 before its work was done"]);
    assert!(!text.contains("all is well."), "{text}");
}

/// ROCm 7's path contains a 6.3 library, and an application has its own: the output names the loaded library
/// and the defect.
#[test]
fn two_releases_and_the_wrong_one_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let (rocm, app) = (dir.path().join("rocm-7.2.0"), dir.path().join("app"));
    for folder in [&rocm.join("lib"), &rocm.join(".info"), &app] {
        fs::create_dir_all(folder).unwrap();
    }
    let Some(own) = hip_library(&app, "", "0") else { return };
    // The library under ROCm 7's name reports version 6.3.
    let system = rocm.join("lib/libamdhip64.so.7");
    fs::copy(own, &system).unwrap();
    fs::write(rocm.join(".info/version"), "7.2.0-43\n").unwrap();
    let variables = [("ROCM_PATH", rocm.to_str().unwrap()), ("LD_LIBRARY_PATH", app.to_str().unwrap())];
    let text = words(&run("probe", dir.path(), &variables, &["--runs", "0"]).stdout);
    let loaded = format!("library: {};", system.display());
    let wrong = "wrong library: its file name is that of HIP 7, but it reports HIP 6: files of two releases of ROCm are \
                 mixed; select the right one with DIPTYCH_HIP_LIBRARY";
    says(
        &text,
        &["mixed versions: ROCm 6 and 7.2.0 are installed", "ROCm 7.2.0 by .info/version next to it", wrong],
    );
    says(&text, &[&loaded, "hip runtime: 6.3.42134"]);
    // The last sentence names it too.
    let last = "hip: wrong library: its file name is that of HIP 7, but it reports HIP 6; select the right library: \
                DIPTYCH_HIP_LIBRARY=FILE";
    says(&text, &[last]);
    let args = ["--ops", "RELU", "--backends", "cpu,hip", "--hip-library", system.to_str().unwrap()];
    let (output, result) = compare(&dir.path().join("out"), &args);
    says(record(&result, "hip")["message"].as_str().unwrap(), &[wrong, &loaded]);
    // Field case E: the first screen of `compare` names it, up to the remedy.
    let screen = words(&output.stdout);
    says(&screen, &[&format!("hip cannot run here: hip:0: not available (no device): {wrong}")]);
}

/// `--backend auto` with a crashing library: another backend is used and the reason is printed, even if the
/// result comes from the cache.
#[test]
fn auto_says_what_it_does_not_use() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = hip_library(dir.path(), "", "*(volatile int *)0") else {
        return;
    };
    let model = dir.path().join("model.gguf");
    synthesize::write(&tiny("qwen2", DType::F32), 3, &model).expect("a model file");
    let args = ["--model", model.to_str().unwrap(), "--tokens", "1,2,3", "--backend", "auto", "--out"];
    let out = dir.path().join("logits.npy");
    let args = [&args[..], &[out.to_str().unwrap()]].concat();
    let hip = ("DIPTYCH_HIP_LIBRARY", library.to_str().unwrap());
    let first = run("logits", dir.path(), &[hip], &args);
    let text = words(&first.stderr);
    assert!(first.status.success() && out.exists(), "{text}");
    let unused = text.split_once("; not used: ").and_then(|(_, rest)| rest.split_once(" (probe says why)"));
    let unused = unused.unwrap_or_else(|| panic!("{text}")).0;
    assert!(text.contains("backend auto is ") && unused.split(", ").any(|name| name == "hip"), "{text}");
    assert!(!text.contains(KILLED), "one sentence: {text}");
    let bench = [
        "--prompt-tokens",
        "2",
        "--predict",
        "0",
        "--repeat",
        "1",
        "--warm-up",
        "0",
        "-v",
        "--backend",
        "auto",
    ];
    let bench = [&["--model", model.to_str().unwrap()], &bench[..]].concat();
    says(&words(&run("bench", dir.path(), &[hip], &bench).stderr), &[&format!("hip not used: {KILLED}")]);
    assert!(dir.path().join("diptych/auto.json").exists());
    // Cached; measured again if a variable changes.
    assert_eq!(words(&run("logits", dir.path(), &[hip], &args).stderr), text);
    let again = words(&run("bench", dir.path(), &[hip, ("HSA_XNACK", "0")], &bench).stderr);
    says(&again, &["(measured again: variable HSA_XNACK has changed)"]);
}

/// `probe --record` writes what `--root` reads, and `probe --of` judges another program; its exit status says whether a
/// card is free.
#[test]
fn recordings_and_other_programs() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("recorded");
    let path = folder.to_str().unwrap();
    let output =
        run("probe", dir.path(), &[("AMD_API_KEY", "open-sesame")], &["--runs", "0", "--record", path]);
    assert!(output.stderr.is_empty(), "{output:?}");
    let environment = fs::read(folder.join("proc/self/environ")).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains("open-sesame"));
    let again = run("probe", dir.path(), &[], &["--root", path, "--json"]);
    let json: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert!(json["root"] == path && json["summary"].as_array().is_some_and(|all| !all.is_empty()), "{json}");
    let full = run("probe", dir.path(), &[], &["--runs", "0", "--record", path]);
    says(&words(&full.stderr), &["a new or an empty one"]);
    // Field case B: a library that has no code for the card.
    let Some(library) = hip_library(dir.path(), "", "0") else { return };
    let of =
        |args: &[&str]| run("probe", dir.path(), &[], &[&["--of", library.to_str().unwrap()], args].concat());
    let none = of(&["--target", "gfx900"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
    says(&words(&none.stderr), &["a library with HIP code objects"]);
    let Some(library) = library_with_code(dir.path(), "gfx906") else { return };
    for (target, status, sentence) in [
        ("gfx906", 0, "no gate that files show blocks gfx906"),
        ("gfx900", 1, "gfx900 is blocked by code (no code for gfx900 among its targets: gfx906)"),
    ] {
        let args = ["--of", library.to_str().unwrap(), "--target", target];
        let judged = run("probe", dir.path(), &[], &args);
        says(&words(&judged.stdout), &[sentence]);
        assert_eq!(judged.status.code(), Some(status), "{target}");
    }
}

/// Compiles a library with an empty code object for a target. `None` without a C compiler.
fn library_with_code(dir: &Path, target: &str) -> Option<PathBuf> {
    let name = format!("hipv4-amdgcn-amd-amdhsa--{target}");
    let mut code = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    let begin = 32 + 24 + name.len() as u64;
    for number in [1, begin, 8, name.len() as u64] {
        code.extend(number.to_le_bytes());
    }
    code.extend(name.bytes().chain([0x7f; 8]));
    let bytes: Vec<String> = code.iter().map(u8::to_string).collect();
    let source = dir.join("code.c");
    let section = "__attribute__((section(\".hip_fatbin\")))";
    let text = format!("const unsigned char code[] {section} = {{{}}};\n", bytes.join(", "));
    fs::write(&source, text).unwrap();
    let library = dir.join("libggml-hip.so");
    common::shared_library(&library, source.to_str().unwrap(), &[])?;
    Some(library)
}
