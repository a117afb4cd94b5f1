//! The `cpu` backend against the reference, and against itself under changes that must not change results.

use ggml_core::backend::{Backend, Bindings, Buffer, PrepareOptions, Program, Slice, Support, Usage};
use ggml_core::catalogue::{self, Outcome};
use ggml_core::cpu::{CpuBackend, CpuOptions, Isa};
use ggml_core::encode::encode;
use ggml_core::mapped::MappedBytes;
use ggml_core::op::{Activation, FlashAttnExt, Glu, Rope, RopeMode, SoftMax};
use ggml_core::phase::Deadlines;
use ggml_core::plan::{Plan, Precision};
use ggml_core::reference::ReferenceBackend;
use ggml_core::rng::Rng;
use ggml_core::{DType, Error, Graph, Phase, Result, Source, TensorId};
use half::f16;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

const WEIGHTS: [DType; 6] = [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q6_K];

fn isas() -> Vec<Isa> {
    Isa::ALL.into_iter().filter(|i| i.available()).collect()
}

fn open(isa: Isa, threads: usize) -> CpuBackend {
    CpuBackend::open(CpuOptions { isa: Some(isa), threads: Some(threads), ..CpuOptions::default() }).unwrap()
}

/// Every case of every operation, in both precisions, on every instruction set that this machine executes. Nothing may
/// be refused.
#[test]
fn catalogue_agrees_with_the_reference() {
    let reference = ReferenceBackend::default();
    let backends: Vec<CpuBackend> = isas().into_iter().map(|isa| open(isa, 2)).collect();
    let mut wrong = Vec::new();
    for case in catalogue::cases() {
        let want = match catalogue::run(&case, &reference, Precision::Exact).unwrap() {
            Outcome::Values(values) => values,
            Outcome::Unsupported(reason) => panic!("{}: {reason}", case.name),
        };
        for (isa, backend) in isas().into_iter().zip(&backends) {
            for precision in [Precision::Exact, Precision::Fast] {
                let place = format!("{} on {}, {}", case.name, isa.name(), precision.name());
                match catalogue::run(&case, backend, precision) {
                    Ok(Outcome::Values(got)) => {
                        let d = ggml_core::metrics::distance(&got, &want);
                        if d.nmse > catalogue::bound(&case, precision) {
                            wrong.push(format!(
                                "{place}: NMSE {:.2e}, max {:.2e} at {}",
                                d.nmse, d.max_abs, d.worst
                            ));
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

/// A graph with contents for its leaves.
struct Work {
    graph: Graph,
    leaves: Vec<(TensorId, Vec<u8>)>,
}

impl Work {
    fn new() -> Work {
        Work { graph: Graph::new(), leaves: Vec::new() }
    }

    /// A leaf with uniform random contents.
    fn leaf(&mut self, name: &str, dtype: DType, ne: [usize; 4], source: Source) -> TensorId {
        let mut rng = Rng::named(name, 7);
        let values: Vec<f32> = (0..ne.iter().product()).map(|_| rng.uniform(-1.0, 1.0)).collect();
        self.filled(name, dtype, ne, source, &values)
    }

    fn filled(
        &mut self,
        name: &str,
        dtype: DType,
        ne: [usize; 4],
        source: Source,
        values: &[f32],
    ) -> TensorId {
        let id = self.graph.leaf(name, dtype, ne, source).unwrap();
        self.leaves.push((id, encode(dtype, ne[0], values).unwrap()));
        id
    }

    /// Binds, writes, runs twice, reads the outputs' roots. `shift` moves weights and state in their buffers.
    fn run_with(&self, backend: &dyn Backend, plan: &Plan, shift: usize) -> Result<Vec<Vec<u8>>> {
        let mut bindings = Bindings::default();
        for (id, data) in &self.leaves {
            let usage = match self.graph.tensor(*id).source {
                Source::Weight => Usage::Weights,
                Source::State => Usage::State,
                _ => continue,
            };
            let buffer = backend.allocate(data.len() + shift, usage)?;
            backend.upload(&buffer, shift, data)?;
            bindings.leaves.insert(*id, Slice { buffer, offset: shift });
        }
        let mut program = backend.prepare(&self.graph, plan, &bindings, PrepareOptions::default())?;
        for _ in 0..2 {
            for (id, data) in &self.leaves {
                if self.graph.tensor(*id).source != Source::Weight {
                    program.write(*id, data)?;
                }
            }
            program.run()?;
        }
        self.graph.outputs().iter().map(|&id| self.read(&mut *program, id)).collect()
    }

    fn read(&self, program: &mut dyn Program, id: TensorId) -> Result<Vec<u8>> {
        let root = self.graph.tensor(id).root;
        let mut bytes = vec![0; self.graph.tensor(root).dense_bytes()];
        program.read(root, &mut bytes)?;
        Ok(bytes)
    }

    fn run(&self, backend: &dyn Backend, precision: Precision) -> Vec<Vec<u8>> {
        self.run_with(backend, &Plan::new(&self.graph, 64, precision).unwrap(), 0).unwrap()
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Every kind of operation at sizes that are worth several threads, with a layer of a model in the middle.
fn layers(tokens: usize) -> Work {
    let mut w = Work::new();
    let (d, heads, heads_kv, ff, context) = (256, 8, 2, 768, 320);
    let head = d / heads;
    let ids: Vec<f32> = (0..tokens).map(|t| (t * 37 % 512) as f32).collect();
    let ids = w.filled("ids", DType::I32, [tokens, 1, 1, 1], Source::Input, &ids);
    let slots: Vec<f32> = (0..tokens).map(|t| (context - 1 - t) as f32).collect();
    let slots = w.filled("slots", DType::I32, [tokens, 1, 1, 1], Source::Input, &slots);
    let table = w.leaf("table", DType::Q8_0, [d, 512, 1, 1], Source::Weight);
    let mask = w.leaf("mask", DType::F16, [context, tokens, 1, 1], Source::Input);
    let mut g = std::mem::take(&mut w.graph);
    let x = g.get_rows(table, ids).unwrap();
    w.graph = g;
    let mut x = x;
    for (layer, dtype) in WEIGHTS.into_iter().enumerate() {
        let weight = |w: &mut Work, name: &str, k: usize, m: usize| {
            w.leaf(&format!("{name}{layer}"), dtype, [k, m, 1, 1], Source::Weight)
        };
        let (wq, wk) = (weight(&mut w, "q", d, d), weight(&mut w, "k", d, head * heads_kv));
        let (wg, wu, wd) =
            (weight(&mut w, "g", d, ff), weight(&mut w, "u", d, ff), weight(&mut w, "d", ff, d));
        let scale = w.leaf(&format!("scale{layer}"), DType::F32, [d, 1, 1, 1], Source::Weight);
        let cache_type = if layer % 2 == 0 { DType::F16 } else { DType::F32 };
        let cache =
            w.leaf(&format!("cache{layer}"), cache_type, [head * heads_kv, context, 1, 1], Source::State);
        let g = &mut w.graph;
        let n = g.rms_norm(x, 1e-5).unwrap();
        let n = g.mul(n, scale).unwrap();
        let q = g.mul_mat(wq, n).unwrap();
        let k = g.mul_mat(wk, n).unwrap();
        let q = g.reshape(q, [head, heads, tokens, 1]).unwrap();
        let mode = if layer % 2 == 0 { RopeMode::Neox } else { RopeMode::Normal };
        let q = g.rope(Rope::plain(mode, head, 10000.0), q, ids, None).unwrap();
        let q = g.permute(q, [0, 2, 1, 3]).unwrap();
        let kv = g.set_rows(cache, k, slots).unwrap();
        let kv = g.reshape(kv, [head, heads_kv, context, 1]).unwrap();
        let kv = g.permute(kv, [0, 2, 1, 3]).unwrap();
        let op = FlashAttnExt { scale: 0.2, max_bias: 4.0, logit_softcap: 3.0 * (layer % 2) as f32 };
        let a = g.flash_attn_ext(op, q, kv, kv, Some(mask)).unwrap();
        let a = g.reshape(a, [d, tokens, 1, 1]).unwrap();
        x = g.add(a, x).unwrap();
        let n = g.rms_norm(x, 1e-5).unwrap();
        let (gate, up) = (g.mul_mat(wg, n).unwrap(), g.mul_mat(wu, n).unwrap());
        let h =
            g.glu(Glu { activation: Activation::ALL[layer % 5], swapped: false }, gate, Some(up)).unwrap();
        let y = g.mul_mat(wd, h).unwrap();
        let y = g.scale(y, 0.05, 0.0).unwrap();
        x = g.add(x, y).unwrap();
        if layer == 0 {
            w.graph.output(x);
        }
    }
    let g = &mut w.graph;
    let t = g.transpose(x).unwrap();
    let t = g.cont(t).unwrap();
    let p = g.soft_max(SoftMax { scale: 2.0, max_bias: 0.0 }, t, None).unwrap();
    let u = g.unary(Activation::Gelu, p).unwrap();
    g.output(x);
    g.output(u);
    w
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

/// A product with one type of weights.
fn product(dtype: DType, k: usize, m: usize, n: usize, first: usize, count: usize) -> Work {
    let mut w = Work::new();
    let a = w.leaf("a", dtype, [k, m, 1, 1], Source::Weight);
    let mut rng = Rng::new(3);
    let b: Vec<f32> = (0..k * n).map(|_| rng.normal()).collect();
    let b = w.filled("b", DType::F32, [k, count, 1, 1], Source::Input, &b[first * k..(first + count) * k]);
    let d = w.graph.mul_mat(a, b).unwrap();
    w.graph.output(d);
    w
}

/// A product of many columns is that of its columns one by one, bit for bit.
#[test]
fn results_do_not_depend_on_the_number_of_columns() {
    for dtype in WEIGHTS {
        // More than a segment; plain types with a row that ends within a vector.
        let k = match dtype.block() {
            1 => 1024 + 45,
            block => 1024 + block.max(96),
        };
        let (m, n) = (37, 23);
        for isa in isas() {
            for precision in [Precision::Exact, Precision::Fast] {
                let backend = open(isa, 2);
                let whole = product(dtype, k, m, n, 0, n).run(&backend, precision).remove(0);
                for (first, count) in [(0, 1), (22, 1), (5, 2), (3, 5), (7, 16)] {
                    let part = product(dtype, k, m, n, first, count).run(&backend, precision).remove(0);
                    let want = &whole[first * m * 4..(first + count) * m * 4];
                    assert!(part == want, "{dtype} {isa:?} {precision:?}: columns {first}..+{count}");
                }
            }
        }
    }
}

/// Products of quantised weights with 8-bit activations, evaluated as their definition says: the same bits on every
/// instruction set and for every number of columns.
#[test]
fn integer_products_are_exact() {
    let (k, m) = (1280, 45);
    for dtype in [DType::Q8_0, DType::Q4_0, DType::Q6_K] {
        for n in [1, 4, 6, 13] {
            let mut work = product(dtype, k, m, n, 0, n);
            // Extreme weights too: every byte value occurs.
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

/// Number `i` of a block without the block's scale.
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

/// A NaN or an infinity in the activations is not rounded away.
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

/// Operands that overlap the result without being it: copies within a tensor, rows taken from where they go.
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
    // Several indices for one address: the last one stays.
    let folded = g.view(s, [10, 4, 1, 1], [4, 8, 40, 40], 400).unwrap();
    let many = g.view(s, [10, 4, 1, 1], [4, 40, 160, 160], 1000).unwrap();
    let c = g.cpy(many, folded).unwrap();
    g.output(r);
    g.output(c);
    let want = w.run(&ReferenceBackend::default(), Precision::Exact);
    for isa in isas() {
        assert!(w.run(&open(isa, 2), Precision::Exact) == want, "{isa:?}");
    }
}

#[test]
fn a_memory_map_is_read_in_place_and_never_written() {
    let work = product(DType::Q8_0, 256, 100, 2, 0, 2);
    let backend = open(Isa::best(), 2);
    let before = backend.stats();
    let buffer = backend.import(MappedBytes::from(work.leaves[0].1.clone())).unwrap().unwrap();
    assert_eq!(backend.stats(), before, "nothing is allocated for an import");
    assert!(backend.upload(&buffer, 0, &[1]).is_err());
    let own = backend.allocate(100, Usage::Staging).unwrap();
    let slice = |buffer: &Buffer, offset| Slice { buffer: buffer.clone(), offset };
    assert!(backend.copy(&slice(&own, 0), &slice(&buffer, 0), 10).is_err());
    backend.copy(&slice(&buffer, 2), &slice(&own, 50), 10).unwrap();
    let mut out = [0; 10];
    backend.download(&own, 50, &mut out).unwrap();
    assert_eq!(out, work.leaves[0].1[2..12]);

    let (a, b) = (work.leaves[0].0, work.leaves[1].0);
    let plan = Plan::new(&work.graph, 64, Precision::Exact).unwrap();
    let mut bindings = Bindings::default();
    bindings.leaves.insert(a, slice(&buffer, 0));
    let mut program = backend.prepare(&work.graph, &plan, &bindings, PrepareOptions::default()).unwrap();
    program.write(b, &work.leaves[1].1).unwrap();
    assert!(program.write(a, &work.leaves[0].1).is_err(), "weights are not the program's");
    program.run().unwrap();
    let got = work.read(&mut *program, work.graph.outputs()[0]).unwrap();
    assert!(got == work.run(&backend, Precision::Exact)[0]);

    bindings.compute = Some(buffer.clone());
    assert!(backend.prepare(&work.graph, &plan, &bindings, PrepareOptions::default()).is_err());
    let mut state = Work::new();
    let s = state.leaf("s", DType::F32, [8, 8, 1, 1], Source::State);
    let x = state.leaf("x", DType::F32, [8, 8, 1, 1], Source::Input);
    let c = state.graph.cpy(x, s).unwrap();
    state.graph.output(c);
    let plan = Plan::new(&state.graph, 64, Precision::Exact).unwrap();
    let mut bindings = Bindings::default();
    bindings.leaves.insert(s, slice(&buffer, 0));
    let error = backend.prepare(&state.graph, &plan, &bindings, PrepareOptions::default()).err().unwrap();
    assert!(error.to_string().contains("cannot be written"), "{error}");
}

#[test]
fn wrong_bindings_and_calls_are_typed_errors() {
    let work = product(DType::F32, 64, 10, 1, 0, 1);
    let backend = open(Isa::Scalar, 1);
    let (a, b, d) = (work.leaves[0].0, work.leaves[1].0, work.graph.outputs()[0]);
    let plan = Plan::new(&work.graph, 64, Precision::Exact).unwrap();
    let prepare = |bindings: &Bindings, plan: &Plan| {
        backend.prepare(&work.graph, plan, bindings, PrepareOptions::default()).map(|_| ())
    };
    let bytes = work.leaves[0].1.len();
    let invalid = |result: Result<()>, what: &str| {
        assert!(matches!(result, Err(Error::InvalidArgument { .. })), "{what}: {result:?}");
    };
    let mut bindings = Bindings::default();
    invalid(prepare(&bindings, &plan), "a weight without storage");
    let bound = |buffer: Buffer, offset| {
        let mut bindings = Bindings::default();
        bindings.leaves.insert(a, Slice { buffer, offset });
        bindings
    };
    let large = backend.allocate(bytes + 64, Usage::Weights).unwrap();
    invalid(prepare(&bound(backend.allocate(bytes - 1, Usage::Weights).unwrap(), 0), &plan), "too small");
    invalid(prepare(&bound(large.clone(), 65), &plan), "beyond the end");
    invalid(prepare(&bound(large.clone(), usize::MAX), &plan), "an offset that overflows");
    invalid(prepare(&bound(large.clone(), 2), &plan), "not aligned");
    let foreign = ReferenceBackend::default().allocate(bytes, Usage::Weights).unwrap();
    invalid(prepare(&bound(foreign.clone(), 0), &plan), "another backend's buffer");
    invalid(backend.upload(&foreign, 0, &[1]), "another backend's buffer");
    invalid(backend.upload(&large, bytes + 64, &[1]), "beyond the end");
    invalid(backend.download(&large, usize::MAX, &mut [0; 2]), "beyond the end");
    let at = |offset| Slice { buffer: large.clone(), offset };
    invalid(backend.copy(&at(0), &at(5), 6), "ranges that overlap");
    bindings = bound(large.clone(), 64);
    bindings.compute = Some(backend.allocate(plan.arena_bytes - 1, Usage::Compute).unwrap());
    invalid(prepare(&bindings, &plan), "an arena that is too small");
    bindings.compute = None;
    invalid(
        prepare(&bindings, &Plan::new(&layers(1).graph, 64, Precision::Exact).unwrap()),
        "another graph's plan",
    );
    let mut wrong = plan.clone();
    wrong.arena_bytes = 0;
    invalid(prepare(&bindings, &wrong), "places outside of the arena");

    let mut program = backend.prepare(&work.graph, &plan, &bindings, PrepareOptions::default()).unwrap();
    invalid(program.write(b, &[0; 3]), "a wrong length");
    invalid(program.write(TensorId(99), &[0; 3]), "no tensor of the graph");
    invalid(program.write(d, &[0; 40]), "a result, unless every tensor is kept");
    invalid(program.run_step(0).map(|_| ()), "not prepared for steps");
    let mut program =
        backend.prepare(&work.graph, &plan, &bindings, PrepareOptions { stepwise: true }).unwrap();
    program.write(b, &work.leaves[1].1).unwrap();
    program.run_step(0).unwrap();
    invalid(program.run_step(1).map(|_| ()), "no step of the plan");
    assert!(CpuBackend::open(CpuOptions { threads: Some(0), ..CpuOptions::default() }).is_err());
    if let Some(isa) = Isa::ALL.into_iter().find(|i| !i.available()) {
        let error = CpuBackend::open(CpuOptions { isa: Some(isa), ..CpuOptions::default() }).unwrap_err();
        assert!(matches!(error, Error::Unavailable { phase: Phase::OpenDevice, .. }));
    }
    let error = backend.allocate(isize::MAX as usize - 4096, Usage::Compute).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }));
}

#[test]
fn device_and_counters() {
    let backend = CpuBackend::open(CpuOptions::default()).unwrap();
    let device = backend.device();
    assert_eq!((device.backend.as_str(), device.arch.as_str()), ("cpu", "CPU"));
    assert!(
        device.features.contains(&("isa".into(), Isa::best().name().into())) && device.overrides.is_empty()
    );
    let state = backend.allocate(1000, Usage::State).unwrap();
    let mut out = [1; 1000];
    backend.download(&state, 0, &mut out).unwrap();
    assert_eq!(out, [0; 1000], "state is zero at the beginning");
    assert_eq!((backend.stats().driver_allocations, backend.stats().allocated_bytes), (1, 1000));
    backend.upload(&state, 990, &[1; 10]).unwrap();
    drop(state);
    assert_eq!((backend.stats().allocated_bytes, backend.stats().uploaded_bytes), (0, 10));
    for case in catalogue::cases() {
        let graph = case.graph.unwrap();
        assert!(graph.ids().all(|id| backend.supports(&graph, id) == Support::Native), "{}", case.name);
    }
    assert!(
        WEIGHTS.into_iter().all(|t| backend.supports_weights(t)) && !backend.supports_weights(DType::Q4_K)
    );
}

#[test]
fn a_deadline_ends_a_run_and_names_the_node() {
    let work = product(DType::F32, 1024, 512, 64, 0, 64);
    let deadlines = Deadlines { compute: Duration::ZERO, ..Deadlines::default() };
    let backend = CpuBackend::open(CpuOptions { deadlines, ..CpuOptions::default() }).unwrap();
    let plan = Plan::new(&work.graph, 64, Precision::Exact).unwrap();
    let error = work.run_with(&backend, &plan, 0).unwrap_err();
    assert!(matches!(error, Error::Timeout { phase: Phase::FirstCompute, .. }), "{error}");
    assert_eq!(error.node(), Some(work.graph.tensor(work.graph.outputs()[0]).name.as_str()));
}

/// Programs on several threads that share an arena, a state and weights take turns.
#[test]
fn programs_share_memory_in_turns() {
    let work = layers(3);
    let backend = open(Isa::best(), 2);
    let plan = Plan::new(&work.graph, 64, Precision::Fast).unwrap();
    let want = work.run(&backend, Precision::Fast);
    let mut bindings = Bindings::default();
    for (id, data) in &work.leaves {
        if work.graph.tensor(*id).source != Source::Input {
            let buffer = backend.allocate(data.len(), Usage::State).unwrap();
            backend.upload(&buffer, 0, data).unwrap();
            bindings.leaves.insert(*id, Slice { buffer, offset: 0 });
        }
    }
    bindings.compute = Some(backend.allocate(plan.arena_bytes, Usage::Compute).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut program =
                    backend.prepare(&work.graph, &plan, &bindings, PrepareOptions::default()).unwrap();
                for _ in 0..5 {
                    for (id, data) in &work.leaves {
                        if work.graph.tensor(*id).source == Source::Input {
                            program.write(*id, data).unwrap();
                        }
                    }
                    program.run().unwrap();
                }
                for (&id, want) in work.graph.outputs().iter().zip(&want) {
                    assert!(work.read(&mut *program, id).unwrap() == *want);
                }
            });
        }
    });
}

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A run on the caller's thread allocates nothing.
#[test]
fn runs_allocate_nothing() {
    let work = layers(3);
    let backend = open(Isa::best(), 1);
    for precision in [Precision::Exact, Precision::Fast] {
        let plan = Plan::new(&work.graph, 64, precision).unwrap();
        let mut bindings = Bindings::default();
        for (id, data) in &work.leaves {
            let buffer = backend.allocate(data.len(), Usage::State).unwrap();
            bindings.leaves.insert(*id, Slice { buffer, offset: 0 });
        }
        let mut program = backend.prepare(&work.graph, &plan, &bindings, PrepareOptions::default()).unwrap();
        program.run().unwrap();
        let before = ALLOCATIONS.get();
        program.run().unwrap();
        assert_eq!(ALLOCATIONS.get(), before);
    }
}
