//! `compare` as a user runs it: exit status, table, result.json, and the handling of backends that crash or
//! hang.

use crate::common;

use common::{compare, example, record, result, stdout, tiny, tiny_predicting};
use diptych::ggml::catalogue;
use diptych::ggml::graph::file::GraphFile;
use diptych::synthesize::Drafts;
use diptych::{DType, synthesize};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Default `compare`: all available backends agree; an unavailable one is listed with its reason.
#[test]
fn the_default_comparison_agrees() {
    let dir = tempfile::tempdir().unwrap();
    let (output, result) = compare(dir.path(), &[]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    for backend in ["reference", "cpu", "vulkan", "hip", "vulkan-virtual:vega20", "hip-virtual:gfx906"] {
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
    assert_eq!(result["cache"], "F16", "what a session has");
    for c in result["comparisons"].as_array().unwrap() {
        assert!(c["logits"]["nmse"].as_f64().unwrap() < 5e-3, "{c}");
        assert!(
            c["logits"]["kl"].is_number() && c["logits"]["top1_agreement"].as_f64().unwrap() > 0.8,
            "{c}"
        );
    }
}

/// A file with a predictor: each backend drafts with it, and the drafts are judged.
#[test]
fn drafts_of_the_predictor_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.gguf");
    synthesize::write(&tiny_predicting(Drafts::Agreeing(0.01)), 3, &file).unwrap();
    let args = ["--model", file.to_str().unwrap(), "--backends", "cpu,vulkan", "--predict", "20"];
    let (output, result) = compare(&dir.path().join("out"), &args);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let drafts = record(&result, "reference")["drafts"].as_array().unwrap();
    assert_eq!(drafts.len(), 19);
    for c in result["comparisons"].as_array().unwrap() {
        let drafts = &c["drafts"];
        assert!(drafts["same"].as_u64().unwrap() >= 17 && drafts["drafts"] == 19, "{c}");
        assert!(drafts["accepted"].as_u64().unwrap() > 9, "{c}");
    }
    let text = stdout(&output);
    let line = text.lines().skip_while(|line| *line != "predictor").find(|line| line.starts_with("cpu "));
    assert!(line.is_some_and(|line| line.contains(" 19 ") && line.contains('%')), "{text}");
}

/// Returns true if RADV can compile for the virtual card here.
fn has_card() -> bool {
    match diptych::open("vulkan-virtual", &diptych::OpenOptions::default()) {
        Ok(_) => true,
        Err(error) => {
            assert!(matches!(error, diptych::Error::Unavailable { .. }), "{error}");
            eprintln!("skipped: {error}");
            false
        }
    }
}

/// RADV's machine code and HIP's code objects on the same virtual cards, node by node, with all checks.
#[test]
fn two_drivers_of_one_virtual_card_agree() {
    if !has_card() {
        return;
    }
    let backends = "vulkan-virtual:vega20,vulkan-virtual:gfx900,hip-virtual:gfx906,hip-virtual:gfx900";
    let dir = tempfile::tempdir().unwrap();
    let args = ["--per-node", "isolated", "--predict", "2", "--backends", &format!("reference,{backends}")];
    let (output, result) = compare(dir.path(), &args);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    for pair in ["vulkan-virtual:vega20, hip-virtual:gfx906", "vulkan-virtual:vega10, hip-virtual:gfx900"] {
        assert!(stdout.lines().any(|l| l.starts_with(&format!("one card: {pair} ("))), "{stdout}");
    }
    for c in result["comparisons"].as_array().unwrap() {
        let nodes = c["nodes"].as_array().unwrap();
        assert!(nodes.len() > 50, "{} nodes", nodes.len());
        for n in nodes {
            assert!(n["nmse"].as_f64().unwrap() <= n["bound"].as_f64().unwrap(), "{n}");
        }
    }
}

/// The clock of an emulated card is made up: the times of its operations are not recorded.
#[test]
fn an_emulated_card_has_no_times() {
    if !has_card() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model.gguf");
    synthesize::write(&tiny("llama", DType::F16), 1, &model).unwrap();
    let card = "hip-virtual:gfx906";
    let backends = format!("cpu,{card}");
    let args = ["--model", model.to_str().unwrap(), "--predict", "2", "--backends", &backends];
    let (output, result) = compare(dir.path(), &args);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let times = |backend: &str| record(&result, backend)["times"].as_array().map_or(0, Vec::len);
    assert!(times("cpu") > 0 && times(card) == 0, "{}", record(&result, card));
}

/// Counters of kernels are the same in every run.
#[test]
fn work_is_counted() {
    let count = |backends: &str| {
        let mut command = Command::new(example("compare"));
        let output = command.args(["--counts", "SILU", "--backends", backends]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let backends = if has_card() { "vulkan-virtual,hip-virtual" } else { "hip-virtual" };
    let table = count(backends);
    for backend in backends.split(',') {
        let row =
            table.lines().find(|l| l.starts_with("SILU([129, 4, 1, 1])") && l.contains(backend)).unwrap();
        // Each of 516 F32 elements is read and written once.
        assert!(row.split_whitespace().filter(|cell| *cell == "2064").count() >= 1, "{row}");
    }
    assert_eq!(table, count(backends));
}

/// Node by node with the reference's operands: F32 operations within 1e-7, products within 5e-4 (fast) or
/// 1e-7 (exact).
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
                let product = ["MUL_MAT", "products"].iter().any(|op| n["op"] == *op) && precision == "fast";
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
    assert_eq!((&r["status"], &r["signal"]), (&"crash".into(), &"SIGSEGV".into()), "{r}");
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

/// A backend with wrong results is distinguished from a correct one.
#[test]
fn a_wrong_result_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--predict", "1", "--reference", "cpu", "--backends", "null", "--per-node", "isolated"];
    let (output, result) = compare(dir.path(), &args);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(result["verdict"]["agree"], false);
    assert_eq!(result["comparisons"][0]["first_divergence"]["node"], "mask");
}

#[test]
fn wrong_use_is_status_2_with_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    let truncated = dir.path().join("truncated.gguf");
    let shape = synthesize::Shape::small("llama");
    let bytes = synthesize::bytes(&shape, 1).unwrap();
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
        ("compare", vec!["--epochs", "0"]),
        ("compare", vec!["--ops", "RELU", "--epochs", "2"]),
        ("compare", vec!["--timeout-s", "0"]),
        ("compare", vec!["--timeout-s", "NaN"]),
        ("compare", vec!["--timeout-s", "-1"]),
        ("compare", vec!["--resume", "/nowhere"]),
        ("compare", vec!["report", "/nowhere"]),
        ("compare", vec!["--graph", "/nowhere/graph.json"]),
        ("compare", vec!["--ops", "ADD", "--model", "/nowhere/model.gguf"]),
        ("compare", vec!["--backends", "hip-virtual:gfx1030"]),
        ("compare", vec!["--backends", "vulkan-virtual:navi21"]),
        ("compare", vec!["--counts", "ADD", "--backends", "cpu"]),
        ("compare", vec!["--counts", "NOTHING"]),
        ("logits", vec!["--model", "/nowhere/model.gguf", "--tokens", "1", "--out", out]),
        ("logits", vec!["--model", &truncated, "--tokens", "1", "--out", out]),
        ("logits", vec!["--model", &truncated, "--tokens", "1", "--out", out, "--backend", "quantum"]),
        ("inspect", vec!["/nowhere/model.gguf"]),
        ("inspect", vec![&truncated]),
    ] {
        let mut command = Command::new(example(program));
        command.args(&args);
        if program == "compare" {
            command.arg("--out").arg(dir.path());
        }
        let output = command.output().unwrap();
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
    synthesize::write(&synthesize::Shape::small("qwen2"), 1, &path).unwrap();
    let output = Command::new(example("inspect")).arg(&path).arg("--json").output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["metadata"]["general.architecture"], "qwen2");
    let tensors = value["tensors"].as_array().unwrap();
    let q = tensors.iter().find(|t| t["name"] == "blk.3.attn_q.weight").unwrap();
    assert_eq!((&q["type"], q["shape"][1].as_u64()), (&"Q8_0".into(), Some(512)));
}

/// A graph file on two backends: its outputs, every node, and a backend that crashes at a node.
#[test]
fn a_graph_file_is_compared() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("graph.json");
    let case = "MUL_MAT(Q8_0, k=64, m=64, n=1)";
    let case = catalogue::cases().into_iter().find(|c| c.name == case).unwrap();
    let mut graph = case.graph.clone().unwrap();
    graph.name(case.node, "product").unwrap();
    let norm = graph.rms_norm(case.node, 1e-6).unwrap();
    graph.name(norm, "norm").unwrap();
    graph.output(norm).unwrap();
    let data = case.leaves().unwrap().into_iter().collect();
    let mut file = GraphFile { graph, data };
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
    assert!(String::from_utf8_lossy(&output.stdout).contains("output 'product' has an error"));

    let input = file.data.keys().copied().next().unwrap();
    file.data.remove(&input);
    file.save(Path::new(path)).unwrap();
    let (output, _) = compare(dir.path(), &["--graph", path, "--backends", "cpu"]);
    assert_eq!(output.status.code(), Some(2));
}

/// A deadline may have any length.
#[test]
fn no_deadline_is_too_long() {
    for seconds in [u64::MAX.to_string(), i64::MAX.to_string(), "1e30".into()] {
        let dir = tempfile::tempdir().unwrap();
        let backends = "cpu,vulkan,hip-virtual:gfx906";
        let args = ["--predict", "1", "--tokens", "1,2", "--backends", backends, "--timeout-s", &seconds];
        let (output, result) = compare(dir.path(), &args);
        assert_eq!(output.status.code(), Some(0), "{seconds}: {}", stdout(&output));
        assert_eq!(record(&result, "cpu")["status"], "ok");
    }
}

/// If nothing was compared, the verdict is no agreement.
#[test]
fn nothing_compared_is_no_agreement() {
    for work in [["--predict", "1"], ["--ops", "RELU"]] {
        let dir = tempfile::tempdir().unwrap();
        let (output, result) = compare(dir.path(), &[&work[..], &["--backends", "reference"]].concat());
        assert_eq!(output.status.code(), Some(1), "{work:?}");
        assert_eq!(result["verdict"]["findings"][0], "nothing was compared with reference");
        assert_eq!(record(&result, "reference")["status"], "ok");
    }
}

/// A graph with quantised results, and a view of them: judged by their values like all others.
#[test]
fn quantised_results_are_judged() {
    for case in ["SET_ROWS(Q8_0, n=64, rows=32, ids=1, b2=1)", "SET_ROWS(Q4_0, n=64, rows=100, ids=17, b2=1)"]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("graph.json");
        let case = catalogue::cases().into_iter().find(|c| c.name == case).expect(case);
        let mut graph = case.graph.clone().unwrap();
        graph.name(case.node, "rows").unwrap();
        let t = graph.tensor(case.node).clone();
        let view = graph.view(case.node, [t.ne[0], 2, 1, 1], t.nb, t.nb[1]).unwrap();
        graph.name(view, "view").unwrap();
        graph.output(view).unwrap();
        let data = case.leaves().unwrap().into_iter().collect();
        GraphFile { graph, data }.save(&path).unwrap();
        let path = path.to_str().unwrap();
        for per_node in ["off", "isolated"] {
            for precision in ["exact", "fast"] {
                let args = [
                    "--graph",
                    path,
                    "--backends",
                    "cpu,null",
                    "--per-node",
                    per_node,
                    "--precision",
                    precision,
                ];
                let (output, result) = compare(dir.path(), &args);
                assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
                let comparison = |name: &str| {
                    let all = result["comparisons"].as_array().unwrap();
                    all.iter().find(|c| c["lhs"] == name).unwrap().clone()
                };
                let cpu = comparison("cpu");
                assert!(cpu["disagreement"].is_null(), "{cpu}");
                assert!(!cpu["nodes"].as_array().unwrap().is_empty());
                assert!(!comparison("null")["disagreement"].is_null(), "zeros are no rows");
            }
        }
    }
}

/// Products of experts have the bound of products.
#[test]
fn a_quantised_mixture_agrees_node_by_node() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mixture.gguf");
    synthesize::write(&tiny("qwen3moe", DType::Q8_0), 1, &path).unwrap();
    let path = path.to_str().unwrap();
    let backends = "cpu,vulkan,hip-virtual:gfx906";
    let args = ["--model", path, "--backends", backends, "--per-node", "isolated", "--predict", "1"];
    let (output, result) = compare(dir.path(), &args);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let nodes = result["comparisons"][0]["nodes"].as_array().unwrap();
    let products = nodes.iter().filter(|n| n["op"] == "MUL_MAT_ID");
    assert!(products.clone().count() > 0 && products.clone().all(|n| n["bound"] == 5e-4));
    // Otherwise this test would prove nothing.
    assert!(products.clone().any(|n| n["nmse"].as_f64().unwrap() > 1e-7));
}

/// Latent attention writes two parts into one tensor, one after the other: what a node reads is what the last of
/// both left.
#[test]
fn tensors_written_in_parts_agree_node_by_node() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("latent.gguf");
    synthesize::write(&tiny("deepseek2", DType::F16), 1, &path).unwrap();
    let path = path.to_str().unwrap();
    for precision in ["exact", "fast"] {
        let args = ["--model", path, "--backends", "cpu,hip-virtual:gfx906", "--per-node", "isolated"];
        let (output, result) =
            compare(dir.path(), &[&args[..], &["--predict", "1", "--precision", precision]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        let nodes = result["comparisons"][0]["nodes"].as_array().unwrap();
        assert!(nodes.iter().any(|n| n["node"] == "blk.0.k.second"), "{nodes:?}");
    }
}

/// A graph file with a too long name is rejected, and the longest allowed name is printed.
#[test]
fn names_of_any_length() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("graph.json");
    let case = catalogue::cases().into_iter().find(|c| c.name.starts_with("RELU(")).unwrap();
    let (mut graph, longest) = (case.graph.clone().unwrap(), "ü".repeat(127));
    graph.name(case.node, &longest).unwrap();
    let data = case.leaves().unwrap().into_iter().collect();
    GraphFile { graph, data }.save(&path).unwrap();
    let args = ["--graph", path.to_str().unwrap(), "--backends", "cpu,null"];
    let (output, result) = compare(dir.path(), &args);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(result["comparisons"][0]["nodes"][0]["node"], longest);
    let text = stdout(&output);
    assert!(text.contains("üüü ... üüü") && text.contains("verdict: something differs"), "{text}");
    // A word is not cut: a name that is longer than a line has one of its own.
    let fits = |l: &str| l.chars().count() <= 100 || l.trim() == format!("'{longest}'");
    assert!(text.lines().rev().skip(1).all(fits), "{text}");

    let text = std::fs::read_to_string(&path).unwrap().replace(&longest, &"ü".repeat(100_000));
    std::fs::write(&path, text).unwrap();
    let (output, _) = compare(dir.path(), &args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(!stderr.contains("panicked") && stderr.len() < 1000, "{stderr}");
}

/// An invalid value that only the backend can detect, in the environment or as an option, is wrong use.
#[test]
fn wrong_values_for_a_backend_are_status_2() {
    for (args, variable, named) in [
        (["--backends", "hip"].as_slice(), "sideways", ["DIPTYCH_HIP_STREAM", "sideways"]),
        (
            &["--backends", "vulkan", "--vulkan-arch", "ABACUS"],
            "own",
            ["Vulkan architecture class", "ABACUS"],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new(example("compare"))
            .args(["--predict", "1", "--out"])
            .arg(dir.path())
            .args(args)
            .env("DIPTYCH_HIP_STREAM", variable)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        let error = stderr.lines().find(|l| l.starts_with("error: ")).expect("an error");
        assert!(named.iter().all(|part| error.contains(part)), "{stderr}");
    }
}

/// A closed pipe loses the table, but not the verdict.
#[test]
fn nobody_reads_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(example("compare"))
        .args(["--ops", "RELU", "--backends", "cpu", "--out"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(!stderr.contains("panicked") && !stderr.contains("error"), "{stderr}");
    assert_eq!(result(dir.path())["verdict"]["agree"], true);
}

/// A full disk loses the table, is reported, and loses nothing else.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(example("compare"));
    command.args(["--ops", "RELU", "--backends", "cpu", "--out"]).arg(dir.path()).stdout(full);
    let output = command.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: ") && stderr.contains("No space left on device"), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert_eq!(result(dir.path())["verdict"]["agree"], true);
}

/// Arguments may be any bytes that the system accepts, not only UTF-8.
#[cfg(unix)]
#[test]
fn arguments_need_not_be_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join(OsStr::from_bytes(b"out \xff"));
    let model = dir.path().join(OsStr::from_bytes(b"model \xfe.gguf"));
    synthesize::write(&tiny("qwen3", DType::Q8_0), 1, &model).unwrap();
    let output = Command::new(example("compare"))
        .args(["--predict", "1", "--per-node", "isolated", "--backends", "cpu", "--model"])
        .args([model.as_os_str(), OsStr::new("--out"), out.as_os_str()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let command = result(&out)["command"].as_array().unwrap().clone();
    assert!(command.iter().any(|a| a.as_str().unwrap().ends_with("model \u{fffd}.gguf")), "{command:?}");
}
