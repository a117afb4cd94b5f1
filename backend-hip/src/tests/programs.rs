//! Programs: arguments, replays, shared arenas, constants, scratch.

use super::{options, pair};
use crate::driver::codes::Call;
use crate::options::{Breadcrumbs, HipOptions};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program, Slice, Support, Usage};
use ggml_core::op::{Rope, RopeMode};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::{DType, Error, Graph, Source, TensorId};

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

pub(super) fn write(program: &mut dyn Program, id: TensorId, values: &[f32]) {
    program.write(id, bytemuck::cast_slice(values)).unwrap();
}

pub(super) fn read(program: &mut dyn Program, id: TensorId, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; count * 4];
    program.read(id, &mut bytes).unwrap();
    floats(&bytes)
}

/// Graph of `(x * 2 + 1) + w`, with `w` a weight at an odd offset, then the identity through scratch.
pub(super) struct Sample {
    pub(super) graph: Graph,
    pub(super) x: TensorId,
    w: TensorId,
    scaled: TensorId,
    pub(super) sum: TensorId,
}

pub(super) fn sample() -> Sample {
    let mut graph = Graph::new();
    let w = graph.leaf("w", DType::F32, [64, 1, 1, 1], Source::Weight).unwrap();
    let x = graph.leaf("x", DType::F32, [64, 1, 1, 1], Source::Input).unwrap();
    let scaled = graph.scale(x, 2.0, 1.0).unwrap();
    let sum = graph.add(scaled, w).unwrap();
    let sum = graph.rms_norm(sum, 0.0).unwrap();
    graph.output(sum).unwrap();
    Sample { graph, x, w, scaled, sum }
}

pub(super) fn bind(backend: &dyn Backend, s: &Sample) -> Bindings {
    let buffer = backend.allocate(1024, Usage::Weights).unwrap();
    backend.upload(&buffer, 260, bytemuck::cast_slice(&[0.5f32; 64])).unwrap();
    let mut bindings = Bindings::default();
    bindings.leaves.insert(s.w, Slice { buffer, offset: 260 });
    bindings
}

#[test]
fn a_program_is_run_again_and_again() {
    let (fake, backend) = pair(options());
    let s = sample();
    let bindings = bind(&backend, &s);
    let plan = Plan::new(&s.graph, 256, Precision::Exact).unwrap();
    let before = backend.stats();
    let mut program = backend.prepare(&s.graph, &plan, &bindings, PrepareOptions::default()).unwrap();
    let prepared = backend.stats();
    assert_eq!(prepared.driver_allocations, before.driver_allocations + 1);
    assert_eq!((prepared.pipelines, prepared.programs, prepared.submissions), (4, 1, 0));
    for round in 0..5 {
        let x: Vec<f32> = (0..64).map(|i| (i + round) as f32).collect();
        write(&mut *program, s.x, &x);
        let timing = program.run().unwrap();
        assert_eq!(timing.device, Some(std::time::Duration::from_micros(1500)));
        let want: Vec<f32> = x.iter().map(|x| x * 2.0 + 1.5).collect();
        assert_eq!(read(&mut *program, s.sum, 64), want);
    }
    // Unchanged inputs are not written again.
    program.run().unwrap();
    let stats = backend.stats();
    assert_eq!(
        (stats.driver_allocations, stats.pipelines),
        (prepared.driver_allocations, prepared.pipelines)
    );
    assert_eq!(stats.submissions, 6);
    assert_eq!((fake.count(Call::LoadModule), fake.count(Call::Function)), (1, 4));
    assert_eq!(
        fake.count(Call::CreateEvent),
        4 + 64 + 2 + 2 * (4 + 2),
        "events are made when the device is opened"
    );
}

#[test]
fn a_second_program_finds_the_kernels_loaded() {
    let (fake, backend) = pair(options());
    let s = sample();
    let bindings = bind(&backend, &s);
    let plan = Plan::new(&s.graph, 256, Precision::Exact).unwrap();
    for _ in 0..3 {
        backend.prepare(&s.graph, &plan, &bindings, PrepareOptions::default()).unwrap();
    }
    assert_eq!((fake.count(Call::LoadModule), backend.stats().pipelines), (1, 4));
    // The next call runs after the frees.
    backend.download(&bindings.leaves[&s.w].buffer, 0, &mut [0]).unwrap();
    assert_eq!(fake.held()[0], 1, "programs free their arenas");
}

/// Two programs in one arena: each run copies all of its inputs.
#[test]
fn an_arena_is_shared() {
    let (_, backend) = pair(options());
    let s = sample();
    let mut bindings = bind(&backend, &s);
    let plan = Plan::new(&s.graph, 256, Precision::Exact).unwrap();
    bindings.compute = vec![backend.allocate(plan.arena_bytes(), Usage::Compute).unwrap()];
    let mut one = backend.prepare(&s.graph, &plan, &bindings, PrepareOptions::default()).unwrap();
    let mut two = backend.prepare(&s.graph, &plan, &bindings, PrepareOptions::default()).unwrap();
    write(&mut *one, s.x, &[1.0; 64]);
    write(&mut *two, s.x, &[2.0; 64]);
    for _ in 0..2 {
        one.run().unwrap();
        assert_eq!(read(&mut *one, s.sum, 64), [3.5; 64]);
        two.run().unwrap();
        assert_eq!(read(&mut *two, s.sum, 64), [5.5; 64]);
    }
    bindings.compute = vec![backend.allocate(plan.arena_bytes() - 1, Usage::Compute).unwrap()];
    assert!(backend.prepare(&s.graph, &plan, &bindings, PrepareOptions::default()).is_err(), "too small");
}

/// Inputs that exceed the pinned part go through the ring.
#[test]
fn large_inputs() {
    let (_, backend) = pair(options());
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [5000, 1, 1, 1], Source::Input).unwrap();
    let y = g.scale(x, -1.0, 0.0).unwrap();
    g.output(y).unwrap();
    let plan = Plan::new(&g, 256, Precision::Exact).unwrap();
    let mut program = backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default()).unwrap();
    let values: Vec<f32> = (0..5000).map(|i| i as f32).collect();
    write(&mut *program, x, &values);
    assert_eq!(read(&mut *program, x, 5000), values);
    program.run().unwrap();
    assert!(read(&mut *program, y, 5000).iter().zip(&values).all(|(y, x)| *y == -x));
}

/// Reads return the written data, even before any run; partial writes of an input are applied in order.
#[test]
fn writes_are_in_order() {
    let (_, backend) = pair(options());
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [4, 2, 1, 1], Source::Input).unwrap();
    let row = g.view(x, [4, 1, 1, 1], [4, 16, 16, 16], 16).unwrap();
    let y = g.scale(x, 1.0, 0.0).unwrap();
    g.output(y).unwrap();
    let plan = Plan::new(&g, 256, Precision::Exact).unwrap();
    let mut program = backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default()).unwrap();
    write(&mut *program, x, &[1.0; 8]);
    assert_eq!(read(&mut *program, x, 8), [1.0; 8]);
    write(&mut *program, x, &[2.0; 8]);
    write(&mut *program, row, &[3.0; 4]);
    program.run().unwrap();
    assert_eq!(read(&mut *program, y, 8), [2.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0]);
    assert_eq!(read(&mut *program, row, 4), [3.0; 4]);
    assert!(program.write(x, &[0; 31]).is_err());
    assert!(program.read(TensorId(99), &mut [0; 4]).is_err());
}

#[test]
fn constants_with_and_without_an_arena_of_the_callers() {
    let (_, backend) = pair(options());
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [8, 1, 1, 1], Source::Input).unwrap();
    let ids = g.leaf("ids", DType::I32, [1, 1, 1, 1], Source::Input).unwrap();
    let op = Rope::plain(RopeMode::Normal, 8, 10000.0);
    let (y, z) = (g.rope(op, x, ids, None).unwrap(), g.rope(op, x, ids, None).unwrap());
    g.output(y).unwrap();
    g.output(z).unwrap();
    let plan = Plan::new(&g, 256, Precision::Exact).unwrap();
    let table = ggml_core::kernel::constant(g.tensor(y)).unwrap();
    let want = &table[..2];
    assert!(want[0] != 0.0);
    for own in [true, false] {
        let arena = backend.allocate(plan.arena_bytes(), Usage::Compute).unwrap();
        let bindings =
            Bindings { compute: if own { Vec::new() } else { vec![arena.clone()] }, ..Bindings::default() };
        let mut program = backend.prepare(&g, &plan, &bindings, PrepareOptions::default()).unwrap();
        // Data that another program left in a shared arena does not matter.
        backend.upload(&arena, 0, &vec![0x77; plan.arena_bytes()]).unwrap();
        program.run().unwrap();
        for node in [y, z] {
            assert_eq!(&read(&mut *program, node, 8)[..2], want);
        }
    }
}

#[test]
fn steps_run_alone() {
    let (_, backend) = pair(options());
    let s = sample();
    let bindings = bind(&backend, &s);
    let plan = Plan::debug(&s.graph, 256, Precision::Exact).unwrap();
    let mut program = backend.prepare(&s.graph, &plan, &bindings, PrepareOptions::STEPWISE).unwrap();
    write(&mut *program, s.x, &[1.0; 64]);
    program.run_step(0).unwrap();
    assert_eq!(read(&mut *program, s.scaled, 64), [3.0; 64]);
    write(&mut *program, s.scaled, &[10.0; 64]);
    program.run_step(1).unwrap();
    program.run_step(2).unwrap();
    assert_eq!(read(&mut *program, s.sum, 64), [10.5; 64]);
    assert!(program.run_step(3).is_err());
    // In a whole program the inputs of a step may be missing, because an earlier step provides them.
    let mut whole = backend.prepare(&s.graph, &plan, &bindings, PrepareOptions::default()).unwrap();
    assert!(whole.run_step(0).unwrap_err().to_string().contains("stepwise"));
}

/// More launches than marks, marked after each launch and in intervals.
#[test]
fn long_programs() {
    for breadcrumbs in [Breadcrumbs::Auto, Breadcrumbs::EveryLaunch] {
        let (fake, backend) = pair(HipOptions { breadcrumbs, device_timing: false, ..options() });
        let mut g = Graph::new();
        let x = g.leaf("x", DType::F32, [4, 1, 1, 1], Source::Input).unwrap();
        let mut y = x;
        for _ in 0..200 {
            y = g.scale(y, 1.0, 1.0).unwrap();
        }
        g.output(y).unwrap();
        let plan = Plan::new(&g, 256, Precision::Exact).unwrap();
        let mut program =
            backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default()).unwrap();
        write(&mut *program, x, &[0.0; 4]);
        let records = |program: &mut Box<dyn Program>| {
            let before = fake.count(Call::Record);
            assert_eq!(program.run().unwrap().device, None);
            fake.count(Call::Record) - before
        };
        assert_eq!(records(&mut program), 200, "the first run marks every launch");
        assert_eq!(records(&mut program), if breadcrumbs == Breadcrumbs::Auto { 50 } else { 200 });
        assert_eq!(read(&mut *program, y, 4), [200.0; 4]);
    }
}

#[test]
fn what_has_no_kernel_is_refused_alike() {
    let (_, backend) = pair(options());
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [4, 1, 1, 1], Source::Input).unwrap();
    let y = g.mul(x, x).unwrap();
    g.name(y, "product").unwrap();
    g.output(y).unwrap();
    let Support::Unsupported { reason } = backend.supports(&g, y) else { panic!("supported") };
    let plan = Plan::new(&g, 256, Precision::Exact).unwrap();
    let error = backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default()).err().unwrap();
    match error {
        Error::Unsupported { op, node, reason: r, .. } => {
            assert_eq!((op, node.as_str(), r), ("MUL", "product", reason));
        }
        other => panic!("{other}"),
    }
    assert_eq!(backend.supports(&g, x), Support::Native);
    assert!(!backend.supports_weights(DType::Q8_0) && !backend.supports_weights(DType::IQ1_S));
    let unbound = sample();
    let plan = Plan::new(&unbound.graph, 256, Precision::Exact).unwrap();
    let error = backend
        .prepare(&unbound.graph, &plan, &Bindings::default(), PrepareOptions::default())
        .err()
        .unwrap();
    assert!(error.to_string().contains("'w': no storage"), "{error}");
}

#[test]
fn storage_begins_where_blocks_may() {
    let (_, backend) = pair(options());
    let s = sample();
    let mut bindings = bind(&backend, &s);
    let plan = Plan::new(&s.graph, 256, Precision::Exact).unwrap();
    bindings.leaves.get_mut(&s.w).unwrap().offset = 262;
    let error = backend.prepare(&s.graph, &plan, &bindings, PrepareOptions::default()).err().unwrap();
    assert!(error.to_string().contains("'w': begins at byte 262; expected a multiple of 4"), "{error}");
}
