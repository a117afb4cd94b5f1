//! Results of an interrupted run: child processes killed in every phase, both processes killed, the parent
//! killed, a user's interrupt, a full disk; and every way a child process can end.
#![cfg(unix)]

use crate::common;

use common::{compare, example, flat, hip_library, record, result, shared_library, stdout};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Timeout for events that must happen.
const SOON: Duration = Duration::from_secs(60);

/// Starts `compare`.
fn start(out: &Path, args: &[&str], environment: &[(&str, &str)]) -> Child {
    let mut command = Command::new(example("compare"));
    if !args.contains(&"--per-node") {
        command.args(["--per-node", "off"]);
    }
    command.args(args).arg("--out").arg(out).envs(environment.iter().copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs `compare report`; returns its output and exit status.
fn report(folders: &[&Path]) -> Output {
    Command::new(example("compare")).arg("report").args(folders).output().unwrap()
}

/// Waits until `look` returns a value.
fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < SOON, "{what} never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the events recorded so far by the child process of a backend.
fn events(out: &Path, stem: &str) -> Vec<Value> {
    let bytes = std::fs::read(out.join(format!("{stem}.events.jsonl"))).unwrap_or_default();
    let lines = bytes.split(|&b| b == b'\n' || b == 0);
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Returns the id of a child process whose last event has `key` = `value`. Ignores events of other threads:
/// memory is freed on a separate thread while another reports the work.
fn child_at(out: &Path, stem: &str, key: &str, value: &str) -> u32 {
    wait(&format!("{stem}: {key} {value}"), || {
        let events = events(out, stem);
        let pid = events.first()?["pid"].as_u64()? as u32;
        let aside = |e: &Value| matches!(e["event"].as_str(), Some("memory" | "progress" | "done" | "exit"));
        (events.iter().rfind(|e| !aside(e))?[key] == value).then_some(pid)
    })
}

fn kill(signal: &str, pid: u32) {
    // The shell's own: a small system has no other.
    let done =
        Command::new("sh").args(["-c", r#"kill "$0" "$1""#, signal, &pid.to_string()]).status().unwrap();
    assert!(done.success(), "{pid} is not there");
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Regenerates the report from the folder only; without `result.json` it must be the same again.
fn made_again(out: &Path) -> (Value, String) {
    let before = result(out);
    std::fs::remove_file(out.join("result.json")).unwrap();
    let output = report(&[out]);
    assert_eq!(result(out), before, "{}", stdout(&output));
    (before, flat(&output))
}

/// A child process killed in any phase: the record names the phase, immediately and when the report is
/// regenerated.
#[test]
fn a_child_is_killed_in_each_phase() {
    let phases =
        "load_runtime enumerate open_device allocate upload compile prepare first_compute compute readback";
    for phase in phases.split(' ') {
        let dir = tempfile::tempdir().unwrap();
        let backend = format!("null=stuck@{phase}");
        let args = ["--predict", "3", "--timeout-s", "1", "--reference", "cpu", "--backends", &backend];
        let parent = start(dir.path(), &args, &[]);
        kill("-KILL", child_at(dir.path(), &format!("null-stuck-{phase}").replace('_', "-"), "phase", phase));
        let output = parent.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{phase}: {}", stdout(&output));
        let (result, text) = made_again(dir.path());
        let r = record(&result, &backend);
        assert_eq!((&r["status"], &r["signal"]), (&"ended".into(), &"SIGKILL".into()), "{r}");
        assert_eq!(r["phase"], phase, "{r}");
        let finding = format!("{backend}: ended in phase {phase}");
        assert!(text.contains(&finding) && text.contains("ended from outside by SIGKILL"), "{text}");
        assert!(text.contains("memory ran out: journalctl -k | grep -i oom shows it"), "{text}");
        let statistics = result["statistics"].as_array().unwrap();
        let own = statistics.iter().find(|s| s["backend"] == backend.as_str()).unwrap();
        assert_eq!((&own["ended"], &own["crashes"]), (&1.into(), &0.into()), "{own}");
        assert!(own["time_to_crash_s"].is_null(), "{own}");
        assert_eq!(record(&result, "cpu")["status"], "ok");
    }
}

/// A child process killed inside a driver call, which the record also names. (The first call of each kind
/// hangs, so that the test does not mistake an earlier one for it.)
#[test]
fn a_child_is_killed_in_a_call() {
    for (fault, phase, call) in [
        ("hang@hipInit", "enumerate", "hipInit"),
        ("hang@hipGetDeviceProperties", "open_device", "hipGetDeviceProperties"),
        ("hang@hipMalloc", "allocate", "hipMalloc"),
        ("hang@hipModuleLoadData", "open_device", "hipModuleLoadData"),
        ("hang@hipModuleGetFunction", "compile", "hipModuleGetFunction"),
        ("hang@hipModuleLaunchKernel", "first_compute", "hipModuleLaunchKernel"),
        ("hang@hipFree", "close", "hipFree"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let backend = "hip-virtual:gfx906";
        let args = ["--predict", "1", "--reference", "cpu", "--backends", backend];
        let parent = start(dir.path(), &args, &[("DIPTYCH_VIRTUAL_FAULTS", fault)]);
        let stem = "hip-virtual-gfx906";
        if phase == "close" {
            // Work continues while memory is freed.
            let done = || events(dir.path(), stem).iter().any(|e| e["event"] == "done").then_some(());
            wait("the end of the work", done);
        }
        kill("-KILL", child_at(dir.path(), stem, "name", call));
        assert_eq!(parent.wait_with_output().unwrap().status.code(), Some(1), "{fault}");
        let (result, text) = made_again(dir.path());
        let r = record(&result, backend);
        assert_eq!((&r["status"], &r["signal"]), (&"ended".into(), &"SIGKILL".into()), "{fault}: {r}");
        assert_eq!((&r["phase"], &r["last_call"]), (&phase.into(), &call.into()), "{fault}: {r}");
        assert!(
            text.contains(&format!("{backend} was ended from outside after the call of {call}")),
            "{text}"
        );
        if phase == "close" {
            assert!(text.contains("after its work was done, while it closed its device"), "{text}");
        }
    }
}

/// The machine stops: parent and child process end at the same time. The report names backend, phase, library
/// and call, and a resumed run does not repeat the failing step.
#[test]
fn a_machine_that_stops() {
    let dir = tempfile::tempdir().unwrap();
    for (name, on_load, init, phase, call) in [
        ("load", "pause()", "0", "load_runtime", "dlopen"),
        ("init", "", "(pause(), 0)", "enumerate", "hipInit"),
    ] {
        let Some(library) = hip_library(dir.path(), on_load, init) else { return };
        let library = library.to_str().unwrap();
        let out = dir.path().join(name);
        let args = ["--predict", "2", "--reference", "cpu", "--backends", "hip,null=fail@prepare"];
        let mut parent = start(&out, &[&args[..], &["--hip-library", library]].concat(), &[]);
        let child = child_at(&out, "hip", "name", call);
        kill("-STOP", child);
        kill("-KILL", parent.id());
        kill("-KILL", child);
        parent.wait().unwrap();
        assert!(!out.join("result.json").exists());

        let output = report(&[&out]);
        assert_eq!(output.status.code(), Some(1));
        let r = result(&out);
        let hip = record(&r, "hip");
        assert_eq!((&hip["status"], &hip["phase"]), (&"crash".into(), &phase.into()), "{hip}");
        assert_eq!((&hip["library"], &hip["last_call"]), (&library.into(), &call.into()), "{hip}");
        assert!(hip["message"].as_str().unwrap().contains("or the machine stopped"), "{hip}");
        assert_eq!(r["missing"], 1);
        let text = flat(&output);
        for part in
            [&format!("hip crashed after the call of {call}"), library, "1 of the planned runs were not made"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }

        let mut command = Command::new(example("compare"));
        let resumed = command.arg("--resume").arg(&out).args(["--hip-library", library]).output().unwrap();
        assert_eq!(resumed.status.code(), Some(1), "{}", stdout(&resumed));
        let again = result(&out);
        assert_eq!(record(&again, "hip"), hip, "it was not run again");
        assert_eq!(record(&again, "null=fail@prepare")["status"], "error");
        assert_eq!(again["missing"], 0);
    }
}

/// Killing the parent process also ends its child process.
#[test]
fn a_parent_that_dies() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--reference", "null=stuck@upload", "--backends", "cpu"];
    let mut parent = start(dir.path(), &args, &[]);
    let child = child_at(dir.path(), "null-stuck-upload", "phase", "upload");
    kill("-KILL", parent.id());
    parent.wait().unwrap();
    wait("the child's end", || (!is_alive(child)).then_some(()));
}

/// An interrupt by the user gives a report of the results so far.
#[test]
fn a_user_who_has_enough() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--predict", "1", "--reference", "cpu", "--backends", "null=stuck@upload,reference"];
    let parent = start(dir.path(), &args, &[]);
    let child = child_at(dir.path(), "null-stuck-upload", "phase", "upload");
    kill("-INT", parent.id());
    let output = parent.wait_with_output().unwrap();
    assert!(!is_alive(child));
    assert_eq!(output.status.code(), Some(1));
    let (result, text) = made_again(dir.path());
    let r = record(&result, "null=stuck@upload");
    assert_eq!((&r["status"], &r["phase"]), (&"ended".into(), &"upload".into()), "{r}");
    assert_eq!(r["message"], "was interrupted");
    assert_eq!((&record(&result, "cpu")["status"], &result["missing"]), (&"ok".into(), &1.into()));
    assert!(text.contains("1 of the planned runs were not made"), "{text}");
}

/// Runs a shell with its own file systems; `None` if that is not permitted.
fn in_a_shell(script: &str, arguments: &[&Path]) -> Option<Output> {
    let shell = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-ec", script, "sh"]).args(arguments).output()
    };
    match shell("mount -t tmpfs tmpfs /tmp") {
        Ok(output) if output.status.success() => Some(shell(script).unwrap()),
        _ => {
            eprintln!("skipped: no file systems may be mounted here");
            None
        }
    }
}

/// The disk becomes full when the driver's library is loaded; the report is written to that disk too.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = hip_library(dir.path(), "", "(sleep(3), kill(getpid(), 9))") else { return };
    let model = dir.path().join("model.gguf");
    diptych::synthesize::write(&common::tiny("qwen3", diptych::DType::Q8_0), 1, &model).unwrap();
    let script = r#"
        mkdir "$1/disk"; mount -t tmpfs -o size=8m tmpfs "$1/disk"; out="$1/disk/out"
        "$2" --model "$1/model.gguf" --predict 1 --reference cpu --backends hip --hip-library "$3" --out "$out" >"$1/text" 2>&1 &
        until grep -q hipInit "$out/hip.events.jsonl" 2>/dev/null; do sleep 0.05; done
        dd if=/dev/zero of="$1/disk/rest" bs=4k 2>/dev/null || true
        if echo x >"$1/disk/more"; then echo there is room; fi
        wait || true
        rm -f "$out/result.json"
        dd if=/dev/zero of="$1/disk/other" bs=4k 2>/dev/null || true
        "$2" report "$out" || true
    "#;
    let Some(output) = in_a_shell(script, &[dir.path(), &example("compare"), &library]) else { return };
    let text = flat(&output);
    let first = std::fs::read_to_string(dir.path().join("text")).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains("there is room"), "{text}");
    assert!(stderr.contains("the report was not written"), "{stderr}");
    for part in [
        "hip: ended in phase enumerate",
        "after the call of hipInit",
        "ended from outside by SIGKILL",
        "hip was ended from outside after the call of hipInit",
    ] {
        assert!(text.contains(part) && !stderr.contains("panicked"), "{part}: {text}\n{stderr}\n{first}");
    }
    assert!(text.contains(library.to_str().unwrap()), "{text}");
}

/// The run's folder is read-only: the report is printed nevertheless.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_is_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = hip_library(dir.path(), "", "(kill(getpid(), 9))") else { return };
    let out = dir.path().join("out");
    let library = library.to_str().unwrap();
    let args = ["--predict", "1", "--reference", "cpu", "--backends", "hip", "--hip-library", library];
    compare(&out, &args);
    let script = r#"mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; ! touch "$1/x" 2>/dev/null; "$2" report "$1""#;
    let Some(output) = in_a_shell(script, &[&out, &example("compare")]) else { return };
    let text = flat(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in
        ["hip: ended in phase enumerate", library, "hip was ended from outside after the call of hipInit"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("the report was not written: "), "{stderr}");
}

/// Returns a library that is preloaded and acts only in the child process of `cpu`.
fn preload(dir: &Path, act: &str) -> Option<PathBuf> {
    let path = dir.join("preload.so");
    let defines = ["-DCHILD=\"/cpu.work.json\"".into(), format!("-DACT={act}")];
    shared_library(&path, "tests/c/preload.c", &defines)?;
    Some(path)
}

/// Ways to end after the work is done: each is distinguished, and no other backend's result is lost.
#[cfg(target_os = "linux")]
#[test]
fn ends_after_the_work_are_told_apart() {
    for (act, status, phase, message) in [
        (
            "atexit(die)",
            "ended",
            "exit",
            "ended from outside by SIGKILL in an exit handler, after its work was done",
        ),
        (
            "atexit(leave)",
            "crash",
            "exit",
            "exited with status 3 in an exit handler, after its work was done",
        ),
        ("atexit(wait_for_ever)", "hang", "exit", "after its work was done and was killed"),
        ("(void)!write(1, \"\\xff\\n{}\\n\", 5); close(1)", "ok", "", ""),
        (
            "(void)!write(1, \"\\xff\\xfe last\", 7); _exit(0)",
            "crash",
            "",
            "exited with status 0 before its work was done: \u{fffd}\u{fffd} last",
        ),
        ("close(1); wait_for_ever()", "hang", "", "before its work was done and was killed"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Some(library) = preload(dir.path(), act) else { return };
        let out = dir.path().join("out");
        let args = ["--ops", "RELU", "--timeout-s", "1", "--backends", "cpu,null=fail@prepare"];
        let output =
            start(&out, &args, &[("LD_PRELOAD", library.to_str().unwrap())]).wait_with_output().unwrap();
        let result = result(&out);
        let r = record(&result, "cpu");
        assert_eq!(r["status"], status, "{act}: {r} {}", stdout(&output));
        assert_eq!(r["phase"].as_str().unwrap_or_default(), phase, "{act}: {r}");
        assert!(r["message"].as_str().unwrap_or_default().contains(message), "{act}: {r}");
        assert_eq!(record(&result, "null=fail@prepare")["status"], "error", "{act}");
    }
}
