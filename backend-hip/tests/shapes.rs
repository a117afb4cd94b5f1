//! Shapes for which the emulated devices use kernels, or paths through them, that the operation catalogue
//! does not cover.

use backend_hip::{HipOptions, virtual_gpu};
use ggml_core::catalogue::{Case, CaseBuilder, Fill, Judged};
use ggml_core::op::flash_attn::FlashAttnExt;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Error, Graph, Result, TensorId};

/// Runs cases on both emulated devices under both precisions.
fn agree(cases: &[Case]) {
    let reference = ReferenceBackend::default();
    let judge = |case: &Case| Judged::new(case.clone(), &reference).expect(&case.name);
    let cases: Vec<Judged> = cases.iter().map(judge).collect();
    for target in ["gfx906", "gfx900"] {
        let backend = match virtual_gpu::open(target, HipOptions::default()) {
            Err(Error::Unavailable { reason, .. }) if !hip_kernels::targets().contains(&target) => {
                eprintln!("{target} skipped: {reason}");
                continue;
            }
            opened => opened.expect("an emulated device"),
        };
        for case in &cases {
            for precision in [Precision::Exact, Precision::Fast] {
                assert_eq!(case.fault(&backend, precision), None);
            }
        }
    }
}

struct Attention {
    kv_type: DType,
    /// Lengths of the rows of k and v.
    d: [usize; 2],
    tokens: usize,
    positions: usize,
    heads: [usize; 2],
}

/// Builds attention with sinks and a mask that hides the first 140 positions of every row, and some of the
/// others.
fn attention(s: Attention) -> Case {
    let Attention { kv_type, d: [d, dv], tokens, positions, heads: [heads, heads_kv] } = s;
    let name = format!(
        "FLASH_ATTN_EXT({kv_type}, d={d}, dv={dv}, {tokens} x {positions}, heads={heads}/{heads_kv}, window)"
    );
    Case::new(name, |g, c| {
        let q = c.leaf(g, "q", DType::F32, [d, tokens, heads, 1], Fill::Uniform(-1.0, 1.0))?;
        let k = c.leaf(g, "k", kv_type, [d, positions, heads_kv, 1], Fill::Uniform(-1.0, 1.0))?;
        let v = c.leaf(g, "v", kv_type, [dv, positions, heads_kv, 1], Fill::Uniform(-1.0, 1.0))?;
        let bias = (0..positions).map(|i| if i < 140 || i % 7 == 3 { f32::NEG_INFINITY } else { 0.0 });
        let mask = c.leaf(g, "mask", DType::F32, [positions, tokens, 1, 1], Fill::Values(bias.collect()))?;
        let sinks = Fill::Values(vec![0.7, f32::NEG_INFINITY, -3.0, 20.0]);
        let sinks = c.leaf(g, "sinks", DType::F32, [heads, 1, 1, 1], sinks)?;
        let op = FlashAttnExt { scale: 0.3, max_bias: 0.0, logit_softcap: 5.0 };
        g.flash_attn_sinks(op, [q, k, v], mask, sinks)
    })
}

/// Few and many query rows, rows of all lengths, one and several splits of the positions, hidden first
/// splits.
#[test]
fn attention_with_sinks_and_blocks() {
    let mut cases = Vec::new();
    for kv_type in [DType::F16, DType::Q8_0, DType::Q4_0] {
        for (d, tokens, positions, heads) in [
            ([64, 64], 1, 300, [2, 2]),
            ([128, 96], 1, 290, [4, 1]),
            ([256, 256], 2, 150, [4, 1]),
            ([96, 128], 9, 170, [4, 2]),
            ([256, 192], 9, 150, [2, 1]),
            ([64, 64], 9, 1100, [1, 1]),
            ([320, 288], 2, 150, [4, 2]),
        ] {
            cases.push(attention(Attention { kv_type, d, tokens, positions, heads }));
        }
    }
    agree(&cases);
}

/// Builds a product of `m` rows of `experts` matrices; ids as given, repeated.
fn experts(
    g: &mut Graph,
    c: &mut CaseBuilder,
    dtype: DType,
    [m, experts, used, rows, tokens]: [usize; 5],
    ids: Fill,
) -> Result<TensorId> {
    let a = c.leaf(g, "a", dtype, [512, m, experts, 1], Fill::Uniform(-1.0, 1.0))?;
    let b = c.leaf(g, "b", DType::F32, [512, rows, tokens, 1], Fill::Uniform(-1.0, 1.0))?;
    let ids = c.leaf(g, "ids", DType::I32, [used, tokens, 1, 1], ids)?;
    g.mul_mat_id(a, b, ids)
}

/// Several rows of a wavefront, and of sorted pairs: full tiles, empty experts, out-of-range indices, the
/// same index twice for a token.
#[test]
fn products_with_experts() {
    let mut cases = Vec::new();
    for dtype in [DType::F16, DType::Q8_0, DType::Q4_K] {
        let ids = vec![1.0, 2.0, -1.0, 0.0];
        cases.push(Case::new(format!("MUL_MAT_ID({dtype}, many rows)"), |g, c| {
            experts(g, c, dtype, [502, 3, 2, 2, 2], Fill::Values(ids))
        }));
        // Expert 1 has 64 pairs, two full tiles; 0 and 3 have none, 2 has 32, and 32 pairs have an
        // out-of-range index.
        let ids = vec![1.0, 1.0, 2.0, 4.0];
        for rows in [1, 2] {
            cases.push(Case::new(format!("MUL_MAT_ID({dtype}, sorted, rows={rows})"), |g, c| {
                experts(g, c, dtype, [70, 4, 2, rows, 64], Fill::Values(ids.clone()))
            }));
        }
        // No pair has a valid expert.
        cases.push(Case::new(format!("MUL_MAT_ID({dtype}, outside)"), |g, c| {
            experts(g, c, dtype, [70, 1, 1, 1, 40], Fill::Values(vec![-5.0, 1.0]))
        }));
    }
    agree(&cases);
}

/// Rows longer than a wavefront holds in registers, with equal elements and NaNs or infinities, selected to
/// the end.
#[test]
fn the_largest_of_long_rows() {
    let case = |n: usize, k: usize| {
        Case::new(format!("TOP_K(long, n={n}, k={k})"), |g, c| {
            let values = (0..601).map(|i| match i % 101 {
                0 => f32::NAN,
                1 => f32::INFINITY,
                2 => f32::NEG_INFINITY,
                j => (j * 37 % 64) as f32 - 32.0,
            });
            let x = c.leaf(g, "x", DType::F32, [n, 3, 1, 1], Fill::Values(values.collect()))?;
            g.top_k(x, k)
        })
    };
    agree(&[case(513, 513), case(700, 9), case(1500, 700)]);
}

/// Blocks of zeros, of one sign, of extremes with both signs, and of values halfway between two levels of a
/// block.
#[test]
fn rounding_to_blocks() {
    let mut cases = Vec::new();
    for dtype in [DType::Q8_0, DType::Q4_0] {
        let mut values = vec![0.0f32; 32];
        // The largest value is the last but one; a negative one of its magnitude follows.
        values.extend((0..30).map(|i| (i as f32 - 15.0) * 0.5).chain([127.0, -127.0]));
        values.extend((0..32).map(|i| -1.0 - i as f32 * 0.25));
        values.extend((0..32).map(|i| if i == 5 { -127.0 } else { i as f32 - 0.5 }));
        cases.push(Case::new(format!("SET_ROWS({dtype}, special blocks)"), |g, c| {
            let dst = c.state(g, "dst", dtype, [128, 6, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let values = c.leaf(g, "values", DType::F32, [128, 3, 1, 1], Fill::Values(values))?;
            let ids = c.leaf(g, "ids", DType::I32, [3, 1, 1, 1], Fill::Values(vec![4.0, 0.0, 2.0]))?;
            g.set_rows(dst, values, ids)
        }));
    }
    agree(&cases);
}
