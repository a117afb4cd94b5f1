//! Mixtures of experts, recurrent layers, caches in blocks.

use super::work::{Work, floats, isas, open};
use super::{rounds_many, same_products};
use ggml_core::op::mul_mat::WEIGHT_TYPES;
use ggml_core::op::{FlashAttnExt, Glu};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::rng::Rng;
use ggml_core::{DType, Result, Source, TensorId};

/// Builds a mixture, a recurrent layer with two sequences, and attention with sinks, large enough for several
/// threads.
pub(crate) fn mixture(tokens: usize) -> Work {
    let mut w = Work::new();
    let x = w.leaf("x", DType::F32, [256, tokens, 1, 1], Source::Input);
    for result in [experts(&mut w, x, tokens), recurrent(&mut w, x, tokens), attention(&mut w, x, tokens)] {
        w.graph.output(result.unwrap()).unwrap();
    }
    w
}

fn experts(w: &mut Work, x: TensorId, tokens: usize) -> Result<TensorId> {
    let router = w.leaf("router", DType::F32, [256, 8, 1, 1], Source::Weight);
    let up = w.leaf("up", DType::Q8_0, [256, 512, 8, 1], Source::Weight);
    let down = w.leaf("down", DType::F16, [256, 256, 8, 1], Source::Weight);
    let g = &mut w.graph;
    let scores = g.mul_mat(router, x)?;
    let ids = g.top_k(scores, 3)?;
    let x = g.reshape(x, [256, 1, tokens, 1])?;
    let h = g.mul_mat_id(up, x, ids)?;
    let h = g.glu(Glu::clamped(1.7, 3.0), h, None)?;
    g.mul_mat_id(down, h, ids)
}

fn recurrent(w: &mut Work, x: TensorId, tokens: usize) -> Result<TensorId> {
    let taps = w.leaf("taps", DType::F32, [6, 256, 1, 1], Source::Weight);
    let last = w.leaf("last", DType::F32, [256, 5, 2, 1], Source::State);
    let gate: Vec<f32> = (0..2 * tokens).map(|i| -0.1 * (i % 7) as f32).collect();
    let gate = w.filled("gate", DType::F32, [2, tokens, 1, 1], Source::Input, &gate);
    let beta = w.filled("beta", DType::F32, [2, tokens, 1, 1], Source::Input, &vec![0.4; 2 * tokens]);
    let state = w.leaf("state", DType::F32, [64, 64, 2, 2], Source::State);
    // The second sequence has the larger half of the tokens and continues an earlier run.
    let half = (tokens / 2) as f32;
    let runs = [0.0, half, 0.0, half, tokens as f32 - half, 5.0];
    let runs = w.filled("runs", DType::I32, [3, 2, 1, 1], Source::Input, &runs);
    let g = &mut w.graph;
    let c = g.ssm_conv(x, taps, last, runs)?;
    let window = |g: &mut ggml_core::Graph, heads: usize, first: usize| {
        g.view(c, [64, heads, tokens, 1], [4, 256, 1024, 1024 * tokens], 4 * first)
    };
    let (q, k, v) = (window(g, 1, 0)?, window(g, 1, 64)?, window(g, 2, 128)?);
    let k = g.rms_norm(k, 1e-5)?;
    let k = g.scale(k, 0.125, 0.0)?;
    g.gated_delta_net(0.125, [q, k, v, gate, beta, state, runs])
}

fn attention(w: &mut Work, x: TensorId, tokens: usize) -> Result<TensorId> {
    let places: Vec<f32> = (0..tokens).map(|t| (200 + t) as f32).collect();
    let places = w.filled("places", DType::I32, [tokens, 1, 1, 1], Source::Input, &places);
    let mask = w.leaf("mask", DType::F16, [320, tokens, 1, 1], Source::Input);
    let sinks = w.leaf("sinks", DType::F32, [4, 1, 1, 1], Source::Weight);
    let mut caches = [DType::Q8_0, DType::Q4_0].map(|t| w.leaf(t.name(), t, [64, 320, 1, 1], Source::State));
    let g = &mut w.graph;
    let values = g.view(x, [64, tokens, 1, 1], [4, 1024, 1024 * tokens, 1024 * tokens], 256)?;
    for cache in &mut caches {
        *cache = g.set_rows(*cache, values, places)?;
    }
    let q = g.reshape(x, [64, 4, tokens, 1])?;
    let q = g.permute(q, [0, 2, 1, 3])?;
    let op = FlashAttnExt { scale: 0.3, max_bias: 0.0, logit_softcap: 0.0 };
    let a = g.flash_attn_sinks(op, [q, caches[0], caches[0]], mask, sinks)?;
    let b = g.flash_attn_sinks(op, [q, caches[1], caches[1]], mask, sinks)?;
    g.add(a, b)
}

#[test]
fn agrees_with_the_reference() {
    for tokens in [1, 9] {
        let work = mixture(tokens);
        let want = work.run(&ReferenceBackend::default(), Precision::Exact);
        for isa in isas() {
            for (precision, bound) in [(Precision::Exact, 1e-7), (Precision::Fast, 1e-3)] {
                let got = work.run(&open(isa, 2), precision);
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    let d = ggml_core::metrics::distance(&floats(got), &floats(want));
                    assert!(d.nmse < bound, "{tokens} tokens, {isa:?}, {precision:?}, output {i}: {d:?}");
                }
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_threads_places_or_plans() {
    for tokens in [1, 3, 67] {
        let work = mixture(tokens);
        for isa in isas() {
            for precision in [Precision::Exact, Precision::Fast] {
                let want = work.run(&open(isa, 1), precision);
                for threads in [2, 7] {
                    let same = work.run(&open(isa, threads), precision) == want;
                    assert!(same, "{tokens} tokens, {isa:?}, {precision:?}, {threads} threads");
                }
                let plan = Plan::debug(&work.graph, 64, precision).unwrap();
                let got = work.run_with(&open(isa, 2), &plan, 12).unwrap();
                assert!(got == want, "{tokens} tokens, {isa:?}, {precision:?}: debug plan");
            }
        }
    }
}

/// For any number of tokens that select a matrix, each product equals that of MUL_MAT with one column, bit
/// for bit.
#[test]
fn products_with_chosen_matrices_are_those_of_their_columns() {
    const EXPERTS: usize = 5;
    let mut rng = Rng::new(11);
    for &dtype in WEIGHT_TYPES {
        let (k, m, used) = (1024 + 96usize.next_multiple_of(dtype.block()), 37, 2);
        for (tokens, own) in [(1, false), (3, true), (60, false)] {
            let rows = if own { used } else { 1 };
            // No token selects the second matrix, most select the third, and the one after the last is out of
            // range.
            let mut choose = || [0, 2, 2, 2, 3, 4, EXPERTS][rng.below(7)];
            let ids: Vec<usize> = (0..used * tokens).map(|_| choose()).collect();
            let mut w = Work::new();
            let a = w.leaf("a", dtype, [k, m, EXPERTS, 1], Source::Weight);
            let b = w.leaf("b", DType::F32, [k, rows, tokens, 1], Source::Input);
            let named: Vec<f32> = ids.iter().map(|&id| id as f32).collect();
            let named = w.filled("ids", DType::I32, [used, tokens, 1, 1], Source::Input, &named);
            let g = &mut w.graph;
            let chosen = g.mul_mat_id(a, b, named).unwrap();
            g.output(chosen).unwrap();
            let columns = g.reshape(b, [k, rows * tokens, 1, 1]).unwrap();
            for expert in 0..EXPERTS {
                let bytes = dtype.row_bytes(k).unwrap();
                let nb = [dtype.block_bytes(), bytes, bytes * m, bytes * m];
                let matrix = g.view(a, [k, m, 1, 1], nb, expert * bytes * m).unwrap();
                let product = g.mul_mat(matrix, columns).unwrap();
                g.output(product).unwrap();
            }
            for isa in isas() {
                for precision in [Precision::Exact, Precision::Fast] {
                    let out: Vec<_> =
                        w.run(&open(isa, 2), precision).iter().map(|bytes| floats(bytes)).collect();
                    for (pair, &id) in ids.iter().enumerate() {
                        let column = if own { pair } else { pair / used };
                        let want = out.get(id + 1).map_or(vec![0.0; m], |p| p[column * m..][..m].to_vec());
                        let rounded = rounds_many(dtype, isa, precision);
                        let same = same_products(&out[0][pair * m..][..m], &want, rounded);
                        assert!(same, "{dtype} {isa:?} {precision:?}: pair {pair} of {tokens} tokens");
                    }
                }
            }
        }
    }
}
