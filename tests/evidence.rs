//! Evidence that a run leaves: what a fatal signal executed, and what programs say when a driver dies or hangs.
#![cfg(unix)]

use crate::common;

use common::{compare, example, flat, hip_library, record, stdout, tiny};
use diptych::{DType, synthesize};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns the address of a function in a library, if `nm` is installed.
fn address_of(library: &Path, function: &str) -> Option<u64> {
    let output = Command::new("nm").arg("-D").arg(library).output().ok()?;
    let text = stdout(&output);
    let line = text.lines().find(|line| line.ends_with(&format!(" {function}")))?;
    u64::from_str_radix(line.split(' ').next()?, 16).ok()
}

fn number(text: &str) -> u64 {
    u64::from_str_radix(text.strip_prefix("0x").expect("a hexadecimal number"), 16).expect("a number")
}

/// A library that dereferences null in hipInit, jumps to null, or aborts: the record has signal, address, module and
/// the place in it; the screen has them too, and so does a report that is made later.
#[cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn a_crash_in_a_library_has_its_place() {
    const ANY: Option<&str> = Some("any");
    let jump = "((int (*)(void))0)()";
    for (init, signal, address, place) in [
        ("*(volatile int *)16", "SIGSEGV", Some("0x10"), "died of SIGSEGV at 0x10 in libamdhip64.so.6+0x"),
        (jump, "SIGSEGV", Some("0x0"), "died of SIGSEGV at 0x0, called from libamdhip64.so.6+0x"),
        ("(abort(), 0)", "SIGABRT", None, "died of SIGABRT in libc.so.6+0x"),
        // The stack is used up.
        (
            "({ for (;;) *(volatile char *)__builtin_alloca(4096) = 1; 0; })",
            "SIGSEGV",
            ANY,
            "died of SIGSEGV at 0x",
        ),
        // The processor refuses the address, and the kernel does not know it.
        #[cfg(target_arch = "x86_64")]
        ("*(volatile int *)0x4141414141414141", "SIGSEGV", None, "died of SIGSEGV in libamdhip64.so.6+0x"),
        ("system(\"kill -SEGV $PPID\")", "SIGSEGV", None, "died of SIGSEGV in libc.so.6+0x"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Some(library) = hip_library(dir.path(), "", init) else { return };
        let out = dir.path().join("out");
        let args = ["--ops", "RELU", "--backends", "cpu,hip", "--hip-library", library.to_str().unwrap()];
        let (output, result) = compare(&out, &args);
        let r = record(&result, "hip");
        let fault = &r["fault"];
        assert_eq!(
            (&r["status"], &r["signal"], &fault["signal"]),
            (&"crash".into(), &signal.into(), &signal.into())
        );
        if address != ANY {
            assert_eq!(fault["address"].as_str(), address, "{fault}");
        }
        assert_eq!(fault["overflow"] == true, address == ANY, "{fault}");
        let is_sent = init.starts_with("system");
        assert_eq!(fault["sender"].is_u64(), is_sent, "{fault}");
        let message = r["message"].as_str().unwrap();
        assert_eq!(message.contains("(the stack overflowed)"), address == ANY, "{message}");
        assert_eq!(message.contains(", sent by process "), is_sent, "{message}");
        assert!(r["message"].as_str().unwrap().starts_with(place), "{r}");
        assert!(flat(&output).contains(place), "{}", stdout(&output));
        assert!(!r["message"].as_str().unwrap().contains("diptych-fault"), "{r}");
        if signal == "SIGSEGV" && !is_sent {
            assert_eq!(fault["module"].as_str(), library.to_str(), "{fault}");
            if let Some(begin) = address_of(&library, "hipInit") {
                let offset = number(fault["offset"].as_str().unwrap());
                assert!(
                    (begin..begin + 256).contains(&offset),
                    "{offset:#x} is not in hipInit at {begin:#x}"
                );
            }
        }
        std::fs::remove_file(out.join("result.json")).unwrap();
        Command::new(example("compare")).arg("report").arg(&out).output().unwrap();
        assert_eq!(record(&common::result(&out), "hip"), r);
    }
}

fn model(dir: &Path) -> PathBuf {
    let path = dir.join("model.gguf");
    let output =
        Command::new(example("synthesize")).args(["--shape", "small-llama"]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    path
}

/// Returns the arguments of a program that uses a backend.
fn arguments(program: &str, model: &Path, backend: &str) -> Vec<String> {
    let rest: &[&str] = match program {
        "generate" => &["--prompt", "sea", "--predict", "2"],
        "bench" => &["--prompt-tokens", "4", "--predict", "1", "--repeat", "1", "--warm-up", "0"],
        _ => &["sea"],
    };
    let all = ["--model", model.to_str().unwrap(), "--backend", backend];
    all.iter().chain(rest).map(|argument| argument.to_string()).collect()
}

/// Returns the 40 lines that a user sees first.
fn first_screen(output: &Output) -> String {
    let text = format!("{}{}", String::from_utf8_lossy(&output.stderr), stdout(output));
    let lines: Vec<&str> = text.lines().take(40).collect();
    lines.join("\n")
}

fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no '{part}' in:\n{text}");
    }
}

/// A segmentation fault in a driver is a sentence with the place and the next command, and the exit status stays.
#[cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn a_program_says_how_its_driver_died() {
    use std::os::unix::process::ExitStatusExt;
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path());
    let Some(library) = hip_library(dir.path(), "", "*(volatile int *)0") else { return };
    for program in ["generate", "bench", "embed"] {
        let mut command = Command::new(example(program));
        let output = command.args(arguments(program, &model, "hip")).env("DIPTYCH_HIP_LIBRARY", &library);
        let output = output.output().unwrap();
        assert_eq!(output.status.signal(), Some(11), "{output:?}");
        let place = format!("error: hip died of SIGSEGV at 0x0 in {}+0x", library.display());
        let next = format!("\nnext: compare --model {} --backends hip,cpu", model.display());
        says(&first_screen(&output), &[&place, ", in phase enumerate, after the call of hipInit", &next]);
    }
}

/// A copy that never completes: the screen has cause, place and cure, while it lasts and at the deadline.
#[cfg(feature = "virtual")]
#[test]
fn a_program_says_what_it_waits_for() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path());
    let backend = "hip-virtual:gfx906";
    for program in ["generate", "bench", "embed"] {
        let mut command = Command::new(example(program));
        let verbose = program != "embed";
        command.args(arguments(program, &model, backend)).args(["--timeout-s", "4"]);
        command.args(verbose.then_some("--verbose"));
        let output = command.env("DIPTYCH_VIRTUAL_FAULTS", "stall@hipMemcpyAsync").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = first_screen(&output);
        let next = format!("next: compare --model {} --backends {backend},cpu", model.display());
        says(
            &text,
            &[
                "waiting for hipMemcpyAsync in phase upload, 2 s",
                "error: hip-virtual:gfx906:0: no answer in phase upload",
                " after 4.0 s",
                "waited for: hipMemcpyAsync in phase upload",
                "try: DIPTYCH_HIP_COPIES=kernel: a kernel copies, not the DMA engines",
                &next,
            ],
        );
        // The driver's advice comes after the error, unless warnings are shown when they come.
        assert_eq!(
            (text.contains("\nadvice: "), text.contains("\nwarning: ")),
            (!verbose, verbose),
            "{text}"
        );
        assert!(text.lines().count() < 40, "{text}");
        let is_log = |line: &str| line.starts_with("next: ") || line.starts_with("warning: ");
        let is_wide = |line: &&str| line.chars().count() > 100 && !is_log(line);
        assert!(!text.lines().any(|line| is_wide(&line)), "{text}");
    }
}

/// The cure that the screen names works on the same card.
#[cfg(feature = "virtual")]
#[test]
fn the_cure_that_is_named_helps() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    synthesize::write(&tiny("qwen2", DType::F32), 3, &path).unwrap();
    let mut command = Command::new(example("bench"));
    command.args(arguments("bench", &path, "hip-virtual:gfx906")).args(["--timeout-s", "60"]);
    command.env("DIPTYCH_VIRTUAL_FAULTS", "stall@hipMemcpyAsync").env("DIPTYCH_HIP_COPIES", "kernel");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Where a driver is not at work, it is not to blame; and a device that is absent is a matter for `probe`.
#[cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn a_driver_is_blamed_for_its_own() {
    use std::io::Read;
    use std::process::Stdio;
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path());
    let mut command = Command::new(example("generate"));
    command.args([
        "--model",
        model.to_str().unwrap(),
        "--backend",
        "cpu",
        "--prompt",
        "sea",
        "--predict",
        "500",
    ]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).expect("a text begins");
    let kill = format!("kill -SEGV {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    // The text that comes meanwhile may fill the pipe.
    drop(child.stdout.take());
    let text = String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr).into_owned();
    says(&text, &["error: the program died of SIGSEGV", ", sent by process "]);
    assert!(!text.contains("next: ") && !text.contains("in phase"), "{text}");

    let Some(library) = hip_library(dir.path(), "", "0") else { return };
    let mut command = Command::new(example("generate"));
    command.args(arguments("generate", &model, "hip")).env("DIPTYCH_HIP_LIBRARY", &library);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    says(
        &first_screen(&output),
        &["error: hip:0: not available (no device): the runtime lists no device", "\nnext: probe"],
    );
}
