//! Graphs on several devices give the same bits as on one device.

use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program, Slice, Usage};
use ggml_core::cpu::{CpuBackend, CpuOptions};
use ggml_core::op::{FlashAttnExt, Rope, RopeMode};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::rng::Rng;
use ggml_core::schedule::{Placement, Split, SplitDevice, SplitProgram, assign_devices};
use ggml_core::{DType, Error, Graph, Source, TensorId};
use proptest::prelude::*;

const TOKENS: usize = 3;
const WIDTH: usize = 8;
const CONTEXT: usize = 6;

/// A graph with the contents of its leaves.
struct Work {
    graph: Graph,
    inputs: Vec<(TensorId, Vec<u8>)>,
    weights: Vec<(TensorId, Vec<u8>)>,
    state: Vec<TensorId>,
}

impl Work {
    fn new() -> Work {
        Work { graph: Graph::new(), inputs: Vec::new(), weights: Vec::new(), state: Vec::new() }
    }

    fn leaf(&mut self, name: &str, ne: [usize; 4], source: Source) -> TensorId {
        let id = self.graph.leaf(name, DType::F32, ne, source.clone()).unwrap();
        let mut rng = Rng::named(name, 7);
        let n: usize = ne.iter().product();
        let bytes = (0..n).flat_map(|_| rng.uniform(-1.0, 1.0).to_le_bytes()).collect();
        match source {
            Source::Weight => self.weights.push((id, bytes)),
            Source::Input => self.inputs.push((id, bytes)),
            _ => self.state.push(id),
        }
        id
    }

    fn ids(&mut self, name: &str, values: &[i32]) -> TensorId {
        let id = self.graph.leaf(name, DType::I32, [values.len(), 1, 1, 1], Source::Input).unwrap();
        self.inputs.push((id, values.iter().flat_map(|v| v.to_le_bytes()).collect()));
        id
    }
}

/// Builds two layers of attention with caches, permutations and views, a second use of the embedding, and two
/// outputs.
fn decoder() -> Work {
    let mut w = Work::new();
    let rows = w.ids("rows", &[1, 4, 2]);
    let positions = w.ids("positions", &[1, 2, 3]);
    let table = w.leaf("table", [WIDTH, 5, 1, 1], Source::Weight);
    let tokens = w.ids("tokens", &[4, 0, 2]);
    let mask = w.leaf("mask", [CONTEXT, TOKENS, 1, 1], Source::Input);
    let mut x = w.graph.get_rows(table, tokens).unwrap();
    for layer in 0..2 {
        let wq = w.leaf(&format!("wq{layer}"), [WIDTH, 3 * WIDTH, 1, 1], Source::Weight);
        let cache = w.leaf(&format!("cache{layer}"), [WIDTH, CONTEXT, 1, 1], Source::State);
        let g = &mut w.graph;
        let normed = g.rms_norm(x, 1e-5).unwrap();
        let all = g.mul_mat(wq, normed).unwrap();
        let row = 3 * WIDTH * 4;
        let part = |g: &mut Graph, i: usize| {
            g.view(all, [4, 2, TOKENS, 1], [4, 16, row, row * TOKENS], i * WIDTH * 4).unwrap()
        };
        let (q, k, v) = (part(g, 0), part(g, 1), part(g, 2));
        let k = g.rope(Rope::plain(RopeMode::Neox, 4, 10000.0), k, positions, None).unwrap();
        let k = g.reshape(k, [WIDTH, TOKENS, 1, 1]).unwrap();
        let written = g.set_rows(cache, k, rows).unwrap();
        let k = g.view(written, [4, CONTEXT, 2, 1], [4, 32, 16, 32 * CONTEXT], 0).unwrap();
        let v = g.cont(v).unwrap();
        let v = g.reshape(v, [WIDTH, TOKENS, 1, 1]).unwrap();
        // A copy into part of a result.
        let target = g.scale(k, 0.5, 0.1).unwrap();
        let head = g.view(target, [4, TOKENS, 2, 1], g.tensor(target).nb, 16).unwrap();
        let v = g.view(v, [4, TOKENS, 2, 1], [4, 32, 16, 96], 0).unwrap();
        g.cpy(v, head).unwrap();
        let q = g.permute(q, [0, 2, 1, 3]).unwrap();
        let op = FlashAttnExt { scale: 0.5, max_bias: 0.0, logit_softcap: 0.0 };
        let out = g.flash_attn_ext(op, q, k, target, Some(mask)).unwrap();
        let out = g.reshape(out, [WIDTH, TOKENS, 1, 1]).unwrap();
        x = g.add(x, out).unwrap();
    }
    let g = &mut w.graph;
    let product = g.mul_mat(table, x).unwrap();
    let squares = g.mul(x, x).unwrap();
    let flipped = g.transpose(squares).unwrap();
    let last = g.cont(flipped).unwrap();
    g.output(product).unwrap();
    g.output(last).unwrap();
    w
}

/// Allocates weights and state on a backend.
fn bind(w: &Work, backend: &dyn Backend) -> Bindings {
    let mut bindings = Bindings::default();
    for (id, bytes) in &w.weights {
        let buffer = backend.allocate(bytes.len(), Usage::Weights).unwrap();
        backend.upload(&buffer, 0, bytes).unwrap();
        bindings.leaves.insert(*id, Slice { buffer, offset: 0 });
    }
    for &id in &w.state {
        let buffer = backend.allocate(w.graph.tensor(id).dense_bytes(), Usage::State).unwrap();
        bindings.leaves.insert(id, Slice { buffer, offset: 0 });
    }
    bindings
}

/// Mode in which programs are run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Whole,
    SharedMemory,
    Stepwise,
}

/// Returns outputs and state after two runs; the second has the inputs of the first except for one.
fn results(w: &Work, program: &mut dyn Program, mode: Mode) -> Vec<Vec<u8>> {
    for (id, bytes) in &w.inputs {
        program.write(*id, bytes).unwrap();
    }
    for run in 0..2 {
        if run == 1 {
            let (id, bytes) = &w.inputs[3];
            program.write(*id, &bytes.iter().map(|b| b ^ (b & 1)).collect::<Vec<u8>>()).unwrap();
        }
        if mode == Mode::Stepwise {
            for step in 0..w.graph.computed().count() {
                program.run_step(step).unwrap();
            }
        } else {
            program.run().unwrap();
        }
    }
    let wanted = w.graph.outputs().iter().chain(&w.state);
    let read = |&id: &TensorId| {
        let mut bytes = vec![0; w.graph.tensor(id).dense_bytes()];
        program.read(id, &mut bytes).unwrap();
        bytes
    };
    wanted.map(read).collect()
}

fn alone(w: &Work, backend: &dyn Backend) -> Vec<Vec<u8>> {
    let plan = Plan::new(&w.graph, 64, Precision::Exact).unwrap();
    let mut program = backend.prepare(&w.graph, &plan, &bind(w, backend), PrepareOptions::default()).unwrap();
    results(w, program.as_mut(), Mode::Whole)
}

fn split(w: &Work, device: &[usize], backends: &[&dyn Backend], mode: Mode) -> Vec<Vec<u8>> {
    let split = Split::new(&w.graph, device).unwrap();
    for segment in split.segments() {
        assert_eq!(segment.nodes.len(), segment.graph.computed().count());
    }
    let stepwise = mode == Mode::Stepwise;
    let plan = if stepwise { Plan::debug } else { Plan::new };
    let plans = split.plans(|graph, _| plan(graph, 64, Precision::Exact)).unwrap();
    let arenas = split.arenas(&plans);
    let mut bindings: Vec<Bindings> = backends.iter().map(|b| bind(w, *b)).collect();
    if mode == Mode::SharedMemory {
        for (&device, arena) in &arenas {
            let allocate = |&bytes: &usize| backends[device].allocate(bytes, Usage::Compute).unwrap();
            bindings[device].compute = arena.iter().map(allocate).collect();
        }
    }
    let devices: Vec<SplitDevice<'_>> = backends
        .iter()
        .zip(&bindings)
        .map(|(&backend, bindings)| SplitDevice { backend, bindings })
        .collect();
    let mut program = SplitProgram::prepare(
        split,
        &plans,
        &devices,
        PrepareOptions { stepwise, ..PrepareOptions::default() },
    )
    .unwrap();
    results(w, &mut program, mode)
}

fn placed(w: &Work, wanted: &dyn Fn(TensorId) -> usize) -> Placement {
    assign_devices(&w.graph, (0, "host"), wanted, &|_, _| None).unwrap()
}

#[test]
fn every_border_gives_the_same_bits() {
    let w = decoder();
    let reference = ReferenceBackend::default();
    let want = alone(&w, &reference);
    let mut cut = 0;
    for border in 0..=w.graph.tensors().len() {
        for host in [0, 1] {
            let placement = placed(&w, &|id| usize::from((id.index() < border) == (host == 0)));
            cut += Split::new(&w.graph, &placement.device).unwrap().segments().len() - 1;
            assert_eq!(
                split(&w, &placement.device, &[&reference, &reference], Mode::Whole),
                want,
                "{border} {host}"
            );
        }
    }
    assert!(cut > 100, "borders were cut: {cut}");
}

#[test]
fn segments_may_share_memory_and_run_step_by_step() {
    let w = decoder();
    let cpu = || CpuBackend::open(CpuOptions::default().with_threads(1)).unwrap();
    let (a, b) = (cpu(), cpu());
    let want = alone(&w, &a);
    let placement = placed(&w, &|id| id.index() / 3 % 2);
    assert!(Split::new(&w.graph, &placement.device).unwrap().segments().len() > 4);
    for mode in [Mode::Whole, Mode::SharedMemory, Mode::Stepwise] {
        assert_eq!(split(&w, &placement.device, &[&a, &b], mode), want, "{mode:?}");
    }
}

#[test]
fn state_stays_together_and_refusals_are_reported() {
    let w = decoder();
    let g = &w.graph;
    let name = |id: TensorId| g.tensor(id).name.clone();
    let wanted = |_| 1;
    let attends = |id: TensorId| g.tensor(id).op().is_some_and(|op| op.name() == "FLASH_ATTN_EXT");
    let first = g.computed().find(|&id| attends(id)).unwrap();
    let refuses = |id, device| (id == first && device == 1).then(|| "no kernel".to_string());
    let placement = assign_devices(g, (0, "host"), &wanted, &refuses).unwrap();
    // The write into the cache moves together with the product that reads the cache.
    let moved: Vec<TensorId> = g.computed().filter(|id| placement.device[id.index()] == 0).collect();
    assert!(moved.contains(&first) && moved.len() >= 2, "{moved:?}");
    assert_eq!(placement.fallbacks.len(), moved.len());
    for (fallback, id) in placement.fallbacks.iter().zip(&moved) {
        assert_eq!(fallback.node, name(*id));
        if *id == first {
            assert_eq!(fallback.to_string(), format!("FLASH_ATTN_EXT '{}': no kernel", name(first)));
        } else {
            assert!(fallback.reason.contains("'cache0'"), "{fallback}");
        }
    }
    let reference = ReferenceBackend::default();
    assert_eq!(split(&w, &placement.device, &[&reference, &reference], Mode::Whole), alone(&w, &reference));

    let error = assign_devices(g, (0, "host"), &wanted, &|id, _| (id == first).then(|| "no kernel".into()))
        .unwrap_err();
    assert!(matches!(&error, Error::Unsupported { backend, .. } if backend == "host"), "{error}");
    let torn: Vec<usize> = g.ids().map(|id| usize::from(id == first)).collect();
    let error = Split::new(g, &torn).unwrap_err().to_string();
    assert!(error.contains("cache0") && error.contains("on two devices"), "{error}");
    assert!(Split::new(g, &[0]).is_err());
}

#[test]
fn a_graph_on_one_device_is_one_segment() {
    let w = decoder();
    let placement = placed(&w, &|_| 1);
    assert_eq!((placement.only_device(&w.graph), placement.fallbacks.len()), (Some(1), 0));
    let split = Split::new(&w.graph, &placement.device).unwrap();
    assert_eq!(split.segments().len(), 1);
    let mut empty = Graph::new();
    let x = empty.leaf("x", DType::F32, [4, 1, 1, 1], Source::Input).unwrap();
    empty.output(x).unwrap();
    let split = Split::new(&empty, &[0]).unwrap();
    let plans = split.plans(|graph, _| Plan::new(graph, 64, Precision::Exact)).unwrap();
    let device = SplitDevice { backend: &ReferenceBackend::default(), bindings: &Bindings::default() };
    let mut program = SplitProgram::prepare(split, &plans, &[device], PrepareOptions::default()).unwrap();
    program.write(x, &[7; 16]).unwrap();
    program.run().unwrap();
    let mut out = [0; 16];
    program.read(x, &mut out).unwrap();
    assert_eq!(out, [7; 16]);
    assert!(program.write(x, &[0; 4]).is_err() && program.read(TensorId(9), &mut out).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn random_placements_give_the_same_bits(wanted in prop::collection::vec(0usize..3, 80)) {
        let w = decoder();
        let reference = ReferenceBackend::default();
        let placement = placed(&w, &|id| wanted[id.index() % wanted.len()]);
        let got = split(&w, &placement.device, &[&reference, &reference, &reference], Mode::Whole);
        prop_assert_eq!(got, alone(&w, &reference));
    }
}
