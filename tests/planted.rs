//! A single wrong value computed by a kernel of an emulated card is found, named, and saved to a file.

use crate::common;

use common::{example, result, stdout, tiny};
use diptych::synthesize::{self, Shape};
use diptych::{DType, OpenOptions};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const CARD: &str = "hip-virtual:gfx906";

/// Returns true if the build had a compiler for the card's kernels.
fn has_card() -> bool {
    match diptych::open(CARD, &OpenOptions::default()) {
        Ok(_) => true,
        Err(error) => {
            assert!(matches!(error, diptych::Error::Unavailable { .. }), "{error}");
            eprintln!("skipped: {error}");
            false
        }
    }
}

/// Runs `compare` on the card with wrong results planted in some kernels.
fn compare(out: &Path, fault: &str, args: &[&str]) -> (Output, Value) {
    let mut command = Command::new(example("compare"));
    if !args.contains(&"--per-node") {
        command.args(["--per-node", "off"]);
    }
    command.args(args).args(["--backends", CARD, "--out"]).arg(out);
    let output = command.env("DIPTYCH_VIRTUAL_FAULTS", fault).output().expect("compare runs");
    (output, result(out))
}

/// Returns the only finding of a failed comparison.
fn finding(output: &Output, result: &Value) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", stdout(output));
    let findings = result["verdict"]["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings[0].as_str().unwrap().into()
}

/// Checks that a report from the folder repeats the original verdict.
fn recall(dir: &Path, found: &Value) {
    let output = Command::new(example("compare")).arg("report").arg(dir).output().expect("compare runs");
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let again = result(dir);
    assert_eq!((&again["verdict"], &again["comparisons"]), (&found["verdict"], &found["comparisons"]));
}

/// Writes a model with one quantised product: the output layer, with 2,050 rows.
fn model(folder: &Path) -> String {
    let shape = Shape { vocabulary: 2050, tied: false, ..tiny("llama", DType::F16) };
    let path = folder.join("model.gguf");
    synthesize::write(&Shape { embedding_type: DType::Q8_0, ..shape }, 3, &path).unwrap();
    path.to_str().unwrap().into()
}

/// Returns the names of the nodes that exceed their bounds.
fn out_of_bounds(result: &Value) -> Vec<&str> {
    let over = |n: &Value, error: &str, bound: &str| n[error].as_f64() > n[bound].as_f64();
    let nodes = result["comparisons"][0]["nodes"].as_array().unwrap().iter();
    let out = nodes.filter(|n| over(n, "nmse", "bound") || over(n, "row", "row_bound"));
    let mut names: Vec<&str> = out.map(|n| n["node"].as_str().unwrap()).collect();
    names.dedup();
    names
}

/// An error of a thousandth of the scale, or of half of that, in one row of 2,050. With activations rounded to 8 bits, each row
/// has an error four times as large, so the planted error must be larger.
#[test]
fn operation_tests_find_a_wrong_row() {
    if !has_card() {
        return;
    }
    for (case, precision, size) in [
        ("MUL_MAT(F16, k=1288, m=2050, n=1)", "fast", "1e-3"),
        ("MUL_MAT(Q8_0, k=1312, m=2050, n=1)", "exact", "5e-4"),
        ("MUL_MAT(Q8_0, k=1312, m=2050, n=1)", "fast", "0.1"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let args = ["--ops", case, "--precision", precision];
        let (output, result) = compare(dir.path(), &format!("wrong={size}@mat_vec:1234"), &args);
        let text = finding(&output, &result);
        assert!(
            text.contains(&format!("{case}: an error of ")) && text.contains(" in its worst row"),
            "{text}"
        );
        let (output, _) = compare(dir.path(), "", &args);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    }
}

/// Hidden states that are wrong, of a model without an output layer.
#[test]
fn wrong_hidden_states_are_a_finding() {
    if !has_card() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    synthesize::write(&Shape { heads_kv: 6, ..tiny("bert", DType::F16) }, 1, &path).unwrap();
    let args = ["--model", path.to_str().unwrap(), "--precision", "exact"];
    let (output, found) = compare(dir.path(), "wrong=0.1@norm:5", &args);
    let text = finding(&output, &found);
    assert!(text.contains("the hidden states of the prompt have NMSE"), "{text}");
    assert!(!text.contains("best token"), "{text}");
}

/// An error in the single-column kernel: a prompt of one token uses it; with a longer prompt only the steps
/// after it do.
#[test]
fn a_model_finds_a_wrong_row() {
    if !has_card() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path());
    let tokens: Vec<String> = (1..=20).map(|token| token.to_string()).collect();
    for (tokens, step) in [("7".to_string(), false), (tokens.join(","), true)] {
        let args = ["--model", &model, "--tokens", &tokens, "--predict", "3", "--precision", "exact"];
        let fault = "wrong=1e-3@mat_vec_q8_0:1234";
        let (output, found) = compare(dir.path(), fault, &args);
        let text = finding(&output, &found);
        let of = if step {
            "the logits of the steps after the prompt have"
        } else {
            "the logits of the prompt have"
        };
        assert!(text.contains(of) && text.contains("worst row"), "{text}");
        assert!(
            text.contains("the best token is the same at 100% of the positions, KL divergence"),
            "{text}"
        );

        let isolated = [&args[..], &["--per-node", "isolated"]].concat();
        let (output, found) = compare(dir.path(), fault, &isolated);
        let text = finding(&output, &found);
        assert_eq!(out_of_bounds(&found), ["logits"], "{text}");
        assert!(text.contains("node 'logits' (MUL_MAT)") && !text.contains("(and "), "{text}");
        let divergence = &found["comparisons"][0]["first_divergence"];
        assert_eq!(divergence["step"].as_bool().unwrap_or(false), step, "{divergence} {text}");
        rerun(dir.path(), divergence, fault);
        recall(dir.path(), &found);

        let (output, _) = compare(dir.path(), "", &isolated);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    }
}

/// Checks that the graph file of a failing node fails by itself, is small, and agrees without the fault.
fn rerun(dir: &Path, divergence: &Value, fault: &str) {
    let file = divergence["file"].as_str().expect("a file");
    let command = divergence["rerun"].as_str().expect("a command");
    let args: Vec<&str> = command.split(' ').skip(1).collect();
    assert_eq!(&args[..2], ["--graph", file]);
    let out = dir.join("again");
    let run = |fault: &str| {
        let mut command = Command::new(example("compare"));
        command.args(&args).arg("--out").arg(&out).env("DIPTYCH_VIRTUAL_FAULTS", fault);
        command.output().expect("compare runs")
    };
    let output = run(fault);
    assert!(finding(&output, &result(&out)).contains(divergence["node"].as_str().unwrap()));
    assert_eq!(run("").status.code(), Some(0));
    let bytes = std::fs::metadata(Path::new(file).with_extension("bin")).unwrap().len();
    assert!(bytes < 1000, "{bytes} bytes of operands");
}

/// With a kernel used only by a group, the group is named, and its members are reported as correct by
/// themselves. With a kernel used in groups and separately, the member is named.
#[test]
fn members_of_groups_are_named() {
    if !has_card() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let shape = Shape { layers: 1, feed_forward_type: DType::Q4_0, ..tiny("llama", DType::F16) };
    synthesize::write(&shape, 3, &path).unwrap();
    let model = path.to_str().unwrap();
    let args = ["--model", model, "--predict", "2", "--precision", "exact", "--per-node", "isolated"];
    let (output, found) = compare(dir.path(), "wrong=1e-2@mat_vec_q4_0:5", &args);
    let text = finding(&output, &found);
    assert_eq!(found["comparisons"][0]["first_divergence"]["node"], "blk.0.ffn_gate", "{text}");
    let names = ["blk.0.ffn_gate", "blk.0.ffn_up", "blk.0.ffn_down", "blk.0.ffn_glu", "blk.0.residual"];
    let nodes = out_of_bounds(&found);
    assert!(nodes.iter().all(|n| names.contains(n)) && nodes.len() > 2, "{nodes:?}");
    rerun(dir.path(), &found["comparisons"][0]["first_divergence"], "wrong=1e-2@mat_vec_q4_0:5");

    let shape = Shape::small("qwen35").with_type(DType::F16);
    synthesize::write(&shape, 3, &path).unwrap();
    let (output, found) = compare(dir.path(), "wrong=1e-2@norm_gated:5", &args);
    let text = finding(&output, &found);
    assert!(text.contains("computed in a group") && text.contains("its members agree"), "{text}");
}

/// A kernel used only in fast precision: exact precision agrees, yet the error is not rounding.
#[test]
fn an_error_of_fast_kernels_is_told_from_rounding() {
    if !has_card() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path());
    let args = ["--model", &model, "--predict", "3"];
    let (output, found) = compare(dir.path(), "wrong=20@mat_vec_rounding_q8_0:1234", &args);
    let text = finding(&output, &found);
    for words in [
        "not rounding: in exact precision it agrees",
        "in fast node 'logits' (MUL_MAT)",
        "a kernel that only fast has",
    ] {
        assert!(text.contains(words), "{text}");
    }
    recall(dir.path(), &found);
    let (output, found) = compare(dir.path(), "wrong=20@_q8_0:1234", &args);
    let text = finding(&output, &found);
    assert!(text.contains("not rounding: in exact precision the logits of the "), "{text}");
    let args = ["--model", &model, "--predict", "3", "--precision", "exact"];
    let (output, found) = compare(dir.path(), "wrong=20@mat_vec:1234", &args);
    let text = finding(&output, &found);
    assert!(
        text.contains("not rounding: in exact precision node 'blk.0.attn_q' (MUL_MAT) of a decode step"),
        "{text}"
    );
}

/// A fault in the single-column kernel makes its logits differ from those of the many-column kernel.
#[test]
fn ways_that_change_the_logits_are_named() {
    if !has_card() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path());
    let args = ["--model", &model, "--predict", "1", "--precision", "exact", "--invariance"];
    let (output, found) = compare(dir.path(), "wrong=1e-3@mat_vec_q8_0:1234", &args);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let findings: Vec<&str> =
        found["verdict"]["findings"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    let changed = |way: &str| findings.iter().any(|f| f.contains(&format!("the logits change with {way}")));
    assert!(changed("one token at a time") && !changed("memory elsewhere"), "{findings:?}");
}
