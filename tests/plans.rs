//! Upper limits on the dispatches and barriers of a layer in a decode step, for every driver. An increase
//! costs time for every token.

mod common;

use common::{backend, file};
use diptych::ggml::backend::Backend;
use diptych::model::{BatchShape, Outline, OutlineUnit, Predictor, Want};
use diptych::synthesize::Shape;
use diptych::{DType, Precision};
use std::sync::Arc;

/// Architecture, maximum dispatches and maximum barriers of a layer.
const LIMITS: [(&str, usize, usize); 20] = [
    ("llama", 6, 6),
    ("qwen2", 6, 6),
    ("phi3", 6, 6),
    ("qwen3", 6, 6),
    ("gemma3", 8, 8),
    ("gpt-oss", 7, 7),
    ("qwen3moe", 7, 7),
    ("qwen35", 11, 7),
    ("mistral3", 8, 7),
    ("lfm2", 8, 7),
    ("olmo2", 10, 9),
    ("gemma4", 14, 14),
    ("glm4moe", 9, 8),
    ("qwen35moe", 17, 9),
    ("llama4", 18, 12),
    ("qwen3next", 20, 11),
    ("deepseek2", 22, 13),
    ("granitehybrid", 17, 13),
    ("nemotron_h_moe", 10, 7),
    ("lfm2moe", 9, 8),
];

/// Returns the available drivers among those that run without a card.
fn drivers() -> Vec<(&'static str, Arc<dyn Backend>)> {
    let drivers = ["vulkan", "vulkan-virtual:vega20", "hip-virtual:gfx906"];
    drivers.into_iter().filter_map(|name| Some((name, backend(name)?))).collect()
}

/// Returns the shape of a decode step that gives the best token.
fn step() -> BatchShape {
    BatchShape {
        tokens: 1,
        kv: 256,
        context: 256,
        sequences: 1,
        outputs: 1,
        cache: DType::F16,
        want: Want::Best(1),
        drafts: false,
        predictor: Predictor::Unused,
    }
}

/// Returns the plan of a small model's decode step.
fn decode(architecture: &str, backend: &dyn Backend, precision: Precision) -> Outline {
    file(&Shape::small(architecture)).outline(backend, &step(), precision).unwrap()
}

fn most(outline: &Outline, of: impl Fn(&OutlineUnit) -> usize) -> usize {
    let layers = outline.units.iter().filter(|unit| unit.name.starts_with("layer"));
    layers.map(of).max().unwrap()
}

/// The best token, its logit, and the check that all logits are finite: one dispatch after the logits.
#[test]
fn the_best_token_is_one_dispatch() {
    for (name, backend) in drivers() {
        for vocabulary in [203, 2100, 5003] {
            let shape = Shape { vocabulary, ..Shape::small("llama") };
            let outline = file(&shape).outline(backend.as_ref(), &step(), Precision::Fast).unwrap();
            let output = outline.units.iter().find(|unit| unit.name == "output").unwrap();
            let found: Vec<_> = output.steps.iter().map(|s| (s.kind, s.dispatches, s.barriers)).collect();
            let [.., last] = found[..] else { panic!("{name}: nothing\n{outline}") };
            assert_eq!(last, ("best", 1, 1), "{name}\n{outline}");
            let alone = ["TOP_K", "GET_ROWS", "MUL_MAT", "CPY"];
            assert!(found.iter().all(|(kind, ..)| !alone.contains(kind)), "{name}\n{outline}");
        }
    }
}

#[test]
fn layers_decode_in_few_dispatches() {
    let mut wrong = Vec::new();
    for (name, backend) in drivers() {
        for (architecture, dispatches, barriers) in LIMITS {
            for precision in [Precision::Exact, Precision::Fast] {
                let outline = decode(architecture, backend.as_ref(), precision);
                let found = (most(&outline, OutlineUnit::dispatches), most(&outline, OutlineUnit::barriers));
                if found.0 > dispatches || found.1 > barriers {
                    let precision = precision.name();
                    wrong.push(format!("{architecture} on {name}, {precision}: {found:?}\n{outline}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
