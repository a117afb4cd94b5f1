//! Calls that fail, calls that never return, work that never completes.

use super::fake::{Fake, Fault};
use super::{SHORT, SOON, open, options, pair, short};
use crate::driver::codes::Call;
use crate::options::HipOptions;
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program, Usage};
use ggml_core::phase::Deadlines;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::{DType, Error, Graph, Missing, Phase, Source};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Prepares a chain of three nodes named "one", "two", "three".
fn chain(backend: &dyn Backend) -> Box<dyn Program> {
    let mut g = Graph::new();
    let mut y = g.leaf("x", DType::F32, [64, 1, 1, 1], Source::Input).unwrap();
    for name in ["one", "two", "three"] {
        y = g.scale(y, 1.0, 1.0).unwrap();
        g.name(y, name).unwrap();
    }
    g.output(y).unwrap();
    let plan = Plan::new(&g, 256, Precision::Exact).unwrap();
    backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default()).unwrap()
}

fn is_timeout(error: &Error, phase: Phase, node: Option<&str>) {
    match error {
        Error::Timeout { phase: p, node: n, after, .. } => {
            assert_eq!((*p, n.as_deref(), *after), (phase, node, SHORT), "{error}");
        }
        other => panic!("{other}"),
    }
}

fn is_given_up(error: &Error, phase: Phase) {
    match error {
        Error::Unavailable { missing, phase: p, reason, .. } => {
            assert_eq!((*missing, *p), (Missing::Device, phase));
            assert!(reason.contains("given up after: ") && reason.contains("new process"), "{reason}");
        }
        other => panic!("{other}"),
    }
}

/// A call that never returns becomes an error in time, every later call fails immediately, the process
/// continues, and dropping the backend does not hang.
#[test]
fn an_allocation_that_never_returns() {
    let (fake, backend) = pair(short());
    let buffer = backend.allocate(100, Usage::Weights).unwrap();
    let mut program = chain(&backend);
    fake.fault(Call::Allocate, 0, Fault::Hang);
    let start = Instant::now();
    is_timeout(&backend.allocate(3584, Usage::Weights).unwrap_err(), Phase::Allocate, None);
    let took = start.elapsed();
    assert!(took >= SHORT && took < SOON, "{took:?}");

    let start = Instant::now();
    is_given_up(&backend.allocate(1, Usage::State).unwrap_err(), Phase::Allocate);
    is_given_up(&backend.upload(&buffer, 0, &[1]).unwrap_err(), Phase::Upload);
    is_given_up(&backend.download(&buffer, 0, &mut [0]).unwrap_err(), Phase::Readback);
    is_given_up(&program.run().unwrap_err(), Phase::FirstCompute);
    let error = backend.allocate(1, Usage::State).unwrap_err();
    assert!(error.to_string().contains("the driver is still in hipMalloc"), "{error}");
    // Five calls that waited would need five deadlines.
    assert!(start.elapsed() < SHORT * 4, "{:?}", start.elapsed());

    // Another device is not affected.
    let (_, other) = pair(options());
    other.allocate(100, Usage::State).unwrap();

    let start = Instant::now();
    drop(program);
    drop(buffer);
    drop(backend);
    assert!(start.elapsed() < SOON);
    assert!(fake.held()[0] > 0, "nothing is freed behind the driver's back");
    fake.release();
}

#[test]
fn a_copy_that_never_returns_or_never_completes() {
    for fault in [Fault::Hang, Fault::Stall] {
        let (fake, backend) = pair(short());
        let buffer = backend.allocate(10_000, Usage::Weights).unwrap();
        backend.upload(&buffer, 0, &[1; 10_000]).unwrap();
        fake.fault(Call::Copy, 1, fault);
        let start = Instant::now();
        is_timeout(&backend.upload(&buffer, 0, &[2; 10_000]).unwrap_err(), Phase::Upload, None);
        assert!(start.elapsed() < SOON);
        is_given_up(&backend.upload(&buffer, 0, &[2; 10]).unwrap_err(), Phase::Upload);
        fake.release();
    }
}

/// A copy that fails leaves the ring usable for the next one.
#[test]
fn a_copy_that_fails() {
    let (fake, backend) = pair(options());
    let buffer = backend.allocate(20_000, Usage::Weights).unwrap();
    fake.fault(Call::Copy, 2, Fault::Fail(1));
    let error = backend.upload(&buffer, 0, &[1; 20_000]).unwrap_err();
    assert!(
        matches!(&error, Error::Driver { code: 1, call: "hipMemcpyAsync", phase: Phase::Upload, .. }),
        "{error}"
    );
    backend.upload(&buffer, 0, &[3; 20_000]).unwrap();
    let mut back = vec![0; 20_000];
    backend.download(&buffer, 0, &mut back).unwrap();
    assert!(back.iter().all(|&b| b == 3));
    // If even waiting fails, the device must be given up.
    fake.fault(Call::Copy, 0, Fault::Fail(1));
    fake.fault(Call::Record, 0, Fault::Fail(400));
    assert!(backend.upload(&buffer, 0, &[1; 10]).is_err());
    is_given_up(&backend.upload(&buffer, 0, &[1; 10]).unwrap_err(), Phase::Upload);
}

#[test]
fn a_run_that_hangs_names_phase_and_node() {
    for fault in [Fault::Hang, Fault::Stall] {
        // In the first run every launch is marked, so the node is exact.
        let (fake, backend) = pair(short());
        let mut program = chain(&backend);
        fake.fault(Call::Launch, 1, fault);
        is_timeout(&program.run().unwrap_err(), Phase::FirstCompute, Some("two"));
        fake.release();
        // Later runs.
        let (fake, backend) = pair(short());
        let mut program = chain(&backend);
        program.run().unwrap();
        fake.fault(Call::Launch, 2, fault);
        is_timeout(&program.run().unwrap_err(), Phase::Compute, Some("three"));
        is_given_up(&program.run().unwrap_err(), Phase::Compute);
        fake.release();
    }
}

/// Known problems are listed among the device's features, and with every error after the one that lost the
/// device.
#[test]
fn advice_comes_with_a_hang() {
    let root = tempfile::tempdir().unwrap();
    let node = root.path().join("sys/class/kfd/kfd/topology/nodes/1");
    std::fs::create_dir_all(&node).unwrap();
    std::fs::write(node.join("properties"), "gfx_target_version 90012\nlocation_id 768\n").unwrap();
    let (fake, backend) = pair(HipOptions { system_root: root.path().into(), ..short() });
    let reported =
        |(name, text): &(String, String)| name == "advice" && text.contains("HSA_OVERRIDE_GFX_VERSION");
    assert!(backend.device().features.iter().any(reported), "{:?}", backend.device().features);
    let mut program = chain(&backend);
    fake.fault(Call::Launch, 1, Fault::Stall);
    let error = program.run().unwrap_err();
    is_timeout(&error, Phase::FirstCompute, Some("two"));
    let rows = backend.advice(&error);
    let sources: Vec<&str> = rows.iter().map(|row| row.source).collect();
    let override_row = "ROCm issue 2781 and reports of gfx1103 as 11.0.0, gfx1010 as 10.3.0";
    assert_eq!(
        sources,
        ["TheRock issue 6513", override_row],
        "rows of the chip, a gfx90c, and of the override"
    );
    for error in [program.run().unwrap_err(), backend.allocate(1, Usage::State).unwrap_err()] {
        let text = error.to_string();
        assert!(text.contains("; HSA_OVERRIDE_GFX_VERSION makes") && text.contains("dmesg"), "{text}");
    }
    // An error that explains itself has no advice.
    let (_, backend) = pair(options());
    let error = backend.allocate(1 << 40, Usage::State).unwrap_err();
    assert!(backend.advice(&error).is_empty() && matches!(error, Error::OutOfMemory { .. }));
    fake.release();
}

#[test]
fn a_compilation_that_never_returns() {
    let (fake, backend) = pair(short());
    fake.fault(Call::LoadModule, 0, Fault::Hang);
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [64, 1, 1, 1], Source::Input).unwrap();
    let y = g.scale(x, 1.0, 1.0).unwrap();
    g.output(y).unwrap();
    let plan = Plan::new(&g, 256, Precision::Exact).unwrap();
    let error = backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default()).err().unwrap();
    is_timeout(&error, Phase::Compile, None);
    fake.release();
}

/// Codes stay integers, whatever their value, with the driver's name if it has one.
#[test]
fn codes_that_nobody_knows() {
    for (code, want) in
        [(123_456, "unknown code 123456"), (777_777, "hipErrorOfTomorrow"), (-7, "unknown code -7")]
    {
        let (fake, backend) = pair(options());
        fake.fault(Call::Allocate, 0, Fault::Fail(code));
        match backend.allocate(10, Usage::Weights).unwrap_err() {
            Error::Driver { code: c, name, call, phase, .. } => {
                assert_eq!(
                    (c, name.as_str(), call, phase),
                    (i64::from(code), want, "hipMalloc", Phase::Allocate)
                );
            }
            other => panic!("{other}"),
        }
        backend.allocate(10, Usage::Weights).expect("a code that is not fatal ends nothing");
    }
}

#[test]
fn a_launch_that_is_refused_names_its_node() {
    let (fake, backend) = pair(options());
    let mut program = chain(&backend);
    fake.fault(Call::Launch, 1, Fault::Fail(701));
    match program.run().unwrap_err() {
        Error::Driver { code, call, node, phase, .. } => {
            assert_eq!((code, call, node.as_deref()), (701, "hipModuleLaunchKernel", Some("two")));
            assert_eq!(phase, Phase::FirstCompute);
        }
        other => panic!("{other}"),
    }
    program.run().expect("it can be tried again");
}

/// An error of the device is returned by the event that waits for the launch.
#[test]
fn a_kernel_that_faults() {
    let (fake, backend) = pair(options());
    let mut program = chain(&backend);
    fake.fault(Call::Launch, 1, Fault::Break(700));
    match program.run().unwrap_err() {
        Error::Driver { code, name, node, .. } => {
            assert_eq!((code, name.as_str(), node.as_deref()), (700, "hipErrorIllegalAddress", Some("two")));
        }
        other => panic!("{other}"),
    }
    is_given_up(&backend.allocate(1, Usage::Weights).unwrap_err(), Phase::Allocate);
}

/// A call that waits behind another one's long work is not late.
#[test]
fn waiting_for_others_does_not_count() {
    let deadlines = Deadlines { compute: Duration::from_secs(20), ..Deadlines::all(SHORT) };
    let (fake, backend) = pair(HipOptions { deadlines, ..options() });
    let mut program = chain(&backend);
    fake.fault(Call::Launch, 0, Fault::Slow(SHORT * 4));
    std::thread::scope(|scope| {
        let run = scope.spawn(move || program.run());
        // Wait until the launch has started.
        while fake.count(Call::Launch) == 0 {
            std::thread::yield_now();
        }
        backend.allocate(100, Usage::State).unwrap();
        run.join().unwrap().unwrap();
    });
}

/// Other waiting callers get the error of a hang too, once its deadline has passed.
#[test]
fn a_hang_ends_everybodys_waiting() {
    let deadlines = Deadlines { allocate: Duration::from_secs(60), ..Deadlines::all(SHORT) };
    let (fake, backend) = pair(HipOptions { deadlines, ..options() });
    let mut program = chain(&backend);
    fake.fault(Call::Launch, 0, Fault::Hang);
    std::thread::scope(|scope| {
        let run = scope.spawn(move || program.run());
        while fake.count(Call::Launch) == 0 {
            std::thread::yield_now();
        }
        let start = Instant::now();
        is_given_up(&backend.allocate(100, Usage::State).unwrap_err(), Phase::Allocate);
        assert!(start.elapsed() < SOON);
        assert!(run.join().unwrap().is_err());
    });
    fake.release();
}

#[test]
fn a_hang_in_a_free_that_nobody_waits_for() {
    let (fake, backend) = pair(short());
    let buffer = backend.allocate(100, Usage::Weights).unwrap();
    fake.fault(Call::Free, 0, Fault::Hang);
    drop(buffer);
    let start = Instant::now();
    is_given_up(&backend.allocate(100, Usage::Weights).unwrap_err(), Phase::Allocate);
    assert!(start.elapsed() < SOON);
    fake.release();
}

/// The same driver can be opened again after a failure that was not a hang.
#[test]
fn opening_again() {
    let fake = Arc::new(Fake::default());
    fake.fault(Call::DeviceCount, 0, Fault::Fail(100));
    assert!(open(&fake, options()).is_err());
    open(&fake, options()).unwrap().allocate(10, Usage::State).unwrap();
}
