//! `compare --ops` as a user runs it: every case on computing backends, and the results if one hangs or
//! crashes.

use crate::common;

use common::{example, flat, record as own_record, result, stdout};
use diptych::ggml::catalogue;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Runs `compare --ops FILTER`; returns its output and `result.json`.
fn compare(out: &Path, filter: &str, args: &[&str]) -> (Output, Value) {
    common::compare(out, &[&["--ops", filter], args].concat())
}

/// Returns the names of the catalogue's cases that satisfy a condition.
fn names(select: impl Fn(&str) -> bool) -> HashSet<String> {
    catalogue::cases().into_iter().map(|c| c.name).filter(|name| select(name)).collect()
}

/// Returns the names of two cases of each operation and each group: the first and the last of the catalogue. All cases
/// on these backends, in both precisions, are tests of their crates.
fn some_of_each() -> HashSet<String> {
    // A comma outside of parentheses separates the terms of a filter.
    let is_term = |name: &String| name.contains('(') && !name.contains("), ");
    let all: Vec<String> = catalogue::cases().into_iter().map(|c| c.name).filter(is_term).collect();
    let operation = |name: &&String| name.split('(').next().map(str::to_string);
    let first: HashMap<_, _> = all.iter().rev().map(|name| (operation(&name), name)).collect();
    let last: HashMap<_, _> = all.iter().map(|name| (operation(&name), name)).collect();
    first.into_values().chain(last.into_values()).cloned().collect()
}

/// Returns the filter that selects these cases.
fn filter(names: &HashSet<String>) -> String {
    names.iter().cloned().collect::<Vec<_>>().join(",")
}

/// Returns the cases of a backend in the report.
fn nodes<'a>(result: &'a Value, backend: &str) -> &'a [Value] {
    let all = result["comparisons"].as_array().expect("comparisons");
    let one =
        all.iter().find(|c| c["lhs"] == backend).unwrap_or_else(|| panic!("no comparison of {backend}"));
    one["nodes"].as_array().expect("nodes")
}

fn names_of(nodes: &[Value], status: &str) -> HashSet<String> {
    let chosen = nodes.iter().filter(|n| n["status"] == status);
    chosen.map(|n| n["node"].as_str().unwrap().to_string()).collect()
}

/// Returns the records of single cases.
fn case_records<'a>(result: &'a Value, backend: &str) -> Vec<&'a Value> {
    let records = result["records"].as_array().unwrap();
    records.iter().filter(|r| r["backend"] == backend && !r["case"].is_null()).collect()
}

/// The whole catalogue on the CPU backend in `fast`, and cases of every operation in `exact`.
#[test]
fn every_case_agrees_on_the_cpu() {
    let some = some_of_each();
    for (precision, asked, wanted) in
        [("exact", filter(&some), some), ("fast", String::new(), names(|_| true))]
    {
        let dir = tempfile::tempdir().unwrap();
        let (output, result) = compare(dir.path(), &asked, &["--backends", "cpu", "--precision", precision]);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        let cases = nodes(&result, "cpu");
        assert_eq!(names_of(cases, "ok"), wanted, "{precision}");
        for n in cases {
            let (nmse, bound) = (n["nmse"].as_f64().unwrap(), n["bound"].as_f64().unwrap());
            // A group's bound is the sum of its members' bounds; none has more than three products.
            let most =
                if n["op"].as_str().is_some_and(|op| op.starts_with(char::is_lowercase)) { 3.0 } else { 1.0 };
            assert!(nmse <= bound && bound <= 5.01e-4 * most, "{n}");
            assert!(!n["op"].as_str().unwrap().is_empty() && n["elapsed_s"].is_number(), "{n}");
        }
        let text = stdout(&output);
        for operation in ["MUL_MAT", "RMS_NORM", "FLASH_ATTN_EXT", "SET_ROWS"] {
            assert!(text.lines().any(|l| l.starts_with(operation)), "{operation} has no row:\n{text}");
        }
    }
}

/// The two emulated cards.
const CARDS: [&str; 2] = ["hip-virtual:gfx906", "hip-virtual:gfx900"];

/// Returns true if a backend could not be opened, because the build had no compiler for its kernels; prints a
/// message.
fn is_skipped(result: &Value, backend: &str) -> bool {
    let record = own_record(result, backend);
    let skipped = record["status"] == "unsupported";
    if skipped {
        eprintln!("skipped: {backend}: {}", record["message"]);
    }
    skipped
}

/// Cases of every operation as AMD code objects, executed instruction by instruction.
#[test]
fn every_operation_agrees_on_emulated_cards() {
    let dir = tempfile::tempdir().unwrap();
    let (start, some) = (Instant::now(), some_of_each());
    assert!(some.len() > 40, "{}", some.len());
    let (output, result) = compare(dir.path(), &filter(&some), &["--backends", &CARDS.join(",")]);
    assert!(start.elapsed() < Duration::from_secs(300), "{:?}", start.elapsed());
    for card in CARDS.into_iter().filter(|card| !is_skipped(&result, card)) {
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        assert_eq!(names_of(nodes(&result, card), "ok"), some, "{card}");
    }
}

/// A kernel that never completes, on an emulated card: phase, case and advice are in the record, and a new
/// child process continues with the next case. The fifth launch of every child process stalls.
#[test]
fn a_stalled_kernel_is_blamed() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(example("compare"));
    command
        .args(["--ops", "SCALE,REGLU", "--timeout-s", "1", "--backends", CARDS[0], "--out"])
        .arg(dir.path());
    let output = command.env("DIPTYCH_VIRTUAL_FAULTS", "stall@hipModuleLaunchKernel:4").output().unwrap();
    let result = result(dir.path());
    if is_skipped(&result, CARDS[0]) {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let cases = nodes(&result, CARDS[0]);
    let (ok, hung) = (names_of(cases, "ok").len(), names_of(cases, "hang").len());
    // A case makes three launches: one reads the inputs, then comes its kernel, then one gathers the results. So the fifth is
    // the kernel of the second case.
    assert_eq!((ok + hung, hung), (cases.len(), cases.len() / 2), "{cases:?}");
    for r in case_records(&result, CARDS[0]) {
        assert_eq!((&r["status"], &r["phase"]), (&"hang".into(), &"first_compute".into()), "{r}");
        assert_eq!(r["node"], r["case"], "{r}");
        assert!(!r["warnings"].as_array().unwrap().is_empty(), "{r}");
    }
}

/// A name of an operation selects only its cases, a full case name one case, other terms match substrings.
#[test]
fn filters_select() {
    for (filter, wanted) in [
        ("MUL", names(|n| n.starts_with("MUL("))),
        ("SOFT_MAX,RMS_NORM", names(|n| n.starts_with("SOFT_MAX") || n.starts_with("RMS_NORM"))),
        ("MUL_MAT(Q8_0, k=32, m=1, n=1)", names(|n| n == "MUL_MAT(Q8_0, k=32, m=1, n=1)")),
    ] {
        assert!(!wanted.is_empty(), "{filter}");
        let dir = tempfile::tempdir().unwrap();
        let (output, result) = compare(dir.path(), filter, &["--backends", "cpu"]);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        assert_eq!(names_of(nodes(&result, "cpu"), "ok"), wanted, "{filter}");
    }
    let dir = tempfile::tempdir().unwrap();
    let (output, _) = compare(dir.path(), "QUANTUM", &["--backends", "cpu"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with("error: ") && stderr.contains("RMS_NORM"), "{stderr}");
}

/// A backend that crashes, hangs or fails at some cases: one record for each of them, and all other cases
/// run.
#[test]
fn failing_cases_do_not_take_the_others_along() {
    let bad = |name: &str| name.starts_with("SOFT_MAX") && name.contains("max_bias=8");
    let expected = names(bad);
    assert!((2..8).contains(&expected.len()), "{expected:?}");
    // The fault is at nodes whose name contains the text: the tested node is named after its case.
    for (kind, status, signal) in
        [("crash", "crash", Some("SIGSEGV")), ("hang", "hang", None), ("fail", "error", None)]
    {
        let backend = format!("null={kind}@first_compute:max_bias=8");
        let dir = tempfile::tempdir().unwrap();
        // Compared with a backend that also computes zeros, only the fault differs.
        let args = ["--timeout-s", "1", "--reference", "null", "--backends", &backend];
        let (output, result) = compare(dir.path(), "SOFT_MAX,ADD", &args);
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        let records = case_records(&result, &backend);
        let failed: HashSet<String> =
            records.iter().map(|r| r["case"].as_str().unwrap().to_string()).collect();
        assert_eq!((failed, records.len()), (expected.clone(), expected.len()), "{kind}");
        for r in &records {
            assert_eq!((&r["status"], &r["phase"]), (&status.into(), &"first_compute".into()), "{r}");
            assert_eq!(r["signal"].as_str(), signal, "{r}");
            assert_eq!(r["node"], r["case"], "{r}");
            assert!(!r["message"].as_str().unwrap().is_empty(), "{r}");
        }
        let rest = names(|n| (n.starts_with("SOFT_MAX") || n.starts_with("ADD(")) && !bad(n));
        assert_eq!(names_of(nodes(&result, &backend), "ok"), rest, "{kind}");
        assert_eq!(names_of(nodes(&result, &backend), status), expected, "{kind}");
        assert_eq!(own_record(&result, &backend)["status"], status);
        let text = flat(&output);
        assert!(text.contains(&format!("{status} in case SOFT_MAX")), "{text}");
        assert!(text.contains("in phase first_compute"), "{text}");
    }
}

/// A device that hangs repeatedly costs a deadline each time: after several, the remaining cases are skipped
/// and reported as skipped.
#[test]
fn a_device_that_always_hangs_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let args = ["--timeout-s", "1", "--reference", "null", "--backends", "null=hang@prepare"];
    let (output, result) = compare(dir.path(), "MUL_MAT", &args);
    assert!(start.elapsed() < Duration::from_secs(40));
    assert_eq!(output.status.code(), Some(1));
    let cases = nodes(&result, "null=hang@prepare");
    let hung = names_of(cases, "hang").len();
    assert!((3..20).contains(&hung), "{hung}");
    assert_eq!(cases.len(), names(|n| n.starts_with("MUL_MAT(")).len());
    assert_eq!(names_of(cases, "error").len(), cases.len() - hung);
    let left_out = format!("{} cases were not run", cases.len() - hung);
    assert!(stdout(&output).contains(&left_out), "{}", stdout(&output));
}

/// A backend that does not open has one record and no cases, and does not affect the others.
#[test]
fn a_backend_that_does_not_open() {
    let dir = tempfile::tempdir().unwrap();
    let backend = "null=crash@open_device";
    let (output, result) = compare(dir.path(), "ADD", &["--backends", &format!("cpu,{backend}")]);
    assert_eq!(output.status.code(), Some(1));
    let r = own_record(&result, backend);
    assert_eq!((&r["status"], &r["phase"]), (&"crash".into(), &"open_device".into()), "{r}");
    assert!(case_records(&result, backend).is_empty());
    assert_eq!(names_of(nodes(&result, "cpu"), "ok"), names(|n| n.starts_with("ADD(")));
}

/// The reference may fail too: its case has a record, and the other backends have no comparison for it.
#[test]
fn a_failing_reference_is_no_agreement() {
    let dir = tempfile::tempdir().unwrap();
    let reference = "null=crash@first_compute:SCALE(";
    let (output, result) =
        compare(dir.path(), "SCALE,RELU", &["--reference", reference, "--backends", "null"]);
    assert_eq!(output.status.code(), Some(1));
    let scale = names(|n| n.starts_with("SCALE("));
    assert!(!scale.is_empty());
    assert_eq!(case_records(&result, reference).len(), scale.len());
    assert_eq!(names_of(nodes(&result, "null"), "error"), scale);
    let text = format!("null: of {} cases {reference} has no result to compare with", scale.len());
    assert!(flat(&output).contains(&text), "{}", stdout(&output));
    let others = names(|n| n.starts_with("RELU(") || n.starts_with("VIEW("));
    assert_eq!(names_of(nodes(&result, "null"), "ok"), others);
}

/// A wrong result is a finding with operation and case.
#[test]
fn wrong_results_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let (output, result) = compare(dir.path(), "SILU", &["--backends", "null"]);
    assert_eq!(output.status.code(), Some(1));
    let findings = result["verdict"]["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{findings:?}");
    let finding = findings[0].as_str().unwrap();
    assert!(finding.starts_with("null differs from reference: ") && finding.contains("SILU("), "{finding}");
    assert!(!result["comparisons"][0]["first_divergence"].is_null());
}

#[test]
fn repetition_gives_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let (output, result) =
        compare(dir.path(), "MUL_MAT,FLASH_ATTN_EXT", &["--backends", "cpu", "--repeat", "3"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert!(nodes(&result, "cpu").iter().all(|n| n["unstable"] == 0));
}
