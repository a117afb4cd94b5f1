//! Notes of `compare` and `inspect` beside a result: parts of a file that are left out, estimates that are missing.

use crate::common;

use common::{compare, example, flat, result, stdout};
use diptych::ggml::catalogue;
use diptych::ggml::gguf::{Array, GgufFile, GgufWriter, TensorData};
use diptych::ggml::graph::file::GraphFile;
use diptych::synthesize::Shape;
use diptych::{DType, synthesize};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Writes a small model whose file also has a tower for images and arrays of text.
fn with_tower(path: &Path) {
    let shape = Shape { layers: 1, ..Shape::small("llama") };
    let file = GgufFile::from_bytes(synthesize::bytes(&shape, 1).unwrap()).unwrap();
    let mut writer = GgufWriter::new();
    writer.set_all(file.metadata()).unwrap();
    writer.set("general.languages", Array::texts(["en", "de"])).unwrap();
    for t in file.tensors() {
        let data = TensorData::from(file.data(t).unwrap().to_vec());
        writer.tensor(t.name.clone(), t.dtype, t.shape(), data).unwrap();
    }
    writer.tensor("v.patch_embd.weight", DType::F32, &[8], TensorData::from(vec![0u8; 32])).unwrap();
    writer.write_to(path).unwrap();
}

/// `compare` and the plans of `inspect` say once what is left out of a file, as other programs do; `inspect` shows
/// the beginning of arrays.
#[test]
fn what_is_left_out_is_said_and_arrays_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    with_tower(&path);
    let inspect = |args: &[&str]| Command::new(example("inspect")).arg(&path).args(args).output().unwrap();
    let text = stdout(&inspect(&[]));
    assert!(text.contains("general.languages = [str; 2] \"en\", \"de\"\n"), "{text}");
    let tokens = text.lines().find(|line| line.starts_with("tokenizer.ggml.tokens = ")).unwrap();
    assert!(
        tokens.contains("] \"") && tokens.ends_with("\", ...") && tokens.matches(", ").count() == 8,
        "{tokens}"
    );
    let left_out = "left out: an encoder of images: 1 tensor, first 'v.patch_embd.weight'";
    let plan = inspect(&["--plan", "cpu", "--prompt-tokens", "2"]);
    assert_eq!(String::from_utf8_lossy(&plan.stderr), format!("{left_out}\n"));
    let args = ["--model", path.to_str().unwrap(), "--predict", "1", "--backends", "cpu"];
    let (output, result) = compare(&dir.path().join("out"), &args);
    assert_eq!(flat(&output).matches("an encoder of images").count(), 1, "{}", stdout(&output));
    assert!(flat(&output).contains(left_out) && result["left_out"].as_array().unwrap().len() == 1);
}

/// If the child that estimates rounding is stopped, results in doubt say so.
#[test]
fn an_estimate_that_was_stopped_gives_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (path, out) = (dir.path().join("graph.json"), dir.path().join("out"));
    let case = catalogue::cases().into_iter().find(|c| c.name.starts_with("MUL_MAT(F32")).unwrap();
    let mut graph = case.graph.clone().unwrap();
    graph.output(case.node).unwrap();
    let data = case.leaves().unwrap().into_iter().collect();
    GraphFile { graph, data }.save(&path).unwrap();
    let args = ["--graph", path.to_str().unwrap(), "--backends", "null", "--per-node", "isolated"];
    let (_, found) = compare(&out, &args);
    let node = |found: &Value| found["comparisons"][0]["nodes"][0].clone();
    assert!(node(&found)["rounding"].is_f64() && node(&found)["message"].is_null(), "{found}");
    // The child began, and neither it nor its parent came to an end.
    std::fs::remove_file(out.join("rounding.nodes")).unwrap();
    let edit = |name: &str, keep: fn(&&str) -> bool| {
        let text = std::fs::read_to_string(out.join(name)).unwrap();
        let lines: String = text.lines().filter(keep).map(|line| format!("{line}\n")).collect();
        std::fs::write(out.join(name), lines).unwrap();
    };
    edit("rounding.events.jsonl", |line| line.contains("began"));
    edit("run.events.jsonl", |line| !(line.contains("ended") && line.contains("rounding")));
    let output = Command::new(example("compare")).arg("report").arg(&out).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = "whether this is rounding was not estimated: reference: ";
    let found = self::result(&out);
    assert!(node(&found)["message"].as_str().is_some_and(|text| text.starts_with(words)), "{found}");
    assert!(found["verdict"]["findings"][0].as_str().unwrap().contains(words), "{found}");
}
