//! `compare` as a user runs it: exit status, table, result.json, and what it makes of backends that die or hang.

mod common;

use common::example;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn compare(out: &Path, args: &[&str]) -> (Output, Value) {
    let output =
        Command::new(example("compare")).args(args).arg("--out").arg(out).output().expect("compare runs");
    let text = std::fs::read_to_string(out.join("result.json")).unwrap_or_else(|_| "null".into());
    (output, serde_json::from_str(&text).expect("valid JSON"))
}

fn record<'a>(result: &'a Value, backend: &str) -> &'a Value {
    let records = result["records"].as_array().expect("records");
    records.iter().find(|r| r["backend"] == backend).unwrap_or_else(|| panic!("no record of {backend}"))
}

/// Plain `compare`: every backend of this machine agrees; one that cannot run here is listed with its reason.
#[test]
fn the_default_comparison_agrees() {
    let dir = tempfile::tempdir().unwrap();
    let (output, result) = compare(dir.path(), &[]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    for backend in ["reference", "cpu", "vulkan", "hip", "hip-virtual:gfx906"] {
        let r = record(&result, backend);
        let status = r["status"].as_str().unwrap();
        assert!(stdout.lines().any(|l| l.starts_with(backend) && l.contains(status)), "{stdout}");
        match status {
            "ok" => {
                assert_eq!(r["token_ids"].as_array().unwrap().len(), 16);
                assert!(r["load_s"].is_number() && r["prompt_s"].is_number() && r["eval_s"].is_number());
                assert!(r["driver_allocations"].as_u64().unwrap() <= 12);
            }
            "unsupported" => {
                assert!(!matches!(backend, "reference" | "cpu"), "{backend}");
                assert!(r["message"].as_str().unwrap().len() > 20, "{r}");
            }
            other => panic!("{backend}: {other}"),
        }
    }
    for key in
        ["run_id", "started_at", "command", "host", "environment", "backends", "comparisons", "verdict"]
    {
        assert!(!result[key].is_null(), "{key}");
    }
    for c in result["comparisons"].as_array().unwrap() {
        assert!(c["logits"]["nmse"].as_f64().unwrap() < 5e-3, "{c}");
        assert!(
            c["logits"]["kl"].is_number() && c["logits"]["top1_agreement"].as_f64().unwrap() > 0.8,
            "{c}"
        );
    }
}

/// Node by node with the reference's operands: F32 operations within 1e-7, products within 5e-4 (fast) or 1e-7.
#[test]
fn every_node_agrees() {
    for precision in ["exact", "fast"] {
        let dir = tempfile::tempdir().unwrap();
        let args = [
            "--per-node",
            "isolated",
            "--predict",
            "2",
            "--backends",
            "cpu,vulkan,hip-virtual:gfx906,hip-virtual:gfx900",
            "--precision",
            precision,
        ];
        let (output, result) = compare(dir.path(), &args);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
        let comparisons = result["comparisons"].as_array().unwrap();
        assert!(!comparisons.is_empty());
        for c in comparisons {
            let nodes = c["nodes"].as_array().unwrap();
            assert!(nodes.len() > 90);
            for n in nodes {
                let product = n["op"] == "MUL_MAT" && precision == "fast";
                let bound = if product { 5e-4 } else { 1e-7 };
                assert!(n["nmse"].as_f64().unwrap() < bound, "{} {precision}: {n}", c["lhs"]);
            }
        }
    }
}

#[test]
fn a_crash_is_a_record_and_the_others_are_complete() {
    let dir = tempfile::tempdir().unwrap();
    let backend = "null=crash@first_compute:blk.1.ffn_down";
    let list = format!("cpu,{backend}");
    let (output, result) = compare(dir.path(), &["--predict", "2", "--backends", &list]);
    assert_eq!(output.status.code(), Some(1));
    let r = record(&result, backend);
    assert_eq!((&r["status"], &r["signal"]), (&"crash".into(), &"SIGABRT".into()), "{r}");
    assert_eq!((&r["phase"], &r["node"]), (&"first_compute".into(), &"blk.1.ffn_down".into()), "{r}");
    assert_eq!(record(&result, "cpu")["status"], "ok");
    assert_eq!(record(&result, "cpu")["token_ids"].as_array().unwrap().len(), 2);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("crash in phase first_compute at node blk.1.ffn_down"), "{stdout}");
}

#[test]
fn a_hang_ends_at_its_deadline() {
    for (kind, phase) in [("hang", "allocate"), ("stuck", "upload"), ("hang", "compute:blk.0.attn_q")] {
        let dir = tempfile::tempdir().unwrap();
        let backend = format!("null={kind}@{phase}");
        let start = Instant::now();
        let args = ["--timeout-s", "1", "--predict", "3", "--reference", "cpu", "--backends", &backend];
        let (output, result) = compare(dir.path(), &args);
        assert!(start.elapsed() < Duration::from_secs(30), "{backend}");
        assert_eq!(output.status.code(), Some(1), "{backend}");
        let r = record(&result, &backend);
        let (phase, node) = phase.split_once(':').map_or((phase, None), |(p, n)| (p, Some(n)));
        assert_eq!((&r["status"], &r["phase"]), (&"hang".into(), &phase.into()), "{r}");
        if let Some(node) = node {
            assert!(r["node"].as_str().unwrap().starts_with(node), "{r}");
        }
        assert_eq!(record(&result, "cpu")["status"], "ok");
    }
}

#[test]
fn an_error_is_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let (output, result) =
        compare(dir.path(), &["--predict", "1", "--reference", "cpu", "--backends", "null=fail@prepare"]);
    assert_eq!(output.status.code(), Some(1));
    let r = record(&result, "null=fail@prepare");
    assert_eq!((&r["status"], &r["phase"]), (&"error".into(), &"prepare".into()), "{r}");
}

/// A backend that computes nonsense is told from one that computes.
#[test]
fn a_wrong_result_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--predict", "1", "--reference", "cpu", "--backends", "null", "--per-node", "isolated"];
    let (output, result) = compare(dir.path(), &args);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(result["verdict"]["agree"], false);
    assert_eq!(result["comparisons"][0]["first_divergence"]["node"], "embedding");
}

#[test]
fn wrong_use_is_status_2_with_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    let truncated = dir.path().join("truncated.gguf");
    let shape = diptych::synthesize::Shape::small("llama");
    let bytes = diptych::synthesize::bytes(&shape, 1).unwrap();
    std::fs::write(&truncated, &bytes[..bytes.len() / 2]).unwrap();
    let truncated = truncated.to_str().unwrap().to_string();
    let out = dir.path().join("x.npy");
    let out = out.to_str().unwrap();
    for (program, args) in [
        ("compare", vec!["--model", "/nowhere/model.gguf"]),
        ("compare", vec!["--model", &truncated]),
        ("compare", vec!["--backends", "cpu,quantum"]),
        ("compare", vec!["--tokens", "1,2,99999"]),
        ("compare", vec!["--tokens", "1,x"]),
        ("compare", vec!["--predict", "100000"]),
        ("compare", vec!["--per-node", "sometimes"]),
        ("compare", vec!["--repeat", "0"]),
        ("compare", vec!["--graph", "/nowhere/graph.json"]),
        ("compare", vec!["--ops", "ADD", "--model", "/nowhere/model.gguf"]),
        ("compare", vec!["--backends", "hip-virtual:gfx1100"]),
        ("logits", vec!["--model", "/nowhere/model.gguf", "--tokens", "1", "--out", out]),
        ("logits", vec!["--model", &truncated, "--tokens", "1", "--out", out]),
        ("logits", vec!["--model", &truncated, "--tokens", "1", "--out", out, "--backend", "quantum"]),
        ("inspect", vec!["/nowhere/model.gguf"]),
        ("inspect", vec![&truncated]),
    ] {
        let mut command = Command::new(example(program));
        if program == "compare" {
            command.arg("--out").arg(dir.path());
        }
        let output = command.args(&args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{program} {args:?}: {stderr}");
        assert!(
            stderr.starts_with("error: ") && !stderr.contains("panicked"),
            "{program} {args:?}: {stderr}"
        );
        assert!(stderr.lines().next().unwrap().len() > 20, "{stderr}");
    }
}

#[test]
fn inspect_lists_metadata_and_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    diptych::synthesize::write(&diptych::synthesize::Shape::small("qwen2"), 1, &path).unwrap();
    let output = Command::new(example("inspect")).arg(&path).arg("--json").output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["metadata"]["general.architecture"], "qwen2");
    let tensors = value["tensors"].as_array().unwrap();
    let q = tensors.iter().find(|t| t["name"] == "blk.3.attn_q.weight").unwrap();
    assert_eq!((&q["type"], q["shape"][1].as_u64()), (&"Q8_0".into(), Some(512)));
}

/// A graph file on two backends: its outputs, every node, and one that crashes at a node.
#[test]
fn a_graph_file_is_compared() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("graph.json");
    let case = "MUL_MAT(Q8_0, k=64, m=64, n=1)";
    let case = diptych::ggml::catalogue::cases().into_iter().find(|c| c.name == case).unwrap();
    let mut graph = case.graph.clone().unwrap();
    graph.name(case.node, "product").unwrap();
    let norm = graph.rms_norm(case.node, 1e-6).unwrap();
    graph.name(norm, "norm").unwrap();
    graph.output(norm);
    let data = case.leaves().unwrap().into_iter().collect();
    let mut file = diptych::ggml::graph::file::GraphFile { graph, data };
    file.save(&path).unwrap();
    let path = path.to_str().unwrap();

    for (per_node, nodes) in [("off", ["product", "norm"]), ("isolated", ["product", "norm"])] {
        let args = ["--graph", path, "--backends", "cpu", "--per-node", per_node, "--repeat", "2"];
        let (output, result) = compare(dir.path(), &args);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
        let seen = result["comparisons"][0]["nodes"].as_array().unwrap();
        assert_eq!(seen.iter().map(|n| n["node"].as_str().unwrap()).collect::<Vec<_>>(), nodes);
        assert!(seen.iter().all(|n| n["nmse"].as_f64().unwrap() < 5e-4), "{per_node}: {seen:?}");
    }
    let list = "null,null=crash@first_compute:norm";
    let (output, result) = compare(dir.path(), &["--graph", path, "--backends", list]);
    assert_eq!(output.status.code(), Some(1));
    let r = record(&result, "null=crash@first_compute:norm");
    assert_eq!((&r["status"], &r["node"]), (&"crash".into(), &"norm".into()), "{r}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("output 'product' has NMSE"));

    let input = file.data.keys().copied().next().unwrap();
    file.data.remove(&input);
    file.save(Path::new(path)).unwrap();
    let (output, _) = compare(dir.path(), &["--graph", path, "--backends", "cpu"]);
    assert_eq!(output.status.code(), Some(2));
}
