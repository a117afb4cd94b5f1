//! The shader table: one entry for each GLSL source.
//!
//! To add a shader, write `src/<family>/<stem>.comp`, add its [`Source`] here and run `make shaders`. A
//! property that a specialisation constant can express (work-group size, tile sizes, unrolling) is no
//! variant; a change of types, extensions or the set of buffers is.
//!
//! A variant is named after its choices, one from each axis, joined by `_`: `lane_probe` has the variants
//! `basic` and `full`.

use crate::table::{Axis, Choice, Optimize, Source, Target};

/// Every shader.
pub const SOURCES: &[Source] = &[
    Source::new("probe", "lane_probe").axes(&[LANE_PROBE_OPERATIONS]),
    Source::new("binary", "binary"),
    Source::new("cache_mask", "cache_mask").axes(&[MASK_PIECES]),
    Source::new("copy", "copy").axes(&[COPIES]),
    Source::new("delta_net", "delta_chunk"),
    Source::new("delta_net", "delta_net").axes(&[ALONE_OR_GROUP]),
    Source::new("delta_net", "delta_walk"),
    Source::new("flash_attn", "flash_attn_fragment").axes(&[KEYS_OF_MATRICES, MATRICES_BY_ROWS]),
    Source::new("flash_attn", "flash_attn_matrix").axes(&[KEYS_OF_MATRICES, MATRICES]),
    Source::new("flash_attn", "flash_attn_tile").axes(&[KEYS]),
    Source::new("flash_attn", "flash_attn_vec").axes(&[KEYS]),
    Source::new("gate", "gate").axes(&[REDUCTION]),
    Source::new("glu", "glu"),
    Source::new("heads", "heads").axes(&[REDUCTION]),
    Source::new("mul_mat", "mul_mat_narrow").axes(&[WEIGHTS, NARROW]).only(narrow_of_weights),
    Source::new("mul_mat", "mul_mat_round").axes(&[REDUCTION, ORDERS]),
    Source::new("mul_mat", "mul_mat_round_int8"),
    Source::new("mul_mat", "mul_mat_tile").axes(&[WEIGHTS, TILES]).only(tiles_of_weights),
    Source::new("mul_mat", "mul_mat_vec").axes(&[WEIGHTS, VECTORS_OR_STAGED]).only(vectors_of_weights),
    Source::new("mul_mat_id", "expert_sum"),
    Source::new("mul_mat_id", "mul_mat_id_list"),
    Source::new("mul_mat_id", "mul_mat_id_tile").axes(&[WEIGHTS, TILES]).only(tiles_of_weights),
    Source::new("mul_mat_id", "mul_mat_id_vec").axes(&[WEIGHTS, VECTORS]).only(int8_is_for_quantised_weights),
    Source::new("norm", "rms_norm").axes(&[REDUCTION]),
    Source::new("rope", "rope"),
    Source::new("rows", "get_rows").axes(&[ROWS]),
    Source::new("rows", "set_rows").axes(&[DESTINATIONS]),
    Source::new("soft_max", "soft_max").axes(&[REDUCTION]),
    Source::new("ssm_conv", "conv"),
    Source::new("ssm_conv", "ssm_conv"),
    Source::new("ssm_scan", "scan_chunk"),
    Source::new("ssm_scan", "scan_walk"),
    Source::new("ssm_scan", "ssm_scan"),
    Source::new("top_k", "best").axes(&[REDUCTION]),
    Source::new("top_k", "top_k").axes(&[REDUCTION]),
    Source::new("unary", "unary"),
];

/// Subgroup operations that the lane probe executes: none, or all that kernels may use.
const LANE_PROBE_OPERATIONS: Axis =
    &[Choice::new("basic", &[]), Choice::new("full", &[("USE_SUBGROUP", "1")])];

/// Reductions over a work-group: through workgroup-shared memory only, or first by subgroup arithmetic.
const REDUCTION: Axis = &[Choice::new("lds", &[]), Choice::new("subgroup", &[("USE_SUBGROUP", "1")])];

/// Reductions of matrix-vector kernels: the same, and subgroup arithmetic with activations in 8 bits.
const VECTORS: Axis = &[
    Choice::new("lds", &[]),
    Choice::new("subgroup", &[("USE_SUBGROUP", "1")]),
    Choice::new("int8", &[("USE_SUBGROUP", "1"), ("INT8", "1")]),
];

/// The same, and weights read through workgroup-shared memory.
const VECTORS_OR_STAGED: Axis = &[
    VECTORS[0],
    VECTORS[1],
    VECTORS[2],
    Choice::new("staged", &[("USE_SUBGROUP", "1"), ("INT8", "1"), ("STAGED", "1")]),
];

/// A node, or a group of nodes, which has more buffers.
const ALONE_OR_GROUP: Axis = &[Choice::new("node", &[]), Choice::new("group", &[("GROUP", "1")])];

/// Order of the rounded activations: by columns, or matrices of all columns.
const ORDERS: Axis = &[Choice::NONE, Choice::new("narrow", &[("NARROW", "1")])];

/// Types common to weights and to the rows of GET_ROWS.
const STORED: [Choice; 27] = [
    Choice::new("f16", &[("A_F16", "1")]),
    Choice::new("bf16", &[("A_BF16", "1")]),
    Choice::new("q8_0", &[("A_Q8_0", "1")]),
    Choice::new("q4_0", &[("A_Q4_0", "1")]),
    Choice::new("q4_1", &[("A_Q4_1", "1")]),
    Choice::new("q5_0", &[("A_Q5_0", "1")]),
    Choice::new("q5_1", &[("A_Q5_1", "1")]),
    Choice::new("iq4_nl", &[("A_IQ4_NL", "1")]),
    Choice::new("mxfp4", &[("A_MXFP4", "1")]),
    Choice::new("q2_k", &[("A_Q2_K", "1")]),
    Choice::new("q3_k", &[("A_Q3_K", "1")]),
    Choice::new("q4_k", &[("A_Q4_K", "1")]),
    Choice::new("q5_k", &[("A_Q5_K", "1")]),
    Choice::new("q6_k", &[("A_Q6_K", "1")]),
    Choice::new("iq4_xs", &[("A_IQ4_XS", "1")]),
    Choice::new("q1_0", &[("A_Q1_0", "1")]),
    Choice::new("q2_0", &[("A_Q2_0", "1")]),
    Choice::new("nvfp4", &[("A_NVFP4", "1")]),
    Choice::new("tq1_0", &[("A_TQ1_0", "1")]),
    Choice::new("tq2_0", &[("A_TQ2_0", "1")]),
    Choice::new("iq1_s", &[("A_IQ1_S", "1")]),
    Choice::new("iq1_m", &[("A_IQ1_M", "1")]),
    Choice::new("iq2_xxs", &[("A_IQ2_XXS", "1")]),
    Choice::new("iq2_xs", &[("A_IQ2_XS", "1")]),
    Choice::new("iq2_s", &[("A_IQ2_S", "1")]),
    Choice::new("iq3_xxs", &[("A_IQ3_XXS", "1")]),
    Choice::new("iq3_s", &[("A_IQ3_S", "1")]),
];

/// Returns a choice followed by those of [`STORED`].
const fn and_stored(first: Choice) -> [Choice; STORED.len() + 1] {
    let mut all = [first; STORED.len() + 1];
    let mut i = 0;
    while i < STORED.len() {
        all[i + 1] = STORED[i];
        i += 1;
    }
    all
}

/// Bits of a row that an invocation writes at a time.
const MASK_PIECES: Axis = &[Choice::new("w128", &[("W128", "1")]), Choice::new("w16", &[])];

/// Types of weights.
const WEIGHTS: Axis = &and_stored(Choice::new("f32", &[("A_F32", "1")]));

/// Types of the rows of GET_ROWS; F32 and I32 are copied as words.
const ROWS: Axis = &and_stored(Choice::new("w32", &[("A_W32", "1")]));

/// Fragments of the tiles of a matrix product: F32, F16 with the factors of the weights, matrix units, emulated matrix
/// units, dot products of bytes, packed F16 of the integers of blocks.
const TILES: Axis = &[
    Choice::new("tile32", &[]),
    Choice::new("tile16", &[("TILE_F16", "1")]),
    // The optimiser does not support all of the extension.
    Choice::new("matrix", &[("TILE_F16", "1"), ("MATRIX", "1")]).optimize(Optimize::Off),
    Choice::new("emulated", &[("TILE_F16", "1"), ("MATRIX", "1"), ("EMULATED", "1")]),
    Choice::new("int8", &[("INT8", "1"), ("TILE_INT8", "1")]),
    Choice::new("packed", &[("INT8", "1"), ("TILE_PACKED", "1")]),
];

/// Products with few columns: matrix units, and emulated matrix units.
const NARROW: Axis = &[
    // See TILES.
    Choice::new("matrix", &[("TILE_F16", "1"), ("MATRIX", "1")]).optimize(Optimize::Off),
    Choice::new("emulated", &[("TILE_F16", "1"), ("MATRIX", "1"), ("EMULATED", "1")]),
];

/// Returns true for the combinations of weight type and fragment that exist. Chains of sums in F16 are for
/// types of few bits, which are small, except NVFP4, which has an additional factor for the whole matrix.
/// Matrix units: not for F32 and BF16, which F16 cannot hold, and not for types of few bits. Emulation is for
/// tests, with one type of each kind.
fn tiles_of_weights(names: &[&str]) -> bool {
    let few_bits = ["q1_", "q2_0", "nvfp4", "tq", "iq1_", "iq2_", "iq3_"];
    let few_bits = few_bits.iter().any(|begin| names[0].starts_with(begin));
    match names[1] {
        "tile16" => few_bits && names[0] != "nvfp4",
        "matrix" => !few_bits && !["f32", "bf16"].contains(&names[0]),
        "int8" | "packed" => !few_bits && !["f32", "f16", "bf16"].contains(&names[0]),
        "emulated" => ["f16", "q8_0", "q4_0", "q4_k"].contains(&names[0]),
        _ => true,
    }
}

fn int8_is_for_quantised_weights(names: &[&str]) -> bool {
    names[1] != "int8" || !["f32", "f16", "bf16"].contains(&names[0])
}

/// Types whose weights can pass through workgroup-shared memory as stored.
const STAGED: [&str; 8] = ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"];

fn vectors_of_weights(names: &[&str]) -> bool {
    int8_is_for_quantised_weights(names) && (names[1] != "staged" || STAGED.contains(&names[0]))
}

fn narrow_of_weights(names: &[&str]) -> bool {
    STAGED.contains(&names[0]) && (names[1] != "emulated" || ["q8_0", "q4_k", "q6_k"].contains(&names[0]))
}

/// Types of keys and values.
const KEYS: Axis = &[
    Choice::new("f32", &[]),
    Choice::new("f16", &[("KV_F16", "1")]),
    Choice::new("q8_0", &[("KV_Q8_0", "1")]),
    Choice::new("q4_0", &[("KV_Q4_0", "1")]),
];

/// Types of keys and values for matrix units, which use F16; F16 cannot hold F32.
const KEYS_OF_MATRICES: Axis = KEYS.split_at(1).1;

/// Matrix units, and emulated matrix units.
const MATRICES: Axis = &[
    // See TILES.
    Choice::new("matrix", &[]).optimize(Optimize::Off),
    Choice::new("emulated", &[("EMULATED", "1")]),
];

/// The same, with operations on rows of sums. The extension needs SPIR-V 1.6.
const MATRICES_BY_ROWS: Axis = &[MATRICES[0].target(Target::Vulkan13), MATRICES[1]];

/// Types of the destination rows of SET_ROWS.
const DESTINATIONS: Axis = &[
    Choice::new("f32", &[]),
    Choice::new("f16", &[("D_F16", "1")]),
    Choice::new("q8_0", &[("D_Q8_0", "1")]),
    Choice::new("q4_0", &[("D_Q4_0", "1")]),
];

/// Copies: four words, words and half-words of any type, then conversions.
const COPIES: Axis = &[
    Choice::new("w128", &[("FROM_W128", "1"), ("TO_W128", "1")]),
    Choice::new("w32", &[("FROM_W32", "1"), ("TO_W32", "1")]),
    Choice::new("w16", &[("FROM_W16", "1"), ("TO_W16", "1")]),
    Choice::new("f32_f16", &[("FROM_F32", "1"), ("TO_F16", "1")]),
    Choice::new("f32_bf16", &[("FROM_F32", "1"), ("TO_BF16", "1")]),
    Choice::new("f16_f32", &[("FROM_F16", "1"), ("TO_F32", "1")]),
    Choice::new("f16_bf16", &[("FROM_F16", "1"), ("TO_BF16", "1")]),
    Choice::new("bf16_f32", &[("FROM_BF16", "1"), ("TO_F32", "1")]),
    Choice::new("bf16_f16", &[("FROM_BF16", "1"), ("TO_F16", "1")]),
];
