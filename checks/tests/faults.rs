//! Verdicts of `compare`: every planted fault is found and named, and a model without one agrees.

use std::path::PathBuf;
use std::process::Command;

/// Returns the path of an example of this crate, which cargo builds before it runs the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("it lies in a profile's deps");
    profile.join("examples").join(name)
}

#[test]
fn planted_faults_are_found() {
    let output = Command::new(example("faults")).arg("--quick").output().expect("the example was built");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("34 comparisons, 0 wrong; no model shows: \n"), "{text}");
}
