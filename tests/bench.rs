//! Measurements: what is measured is what was asked for. Nothing here is about how fast it is.

mod common;

use common::{backends, model, tiny};
use diptych::bench::{BenchOptions, bench};
use diptych::{DType, Error};

#[test]
fn every_run_is_measured() {
    for (name, backend) in backends() {
        let model = model(&tiny("qwen2", DType::F16), &backend);
        let options = BenchOptions::default().with_prompt_tokens(9).with_predict(3).with_repeat(2);
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

/// State that cannot go back is made again.
#[test]
fn recurrent_models_are_measured_at_a_depth() {
    let backend = common::backend("cpu").expect("the CPU");
    let model = model(&tiny("qwen35", DType::F16), &backend);
    let options = BenchOptions::default().with_prompt_tokens(3).with_predict(2).with_depth(5).with_repeat(2);
    assert_eq!(bench(&model, &options, &mut |_, _| ()).expect("a measurement").len(), 2);
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
