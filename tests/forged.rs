//! Folders of finished runs whose results were altered, as a faulty driver or a machine that stopped leaves them: none of
//! them agrees.

use crate::common;

use common::{compare, example, result, stdout, tiny};
use diptych::DType;
use diptych::synthesize;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

/// Writes a tiny model and compares it, with further arguments; the backends agree.
fn compared(folder: &Path, args: &[&str]) {
    let model = folder.with_extension("gguf");
    synthesize::write(&tiny("llama", DType::F16), 1, &model).unwrap();
    let model = ["--model", model.to_str().unwrap(), "--backends", "cpu"];
    let (output, _) = compare(folder, &[&model[..], args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}

/// Continues a run; returns its exit status, findings and report.
fn resumed(folder: &Path) -> (Option<i32>, String, Value) {
    let output = Command::new(example("compare")).arg("--resume").arg(folder).output().unwrap();
    let found = result(folder);
    (output.status.code(), found["verdict"]["findings"].to_string(), found)
}

/// Makes zeros of the logits of the backend.
fn zero_logits(folder: &Path) {
    let path = folder.join("cpu.logits.npy");
    let mut bytes = std::fs::read(&path).unwrap();
    let begin = bytes.iter().position(|&byte| byte == b'\n').expect("a header") + 1;
    bytes[begin..].fill(0);
    std::fs::write(&path, bytes).unwrap();
}

/// Logits that were never written are no rounding, although every node is right when it runs alone.
#[test]
fn logits_of_zeros_are_no_rounding() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("out");
    compared(&folder, &["--predict", "4"]);
    zero_logits(&folder);
    let (status, findings, found) = resumed(&folder);
    assert_eq!(status, Some(1), "{found}");
    assert!(findings.contains("too large for rounding"), "{findings}");
    assert!(found["verdict"]["advice"].as_str().unwrap().contains("no other backend agrees"), "{found}");
}

/// A node that has no result is not judged by a second run of the others.
#[test]
fn a_node_without_a_result_is_no_agreement() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("out");
    compared(&folder, &["--predict", "2", "--per-node", "isolated"]);
    let path = folder.join("cpu.nodes");
    let bytes = std::fs::read(&path).unwrap();
    let end = bytes.iter().position(|&byte| byte == b'\n').expect("a line of entries");
    let mut entries: Vec<Value> = serde_json::from_slice(&bytes[..end]).unwrap();
    let before = entries.len();
    entries.retain(|entry| entry["name"] != "blk.0.attn");
    assert!(entries.len() < before);
    std::fs::write(&path, [json!(entries).to_string().as_bytes(), &bytes[end..]].concat()).unwrap();
    let (status, findings, found) = resumed(&folder);
    assert_eq!(status, Some(1), "{found}");
    assert!(findings.contains("node 'blk.0.attn' (FLASH_ATTN_EXT) cannot be judged"), "{findings}");
}

/// The reference's results of operations end with the machine, and the run continues.
#[test]
fn cases_without_a_reference_are_no_agreement() {
    let dir = tempfile::tempdir().unwrap();
    for kept in [1, 0] {
        let (output, _) = compare(dir.path(), &["--ops", "SCALE,RMS_NORM", "--backends", "cpu"]);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        let path = dir.path().join("reference.results");
        let bytes = std::fs::read(&path).unwrap();
        let name = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        let values = u64::from_le_bytes(bytes[4..12].try_into().unwrap()) as usize;
        std::fs::write(&path, &bytes[..kept * (12 + name + 4 * values)]).unwrap();
        // The backend has not begun.
        let events = dir.path().join("run.events.jsonl");
        let text = std::fs::read_to_string(&events).unwrap();
        let lines: String =
            text.lines().filter(|l| !l.contains("\"cpu\"")).map(|l| format!("{l}\n")).collect();
        assert!(lines.len() < text.len());
        std::fs::write(&events, lines).unwrap();
        std::fs::remove_file(dir.path().join("cpu.events.jsonl")).unwrap();

        let (status, findings, found) = resumed(dir.path());
        assert_eq!(status, Some(1), "{found}");
        let nodes = found["comparisons"][0]["nodes"].as_array().unwrap();
        let errors = nodes.iter().filter(|node| node["status"] == "error").count();
        assert_eq!(errors, nodes.len() - kept);
        let words = format!("cpu: of {errors} cases reference has no result to compare with");
        assert!(findings.contains(&words), "{findings}");
        let advice = found["verdict"]["advice"].as_str().unwrap();
        assert!(!advice.contains("use --backend"), "{advice}");
    }
}

/// Runs of two precisions are not averaged.
#[test]
fn precisions_have_rows_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let folders = ["fast", "exact"].map(|precision| (precision, dir.path().join(precision)));
    for (precision, folder) in &folders {
        compared(folder, &["--predict", "2", "--precision", precision]);
    }
    let mut command = Command::new(example("compare"));
    command.arg("report").args(folders.iter().map(|(_, folder)| folder));
    let out = dir.path().join("all/result.json");
    let output: Output = command.args(["--full", "--out"]).arg(&out).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let all: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let statistics = all["statistics"].as_array().unwrap();
    let rows: Vec<&Value> = statistics.iter().filter(|line| line["backend"] == "cpu").collect();
    assert_eq!(rows.len(), 2, "{rows:?}");
    for (row, (precision, _)) in rows.iter().zip(&folders) {
        assert_eq!(row["runs"], 1, "{row}");
        assert!(row["work"].as_str().unwrap().contains(&format!("; {precision}")), "{row}");
    }
}

/// The run that examines a difference again opens the model of its parent and no library, whatever its own folder names.
#[test]
fn a_run_within_a_run_has_its_parents_model() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("out");
    compared(&folder, &["--predict", "2"]);
    zero_logits(&folder);
    assert_eq!(resumed(&folder).0, Some(1));
    let again = folder.join("again/cpu-exact");
    let header = again.join("run.json");
    let mut value: Value = serde_json::from_slice(&std::fs::read(&header).unwrap()).unwrap();
    value["options"]["hip_library"] = json!("/nowhere/evil.so");
    value["options"]["work"] = json!({"model": "/nowhere/hidden.gguf"});
    value["task"]["model"] = json!("/nowhere/hidden.gguf");
    for entry in std::fs::read_dir(&again).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    std::fs::write(&header, value.to_string()).unwrap();
    std::fs::write(again.join("run.events.jsonl"), vec![0; 256 << 10]).unwrap();
    let (status, findings, _) = resumed(&folder);
    assert_eq!(status, Some(1), "{findings}");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let work = read(&again.join("cpu.work.json"));
    let model = folder.with_extension("gguf");
    assert!(work.contains(model.to_str().unwrap()) && !work.contains("nowhere"), "{work}");
}
