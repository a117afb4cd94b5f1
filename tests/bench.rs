//! Measurements: what is measured matches the options. Speed is not tested here.

use crate::common;

use common::{backends, model, tiny, tiny_predicting};
use diptych::bench::{
    BenchOptions, Breakdown, StepTotal, bench, bench_drafts, bench_parallel, copy_bandwidth, profile,
};
use diptych::session::Want;
use diptych::synthesize::{Drafts, Shape};
use diptych::{DType, Error, Precision, SessionOptions};
use std::time::Duration;

#[test]
fn every_run_is_measured() {
    for (name, backend) in backends() {
        let model = model(&tiny("qwen2", DType::F16), &backend);
        let options = BenchOptions::default()
            .with_prompt_tokens(9)
            .with_predict(3)
            .with_repeat(2)
            .with_warm_up(Duration::ZERO);
        let mut runs = Vec::new();
        let measured = bench(&model, &options, &mut |run, seconds| {
            assert!(seconds > 0.0);
            runs.push(run.to_string());
        });
        let measured = measured.expect("a measurement");
        assert_eq!(runs, ["pp9", "pp9", "tg3", "tg3"], "{name}");
        let names: Vec<(&str, usize)> = measured.iter().map(|m| (m.name.as_str(), m.tokens)).collect();
        assert_eq!(names, [("pp9", 9), ("tg3", 3)]);
        assert!(measured.iter().all(|m| m.samples.len() == 2 && m.mean > 0.0 && m.sd >= 0.0));
        let only = options.clone().with_prompt_tokens(0);
        assert_eq!(bench(&model, &only, &mut |_, _| ()).expect("a measurement").len(), 1);
        let deep = bench(&model, &options.with_depth(20), &mut |_, _| ()).expect("a measurement");
        assert_eq!([deep[0].name.as_str(), deep[1].name.as_str()], ["pp9@20", "tg3@20"]);
    }
}

/// Times of an emulated card are labelled, those of a processor are not.
#[test]
#[cfg(feature = "virtual")]
fn times_of_an_emulated_card_are_labelled() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    diptych::synthesize::write(&tiny("llama", DType::F16), 1, &path).unwrap();
    for name in ["cpu", "hip-virtual:gfx906"] {
        let Some(_) = common::backend(name) else { continue };
        let run = |args: &[&str]| {
            let mut command = std::process::Command::new(common::example("bench"));
            command.args(["--backend", name, "--prompt-tokens", "2", "--predict", "1", "--repeat", "1"]);
            let output =
                command.args(["--warm-up", "0"]).args(args).arg("--model").arg(&path).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            common::stdout(&output)
        };
        let emulated = name != "cpu";
        let text = run(&[]);
        assert_eq!(text.contains("the card is emulated: these times are"), emulated, "{text}");
        let json: serde_json::Value = serde_json::from_str(&run(&["--json"])).unwrap();
        assert_eq!(json["emulated"], emulated, "{json}");
    }
}

/// Recurrent state goes back to the depth, with a checkpoint or without.
#[test]
fn recurrent_models_are_measured_at_a_depth() {
    let backend = common::backend("cpu").expect("the CPU");
    let model = model(&tiny("qwen35", DType::F16), &backend);
    let options = BenchOptions::default()
        .with_prompt_tokens(3)
        .with_predict(2)
        .with_depth(5)
        .with_repeat(2)
        .with_warm_up(Duration::from_millis(50));
    for memory in [1 << 20, 0] {
        let session = options.session.clone().with_checkpoint_memory(memory);
        let options = options.clone().with_session(session);
        assert_eq!(bench(&model, &options, &mut |_, _| ()).expect("a measurement").len(), 2);
    }
}

/// Drafts of the model itself are accepted; several sequences make as many tokens more.
#[test]
fn drafts_and_several_sequences_are_measured() {
    let backend = common::backend("cpu").expect("the CPU");
    let model = model(&Shape { vocabulary: 300, ..tiny("qwen35", DType::F16) }, &backend);
    let session = SessionOptions::default().with_precision(Precision::Exact);
    let options = BenchOptions::default()
        .with_predict(40)
        .with_depth(5)
        .with_repeat(2)
        .with_warm_up(Duration::ZERO)
        .with_session(session);
    let drafted = bench_drafts(&model, Some(&model), 4, &options, &mut |_, _| ()).expect("a measurement");
    assert_eq!((drafted.speed.name.as_str(), drafted.speed.samples.len()), ("tg40@5 drafts", 2));
    assert!(drafted.drafts > 20 && drafted.share() > 0.9 && drafted.tokens_of_a_step() > 1.2, "{drafted:?}");
    assert!(bench_drafts(&model, None, 4, &options, &mut |_, _| ()).is_err(), "there is no predictor");
    let shape = Shape { vocabulary: 300, ..tiny_predicting(Drafts::Agreeing(0.01)) };
    let of_file = common::model(&shape, &backend);
    let drafted = bench_drafts(&of_file, None, 4, &options, &mut |_, _| ()).expect("a measurement");
    assert!(drafted.drafts > 10 && drafted.share() > 0.3, "{drafted:?}");
    let together = bench_parallel(&model, 3, &options, &mut |_, _| ()).expect("a measurement");
    assert_eq!((together.name.as_str(), together.tokens), ("tg40@5 x3", 120));
    assert!(bench_parallel(&model, 0, &options, &mut |_, _| ()).is_err());
}

#[test]
fn what_cannot_be_measured_is_an_error() {
    let backend = common::backend("cpu").expect("the CPU");
    let model = model(&tiny("llama", DType::F16), &backend);
    let wrong = [
        BenchOptions::default().with_repeat(0),
        BenchOptions::default().with_prompt_tokens(0).with_predict(0),
        BenchOptions::default().with_prompt_tokens(4096),
        BenchOptions::default().with_depth(4096),
    ];
    for options in wrong {
        match bench(&model, &options, &mut |_, _| ()) {
            Err(Error::InvalidArgument { .. }) => {}
            other => panic!("{options:?}: {other:?}"),
        }
    }
}

/// Every node is in at least one step, every layer has a share, and a profile does not change the session.
#[test]
fn steps_are_measured() {
    for (name, backend) in backends() {
        let model = model(&tiny("llama", DType::Q8_0), &backend);
        let options = BenchOptions::default()
            .with_prompt_tokens(5)
            .with_predict(1)
            .with_repeat(2)
            .with_depth(3)
            .with_warm_up(Duration::ZERO);
        let profiles = profile(&model, &options).expect("profiles");
        assert_eq!(profiles.iter().map(|p| p.tokens).collect::<Vec<_>>(), [5, 1], "{name}");
        for profile in profiles {
            assert!(
                profile.whole > 0.0 && profile.steps.iter().all(|s| s.seconds >= 0.0 && s.bytes > 0.0),
                "{name}"
            );
            let breakdown = Breakdown::new(profile, Some(1e9));
            let layers: Vec<&str> = breakdown.layers.iter().map(|share| share.name.as_str()).collect();
            assert_eq!(layers.first(), Some(&"embedding"), "{name}");
            assert_eq!(layers.last(), Some(&"output"), "{name}");
            assert_eq!(layers.len(), model.hparams().layers + 2, "{name}");
            let seconds = |shares: &[StepTotal]| shares.iter().map(|share| share.seconds).sum::<f64>();
            let all = seconds(&breakdown.layers);
            assert!((seconds(&breakdown.operations) - all).abs() <= 1e-9 * all.max(1e-9), "{name}");
            let trace = breakdown.trace(name);
            assert_eq!(trace.len(), 1 + breakdown.profile.steps.len());
            let ends = trace.last().map(|e| e["ts"].as_f64().unwrap() + e["dur"].as_f64().unwrap());
            assert!((ends.unwrap() - 1e6 * all).abs() <= 1e-3 * (1.0 + 1e6 * all), "{name}");
        }
        let mut session = model.session(&SessionOptions::default()).expect("a session");
        session.prefill(&[1, 2]).expect("logits");
        let logits = session.decode(3).expect("logits");
        session.profile(&[4, 5], Want::Logits, 1).expect("a profile");
        assert_eq!(session.position(), 3);
        session.truncate(0, 2).expect("a shorter sequence");
        assert_eq!(session.decode(3).expect("logits"), logits, "{name}");
        assert!(session.profile(&[4], Want::Logits, 0).is_err());
        assert!(session.profile(&[], Want::Logits, 1).is_err());
    }
}

#[test]
fn copies_have_a_rate() {
    for (name, backend) in backends() {
        let free = backend.free_memory();
        let rate = copy_bandwidth(backend.as_ref()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let right = rate.is_some_and(|rate| rate > 1e6 && rate.is_finite());
        assert!(right, "{name}: {rate:?} bytes a second with {free:?} bytes free");
    }
}

/// A fast copy is measured with more bytes than one operand of a kernel may have.
#[test]
#[cfg(feature = "vulkan")]
fn large_copies_are_divided() {
    let options = backend_vulkan::VulkanOptions { max_binding: Some(4 << 20), ..Default::default() };
    let Ok(backend) = backend_vulkan::VulkanBackend::open(options) else {
        return eprintln!("skipped: no Vulkan");
    };
    assert_eq!(ggml_core::backend::Backend::device(&backend).limits.max_binding, 4 << 20);
    assert!(copy_bandwidth(&backend).expect("a measurement").is_some());
}
