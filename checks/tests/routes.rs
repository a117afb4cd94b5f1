//! Routes of emulated cards with planted faults: each fault ends in its state, the route is not used, and is not tried
//! again.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Card and route with the faults.
const CARD: &str = "hip-virtual:gfx1100";
const ROUTE: &str = "hip.matrix-products";

/// Numbers of Vulkan's tuning table.
const VULKAN: &str = "vulkan.dot-vectors,vulkan.vectors,vulkan.q8_0-vectors,vulkan.float-vectors,vulkan.vector-columns,\
                      vulkan.vector-lanes,vulkan.half-tiles,vulkan.attention-part";

fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("it lies in a profile's deps");
    profile.join("examples").join(name)
}

/// Qualifies the route of the card with a fault in it, and returns the report.
fn qualified(folder: &Path, card: &str, route: &str, fault: &str) -> Value {
    let mut command = Command::new(example("routes"));
    report_of(command.arg(folder).arg(card).env("PLANTED_ROUTE", route).env("PLANTED_FAULT", fault))
}

/// Runs the example and reads its report.
fn report_of(command: &mut Command) -> Value {
    let output = command.output().expect("the example was built");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns the verdict that was reached now, if one was.
fn checked(report: &Value) -> Option<(String, String)> {
    let verdict = report["checked"].get(0)?;
    Some((verdict["state"].as_str()?.to_string(), verdict["evidence"].as_str()?.to_string()))
}

/// Returns the use of the route or candidate by the backend that was opened afterwards.
fn is_used(report: &Value, route: &str) -> bool {
    let lists = ["routes", "candidates"].map(|list| report[list].as_array().expect("a list"));
    let mut all = lists.into_iter().flatten();
    all.find(|of_device| of_device["name"] == route).expect("the route")["used"] == true
}

#[test]
fn a_route_with_a_fault_is_found_and_left_alone() {
    for (fault, state, evidence) in [
        ("zeros", "wrong", "whole numbers, F16"),
        ("other-bits", "wrong", "other bits in run 1"),
        ("large", "wrong", "rows of 4096"),
        ("lanes", "wrong", "whole numbers, F16"),
        ("nan-kept", "wrong", "infinity and NaN, F16"),
        ("hang", "hung", "whole numbers, F16"),
        ("crash", "crashed", "whole numbers, F16"),
        ("lost", "crashed", "lost"),
        ("slow", "slower", " checks"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let report = qualified(dir.path(), CARD, ROUTE, fault);
        let (found, why) = checked(&report).unwrap_or_else(|| panic!("{fault}: {report:#}"));
        assert_eq!(found, state, "{fault}: {report:#}");
        assert!(why.contains(evidence), "{fault}: {why}");
        assert!(!is_used(&report, ROUTE), "{fault}: {report:#}");
        // The next start neither tries it nor uses it, whether the fault is still there or not.
        let again = qualified(dir.path(), CARD, ROUTE, "none");
        assert_eq!((checked(&again), is_used(&again, ROUTE)), (None, false), "{fault}: {again:#}");
    }
}

/// A candidate of the tuning table that is faster than the table's value is used from then on, but not if it is wrong or
/// crashes; then it is never tried again.
#[test]
fn a_faster_value_of_the_table_is_used_if_it_is_right() {
    let value = "hip.tile-from=5";
    let without = |dir: &Path, fault: &str| {
        let mut command = Command::new(example("routes"));
        command.arg(dir).arg(CARD).env("PLANTED_ROUTE", value).env("PLANTED_FAULT", fault);
        report_of(command.env("PLANTED_WITHOUT", "1"))
    };
    let dir = tempfile::tempdir().unwrap();
    let report = without(dir.path(), "slow");
    assert_eq!(checked(&report).map(|(state, _)| state).as_deref(), Some("verified"), "{report:#}");
    assert!(is_used(&report, value) && report["checked"][0]["gain"].as_f64().unwrap() > 4.0, "{report:#}");
    let again = without(dir.path(), "slow");
    assert_eq!((checked(&again), is_used(&again, value)), (None, true));
    // With wrong results of its own, and where it ends the process; without a fault it gains nothing.
    for (fault, state) in [("zeros", "wrong"), ("crash", "crashed"), ("none", "not_faster")] {
        let dir = tempfile::tempdir().unwrap();
        let report = qualified(dir.path(), CARD, value, fault);
        let (found, why) = checked(&report).unwrap_or_else(|| panic!("{fault}: {report:#}"));
        assert_eq!(found, state, "{fault}: {why}");
        assert!(!is_used(&report, value), "{fault}: {report:#}");
        let again = qualified(dir.path(), CARD, value, "none");
        assert_eq!((checked(&again), is_used(&again, value)), (None, false), "{fault}: {again:#}");
    }
}

/// Every candidate of emulated cards computes correctly, and takes checks.
#[test]
fn other_values_of_the_tables_compute_correctly() {
    for (card, numbers) in [
        ("vulkan-virtual:navi31", VULKAN),
        ("hip-virtual:gfx906", "hip.tile-from"),
        ("hip-virtual:gfx1100", "hip.tile-from"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(example("routes"));
        let output = command.arg(dir.path()).arg(card).env("PLANTED_ADDITIONAL", numbers).output();
        let output = output.expect("the example was built");
        let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if text.is_empty() && said.contains("RADV") {
            eprintln!("skipped: {said}");
            continue;
        }
        let report: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{said}"));
        let checked = report["checked"].as_array().expect("a list of verdicts");
        let state = |verdict: &Value| verdict["state"].as_str().unwrap_or_default().to_string();
        for verdict in checked {
            // Times of an emulated card say nothing: it may seem faster.
            assert!(
                ["not_faster", "verified", "unknown"].contains(&state(verdict).as_str()),
                "{card}: {verdict:#}"
            );
        }
        let taken = checked.iter().filter(|verdict| state(verdict) != "unknown").count();
        assert!(taken >= 2 && taken + 3 >= checked.len(), "{card}: {report:#}");
    }
}

/// A process that dies while it prepares the checks of a later route says nothing about the one that it checks: those that
/// follow find out which it was.
#[test]
fn of_two_routes_the_one_that_crashes_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (later, mut command) = ("hip.matrix-attention", Command::new(example("routes")));
    command.arg(dir.path()).arg(CARD).env("PLANTED_ROUTE", later).env("PLANTED_ADDITIONAL", ROUTE);
    let report = report_of(command.env("PLANTED_FAULT", "crash-early"));
    let state = |route: &str| {
        let verdicts = report["verdicts"].as_array().expect("a list of verdicts");
        verdicts.iter().find(|verdict| verdict["route"] == route).map(|verdict| verdict["state"].clone())
    };
    assert_eq!(state(ROUTE), Some("verified".into()), "{report:#}");
    assert_eq!(state(later), Some("crashed".into()), "{report:#}");
    assert!(is_used(&report, ROUTE) && !is_used(&report, later), "{report:#}");
}

/// Memory that the programs of several routes need at a time: alone, each of them has enough.
#[test]
fn what_has_no_memory_is_checked_alone() {
    is_checked_alone("memory-once");
}

/// The same of the time of the processors that emulate a card.
#[test]
fn what_has_no_time_is_checked_alone() {
    is_checked_alone("late-once");
}

fn is_checked_alone(fault: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (later, mut command) = ("hip.matrix-attention", Command::new(example("routes")));
    command.arg(dir.path().join("routes")).arg(CARD).env("PLANTED_ROUTE", ROUTE);
    command.env("PLANTED_ADDITIONAL", later).env("PLANTED_SEEN", dir.path().join("seen"));
    let report = report_of(command.env("PLANTED_FAULT", fault));
    assert!(dir.path().join("seen").is_file(), "the fault was met");
    let verdicts = report["verdicts"].as_array().expect("a list of verdicts");
    let states: Vec<&str> = verdicts.iter().filter_map(|verdict| verdict["state"].as_str()).collect();
    assert_eq!(states, ["verified"; 2], "{report:#}");
    assert!(is_used(&report, ROUTE) && is_used(&report, later), "{report:#}");
}

/// A device that is lost in a step whose kernels took a route, long after the checks: the next process does without it.
#[test]
fn a_later_loss_takes_the_verdict_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(example("routes"));
    command.arg(dir.path()).arg(CARD).env("PLANTED_ROUTE", ROUTE);
    let report = report_of(command.env("PLANTED_FAULT", "lost").env("PLANTED_LATER", "1"));
    assert_eq!(checked(&report).map(|(state, _)| state).as_deref(), Some("verified"), "{report:#}");
    assert!(report["error"].as_str().is_some_and(|error| error.contains("device lost")), "{report:#}");
    let routes = report["routes"].as_array().expect("a list of routes");
    let of_route = routes.iter().find(|route| route["name"] == ROUTE).expect("the route");
    assert_eq!((&of_route["used"], &of_route["verdict"]["state"]), (&false.into(), &"crashed".into()));
    let evidence = of_route["verdict"]["evidence"].as_str().unwrap();
    assert!(evidence.starts_with("outside of the checks: "), "{evidence}");
    let again = qualified(dir.path(), CARD, ROUTE, "none");
    assert_eq!((checked(&again), is_used(&again, ROUTE)), (None, false));
}

/// A driver that hangs when it is asked for its matrices: the check finds it, and nobody else asks.
#[test]
fn the_shapes_of_units_are_asked_for_in_a_child() {
    let (card, route) = ("vulkan-virtual:navi31", "vulkan.matrix-products");
    let dir = tempfile::tempdir().unwrap();
    let fault = "hang@vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR";
    let mut command = Command::new(example("routes"));
    command.arg(dir.path()).arg(card).env("PLANTED_ROUTE", route).env("DIPTYCH_VIRTUAL_VULKAN_FAULTS", fault);
    let output = command.output().expect("the example was built");
    let text = String::from_utf8_lossy(&output.stdout);
    if text.is_empty() && String::from_utf8_lossy(&output.stderr).contains("RADV") {
        return eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{said}"));
    let (state, evidence) = checked(&report).expect("a verdict");
    assert_eq!(state, "hung", "{evidence}");
    assert!(!is_used(&report, route) && is_used(&report, "vulkan.dot-tiles"), "{report:#}");
}

#[test]
fn routes_without_a_fault_are_verified_and_used() {
    let dir = tempfile::tempdir().unwrap();
    let report = qualified(dir.path(), CARD, ROUTE, "none");
    assert_eq!(checked(&report).map(|(state, _)| state).as_deref(), Some("verified"), "{report:#}");
    assert!(is_used(&report, ROUTE) && !is_used(&report, "hip.matrix-attention"), "{report:#}");
    let again = qualified(dir.path(), CARD, ROUTE, "none");
    assert_eq!((checked(&again), is_used(&again, ROUTE)), (None, true));
    // What the runtime does otherwise may be wrong: it is another driver.
    let mut other = Command::new(example("routes"));
    other.arg(dir.path()).arg(CARD).env("PLANTED_ROUTE", ROUTE).env("PLANTED_FAULT", "zeros");
    let other = report_of(other.env("HSA_ENABLE_SDMA", "0"));
    assert_eq!(checked(&other).map(|(state, _)| state).as_deref(), Some("wrong"), "{other:#}");
    let as_before = qualified(dir.path(), CARD, ROUTE, "none");
    assert_eq!((checked(&as_before), is_used(&as_before, ROUTE)), (None, true));
}

/// Where no file can grow, as on a full disk, nothing is tried, and nothing is left that keeps the next process away.
#[cfg(unix)]
#[test]
fn on_a_full_disk_nothing_is_tried() {
    let dir = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 0; trap '' XFSZ; exec \"$@\"", "sh"]).arg(example("routes"));
    let full =
        report_of(shell.arg(dir.path()).arg(CARD).env("PLANTED_ROUTE", ROUTE).env("PLANTED_FAULT", "crash"));
    assert_eq!((checked(&full), is_used(&full, ROUTE)), (None, false));
    assert!(full["note"].as_str().unwrap().contains("cannot be written"), "{full:#}");
    let later = qualified(dir.path(), CARD, ROUTE, "zeros");
    assert_eq!(checked(&later).map(|(state, _)| state).as_deref(), Some("wrong"), "{later:#}");
}

/// A second process goes on with the plain ways, and so does one that cannot keep verdicts: nothing is tried.
#[test]
fn without_a_place_for_verdicts_nothing_is_tried() {
    let dir = tempfile::tempdir().unwrap();
    let later = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 60;
    std::fs::write(dir.path().join("claim"), format!("{later} 0")).unwrap();
    let busy = qualified(dir.path(), CARD, ROUTE, "crash");
    assert_eq!(checked(&busy), None);
    assert!(busy["note"].as_str().unwrap().contains("another process"), "{busy:#}");
    assert!(!is_used(&busy, ROUTE));
    let file = dir.path().join("file");
    std::fs::write(&file, "in the place of a folder").unwrap();
    let unwritable = qualified(&file, CARD, ROUTE, "crash");
    assert_eq!(checked(&unwritable), None);
    assert!(unwritable["note"].as_str().unwrap().contains("cannot be written"), "{unwritable:#}");
    assert!(!is_used(&unwritable, ROUTE));
}
