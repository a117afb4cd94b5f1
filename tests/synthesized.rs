//! Synthetic models as deep as real ones are well conditioned: rounding of activations stays small in the
//! logits. Otherwise a comparison of two drivers would be meaningless.

use crate::common;

use common::{backend, file};
use diptych::ggml::metrics::distance;
use diptych::model::Experts;
use diptych::synthesize::Shape;
use diptych::{DType, Model, Precision, SessionOptions};

/// One architecture for each kind of layer, with and without norms after layers.
const KINDS: [&str; 9] = [
    "llama",
    "gemma3",
    "gemma4",
    "qwen3moe",
    "qwen35moe",
    "deepseek2",
    "lfm2moe",
    "granitehybrid",
    "nemotron_h_moe",
];

/// Returns a narrow shape as deep as a model of one to four billion weights, with many experts if it has
/// experts. These are narrow: their number, depth and norms decide what becomes of rounding, and drawing their weights
/// takes most of the time.
fn deep(architecture: &str) -> Shape {
    const LAYERS: usize = 26;
    let small = Shape::small(architecture).with_type(DType::Q8_0);
    let cycle = |some: &[bool]| some.iter().copied().cycle().take(LAYERS).collect();
    let recurrent = small.recurrent.clone().map(|mut r| {
        r.layers = cycle(&r.layers);
        r
    });
    let experts = small.experts.map(|experts| Experts { count: 32, used: 4, feed_forward: 64, ..experts });
    Shape {
        layers: LAYERS,
        vocabulary: 512,
        feeding: if small.feeding.is_empty() { Vec::new() } else { cycle(&[false, true, false, false]) },
        convolved: if small.convolved.is_empty() { Vec::new() } else { cycle(&[true, true, false]) },
        recurrent,
        experts,
        ..small
    }
}

#[test]
fn deep_models_make_little_of_rounding() {
    let tokens: Vec<u32> = (0..16).map(|i| i * 37 % 512).collect();
    let backend = backend("cpu").expect("always there");
    let mut wrong = Vec::new();
    for architecture in KINDS {
        let shape = deep(architecture);
        let model = Model::from_file(file(&shape), backend.clone()).expect("a model that loads");
        let logits = |precision| {
            let options = SessionOptions::default().with_context(64).with_precision(precision);
            model.session(&options).unwrap().logits(&tokens).unwrap()
        };
        let nmse = distance(&logits(Precision::Fast), &logits(Precision::Exact)).nmse;
        eprintln!("{architecture}: {nmse:.1e}");
        // A different expert is chosen occasionally.
        if nmse > if shape.experts.is_some() { 2e-2 } else { 1e-3 } {
            wrong.push(format!("{architecture}: {nmse:.1e}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
