//! Backend interface: memory, misuse, counters, deadlines, sharing.

use super::mixture::mixture;
use super::product;
use super::work::{Work, layers, open};
use ggml_core::backend::{Backend, Bindings, Buffer, PrepareOptions, Slice, Support, Usage};
use ggml_core::catalogue::{self};
use ggml_core::cpu::{CpuBackend, CpuOptions, Isa};
use ggml_core::mapped::MappedBytes;
use ggml_core::op::mul_mat::WEIGHT_TYPES;
use ggml_core::phase::Deadlines;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Error, Phase, Result, Source, TensorId};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

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

    bindings.compute = vec![buffer.clone()];
    assert!(backend.prepare(&work.graph, &plan, &bindings, PrepareOptions::default()).is_err());
    let mut state = Work::new();
    let s = state.leaf("s", DType::F32, [8, 8, 1, 1], Source::State);
    let x = state.leaf("x", DType::F32, [8, 8, 1, 1], Source::Input);
    let c = state.graph.cpy(x, s).unwrap();
    state.graph.output(c).unwrap();
    let plan = Plan::new(&state.graph, 64, Precision::Exact).unwrap();
    let mut bindings = Bindings::default();
    bindings.leaves.insert(s, slice(&buffer, 0));
    let error = backend.prepare(&state.graph, &plan, &bindings, PrepareOptions::default()).err().unwrap();
    assert!(matches!(&error, Error::InvalidArgument { found, .. } if found == "a memory map"), "{error}");
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
    bindings.compute = vec![backend.allocate(plan.arena_bytes() - 1, Usage::Compute).unwrap()];
    invalid(prepare(&bindings, &plan), "an arena that is too small");
    bindings.compute = Vec::new();
    invalid(
        prepare(&bindings, &Plan::new(&layers(1).graph, 64, Precision::Exact).unwrap()),
        "another graph's plan",
    );
    let mut wrong = plan.clone();
    wrong.arena = vec![0];
    invalid(prepare(&bindings, &wrong), "places outside of the arena");

    let mut program = backend.prepare(&work.graph, &plan, &bindings, PrepareOptions::default()).unwrap();
    invalid(program.write(b, &[0; 3]), "a wrong length");
    invalid(program.write(TensorId(99), &[0; 3]), "no tensor of the graph");
    invalid(program.write(d, &[0; 40]), "a result, unless every tensor is kept");
    invalid(program.run_step(0).map(|_| ()), "not prepared for steps");
    let mut program = backend.prepare(&work.graph, &plan, &bindings, PrepareOptions::STEPWISE).unwrap();
    program.write(b, &work.leaves[1].1).unwrap();
    program.run_step(0).unwrap();
    invalid(program.run_step(1).map(|_| ()), "no step of the plan");
    assert!(CpuBackend::open(CpuOptions::default().with_threads(0)).is_err());
    if let Some(isa) = Isa::ALL.into_iter().find(|i| !i.available()) {
        let error = CpuBackend::open(CpuOptions::default().with_isa(isa)).unwrap_err();
        assert!(matches!(error, Error::Unavailable { phase: Phase::OpenDevice, .. }));
    }
    for asked in [4 << 40, isize::MAX as usize - 4096] {
        let error = backend.allocate(asked, Usage::Compute).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { asked: a, .. } if a == asked as u64), "{error}");
    }
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
    assert!(WEIGHT_TYPES.iter().all(|&t| backend.supports_weights(t)));
    assert!(!backend.supports_weights(DType::Q8_K));
}

#[test]
fn a_deadline_ends_a_run_and_names_the_node() {
    let work = product(DType::F32, 1024, 512, 64, 0, 64);
    let deadlines = Deadlines { compute: Duration::ZERO, ..Deadlines::default() };
    let backend = CpuBackend::open(CpuOptions::default().with_deadlines(deadlines)).unwrap();
    let plan = Plan::new(&work.graph, 64, Precision::Exact).unwrap();
    let error = work.run_with(&backend, &plan, 0).unwrap_err();
    assert!(matches!(error, Error::Timeout { phase: Phase::FirstCompute, .. }), "{error}");
    assert_eq!(error.node(), Some(work.graph.tensor(work.graph.outputs()[0]).name.as_str()));
}

/// Programs on several threads that share an arena, a state and weights run one after the other.
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
    bindings.compute = vec![backend.allocate(plan.arena_bytes(), Usage::Compute).unwrap()];
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

// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A run on the caller's thread allocates nothing.
#[test]
fn runs_allocate_nothing() {
    let backend = open(Isa::best(), 1);
    let works = [layers(3), mixture(3)];
    let both = [Precision::Exact, Precision::Fast];
    let plans = |w: &Work, p| [Plan::new(&w.graph, 64, p), Plan::fused(&w.graph, &backend, p)];
    let runs =
        works.iter().flat_map(|w| both.into_iter().flat_map(move |p| plans(w, p)).map(move |p| (w, p)));
    for (work, plan) in runs {
        let plan = plan.unwrap();
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
