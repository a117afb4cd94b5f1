//! AMD's own runtimes on an emulated card: what `compare` says of the faults of docs/real-rocm.md, for the user spaces
//! that are there.

use crate::common::rocm::{self, Root};
use crate::common::{record, result};
use serde_json::Value;

const BACKEND: &str = "hip-kfd:gfx906";

/// Returns the user spaces that are there, of those named.
fn roots(versions: &[&str]) -> Vec<Root> {
    let mut all = rocm::roots();
    all.retain(|root| versions.contains(&root.version.as_str()));
    all
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
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("out");
    let mut command = root.command("compare");
    command.args(["--backends", &format!("cpu,{BACKEND}"), "--reference", "cpu"]);
    command.args(["--predict", "1", "--per-node", "off", "--timeout-s", seconds, "--out"]).arg(&folder);
    command.envs(variables.iter().copied());
    let ended = rocm::end(command, &format!("{} {variables:?}", root.version));
    let report = result(&folder);
    assert!(!report.is_null(), "{}: no report: {}", root.version, ended.words());
    let own = record(&report, BACKEND);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let findings = report["verdict"]["details"].as_array().cloned().unwrap_or_default();
    let cures =
        findings.iter().filter(|finding| finding["backend"] == BACKEND).map(|f| f["cure"].to_string());
    let said = [text(&own["message"])].into_iter().chain(cures).collect::<Vec<_>>().join("\ncure: ");
    let (status, phase) = (text(&own["status"]), text(&own["phase"]));
    eprintln!("{} {variables:?}: {status} in {phase}, {:.1} s: {said}", root.version, ended.seconds);
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

/// AMD's runtime imports the memory of the card's Vulkan driver, and both compute one model in it.
#[test]
fn memory_is_shared_with_the_vulkan_driver() {
    let pair = "vulkan-virtual:vega20+hip-kfd:gfx906";
    for root in roots(&ALL) {
        let out = tempfile::tempdir().unwrap();
        let folder = out.path().join("out");
        let mut command = root.command("compare");
        command.args(["--backends", &format!("cpu,{pair}"), "--reference", "cpu", "--predict", "2"]);
        command.args(["--per-node", "off", "--timeout-s", PATIENT, "--out"]).arg(&folder);
        let ended = rocm::end(command, &root.version);
        let report = result(&folder);
        let own = record(&report, pair);
        let message = own["message"].as_str().unwrap_or_default();
        if message.contains("RADV") && own["status"] == "unsupported" {
            eprintln!("skipped: {message}");
            continue;
        }
        assert_eq!(own["status"], "ok", "{}: {message}: {}", root.version, ended.words());
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

/// Asserts what is said of a fault of the emulated kernel, whatever the runtime: status, phase and parts of the text.
fn with_fault(versions: &[&str], fault: &str, (status, phase): (&str, &str), parts: &[&str]) {
    for root in roots(versions) {
        let seconds = if status == "hang" { HANGS } else { PATIENT };
        let said = compare_within(&root, seconds, &[("VIRTUAL_KFD_FAULT", fault)]);
        let place = format!("{} {fault}: {} in {}: {}", root.version, said.status, said.phase, said.text);
        assert_eq!((said.status.as_str(), said.phase.as_str()), (status, phase), "{place}");
        for part in parts {
            assert!(said.text.contains(part), "{part}: {place}");
        }
    }
}

/// An interrupt that is lost, a kernel that ends 300 ms late, and a thread of the runtime that gets no more events: the
/// runtime polls, and so does the backend.
#[test]
fn what_comes_late_is_no_failure() {
    with_fault(&ALL, "dispatch:40:lost,dispatch:60:late=300,WAIT_EVENTS:1+:errno=5", ("ok", ""), &[]);
}

/// Without events, neither the runtime nor the backend learns of a memory fault: it is a hang.
#[test]
fn a_memory_fault_without_events_is_a_hang() {
    let fault = "dispatch:40:page-fault,WAIT_EVENTS:1+:errno=5";
    with_fault(&ALL, fault, ("hang", "first_compute"), &["no answer in phase first_compute"]);
}

/// A copy engine that stands still has a cure, and the report names it.
#[test]
fn a_copy_that_stands_still_has_its_cure() {
    with_fault(
        &ALL,
        "copy:2:stall",
        ("hang", "upload"),
        &["no answer in phase upload", "cure: [\"DIPTYCH_HIP_COPIES=kernel"],
    );
}

/// The runtimes end the process when the kernel refuses something, and its last words are in the report;
/// or they list no card. Before HIP 7 a queue is created again.
#[test]
fn what_the_kernel_refuses() {
    const BEFORE_7: [&str; 3] = ["5.2.3", "5.7.1", "6.4.3"];
    with_fault(&BEFORE_7, "CREATE_QUEUE:1:errno=12", ("ok", ""), &[]);
    with_fault(
        &["7.2.4"],
        "CREATE_QUEUE:1:errno=12",
        ("crash", "open_device"),
        &["died of SIGABRT", "ReleaseQueueMainScratch"],
    );
    with_fault(
        &BEFORE_7,
        "CREATE_QUEUE:1+:errno=12",
        ("crash", "open_device"),
        &["Queue create failed at hsaKmtCreateQueue"],
    );
    with_fault(
        &BEFORE_7,
        "ALLOC_MEMORY_OF_GPU:20+:errno=12",
        ("crash", "open_device"),
        &["died of SIGSEGV", "HSA exception: BadAlloc ("],
    );
    with_fault(
        &ALL,
        "CREATE_EVENT:1+:errno=12",
        ("crash", "enumerate"),
        &["died of SIGABRT", "Failed on creating VM fault signal"],
    );
    with_fault(
        &ALL,
        "ACQUIRE_VM:1+:errno=16",
        ("unsupported", "enumerate"),
        &["the runtime lists no device", "can be opened"],
    );
}

/// A kernel that does not run is found by the comparison.
#[test]
fn a_kernel_that_is_skipped_is_found() {
    for root in roots(&["5.2.3", "6.4.3"]) {
        let said = compare(&root, &[("VIRTUAL_KFD_FAULT", "dispatch:40:skip")]);
        let comparison = said.report["comparisons"].as_array().unwrap().iter().find(|c| c["lhs"] == BACKEND);
        let differs = comparison.is_some_and(|c| c["disagreement"].is_string());
        assert!(differs && said.status == "ok", "{}: {} {comparison:?}", root.version, said.status);
    }
}

/// From glibc 2.41 on, libamdhip64 of ROCm 5.2 is not loaded unless the process was started for it. The glibc is that of
/// another user space.
#[test]
fn an_executable_stack_has_its_cure() {
    let all = rocm::roots();
    let with_stack = all.iter().find(|root| root.version == "5.2.3");
    let with_glibc = all.iter().find(|root| root.own_glibc() >= Some(41));
    let (Some(library), Some(root)) = (with_stack, with_glibc) else {
        eprintln!("skipped: no HIP 5.2, or no glibc from 2.41 on");
        return;
    };
    let mut bench = root.command("bench");
    bench.args(["--backend", "hip", "--model", "none.gguf"]).env("ROCM_ROOT_LOADER", "own");
    bench.env("DIPTYCH_HIP_LIBRARY", library.library());
    let ended = rocm::end(bench, "an executable stack");
    let said = ended.words();
    for part in [
        "not available (no library): glibc from 2.41 on loads a library that wants an executable stack",
        "GLIBC_TUNABLES=glibc.rtld.execstack=2",
        "cannot enable executable stack as shared object requires: Invalid argument",
    ] {
        assert!(said.contains(part) && ended.code == Some(1), "no {part:?} in {said}");
    }
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
