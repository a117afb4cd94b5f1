//! A driver that fails or hangs, emulated by the virtual device: every call, at its first occurrences. Each
//! fault ends in a typed error with its phase within the deadline, everything that can be freed is freed, and
//! the next open works.

use backend_hip::driver::Driver;
use backend_hip::options::{Copies, Graphs};
use backend_hip::virtual_gpu::{
    Checks, Faults, Injection, Target, VirtualDriver, VirtualOptions, Wrong, parse_faults,
};
use backend_hip::{HipBackend, HipOptions};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Usage};
use ggml_core::phase::Deadlines;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::{DType, Error, Graph, Phase, Result, Source};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Deadline of a faulty call.
const SHORT: Duration = Duration::from_millis(400);
/// Maximum time until its error on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Functions that opening, loading, running and closing call, with the number of calls to test.
const FUNCTIONS: [(&str, usize); 23] = [
    ("hipInit", 1),
    ("hipGetDeviceCount", 1),
    ("hipGetDeviceProperties", 1),
    ("hipSetDevice", 1),
    ("hipMalloc", 3),
    ("hipHostMalloc", 1),
    ("hipStreamCreateWithFlags", 1),
    ("hipEventCreateWithFlags", 2),
    ("hipMemsetAsync", 2),
    ("hipMemcpyAsync", 2),
    ("hipEventRecord", 3),
    ("hipEventQuery", 3),
    ("hipModuleLoadData", 1),
    ("hipModuleGetFunction", 1),
    ("hipModuleLaunchKernel", 3),
    ("hipStreamBeginCapture", 2),
    ("hipStreamEndCapture", 2),
    ("hipGraphLaunch", 3),
    ("hipFree", 1),
    ("hipHostFree", 1),
    ("hipEventDestroy", 1),
    ("hipModuleUnload", 1),
    ("hipGraphExecDestroy", 1),
];

/// Functions that are also called for a program with two steps per level, with graphs that have branches.
const OF_BRANCHES: [(&str, usize); 4] = [
    ("hipStreamWaitEvent", 2),
    ("hipStreamCreateWithFlags", 2),
    ("hipEventRecord", 6),
    ("hipStreamDestroy", 2),
];

/// Returns true if there is code to run; without it only opening can be tested.
fn embedded() -> bool {
    let embedded = hip_kernels::targets().contains(&"gfx906");
    if !embedded {
        eprintln!("skipped: no code objects for gfx906 were built in");
    }
    embedded
}

fn driver(faults: Faults) -> Arc<VirtualDriver> {
    Arc::new(VirtualDriver::new(VirtualOptions { faults, ..VirtualOptions::new(Target::Gfx906) }))
}

fn options(limit: Duration) -> HipOptions {
    // A copy that times out changes the copy method when the device is opened again; here the runtime always
    // copies.
    HipOptions { deadlines: Deadlines::all(limit), copies: Copies::Dma, ..HipOptions::default() }
}

/// Opens, uploads, prepares a chain of nine nodes, runs it twice, the second time as graphs, and reads the
/// result.
fn work(driver: &Arc<VirtualDriver>, limit: Duration) -> Result<Vec<f32>> {
    work_with(driver, options(limit), false)
}

/// Runs [`work`] with a second chain in parallel, so that levels have two steps and graphs have branches.
fn branched_work(driver: &Arc<VirtualDriver>, limit: Duration) -> Result<Vec<f32>> {
    work_with(driver, HipOptions { graphs: Graphs::On, ..options(limit) }, true)
}

fn work_with(driver: &Arc<VirtualDriver>, options: HipOptions, branched: bool) -> Result<Vec<f32>> {
    let backend = HipBackend::open_driver("hip-virtual", options, driver.clone())?;
    let weights = backend.allocate(100_000, Usage::Weights)?;
    let state = backend.allocate(4096, Usage::State)?;
    backend.upload(&weights, 0, &[7; 100_000])?;
    let mut back = [0; 4096];
    backend.download(&state, 0, &mut back)?;
    assert_eq!(back, [0; 4096]);
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [64, 1, 1, 1], Source::Input)?;
    let mut y = x;
    for i in 0..9 {
        y = g.scale(y, 2.0, 1.0)?;
        g.name(y, &format!("scaled {i}"))?;
    }
    if branched {
        let mut other = x;
        for _ in 0..9 {
            other = g.scale(other, 0.5, 1.0)?;
        }
        g.output(other)?;
    }
    g.output(y).unwrap();
    let plan = match branched {
        true => Plan::fused(&g, &backend, Precision::Exact)?,
        false => Plan::debug(&g, backend.device().limits.alignment, Precision::Exact)?,
    };
    let mut program = backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default())?;
    let input: Vec<u8> = (0..64u32).flat_map(|i| (i as f32).to_le_bytes()).collect();
    program.write(x, &input)?;
    program.run()?;
    program.run()?;
    let mut out = [0; 256];
    program.read(y, &mut out)?;
    Ok(out.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

fn wanted() -> Vec<f32> {
    (0..64).map(|i| 512.0 * i as f32 + 511.0).collect()
}

/// Returns the phase of an error, and its text.
fn place(error: &Error) -> (Option<Phase>, String) {
    match error {
        Error::Timeout { phase, .. } | Error::Unavailable { phase, .. } | Error::DeviceLost { phase, .. } => {
            (Some(*phase), error.to_string())
        }
        Error::Driver { phase, call, .. } => (Some(*phase), (*call).to_string()),
        _ => (None, error.to_string()),
    }
}

#[test]
fn without_faults_the_work_is_done_and_everything_given_back() {
    if !embedded() {
        return;
    }
    let faults = Faults::default();
    let driver = driver(faults.clone());
    assert_eq!(work(&driver, SOON).expect("no fault"), wanted());
    assert_eq!(driver.held(), [0; 6]);
    for (function, tried) in FUNCTIONS {
        assert!(faults.count(function) > 0, "{function} is never called, so its faults prove nothing");
        assert!(faults.count(function) >= tried, "{function} is called {} times", faults.count(function));
    }
}

#[test]
fn every_call_may_fail() {
    if !embedded() {
        return;
    }
    for (function, tried) in FUNCTIONS {
        for n in 0..tried {
            let driver = driver(Faults::default().at(function, n, Injection::Fail(999)));
            let result = work(&driver, SOON);
            match (&result, function) {
                // At the end no caller is left to receive an error, and everything that could not be freed is
                // left to the driver.
                (
                    Ok(values),
                    "hipFree" | "hipHostFree" | "hipEventDestroy" | "hipModuleUnload" | "hipGraphExecDestroy",
                ) => {
                    assert_eq!(*values, wanted(), "{function} {n}");
                }
                // Without graphs launches are started one by one.
                (Ok(values), "hipStreamBeginCapture" | "hipStreamEndCapture") => {
                    assert_eq!(*values, wanted(), "{function} {n}");
                }
                (Ok(_), _) => panic!("{function} {n}: failed, and nothing was said"),
                (Err(error), _) => {
                    let (phase, text) = place(error);
                    assert!(phase.is_some() && text.contains("hip"), "{function} {n}: {error:?}");
                    // If events fail, a copy may still be running, so its memory is not freed.
                    let kept = function.starts_with("hipEvent");
                    assert!(kept || driver.held()[..2] == [0, 0], "{function} {n}: {:?} kept", driver.held());
                }
            }
            // The fault is over: the same device can be opened again.
            assert_eq!(work(&driver, SOON).expect("the next open works"), wanted(), "{function} {n}");
        }
    }
}

#[test]
fn every_call_may_hang() {
    if !embedded() {
        return;
    }
    for (function, _) in FUNCTIONS {
        let faults = Faults::default().at(function, 0, Injection::Hang);
        let driver = driver(faults.clone());
        let start = Instant::now();
        let result = work(&driver, SHORT);
        assert!(start.elapsed() < SOON, "{function}: {:?}", start.elapsed());
        match (&result, function) {
            (
                Ok(values),
                "hipFree" | "hipHostFree" | "hipEventDestroy" | "hipModuleUnload" | "hipGraphExecDestroy",
            ) => {
                assert_eq!(*values, wanted(), "{function}");
            }
            (Err(Error::Timeout { after, .. }), _) => assert_eq!(*after, SHORT, "{function}"),
            (other, _) => panic!("{function}: {other:?}"),
        }
        faults.release();
    }
}

/// Failures and hangs while streams that wait for each other are captured end as they do elsewhere.
#[test]
fn calls_of_branches_may_fail_and_hang() {
    if !embedded() {
        return;
    }
    let faults = Faults::default();
    let driver_without = driver(faults.clone());
    assert_eq!(branched_work(&driver_without, SOON).expect("no fault"), wanted());
    assert_eq!(driver_without.held(), [0; 6]);
    for (function, tried) in OF_BRANCHES {
        assert!(faults.count(function) >= tried, "{function} is called {} times", faults.count(function));
        let at_the_end = function == "hipStreamDestroy";
        for (n, fault) in (0..tried).flat_map(|n| [(n, Injection::Fail(999)), (n, Injection::Hang)]) {
            let hangs = matches!(fault, Injection::Hang);
            let faults = Faults::default().at(function, n, fault);
            let driver = driver(faults.clone());
            let start = Instant::now();
            let result = branched_work(&driver, if hangs { SHORT } else { SOON });
            assert!(start.elapsed() < SOON, "{function} {n}: {:?}", start.elapsed());
            match &result {
                Ok(values) => {
                    assert!(*values == wanted() && (at_the_end || !hangs), "{function} {n}: {values:?}")
                }
                Err(Error::Timeout { after, .. }) => assert!(hangs && *after == SHORT, "{function} {n}"),
                Err(error) => {
                    let (phase, text) = place(error);
                    assert!(!hangs && phase.is_some() && text.contains("hip"), "{function} {n}: {error:?}");
                    assert_eq!(driver.held()[5], 0, "{function} {n}: graphs of {:?} kept", driver.held());
                }
            }
            faults.release();
            if !hangs {
                assert_eq!(
                    branched_work(&driver, SOON).expect("the next open works"),
                    wanted(),
                    "{function} {n}"
                );
            }
        }
    }
}

/// Work that is accepted and never completes: the error names phase and node; for a graph the first of its
/// nodes.
#[test]
fn a_kernel_that_never_ends_is_named() {
    if !embedded() {
        return;
    }
    for (function, n, phase, node) in [
        ("hipModuleLaunchKernel", 1, Phase::FirstCompute, "scaled 0"),
        ("hipGraphLaunch", 1, Phase::Compute, "scaled 2"),
    ] {
        let faults = Faults::default().at(function, n, Injection::Stall);
        match work(&driver(faults), SHORT) {
            Err(Error::Timeout { phase: p, node: Some(name), .. }) => {
                assert_eq!((p, name.as_str()), (phase, node))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A kernel that faults breaks the device; the error describes the instruction and the fault.
#[test]
fn a_broken_launch_is_told() {
    if !embedded() {
        return;
    }
    let driver = driver(Faults::default().at("hipMemcpyAsync", 1, Injection::Fail(700)));
    match work(&driver, SOON) {
        Err(Error::Driver { code: 700, .. } | Error::DeviceLost { .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn faults_are_read_from_text() {
    let faults = parse_faults("fail=2@hipMalloc:1, stall@hipMemcpyAsync").expect("valid");
    let driver = driver(faults);
    assert!(driver.allocate(10).is_ok());
    assert_eq!(driver.allocate(10), Err(2));
    let faults = parse_faults("wrong=1e-3@mat_vec:7").expect("valid");
    assert_eq!(faults.wrong_of("mat_vec_f16_n1_r4"), Some(Wrong { number: 7, size: 1e-3 }));
    assert_eq!(faults.wrong_of("mat_tile_f16_64x32"), None);
    for wrong in [
        "hang",
        "hang@hipMalloc:x",
        "fail@hipMalloc",
        "burn@hipMalloc",
        "stall@small:1",
        "fail=2@hipMaloc",
        "hang@dlopen",
        "stall@hipMalloc",
        "fail=0@hipMalloc",
        "wrong@mat_vec",
        "wrong=much@mat_vec",
        "wrong=inf@mat_vec",
    ] {
        let error = parse_faults(wrong).expect_err("not understood");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains(wrong), "{error}");
    }
}

/// The driver's error is part of the user's error text.
#[test]
fn out_of_memory_names_call_and_code() {
    if !embedded() {
        return;
    }
    let driver = driver(parse_faults("fail=2@hipMalloc:1").expect("valid"));
    let backend = HipBackend::open_driver("hip-virtual", options(SOON), driver).expect("a device");
    backend.allocate(100, Usage::Weights).expect("the first works");
    let error = backend.allocate(100, Usage::Weights).expect_err("the second fails");
    let text = error.to_string();
    assert!(matches!(error, Error::OutOfMemory { asked: 100, free: Some(_), .. }), "{text}");
    assert!(text.ends_with("are free (hipMalloc: hipErrorOutOfMemory (2))"), "{text}");
}

/// -1 is an ordinary code.
#[test]
fn codes_below_zero_are_told_as_they_are() {
    if !embedded() {
        return;
    }
    let driver = driver(parse_faults("fail=-1@hipMemcpyAsync").expect("valid"));
    let text = work(&driver, SOON).expect_err("a copy fails").to_string();
    assert!(text.contains("hipMemcpyAsync failed in phase upload: unknown code -1 (-1)"), "{text}");
}

#[test]
fn names_of_processors_are_checked() {
    let error = backend_hip::virtual_gpu::open("gfx1030", HipOptions::default()).expect_err("not emulated");
    assert!(error.to_string().contains("gfx1030"), "{error}");
    if !embedded() {
        return;
    }
    let mut device = VirtualOptions::new(Target::Gfx900);
    device.checks = Checks::NONE;
    let backend = backend_hip::virtual_gpu::open_with(device, HipOptions::default()).expect("a device");
    assert!(backend.device().arch.starts_with("gfx900"), "{}", backend.device().arch);
}
