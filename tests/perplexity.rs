//! Perplexity of texts: by the library, by its program, and on several backends.

use crate::common;

use common::{backend, compare, example, file, flat, model, record, result, tiny};
use diptych::ggml::gguf::GgufFile;
use diptych::model::ModelFile;
use diptych::perplexity::{PerplexityOptions, Score, chunks, perplexity};
use diptych::synthesize::{self, Shape};
use diptych::{DType, Error, Model, Precision, Result, SessionOptions, npy};
use serde_json::Value;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Output};

const TEXT: &str = "It was the best of times, it was the worst of times, it was the age of <|end|>wisdom, \
                    it was the age of foolishness, it was the epoch of belief.\n";

/// Returns a small model with tokens for all bytes and an output layer of its own.
fn shape() -> Shape {
    Shape { vocabulary: 300, tied: false, ..tiny("llama", DType::F32) }
}

fn options(chunk: usize) -> PerplexityOptions {
    PerplexityOptions::default().with_chunk(chunk)
}

/// Scores a text on the processor, in F32.
fn score(model: &Model, chunk: usize, progress: &mut dyn FnMut(&Score) -> ControlFlow<()>) -> Score {
    let chunks = chunks(model.file(), TEXT.as_bytes(), &options(chunk)).unwrap();
    let exact = SessionOptions::default().with_context(chunk).with_precision(Precision::Exact);
    perplexity(&mut model.session(&exact).unwrap(), &chunks, progress).unwrap()
}

/// Returns the bytes of the model with one value in all of its output layer, and so in all logits if it is 0.
fn with_output(value: f32) -> Vec<u8> {
    let bytes = synthesize::bytes(&shape(), 11).unwrap();
    let gguf = GgufFile::from_bytes(bytes.clone()).unwrap();
    let tensor = gguf.tensors().iter().find(|t| t.name == "output.weight").unwrap();
    let (all, own) = (gguf.part_bytes(0).unwrap(), gguf.data(tensor).unwrap());
    let (at, end) = (own.as_ptr() as usize - all.as_ptr() as usize, own.len());
    let mut bytes = bytes;
    bytes[at..at + end].chunks_exact_mut(4).for_each(|x| x.copy_from_slice(&value.to_le_bytes()));
    bytes
}

/// A model that thinks all tokens equally probable has a perplexity of the size of its vocabulary.
#[test]
fn a_model_that_knows_nothing() {
    let gguf = GgufFile::from_bytes(with_output(0.0)).unwrap();
    let model = Model::from_file(ModelFile::from_gguf(gguf).unwrap(), backend("cpu").unwrap()).unwrap();
    let score = score(&model, 32, &mut |_| ControlFlow::Continue(()));
    assert_eq!((score.chunks, score.tokens), (4, 4 * 15));
    assert!((score.perplexity() - 300.0).abs() < 1e-9 && score.error() < 1e-3, "{score:?}");
}

/// The score of a text is that of its logits, computed here from the definition: every token of the second half
/// of a chunk but its first, and nothing before the chunk.
#[test]
fn a_score_is_that_of_the_logits() {
    let model = model(&shape(), &backend("cpu").unwrap());
    let cut = chunks(model.file(), TEXT.as_bytes(), &options(21)).unwrap();
    // The vocabulary spells bytes; a special token in a text is text.
    let bytes: Vec<u32> = TEXT.trim_end().bytes().map(u32::from).collect();
    assert_eq!(cut, bytes.chunks_exact(21).collect::<Vec<_>>());
    let mut session = model.session(&SessionOptions::default().with_precision(Precision::Exact)).unwrap();
    let mut wanted = Vec::new();
    for chunk in &cut {
        session.reset();
        let logits = session.logits(chunk).unwrap();
        for at in 10..20 {
            let row = logits[at * 300..(at + 1) * 300].iter().map(|&x| f64::from(x));
            let sum: f64 = row.clone().map(f64::exp).sum();
            wanted.push(sum.ln() - row.clone().nth(chunk[at + 1] as usize).unwrap());
        }
    }
    let n = wanted.len() as f64;
    let mean = wanted.iter().sum::<f64>() / n;
    let variance = wanted.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let mut running = Vec::new();
    let score = score(&model, 21, &mut |score| {
        running.push(score.nll());
        ControlFlow::Continue(())
    });
    assert_eq!((score.chunks, score.tokens), (cut.len(), wanted.len()));
    assert!((score.nll() - mean).abs() < 1e-6, "{} {mean}", score.nll());
    assert!((score.error() - mean.exp() * (variance / (n - 1.0)).sqrt()).abs() < 1e-3, "{score:?}");
    let first = wanted[..10].iter().sum::<f64>() / 10.0;
    assert!(running.len() == cut.len() && (running[0] - first).abs() < 1e-6, "{running:?} {first}");
    assert_eq!(self::score(&model, 21, &mut |_| ControlFlow::Break(())).chunks, 1, "stopped");
}

#[test]
fn what_cannot_be_scored_is_said() {
    let said = |outcome: Result<Vec<Vec<u32>>>, words: &str| match outcome {
        Err(error @ Error::InvalidArgument { .. }) => assert!(error.to_string().contains(words), "{error}"),
        other => panic!("{other:?}"),
    };
    let llama = file(&shape());
    let encoder = file(&Shape { heads_kv: 6, vocabulary: 300, ..tiny("bert", DType::F16) });
    said(chunks(&encoder, TEXT.as_bytes(), &options(32)), "bert, which has no output layer");
    said(chunks(&llama, TEXT.as_bytes(), &options(1025)), "at most 1024, the model's context");
    said(chunks(&llama, TEXT.as_bytes(), &options(600)), "at least 600, a chunk");
    said(chunks(&llama, b"", &options(3)), "text: 0 tokens");
    let model = model(&shape(), &backend("cpu").unwrap());
    let mut session = model.session(&SessionOptions::default().with_context(16)).unwrap();
    let mut go_on = |_: &Score| ControlFlow::Continue(());
    let long = vec![vec![1; 400]];
    let error = perplexity(&mut session, &long, &mut go_on).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    assert!(perplexity(&mut session, &[vec![1; 2]], &mut go_on).is_err());
}

/// Writes a model and the text, and returns their paths.
fn files(folder: &Path, model: &[u8]) -> [String; 2] {
    let paths = ["model.gguf", "text.txt"].map(|name| folder.join(name));
    std::fs::write(&paths[0], model).unwrap();
    std::fs::write(&paths[1], TEXT).unwrap();
    paths.map(|path| path.to_str().unwrap().into())
}

#[test]
fn the_program_prints_it() {
    let dir = tempfile::tempdir().unwrap();
    let run = |model: &[u8], args: &[&str]| -> Output {
        let [model, text] = files(dir.path(), model);
        let mut command = Command::new(example("perplexity"));
        command.args(["--model", &model, "--text", &text]).args(args).output().unwrap()
    };
    let output = run(&with_output(0.0), &["--chunk", "32", "--chunks", "2"]);
    let text = flat(&output);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text.starts_with("chunk 1 of 2: perplexity 300.0000 +- 0.0000 chunk 2 of 2: "), "{text}");
    assert!(text.contains("perplexity 300.0000 +- 0.0000, 30 tokens in 2 chunks of 32 of "), "{text}");
    let output = run(&with_output(0.0), &["--chunk", "32", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["score"]["tokens"], json["running"].as_array().unwrap().len()), (&60.into(), 4));
    let output = run(&with_output(f32::NAN), &["--chunk", "32"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("error: cpu: chunk 1 has no perplexity"), "{error}");
    let output = run(&with_output(0.0), &[]);
    assert_eq!(output.status.code(), Some(2), "512 tokens are more than the text has");
}

/// Runs `compare` on a model and the text.
fn compared(dir: &Path, model: &[u8], backend: &str) -> (Output, Value) {
    let [model, text] = files(dir, model);
    let args = ["--model", &model, "--text", &text, "--chunk", "32", "--chunks", "3", "--predict", "2"];
    compare(dir, &[&args[..], &["--repeat", "2", "--backends", backend]].concat())
}

fn findings(result: &Value) -> String {
    result["verdict"]["findings"].to_string()
}

#[test]
fn a_text_is_scored_on_every_backend() {
    let dir = tempfile::tempdir().unwrap();
    let (output, found) = compared(dir.path(), &synthesize::bytes(&shape(), 11).unwrap(), "cpu");
    let table = flat(&output);
    assert_eq!(output.status.code(), Some(0), "{table}");
    assert!(table.contains("text.txt: the second halves of its first 3 chunks of 32 tokens"), "{table}");
    let number = |name: &str, what: &str| record(&found, name)["score"][what].as_f64().unwrap();
    let of = |name: &str| (number(name, "perplexity"), number(name, "error"), number(name, "tokens"));
    let ((own, error, tokens), (wanted, ..)) = (of("cpu"), of("reference"));
    assert!(tokens == 45.0 && error > 0.0 && (own / wanted - 1.0).abs() < 0.01, "{own} {wanted}");
    assert!(table.contains(&format!("cpu {own:.4} {error:.4}")), "{table}");
    let text = &found["comparisons"][0]["text"];
    let (mean, most) = (text["logits"]["kl"].as_f64().unwrap(), text["kl_max"].as_f64().unwrap());
    assert!(mean > 0.0 && most >= mean && most < 0.01, "{text}");
    assert_eq!((&text["logits"]["positions"], &text["reference"]["tokens"]), (&45.into(), &45.into()));

    // Another result of the last chunk, of which the prompt says nothing.
    let path = dir.path().join("cpu.text.2.npy");
    let (rows, columns, mut logits) = npy::read(&path).unwrap();
    logits.rotate_right(1);
    npy::write(&path, rows, columns, &logits).unwrap();
    let output = Command::new(example("compare")).arg("report").arg(dir.path()).output().unwrap();
    let findings = findings(&result(dir.path()));
    assert_eq!(output.status.code(), Some(1), "{findings}");
    assert!(findings.contains("cpu differs from reference: the logits of the text have NMSE"), "{findings}");
    assert!(findings.contains("; the perplexity of the text is "), "{findings}");
}

/// A backend that computes nothing, and a model whose logits are NaN on every backend.
#[test]
fn a_text_without_a_perplexity_is_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let (output, found) = compared(dir.path(), &synthesize::bytes(&shape(), 11).unwrap(), "null");
    assert_eq!(output.status.code(), Some(1), "{found}");
    let words = findings(&found);
    assert!(
        words.contains("null differs") && words.contains("the perplexity of the text is 300.0000"),
        "{words}"
    );

    let (output, found) = compared(dir.path(), &with_output(f32::NAN), "cpu");
    assert_eq!(output.status.code(), Some(1), "{found}");
    for name in ["reference", "cpu"] {
        let words = findings(&found);
        assert!(words.contains(&format!("{name}: the text has no perplexity")), "{words}");
    }

    // Without a text the reference's logits are judged themselves: what is NaN on both sides is no agreement.
    let [model, _] = files(dir.path(), &with_output(f32::NAN));
    let (output, found) = compare(dir.path(), &["--model", &model, "--predict", "1", "--backends", "cpu"]);
    assert_eq!(output.status.code(), Some(1), "{found}");
    let words = "reference: 9600 of its own logits are NaN or infinite, from node 'logits' (MUL_MAT) on: nothing can \
                 agree with them";
    assert_eq!(found["verdict"]["findings"], serde_json::json!([words]));

    let [model, text] = files(dir.path(), &with_output(0.0));
    for args in [["--model", &model, "--chunk", "600"], ["--ops", "RELU", "--chunk", "32"]] {
        let (output, _) = compare(dir.path(), &[&args[..], &["--text", &text]].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
    }
}
