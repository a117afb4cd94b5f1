//! Conditions that must not change a result: repetition, the kind of plan, single steps, the location of a
//! tensor, other programs in the same arena.

use crate::common;

use common::{backends, file, tiny};
use diptych::ggml::backend::{Backend, Bindings, Buffer, PrepareOptions, Program, Slice, Usage};
use diptych::ggml::plan::Plan;
use diptych::ggml::rng::Rng;
use diptych::ggml::{Graph, Source, TensorId};
use diptych::model::{BatchGraph, BatchShape, ModelFile, Predictor, Want};
use diptych::{DType, Precision};
use std::collections::HashMap;

const TOKENS: usize = 13;

struct Setup {
    graph: BatchGraph,
    inputs: Vec<(TensorId, Vec<u8>)>,
    weights: HashMap<TensorId, Vec<u8>>,
}

fn setup(file: &ModelFile) -> Setup {
    let (tokens, cache) = (TOKENS, DType::F16);
    let shape = BatchShape {
        tokens,
        kv: 32,
        context: 40,
        sequences: 1,
        outputs: tokens,
        cache,
        want: Want::Logits,
        drafts: false,
        predictor: Predictor::Unused,
    };
    let graph = file.graph(&shape).unwrap();
    let ints = |values: Vec<i32>| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let n = TOKENS as i32;
    // Sequence 0 has the first cells, the others are free.
    let places = |cells: i32| {
        let held = |i: i32, value: i32| if i < n { value } else { -1 };
        ints((0..cells).map(|i| held(i, 0)).chain((0..cells).map(|i| held(i, i))).collect())
    };
    let masks = graph.inputs.mask_inputs.unwrap();
    let inputs = vec![
        (graph.inputs.tokens, ints((0..n).map(|i| i * 17 % 203).collect())),
        (graph.inputs.positions, ints((0..n).collect())),
        (graph.inputs.cache_rows, ints((0..n).collect())),
        (masks.cells, places(32)),
        (masks.tokens, places(n)),
    ];
    let data = |name: &str| file.gguf().data(file.gguf().require(name).unwrap()).unwrap().to_vec();
    let weights = graph.weights.iter().map(|(id, name)| (*id, data(name))).collect();
    Setup { graph, inputs, weights }
}

/// Binds weights and state at offsets that start `shift` alignment units into their buffers.
fn bind(setup: &Setup, backend: &dyn Backend, shift: usize) -> Bindings {
    let g = &setup.graph.graph;
    let alignment = backend.device().limits.alignment;
    let mut bindings = Bindings::default();
    let mut place = |ids: &mut dyn Iterator<Item = TensorId>, usage: Usage| {
        let ids: Vec<TensorId> = ids.collect();
        let mut end = shift * alignment;
        let offsets: Vec<usize> = ids
            .iter()
            .map(|&id| {
                let at = end;
                end += g.tensor(id).span_bytes().next_multiple_of(alignment);
                at
            })
            .collect();
        let buffer = backend.allocate(end, usage).unwrap();
        for (id, offset) in ids.into_iter().zip(offsets) {
            bindings.leaves.insert(id, Slice { buffer: buffer.clone(), offset });
        }
        buffer
    };
    place(&mut setup.graph.weights.iter().map(|(id, _)| *id), Usage::Weights);
    place(&mut setup.graph.state.iter().copied(), Usage::State);
    for (id, bytes) in &setup.weights {
        let slice = &bindings.leaves[id];
        backend.upload(&slice.buffer, slice.offset, bytes).unwrap();
    }
    bindings
}

fn prepare(
    setup: &Setup,
    backend: &dyn Backend,
    debug: bool,
    stepwise: bool,
    bindings: &Bindings,
) -> Box<dyn Program> {
    let make = if debug { Plan::debug } else { Plan::new };
    let plan = make(&setup.graph.graph, backend.device().limits.alignment, Precision::Fast).unwrap();
    let mut program = backend
        .prepare(
            &setup.graph.graph,
            &plan,
            bindings,
            PrepareOptions { stepwise, ..PrepareOptions::default() },
        )
        .unwrap();
    for (id, bytes) in &setup.inputs {
        program.write(*id, bytes).unwrap();
    }
    program
}

fn logits(setup: &Setup, program: &mut dyn Program) -> Vec<u8> {
    let mut out = vec![0; setup.graph.graph.tensor(setup.graph.logits).dense_bytes()];
    program.read(setup.graph.logits, &mut out).unwrap();
    assert!(out.chunks_exact(4).all(|b| f32::from_le_bytes(b.try_into().unwrap()).is_finite()));
    out
}

#[test]
fn logits_do_not_depend_on_how_they_are_computed() {
    let file = file(&tiny("qwen3", DType::Q8_0));
    let setup = setup(&file);
    let steps = setup.graph.graph.computed().count();
    for (name, backend) in backends() {
        let backend = backend.as_ref();
        let bindings = bind(&setup, backend, 0);
        let mut program = prepare(&setup, backend, false, false, &bindings);
        program.run().unwrap();
        let first = logits(&setup, program.as_mut());
        for _ in 0..3 {
            program.run().unwrap();
            assert!(logits(&setup, program.as_mut()) == first, "{name}: repeated");
        }
        let mut debug = prepare(&setup, backend, true, false, &bindings);
        debug.run().unwrap();
        assert!(logits(&setup, debug.as_mut()) == first, "{name}: debug plan");
        let mut stepwise = prepare(&setup, backend, true, true, &bindings);
        for step in 0..steps {
            stepwise.run_step(step).unwrap();
        }
        assert!(logits(&setup, stepwise.as_mut()) == first, "{name}: step by step");
        let moved = bind(&setup, backend, 3);
        let mut elsewhere = prepare(&setup, backend, false, false, &moved);
        elsewhere.run().unwrap();
        assert!(logits(&setup, elsewhere.as_mut()) == first, "{name}: moved weights and state");
    }
}

#[test]
fn programs_share_an_arena() {
    let file = file(&tiny("llama", DType::F16));
    let setup = setup(&file);
    for (name, backend) in backends() {
        let backend = backend.as_ref();
        let alignment = backend.device().limits.alignment;
        let plan = Plan::new(&setup.graph.graph, alignment, Precision::Fast).unwrap();
        let arena: Buffer = backend.allocate(plan.arena_bytes() * 2, Usage::Compute).unwrap();
        let (mut a, mut b) = (bind(&setup, backend, 0), bind(&setup, backend, 1));
        a.compute = vec![arena.clone()];
        b.compute = vec![arena];
        let before = backend.stats().driver_allocations;
        let mut a = prepare(&setup, backend, false, false, &a);
        a.run().unwrap();
        let first = logits(&setup, a.as_mut());
        let mut b = prepare(&setup, backend, false, false, &b);
        b.run().unwrap();
        assert!(logits(&setup, b.as_mut()) == first, "{name}");
        // The other program has overwritten the inputs, so they are written again.
        for (id, bytes) in &setup.inputs {
            a.write(*id, bytes).unwrap();
        }
        a.run().unwrap();
        assert!(logits(&setup, a.as_mut()) == first, "{name}: after the other one");
        assert!(backend.stats().driver_allocations - before <= 2, "{name}: the arena is shared");
    }
}

/// Products of the same rows, separately and among others.
#[test]
fn rows_do_not_depend_on_their_neighbours() {
    let mut rng = Rng::new(5);
    let (k, m) = (96, 70);
    let weights: Vec<f32> = (0..k * m).map(|_| rng.uniform(-1.0, 1.0)).collect();
    let columns: Vec<f32> = (0..k * 33).map(|_| rng.uniform(-1.0, 1.0)).collect();
    for (name, backend) in backends() {
        let product = |n: usize| -> Vec<f32> {
            let mut g = Graph::new();
            let a = g.leaf("a", DType::F32, [k, m, 1, 1], Source::Input).unwrap();
            let b = g.leaf("b", DType::F32, [k, n, 1, 1], Source::Input).unwrap();
            let d = g.mul_mat(a, b).unwrap();
            g.output(d).unwrap();
            let plan = Plan::new(&g, backend.device().limits.alignment, Precision::Exact).unwrap();
            let mut p = backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default()).unwrap();
            p.write(a, bytemuck::cast_slice(&weights)).unwrap();
            p.write(b, bytemuck::cast_slice(&columns[..k * n])).unwrap();
            p.run().unwrap();
            let mut out = vec![0f32; m * n];
            p.read(d, bytemuck::cast_slice_mut(&mut out)).unwrap();
            out
        };
        let all = product(33);
        for n in [1, 2, 5, 9, 32] {
            let some = product(n);
            let d = diptych::ggml::metrics::distance(&some, &all[..m * n]);
            // Other tile sizes sum in another order.
            assert!(d.nmse < 1e-12, "{name} n={n}: {:.1e}", d.nmse);
        }
    }
}
