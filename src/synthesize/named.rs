//! Shapes of known models, and of a small model of each architecture.

use super::{ARCHITECTURES, ENCODERS, Shape, recurrent};
use crate::model::{Experts, Gating, Latent, Recurrent};
use ggml_core::DType;

/// Known models: name; architecture; layers, embedding, feed-forward, heads, KV heads, head, vocabulary; base
/// of ROPE's frequencies; true if the output layer is the embedding. The values are from their published
/// configurations, without the scaling of positions beyond the training context.
#[allow(clippy::type_complexity)]
pub const NAMED: &[(&str, &str, [usize; 7], f32, bool)] = &[
    ("qwen2.5-0.5b", "qwen2", [24, 896, 4864, 14, 2, 64, 151_936], 1e6, true),
    ("qwen2.5-1.5b", "qwen2", [28, 1536, 8960, 12, 2, 128, 151_936], 1e6, true),
    ("qwen3-0.6b", "qwen3", [28, 1024, 3072, 16, 8, 128, 151_936], 1e6, true),
    ("llama-3.2-1b", "llama", [16, 2048, 8192, 32, 8, 64, 128_256], 5e5, true),
    ("llama-3.1-8b", "llama", [32, 4096, 14336, 32, 8, 128, 128_256], 5e5, false),
    ("phi4-mini", "phi3", [32, 3072, 8192, 24, 8, 128, 200_064], 1e4, true),
    ("gemma3-1b", "gemma3", [26, 1152, 6912, 4, 1, 256, 262_144], 1e6, true),
    ("gemma2-2b", "gemma2", [26, 2304, 9216, 8, 4, 256, 256_000], 1e4, true),
    ("qwen3-30b-a3b", "qwen3moe", [48, 2048, 6144, 32, 4, 128, 151_936], 1e6, false),
    ("gpt-oss-20b", "gpt-oss", [24, 2880, 2880, 64, 8, 64, 201_088], 1.5e5, false),
    ("qwen3.5-2b", "qwen35", [24, 2048, 6144, 8, 2, 256, 248_320], 1e7, true),
    ("qwen3.5-35b-a3b", "qwen35moe", [40, 2048, 512, 16, 2, 256, 248_320], 1e7, false),
    ("glm-4.5-air", "glm4moe", [46, 4096, 10944, 96, 8, 128, 151_552], 1e6, false),
    ("deepseek-v2-lite", "deepseek2", [27, 2048, 10944, 16, 1, 128, 102_400], 1e4, false),
    ("olmo2-1b", "olmo2", [16, 2048, 8192, 16, 16, 128, 100_352], 5e5, false),
    ("ministral-3-3b", "mistral3", [26, 3072, 9216, 32, 8, 128, 131_072], 1e6, true),
    ("lfm2-1.2b", "lfm2", [16, 2048, 8192, 32, 8, 64, 65536], 1e6, true),
    ("lfm2-8b-a1b", "lfm2moe", [24, 2048, 7168, 32, 8, 64, 65536], 1e6, true),
    ("granite-4-h-tiny", "granitehybrid", [40, 1536, 512, 12, 4, 128, 100_352], 1e4, true),
    ("granite-4-h-small", "granitehybrid", [40, 4096, 768, 32, 8, 128, 100_352], 1e4, true),
    ("nemotron-3-nano", "nemotron_h_moe", [52, 2688, 1856, 32, 2, 128, 131_072], 1e4, false),
    ("gemma-4-e4b", "gemma4", [42, 2560, 10240, 8, 2, 256, 262_144], 1e6, true),
    ("gemma-4-26b-a4b", "gemma4", [30, 2816, 2112, 16, 8, 256, 262_144], 1e6, true),
];

/// Experts of the known models that have any.
const NAMED_EXPERTS: &[(&str, Experts)] = &[
    ("qwen3-30b-a3b", Experts::new(128, 8, 768)),
    ("gpt-oss-20b", Experts::new(32, 4, 2880)),
    ("qwen3.5-35b-a3b", Experts { shared: 512, ..Experts::new(256, 8, 512) }),
    ("glm-4.5-air", sigmoids(Experts { shared: 1408, dense: 1, ..Experts::new(128, 8, 1408) })),
    ("deepseek-v2-lite", Experts { shared: 2816, normalised: false, dense: 1, ..Experts::new(64, 6, 1408) }),
    ("lfm2-8b-a1b", sigmoids(Experts { dense: 2, ..Experts::new(32, 4, 1792) })),
    ("granite-4-h-tiny", Experts { shared: 1024, ..Experts::new(64, 6, 512) }),
    ("granite-4-h-small", Experts { shared: 1536, ..Experts::new(72, 10, 768) }),
    ("gemma-4-26b-a4b", Experts::new(128, 8, 704)),
    (
        "nemotron-3-nano",
        sigmoids(Experts { shared: 3712, scale: 2.5, gated: false, ..Experts::new(128, 6, 1856) }),
    ),
];

/// Layers with attention in the known models whose other layers have short convolutions or Mamba-2.
const NAMED_ATTENDING: &[(&str, &[usize])] = &[
    ("lfm2-1.2b", &[2, 5, 8, 10, 12, 14]),
    ("lfm2-8b-a1b", &[2, 6, 10, 14, 18, 21]),
    ("granite-4-h-tiny", &[5, 15, 25, 35]),
    ("granite-4-h-small", &[5, 15, 25, 35]),
    ("nemotron-3-nano", &[5, 12, 19, 26, 33, 42]),
];

/// States of the known models that have any, see [`recurrent`].
const NAMED_STATES: &[(&str, [usize; 4])] = &[
    ("qwen3.5-2b", [128, 16, 128, 16]),
    ("qwen3.5-35b-a3b", [128, 16, 128, 32]),
    ("granite-4-h-tiny", [128, 1, 64, 48]),
    ("granite-4-h-small", [128, 1, 64, 128]),
    ("nemotron-3-nano", [128, 8, 64, 64]),
];

/// Parameters in which the gemma 4 models differ: positions that local layers see, period of the global
/// layers, key and value heads of global layers, width of the embedding of each layer, number of final layers
/// that read the caches of earlier ones.
const NAMED_GEMMA4: &[(&str, [usize; 5])] =
    &[("gemma-4-e4b", [512, 6, 2, 256, 18]), ("gemma-4-26b-a4b", [1024, 6, 2, 0, 0])];

const fn sigmoids(experts: Experts) -> Experts {
    Experts { gating: Gating::Sigmoid, ..experts }
}

/// Prefix of the names of small models.
pub(super) const SMALL: &str = "small-";

/// Architectures with gated delta nets.
pub(super) const DELTA_NETS: [&str; 3] = ["qwen35", "qwen35moe", "qwen3next"];
/// Architectures with one part in each layer: every second layer without attention is a feed-forward network.
pub(super) const SINGLE: [&str; 2] = ["nemotron_h", "nemotron_h_moe"];
const CONVOLUTIONS: [&str; 2] = ["lfm2", "lfm2moe"];
const WINDOWS: [&str; 4] = ["gemma2", "gemma3", "gemma4", "gpt-oss"];

/// Returns the experts of a small model.
fn small_experts(architecture: &str) -> Option<Experts> {
    let plain = Experts::new(8, 2, 256);
    match architecture {
        "qwen3moe" | "gpt-oss" => Some(plain),
        "qwen35moe" | "qwen3next" => Some(Experts { shared: 128, ..plain }),
        "glm4moe" => Some(sigmoids(Experts { shared: 256, dense: 1, ..plain })),
        "granitehybrid" => Some(Experts { shared: 128, ..plain }),
        "nemotron_h_moe" => Some(sigmoids(Experts { shared: 128, scale: 2.5, gated: false, ..plain })),
        "lfm2moe" => Some(sigmoids(Experts { dense: 1, ..plain })),
        "llama4" => Some(sigmoids(Experts { shared: 256, step: 2, ..Experts::new(8, 1, 256) })),
        "deepseek2" => {
            let grouped = Experts { groups: 4, groups_used: 2, scale: 2.5, shared: 256, dense: 1, ..plain };
            Some(sigmoids(grouped))
        }
        _ => None,
    }
}

/// Returns the recurrent layers of a small model.
fn small_state(architecture: &str) -> Option<Recurrent> {
    match architecture {
        _ if DELTA_NETS.contains(&architecture) => Some(recurrent([64, 2, 64, 4], delta_nets(4))),
        "granitehybrid" => Some(recurrent([32, 2, 64, 4], [true, false, true, true].into_iter())),
        _ if SINGLE.contains(&architecture) => {
            Some(recurrent([32, 2, 64, 4], [true, false, true, false].into_iter()))
        }
        _ => None,
    }
}

/// Returns true for three of four layers.
fn delta_nets(layers: usize) -> impl Iterator<Item = bool> {
    (1..=layers).map(|n| n % 4 != 0)
}

impl Shape {
    /// Returns the model that `compare` runs by default: four layers, 6 million weights, Q8_0 attention, Q4_0
    /// feed-forward, F16 embedding, so that three weight types are exercised.
    pub fn small(architecture: &str) -> Shape {
        let experts = small_experts(architecture);
        let latent = Latent { rank: 128, query_rank: 128, plain: 64, rotated: 32, value_length: 64 };
        let gemma4 = architecture == "gemma4";
        Shape {
            architecture: architecture.into(),
            layers: 4,
            embedding: 256,
            feed_forward: 768,
            heads: 8,
            heads_kv: if ENCODERS.contains(&architecture) { 8 } else { 2 },
            head: 64,
            vocabulary: 2048,
            context: 2048,
            freq_base: if architecture == "gemma3" || gemma4 { 1_000_000.0 } else { 10000.0 },
            window: WINDOWS.contains(&architecture).then_some(512),
            experts,
            recurrent: small_state(architecture),
            feeding: if SINGLE.contains(&architecture) { vec![false, true] } else { Vec::new() },
            convolved: if CONVOLUTIONS.contains(&architecture) {
                vec![true, false, true]
            } else {
                Vec::new()
            },
            latent: (architecture == "deepseek2").then_some(latent),
            global_step: 2,
            global_heads_kv: 2,
            per_layer_embedding: if gemma4 { 64 } else { 0 },
            shared_caches: if gemma4 { 2 } else { 0 },
            original_context: (architecture == "phi3").then_some(1024),
            tied: true,
            predictor: None,
            attention_type: DType::Q8_0,
            feed_forward_type: DType::Q4_0,
            embedding_type: DType::F16,
        }
    }

    /// Returns the names that [`Shape::named`] accepts: the known models, and a small one of each
    /// architecture.
    pub fn names() -> impl Iterator<Item = String> {
        let small =
            ARCHITECTURES.iter().chain(&ENCODERS).map(|architecture| format!("{SMALL}{architecture}"));
        NAMED.iter().map(|row| row.0.to_string()).chain(small)
    }

    /// Returns the shape of a known model, one of [`NAMED`], or [`Shape::small`] as "small-llama",
    /// "small-qwen35" ...; all matrices are Q8_0.
    pub fn named(name: &str) -> Option<Shape> {
        if let Some(architecture) =
            name.strip_prefix(SMALL).filter(|a| ARCHITECTURES.contains(a) || ENCODERS.contains(a))
        {
            return Some(Shape::small(architecture).with_type(DType::Q8_0));
        }
        let row = NAMED.iter().find(|row| row.0 == name)?;
        let &(
            _,
            architecture,
            [layers, embedding, feed_forward, heads, heads_kv, head, vocabulary],
            base,
            tied,
        ) = row;
        let experts = NAMED_EXPERTS.iter().find(|row| row.0 == name);
        let attending = NAMED_ATTENDING.iter().find(|row| row.0 == name).map(|row| row.1);
        // In architectures with one part in each layer, every second layer without attention is a
        // feed-forward network.
        let attends = |layer: usize| attending.is_some_and(|on| on.contains(&layer));
        let others_before = |layer: usize| (0..layer).filter(|&before| !attends(before)).count();
        let single = SINGLE.contains(&architecture);
        let feeds = |layer: usize| single && !attends(layer) && others_before(layer) % 2 == 1;
        let state = NAMED_STATES.iter().find(|row| row.0 == name).map(|row| match attending {
            Some(_) => recurrent(row.1, (0..layers).map(|i| !attends(i) && !feeds(i))),
            None => recurrent(row.1, delta_nets(layers)),
        });
        let small = Shape::small(architecture);
        let small = match NAMED_GEMMA4.iter().find(|row| row.0 == name) {
            Some(&(_, [window, global_step, global_heads_kv, per_layer_embedding, shared_caches])) => Shape {
                window: Some(window),
                global_step,
                global_heads_kv,
                per_layer_embedding,
                shared_caches,
                ..small
            },
            None => small,
        };
        let latent = Latent { rank: 512, query_rank: 0, plain: 128, rotated: 64, value_length: 128 };
        let shape = Shape {
            layers,
            embedding,
            feed_forward,
            heads,
            heads_kv,
            head,
            vocabulary,
            context: 32768,
            freq_base: base,
            tied,
            experts: experts.map(|row| row.1),
            convolved: match state {
                None if attending.is_some() => (0..layers).map(|i| !attends(i)).collect(),
                _ => Vec::new(),
            },
            recurrent: state,
            feeding: if single { (0..layers).map(feeds).collect() } else { Vec::new() },
            latent: small.latent.map(|_| latent),
            ..small
        };
        Some(shape.with_type(DType::Q8_0))
    }
}
