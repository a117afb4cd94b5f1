//! The `cpu` backend compared with the reference, and with itself under changes that must not change results.

mod groups;
mod interface;
mod mixture;
mod vectors;
mod work;

use ggml_core::catalogue::{self, Judged, Outcome};
use ggml_core::cpu::{CpuBackend, Isa};
use ggml_core::op::FlashAttnExt;
use ggml_core::op::mul_mat::WEIGHT_TYPES;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::rng::Rng;
use ggml_core::{DType, Source};
use half::f16;
use work::{Work, floats, isas, layers, open};

/// Runs every case of the selected operations in both precisions, on every instruction set of this machine.
/// Every case must be supported.
fn catalogue_agrees(is_asked: impl Fn(&str) -> bool) {
    let reference = ReferenceBackend::default();
    let backends: Vec<CpuBackend> = isas().into_iter().map(|isa| open(isa, 2)).collect();
    let mut wrong = Vec::new();
    let cases: Vec<_> = catalogue::cases().into_iter().filter(|case| is_asked(&case.name)).collect();
    assert!(!cases.is_empty());
    for case in cases {
        let judged = Judged::new(case, &reference).unwrap();
        let case = &judged.case;
        for (isa, backend) in isas().into_iter().zip(&backends) {
            for precision in [Precision::Exact, Precision::Fast] {
                let place = format!("{} on {}, {}", case.name, isa.name(), precision.name());
                match judged.run(backend, precision) {
                    Ok(Outcome::Values(got)) => {
                        let d = catalogue::distance(case, &got, &judged.wanted);
                        let bound = catalogue::bound(case, precision);
                        if !bound.holds(&d) {
                            let excess = bound.excess(&d);
                            wrong.push(format!("{place}: {excess}, max {:.2e} at {}", d.max_abs, d.worst));
                        }
                    }
                    Ok(Outcome::Unsupported(reason)) => wrong.push(format!("{place}: refused: {reason}")),
                    Err(e) => wrong.push(format!("{place}: {e}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn products_of_the_catalogue_agree_with_the_reference() {
    catalogue_agrees(|name| name.starts_with("MUL_MAT"));
}

#[test]
fn other_operations_of_the_catalogue_agree_with_the_reference() {
    catalogue_agrees(|name| !name.starts_with("MUL_MAT"));
}

#[test]
fn a_model_agrees_with_the_reference() {
    for tokens in [1, 7] {
        let work = layers(tokens);
        let want = work.run(&ReferenceBackend::default(), Precision::Exact);
        for isa in isas() {
            for (precision, bound) in [(Precision::Exact, 1e-7), (Precision::Fast, 3e-2)] {
                for (got, want) in work.run(&open(isa, 2), precision).iter().zip(&want) {
                    let d = ggml_core::metrics::distance(&floats(got), &floats(want));
                    assert!(d.nmse < bound, "{tokens} tokens, {isa:?}, {precision:?}: {d:?}");
                }
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_threads_places_or_plans() {
    for tokens in [1, 3, 67] {
        let work = layers(tokens);
        for isa in isas() {
            for precision in [Precision::Exact, Precision::Fast] {
                let want = work.run(&open(isa, 1), precision);
                let same = |what: &str, got: Vec<Vec<u8>>| {
                    assert!(got == want, "{tokens} tokens, {isa:?}, {precision:?}: {what}");
                };
                for threads in [2, 3, 7] {
                    same("threads", work.run(&open(isa, threads), precision));
                }
                let backend = open(isa, 2);
                for (alignment, shift) in [(4, 4), (32, 12), (4096, 68)] {
                    let plan = Plan::new(&work.graph, alignment, precision).unwrap();
                    same("offsets", work.run_with(&backend, &plan, shift).unwrap());
                }
                let plan = Plan::debug(&work.graph, 64, precision).unwrap();
                same("debug plan", work.run_with(&backend, &plan, 0).unwrap());
            }
        }
    }
}

/// Builds a product with one type of weights.
fn product(dtype: DType, k: usize, m: usize, n: usize, first: usize, count: usize) -> Work {
    let mut w = Work::new();
    let a = w.leaf("a", dtype, [k, m, 1, 1], Source::Weight);
    let mut rng = Rng::new(3);
    let b: Vec<f32> = (0..k * n).map(|_| rng.normal()).collect();
    let b = w.filled("b", DType::F32, [k, count, 1, 1], Source::Input, &b[first * k..(first + count) * k]);
    let d = w.graph.mul_mat(a, b).unwrap();
    w.graph.output(d).unwrap();
    w
}

/// True if products of many columns round activations, and those of few do not: to 16 bits, in tile registers.
pub(crate) fn rounds_many(dtype: DType, isa: Isa, precision: Precision) -> bool {
    isa == Isa::Amx && precision == Precision::Fast && matches!(dtype, DType::F16 | DType::BF16)
}

/// True if products are equal bit for bit, or are as near as 16 bits of activations allow where `rounded`.
pub(crate) fn same_products(got: &[f32], want: &[f32], rounded: bool) -> bool {
    got == want || rounded && ggml_core::metrics::distance(got, want).nmse < 1e-9
}

/// A product of many columns equals the products of its single columns, bit for bit unless many are rounded.
#[test]
fn results_do_not_depend_on_the_number_of_columns() {
    for &dtype in WEIGHT_TYPES {
        // More than a segment; for plain types a row that ends within a vector.
        let k = match dtype.block() {
            1 => 1024 + 45,
            block => 1024 + 96usize.next_multiple_of(block),
        };
        let (m, n) = (37, 23);
        for isa in isas() {
            for precision in [Precision::Exact, Precision::Fast] {
                let backend = open(isa, 2);
                let whole = floats(&product(dtype, k, m, n, 0, n).run(&backend, precision).remove(0));
                let rounded = rounds_many(dtype, isa, precision);
                for (first, count) in [(0, 1), (22, 1), (5, 2), (3, 5), (7, 16)] {
                    let part =
                        floats(&product(dtype, k, m, n, first, count).run(&backend, precision).remove(0));
                    let want = &whole[first * m..(first + count) * m];
                    let same = same_products(&part, want, rounded && count < 16);
                    assert!(same, "{dtype} {isa:?} {precision:?}: columns {first}..+{count}");
                }
            }
        }
    }
}

/// Products of quantised weights with 8-bit activations, evaluated by their definition: bit-identical on
/// every instruction set and for every number of columns.
#[test]
fn integer_products_are_exact() {
    let (k, m) = (1280, 45);
    for dtype in [DType::Q8_0, DType::Q4_0, DType::Q6_K] {
        for n in [1, 4, 6, 13, 33] {
            let mut work = product(dtype, k, m, n, 0, n);
            // Includes extreme weights: every byte value occurs.
            let mut rng = Rng::new(11);
            let block = dtype.block_bytes();
            let scale_at = if dtype == DType::Q6_K { 208 } else { 0 };
            for b in work.leaves[0].1.chunks_exact_mut(block) {
                b.iter_mut().for_each(|b| *b = rng.below(256) as u8);
                b[scale_at..scale_at + 2]
                    .copy_from_slice(&f16::from_f32(rng.uniform(-0.1, 0.1)).to_le_bytes());
            }
            let (weights, x) = (work.leaves[0].1.clone(), floats(&work.leaves[1].1));
            let row_bytes = dtype.row_bytes(k).unwrap();
            let want: Vec<f32> = (0..n * m)
                .map(|i| {
                    integer_product(dtype, &weights[i % m * row_bytes..][..row_bytes], &x[i / m * k..][..k])
                })
                .collect();
            for isa in isas() {
                let got = floats(&work.run(&open(isa, 2), Precision::Fast)[0]);
                assert_eq!(got, want, "{dtype} {isa:?} n={n}");
            }
        }
    }
}

fn integer_product(dtype: DType, row: &[u8], x: &[f32]) -> f32 {
    let mut total = 0.0f32;
    for (group, x) in x.chunks_exact(32).enumerate() {
        let most = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let q: Vec<i32> = x.iter().map(|v| (v * (127.0 / most)).round_ties_even() as i32).collect();
        let block = &row[group * 32 / dtype.block() * dtype.block_bytes()..];
        let sum: i32 = (0..32).map(|i| weight(dtype, block, group * 32 % dtype.block() + i) * q[i]).sum();
        let at = if dtype == DType::Q6_K { 208 } else { 0 };
        let scale = f16::from_le_bytes([block[at], block[at + 1]]).to_f32() * (most / 127.0);
        total += scale * sum as f32;
    }
    total
}

/// Returns quantised value `i` of a block, without the block's scale.
fn weight(dtype: DType, block: &[u8], i: usize) -> i32 {
    match dtype {
        DType::Q8_0 => i32::from(block[2 + i] as i8),
        DType::Q4_0 => i32::from(if i < 16 { block[2 + i] & 15 } else { block[2 + i - 16] >> 4 }) - 8,
        _ => {
            let (half, quarter, lane) = (i / 128, i % 128 / 32, i % 32);
            let low = block[half * 64 + quarter % 2 * 32 + lane] >> (4 * (quarter / 2)) & 15;
            let high = block[128 + half * 32 + lane] >> (2 * quarter) & 3;
            (i32::from(high << 4 | low) - 32) * i32::from(block[192 + i / 16] as i8)
        }
    }
}

/// Returns the offsets of the binary16 values in a block.
fn half_floats(dtype: DType) -> &'static [usize] {
    match dtype {
        DType::Q2_K => &[80, 82],
        DType::Q3_K => &[108],
        DType::Q6_K => &[208],
        DType::TQ1_0 => &[52],
        DType::TQ2_0 => &[64],
        DType::Q4_1 | DType::Q5_1 | DType::Q4_K | DType::Q5_K => &[0, 2],
        DType::MXFP4 | DType::NVFP4 | DType::IQ1_M => &[],
        _ => &[0],
    }
}

/// Blocks in which every byte value occurs: rows equal those decoded by the reference, and products with
/// 8-bit activations are equal on every instruction set and for every number of columns.
#[test]
fn blocks_of_any_bytes_agree() {
    let (k, m) = (512, 37);
    let reference = ReferenceBackend::default();
    for &dtype in WEIGHT_TYPES.iter().filter(|t| t.is_quantized()) {
        for n in [1, 5, 11, 35] {
            let mut work = product(dtype, k, m, n, 0, n);
            let mut rng = Rng::new(12);
            for b in work.leaves[0].1.chunks_exact_mut(dtype.block_bytes()) {
                b.iter_mut().for_each(|b| *b = rng.below(256) as u8);
                for &at in half_floats(dtype) {
                    b[at..at + 2].copy_from_slice(&f16::from_f32(rng.uniform(-0.1, 0.1)).to_le_bytes());
                }
                match dtype {
                    // With all exponents, the block with the largest one would hide the others.
                    DType::MXFP4 => b[0] = 120 + (b[0] & 15),
                    // The exponent is in the highest bits of the last word.
                    DType::IQ1_M => b[55] = b[55] & 15 | 0x20,
                    _ => {}
                }
            }
            let ids: Vec<f32> = (0..m).map(|i| (m - 1 - i) as f32).collect();
            let ids = work.filled("ids", DType::I32, [m, 1, 1, 1], Source::Input, &ids);
            let rows = work.graph.get_rows(work.leaves[0].0, ids).unwrap();
            work.graph.output(rows).unwrap();
            let want = work.run(&reference, Precision::Exact);
            let portable = work.run(&open(Isa::Scalar, 2), Precision::Fast);
            for isa in isas() {
                let got = work.run(&open(isa, 2), Precision::Fast);
                assert!(got[0] == portable[0], "{dtype} {isa:?} n={n}");
                assert_eq!(floats(&got[1]), floats(&want[1]), "{dtype} {isa:?}");
                let d = ggml_core::metrics::distance(&floats(&got[0]), &floats(&want[0]));
                assert!(d.nmse < 5e-4, "{dtype} {isa:?} n={n}: {d:?}");
            }
        }
    }
}

/// A NaN or an infinity in the activations is not lost in the rounding.
#[test]
fn faults_upstream_show_in_8_bits() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for n in [1, 9] {
            let mut work = product(DType::Q8_0, 64, 8, n, 0, n);
            work.leaves[1].1[40 * 4..41 * 4].copy_from_slice(&bad.to_le_bytes());
            for isa in isas() {
                let out = floats(&work.run(&open(isa, 1), Precision::Fast)[0]);
                assert!(
                    out[..8].iter().all(|x| x.is_nan()) && out[8..].iter().all(|x| x.is_finite()),
                    "{isa:?} {bad}"
                );
            }
        }
    }
}

/// Operands that overlap the result without being equal to it: copies within a tensor, and rows read from
/// where they are written.
#[test]
fn overlapping_operands_agree_with_the_reference() {
    let mut w = Work::new();
    let s = w.leaf("s", DType::F32, [40, 30, 1, 1], Source::State);
    let ids = w.filled("ids", DType::I32, [3, 1, 1, 1], Source::Input, &[1.0, 0.0, 2.0]);
    let g = &mut w.graph;
    let row = 160;
    let from = g.view(s, [39, 29, 1, 1], [4, row, row * 29, row * 29], 0).unwrap();
    let to = g.view(s, [39, 29, 1, 1], [4, row, row * 29, row * 29], row + 4).unwrap();
    g.cpy(from, to).unwrap();
    let whole = g.view(s, [40, 30, 1, 1], [4, row, row * 30, row * 30], 0).unwrap();
    let t = g.view(s, [30, 30, 1, 1], [row, 4, row * 30, row * 30], 0).unwrap();
    let square = g.view(s, [30, 30, 1, 1], [4, row, row * 30, row * 30], 0).unwrap();
    g.cpy(t, square).unwrap();
    let values = g.view(s, [40, 3, 1, 1], [4, row, row * 3, row * 3], 0).unwrap();
    let r = g.set_rows(whole, values, ids).unwrap();
    // Several indices for one address: the last write remains.
    let folded = g.view(s, [10, 4, 1, 1], [4, 8, 40, 40], 400).unwrap();
    let many = g.view(s, [10, 4, 1, 1], [4, 40, 160, 160], 1000).unwrap();
    let c = g.cpy(many, folded).unwrap();
    g.output(r).unwrap();
    g.output(c).unwrap();
    let want = w.run(&ReferenceBackend::default(), Precision::Exact);
    for isa in isas() {
        assert!(w.run(&open(isa, 2), Precision::Exact) == want, "{isa:?}");
    }
}

/// Random extents.
#[test]
fn random_shapes_agree_with_the_reference() {
    let mut rng = Rng::new(5);
    let reference = ReferenceBackend::default();
    for round in 0..60 {
        let mut w = Work::new();
        let mut up_to = |n: usize| 1 + rng.below(n);
        let dtype = WEIGHT_TYPES[round % WEIGHT_TYPES.len()];
        let k = if dtype.block() > 1 { dtype.block() * up_to(5) } else { up_to(1500) };
        let (m, n, a2, r2) = (up_to(70), up_to(20), up_to(2), up_to(3));
        let a = w.leaf("a", dtype, [k, m, a2, 1], Source::Weight);
        let b = w.leaf("b", DType::F32, [k, n, a2 * r2, 1], Source::Input);
        let product = w.graph.mul_mat(a, b).unwrap();
        w.graph.output(product).unwrap();
        let (d, dv, tokens, kv, heads_kv, shared) =
            (up_to(90), up_to(90), up_to(20), up_to(200), up_to(3), up_to(5));
        let q = w.leaf("q", DType::F32, [d, tokens, heads_kv * shared, 1], Source::Input);
        let kv_type = if round % 2 == 0 { DType::F16 } else { DType::F32 };
        let k = w.leaf("k", kv_type, [d, kv, heads_kv, 1], Source::Input);
        let v = w.leaf("v", kv_type, [dv, kv, heads_kv, 1], Source::Input);
        let op = FlashAttnExt { scale: 0.7, max_bias: 0.0, logit_softcap: 0.0 };
        let attention = w.graph.flash_attn_ext(op, q, k, v, None).unwrap();
        w.graph.output(attention).unwrap();
        let want = w.run(&reference, Precision::Exact);
        for isa in isas() {
            for (precision, bound) in [(Precision::Exact, 1e-11), (Precision::Fast, 5e-4)] {
                for (got, want) in w.run(&open(isa, 2), precision).iter().zip(&want) {
                    let d = ggml_core::metrics::distance(&floats(got), &floats(want));
                    assert!(d.nmse < bound, "round {round}, {isa:?}, {precision:?}: {d:?}");
                }
            }
        }
    }
}
