//! AMD's own runtimes on an emulated card: what `compare` says of the faults of docs/real-rocm.md, for the user spaces
//! that are there.

use crate::common::rocm::{self, Root};
use crate::common::{record, result};
use serde_json::Value;
use std::process::Stdio;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

const BACKEND: &str = "hip-kfd:gfx906";

/// The most comparisons at a time: each emulates a card with several threads.
const AT_A_TIME: usize = 2;

/// Longest that one comparison may take, however busy the machine is.
const LONGEST: Duration = Duration::from_secs(240);

/// Returns the user spaces that are there, of those named.
fn roots(versions: &[&str]) -> Vec<Root> {
    let mut all = rocm::roots();
    all.retain(|root| versions.contains(&root.version.as_str()));
    all
}

/// Permission to run one of [`AT_A_TIME`] comparisons.
struct Turn;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

impl Turn {
    fn wait() -> Turn {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        while *running >= AT_A_TIME {
            running = ENDED.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
        *running += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

/// Words of a comparison about the runtime.
struct Said {
    /// "ok", "error", "crash", "hang", "unsupported".
    status: String,
    /// Phase in which it failed; empty if it did not.
    phase: String,
    /// Message of the failure, and its cure.
    text: String,
    report: Value,
}

/// Seconds that a phase may take: enough for a busy machine, unless a hang is what is expected.
const PATIENT: &str = "60";
const HANGS: &str = "10";

/// Runs `compare` of the small model through a root, with variables for the emulated card and for the library.
fn compare(root: &Root, variables: &[(&str, &str)]) -> Said {
    compare_within(root, PATIENT, variables)
}

fn compare_within(root: &Root, seconds: &str, variables: &[(&str, &str)]) -> Said {
    let _turn = Turn::wait();
    let out = tempfile::tempdir().unwrap();
    let log = std::fs::File::create(out.path().join("screen")).unwrap();
    let folder = out.path().join("out");
    let mut command = root.command("compare");
    command.args(["--backends", &format!("cpu,{BACKEND}"), "--reference", "cpu"]);
    command.args(["--predict", "1", "--per-node", "off", "--timeout-s", seconds, "--out"]).arg(&folder);
    command.envs(variables.iter().copied()).stdin(Stdio::null());
    let mut child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > LONGEST {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{}: no end after {LONGEST:?} with {variables:?}", root.version);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let report = result(&folder);
    let screen = std::fs::read_to_string(out.path().join("screen")).unwrap_or_default();
    assert!(!report.is_null(), "{}: no report: {screen}", root.version);
    let own = record(&report, BACKEND);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let findings = report["verdict"]["details"].as_array().cloned().unwrap_or_default();
    let cures =
        findings.iter().filter(|finding| finding["backend"] == BACKEND).map(|f| f["cure"].to_string());
    let said = [text(&own["message"])].into_iter().chain(cures).collect::<Vec<_>>().join("\ncure: ");
    let (status, phase) = (text(&own["status"]), text(&own["phase"]));
    eprintln!(
        "{} {variables:?}: {status} in {phase}, {:.1} s: {said}",
        root.version,
        start.elapsed().as_secs_f64()
    );
    Said { status, phase, text: said, report }
}

/// Asserts what is said of a fault at the 40th kernel, by runtime: the status and a part of the text.
fn at_a_kernel(kind: &str, expected: &[(&'static str, &str, &str)]) {
    let versions: Vec<&'static str> = expected.iter().map(|(version, ..)| *version).collect();
    for root in roots(&versions) {
        let (_, status, part) = expected.iter().find(|(version, ..)| *version == root.version).unwrap();
        let seconds = if *status == "hang" { HANGS } else { PATIENT };
        let said = compare_within(&root, seconds, &[("VIRTUAL_KFD_FAULT", &format!("dispatch:40:{kind}"))]);
        let place = format!("{} {kind}: {} in {}: {}", root.version, said.status, said.phase, said.text);
        assert_eq!(said.status, *status, "{place}");
        assert_eq!(said.phase, "first_compute", "{place}");
        assert!(said.text.contains(part), "{part}: {place}");
        assert!(!said.text.contains("uncorrectable memory error"), "{place}");
        let node = &record(&said.report, BACKEND)["node"];
        assert!(node.as_str().is_some_and(|node| !node.is_empty()), "no node: {place}");
    }
}

const ALL: [&str; 4] = ["5.2.3", "5.7.1", "6.4.3", "7.2.4"];

#[test]
fn a_comparison_agrees() {
    for root in roots(&ALL) {
        let said = compare(&root, &[]);
        assert_eq!(said.status, "ok", "{}: {}", root.version, said.text);
    }
}

/// Whichever of the runtime and the kernel's driver reports first: the address and the reason are told.
#[test]
fn a_memory_fault_is_told_from_a_hang() {
    let text = "memory fault at 0x7eadbeef0000: page not present";
    at_a_kernel("page-fault", &ALL.map(|version| (version, "error", text)));
}

/// HIP 5.2 passes no reset on, HIP 7.2 returns a failed launch: the kernel's driver is asked.
#[test]
fn a_reset_is_no_memory_error_and_no_silent_hang() {
    let text = "hang of the device, which was reset";
    at_a_kernel("reset", &ALL.map(|version| (version, "error", text)));
}

/// Before HIP 7 the runtime ends the process. The text that it wrote is in the report either way.
#[test]
fn an_illegal_instruction_has_the_words_of_the_runtime() {
    let text =
        "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION: The agent attempted to execute an illegal shader instruction";
    let status = |version| if version == "7.2.4" { "error" } else { "crash" };
    at_a_kernel("illegal", &ALL.map(|version| (version, status(version), text)));
}

/// A queue that stands still tells nobody.
#[test]
fn a_queue_that_stands_still_is_a_hang() {
    at_a_kernel("stall", &ALL.map(|version| (version, "hang", "no answer in phase first_compute")));
}

/// Interface 1.3 of the kernel's driver: AMD's runtime disables the card, and HIP 5.2 ends the process.
#[test]
fn a_kernel_older_than_the_runtime() {
    for root in roots(&ALL) {
        let said = compare(&root, &[("VIRTUAL_KFD_ABI", "1.3")]);
        let place = format!("{}: {} in {}: {}", root.version, said.status, said.phase, said.text);
        assert_eq!(said.status, "unsupported", "{place}");
        for part in ["KFD 1.3", "Incompatible kernel and userspace", "use Linux 6.1 or later"] {
            assert!(said.text.contains(part), "{part}: {place}");
        }
    }
}

/// Interface 1.8: the runtime would end the process when it creates a stream. HIP 5.2 does not ask for free memory.
#[test]
fn a_kernel_that_cannot_tell_free_memory() {
    for root in roots(&ALL) {
        let said = compare(&root, &[("VIRTUAL_KFD_ABI", "1.8")]);
        let place = format!("{}: {} in {}: {}", root.version, said.status, said.phase, said.text);
        if root.version == "5.2.3" {
            assert_eq!(said.status, "ok", "{place}");
            continue;
        }
        assert_eq!(said.status, "unsupported", "{place}");
        for part in ["KFD 1.8", "hsaKmtAvailableMemory failed", "use Linux 6.1 or later"] {
            assert!(said.text.contains(part), "{part}: {place}");
        }
    }
    // Interface 1.4 is enough for HIP 5.2, 1.9 for the others; and for an old kernel there is a variable.
    for root in roots(&["5.2.3"]) {
        assert_eq!(compare(&root, &[("VIRTUAL_KFD_ABI", "1.4")]).status, "ok");
        let forced = [("VIRTUAL_KFD_ABI", "1.3"), ("HSA_IGNORE_SRAMECC_MISREPORT", "1")];
        assert_eq!(compare(&root, &forced).status, "ok");
    }
    for root in roots(&["6.4.3"]) {
        assert_eq!(compare(&root, &[("VIRTUAL_KFD_ABI", "1.9")]).status, "ok");
    }
}

/// Nothing of this library uses managed or registered memory, which HIP 7.2 lacks on such kernels.
#[test]
fn a_kernel_without_shared_virtual_memory() {
    for root in roots(&["6.4.3", "7.2.4"]) {
        let said = compare(&root, &[("VIRTUAL_KFD_SVM", "0")]);
        assert_eq!(said.status, "ok", "{}: {}", root.version, said.text);
    }
}
