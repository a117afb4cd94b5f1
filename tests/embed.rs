//! Text embeddings through the public API.

use crate::common;

use common::{backend, example, file, model, tiny};
use diptych::ggml::metrics::distance;
use diptych::model::{LoadOptions, Offload, Pooling, Want};
use diptych::session::{EmbedOptions, Item};
use diptych::synthesize::{self, Shape};
use diptych::{DType, Error, Model, Precision, Result, Session, SessionOptions};
use std::process::Command;

fn options() -> SessionOptions {
    SessionOptions::default().with_context(24).with_batch(24).with_precision(Precision::Exact)
}

fn bert() -> Shape {
    Shape { heads_kv: 6, ..tiny("bert", DType::F16) }
}

fn session(shape: &Shape, options: &SessionOptions) -> Session {
    model(shape, &backend("cpu").expect("the CPU")).session(options).expect("a session")
}

fn texts() -> Vec<Vec<u32>> {
    [9, 1, 24, 5, 7].iter().map(|&n| (0..n).map(|i| (i * 37 + 5 * n) % 203).collect()).collect()
}

fn close(got: &[f32], want: &[f32], what: &str) {
    let nmse = distance(got, want).nmse;
    assert!(got.len() == want.len() && nmse < 1e-11, "{what}: {nmse:.1e}");
}

fn text_of<T>(result: Result<T>) -> String {
    match result {
        Err(error @ Error::InvalidArgument { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("no error"),
    }
}

/// Texts in one batch do not affect each other, whatever their number; causal models split a long text into
/// several batches.
#[test]
fn texts_of_a_batch_are_alone() {
    let embedding = EmbedOptions::default().with_pooling(Pooling::Mean);
    for shape in [bert(), tiny("qwen3", DType::F16), Shape { layers: 4, ..tiny("granitehybrid", DType::F16) }]
    {
        let mut alone = session(&shape, &options());
        let want: Vec<Vec<f32>> =
            texts().iter().map(|text| alone.embed(&[text], &embedding).unwrap().remove(0)).collect();
        let batch = if shape.architecture == "bert" { 24 } else { 7 };
        for sequences in [2, 3] {
            let options = options().with_sequences(sequences).with_batch(batch);
            let mut session = session(&shape, &options);
            // The second time with prepared programs.
            for _ in 0..2 {
                let got = session.embed(&texts(), &embedding).unwrap();
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    close(got, want, &format!("{}, text {i} of {sequences}", shape.architecture));
                }
            }
            assert_eq!(session.position(), 0);
        }
    }
}

#[test]
fn vectors_are_made_of_hidden_states() {
    for shape in [bert(), tiny("qwen3", DType::F16)] {
        let (mut session, text) = (session(&shape, &options()), &texts()[0]);
        let rows = session.hidden(text, 1).unwrap();
        assert_eq!(rows.len(), 9 * 96);
        let mut with = |pooling, normalised| {
            let embedding =
                EmbedOptions::default().with_layer(1).with_pooling(pooling).with_normalised(normalised);
            session.embed(&[text], &embedding).unwrap().remove(0)
        };
        close(&with(Pooling::First, false), &rows[..96], "first");
        close(&with(Pooling::Last, false), &rows[8 * 96..], "last");
        let length = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>().sqrt();
        let (plain, unit) = (with(Pooling::Mean, false), with(Pooling::Mean, true));
        assert!((length(&unit) - 1.0).abs() < 1e-6);
        let scaled: Vec<f32> = unit.iter().map(|x| x * length(&plain)).collect();
        close(&scaled, &plain, "normalised");
        // Default options: the last layer, and the pooling of the file.
        if shape.architecture == "bert" {
            let (last, rows) = (session.embed(&[text], &EmbedOptions::default()), session.hidden(text, 2));
            let (last, rows) = (last.unwrap().remove(0), rows.unwrap());
            let mean: Vec<f32> = (0..96).map(|i| rows.iter().skip(i).step_by(96).sum()).collect();
            let factor = length(&mean);
            close(&last, &mean.iter().map(|x| x / factor).collect::<Vec<f32>>(), "the file's");
        }
    }
}

/// A decoder's session is unaffected by embeddings.
#[test]
fn logits_and_vectors_come_from_one_session() {
    let (mut session, text) = (session(&tiny("qwen3", DType::F16), &options()), &texts()[0]);
    let want = session.prefill(text).unwrap();
    let embedding = EmbedOptions::default().with_pooling(Pooling::Last).with_layer(1);
    session.embed(&texts(), &embedding).unwrap();
    assert!(session.rows().is_empty() && session.tokens(0).unwrap().is_empty());
    assert_eq!(session.prefill(text).unwrap(), want);
}

#[test]
fn the_split_does_not_matter() {
    let host = backend("cpu").expect("the CPU");
    let embedding = EmbedOptions::default().with_pooling(Pooling::Mean);
    for shape in [bert(), tiny("qwen3", DType::F16)] {
        let want = session(&shape, &options()).embed(&texts(), &embedding).unwrap();
        for offload in [Offload::None, Offload::Layers(1), Offload::Layers(2), Offload::All] {
            let Some(device) = backend("vulkan") else { return };
            let loading = LoadOptions::default().with_offload(offload).with_host(host.clone());
            let loading = loading.with_session(options());
            let model = Model::load_with(file(&shape), device, &loading, &mut |_, _| ()).unwrap();
            assert_eq!(model.fallbacks(), []);
            let got = model.session(&options()).unwrap().embed(&texts(), &embedding).unwrap();
            got.iter().zip(&want).for_each(|(got, want)| close(got, want, &format!("{offload}")));
        }
    }
}

#[test]
fn what_cannot_be_a_vector_is_said() {
    let embedding = EmbedOptions::default().with_pooling(Pooling::Mean);
    for shape in [bert(), tiny("qwen3", DType::F16)] {
        let mut session = session(&shape, &options());
        assert!(text_of(session.embed(&[[1u32; 0]], &embedding)).contains("at least one"));
        assert!(text_of(session.embed(&[[1u32, 203]], &embedding)).contains("203"));
        assert!(text_of(session.embed(&[[1u32; 25]], &embedding)).contains("24"));
        assert!(text_of(session.embed(&[[1u32]], &embedding.clone().with_layer(3))).contains("0 to 2"));
        assert!(
            text_of(session.append(&[Item { sequence: 0, tokens: &[1] }], Want::Hidden(1)))
                .contains("hidden")
        );
        // First no texts at all, then, after the errors, a valid call.
        assert_eq!(session.embed::<Vec<u32>>(&[], &embedding).unwrap(), [[0.0f32; 0]; 0]);
        assert_eq!(session.embed(&[[1u32]], &embedding).unwrap()[0].len(), 96);
    }
    let mut encoder = session(&bert(), &options());
    assert!(text_of(encoder.prefill(&[1, 2])).contains("no output layer"));
    let mut short = session(&bert(), &options().with_batch(8));
    assert!(text_of(short.embed(&[[1u32; 9]], &embedding)).contains("at most 8, the batch size"));
}

#[test]
fn the_program_prints_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bert.gguf");
    let shape = Shape { vocabulary: 300, ..bert() };
    std::fs::write(&path, synthesize::bytes(&shape, 11).unwrap()).unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(example("embed")).arg("--model").arg(&path).args(args).output().unwrap();
        (
            output.status.success(),
            common::stdout(&output),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (done, text, error) = run(&["a text", "--tokens", "1,2,3", "--precision", "exact"]);
    assert!(done, "{error}");
    let lines: Vec<Vec<f32>> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let want = session(&shape, &options()).embed(&[[1u32, 2, 3]], &EmbedOptions::default()).unwrap();
    assert_eq!(lines.len(), 2);
    close(&lines[1], &want[0], "the second text");
    assert!(!error.contains("units on"), "the device computes all of it: {error}");
    let (done, part, error) = run(&["--tokens", "1,2,3", "--precision", "exact", "--offload", "1"]);
    assert!(done && error.contains("1 of 3 units on cpu\ncpu needs"), "what the host computes: {error}");
    close(&serde_json::from_str::<Vec<f32>>(&part).unwrap(), &want[0], "in part");
    let (done, _, error) = run(&["--pooling", "best", "a text"]);
    assert!(!done && error.contains("mean, first or last"), "{error}");
    let (done, _, error) = run(&["--tokens", "1,x"]);
    assert!(!done && error.contains("numbers separated by commas"), "{error}");
}
