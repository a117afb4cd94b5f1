//! Transfers to the device without its DMA engines: kernels that copy, and weights in host memory.

use backend_hip::options::{Copies, HostWeights};
use backend_hip::virtual_gpu::{Faults, Injection, Target, VirtualDriver, VirtualOptions};
use backend_hip::{HipBackend, HipOptions};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Slice, Usage};
use ggml_core::phase::Deadlines;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::routes::Routes;
use ggml_core::{DType, Error, Graph, Phase, Source};
use std::sync::Arc;
use std::time::Duration;

/// Deadline of a faulty call, and of all others.
const SHORT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(60);

fn options() -> HipOptions {
    HipOptions { staging_bytes: 4 * 4096, deadlines: Deadlines::all(LONG), ..HipOptions::default() }
}

/// Creates a device on which the first copy of the runtime never returns. `None` if no code for it was built
/// in.
fn device(integrated: bool) -> Option<(Arc<VirtualDriver>, Faults)> {
    if !hip_kernels::targets().contains(&"gfx906") {
        eprintln!("skipped: no code objects for gfx906 were built in");
        return None;
    }
    let faults = Faults::default().at("hipMemcpyAsync", 0, Injection::Hang);
    // An integrated device has too little memory of its own for weights.
    let memory = if integrated { 1 << 30 } else { 16 << 30 };
    let device =
        VirtualOptions { integrated, memory, faults: faults.clone(), ..VirtualOptions::new(Target::Gfx906) };
    Some((Arc::new(VirtualDriver::new(device)), faults))
}

fn feature(backend: &HipBackend, name: &str) -> String {
    let features = &backend.device().features;
    features.iter().find(|(n, _)| n == name).map_or(String::new(), |(_, text)| text.clone())
}

/// Checks sizes around a slot of the ring (4,096 bytes) and a word, at all offsets in a word; bytes around
/// them must not change.
fn bytes_come_and_go(backend: &HipBackend) {
    let buffer = backend.allocate(40_001, Usage::Compute).expect("memory");
    for (offset, size) in
        [(0, 0), (7, 1), (2, 1), (5, 2), (0, 4095), (1, 4096), (3, 4097), (11, 16_384), (6, 39_995)]
    {
        backend.upload(&buffer, 0, &[0xa5; 40_001]).expect("an upload");
        let data: Vec<u8> = (0..size).map(|i| (i * 7 + i / 251 + offset) as u8).collect();
        backend.upload(&buffer, offset, &data).expect("an upload");
        let mut back = vec![0; size];
        backend.download(&buffer, offset, &mut back).expect("a download");
        assert!(back == data, "{size} bytes at {offset}");
        let mut all = vec![0; 40_001];
        backend.download(&buffer, 0, &mut all).expect("a download");
        let around = all[..offset].iter().chain(&all[offset + size..]);
        assert!(around.into_iter().all(|&byte| byte == 0xa5), "{size} bytes at {offset}");
    }
}

/// Computes `w + x` with a weight of 33 elements at byte 12 of its buffer.
fn sum(backend: &HipBackend) -> Vec<f32> {
    let mut g = Graph::new();
    let w = g.leaf("w", DType::F32, [33, 1, 1, 1], Source::Weight).expect("a leaf");
    let x = g.leaf("x", DType::F32, [33, 1, 1, 1], Source::Input).expect("a leaf");
    let y = g.add(x, w).expect("a node");
    g.output(y).unwrap();
    let weights = backend.allocate(1000, Usage::Weights).expect("memory");
    let ramp: Vec<u8> = (0..33).flat_map(|i| (i as f32).to_le_bytes()).collect();
    backend.upload(&weights, 12, &ramp).expect("an upload");
    let mut bindings = Bindings::default();
    bindings.leaves.insert(w, Slice { buffer: weights, offset: 12 });
    let plan = Plan::new(&g, backend.device().limits.alignment, Precision::Exact).expect("a plan");
    let mut program = backend.prepare(&g, &plan, &bindings, PrepareOptions::default()).expect("a program");
    program.write(x, &ramp).expect("a write");
    program.run().expect("a run");
    let mut out = [0; 132];
    program.read(y, &mut out).expect("a read");
    out.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn wanted() -> Vec<f32> {
    (0..33).map(|i| 2.0 * i as f32).collect()
}

#[test]
fn a_kernel_copies_where_the_runtime_would_hang() {
    let Some((driver, faults)) = device(false) else { return };
    let options = HipOptions { copies: Copies::Kernel, ..options() };
    let backend = HipBackend::open_driver("hip-copies", options, driver).expect("a device");
    assert_eq!(feature(&backend, "copies"), "kernel");
    bytes_come_and_go(&backend);
    assert_eq!(sum(&backend), wanted());
    assert_eq!(faults.count("hipMemcpyAsync"), 0);
}

/// Transfers the same bytes through the runtime, as a baseline for the test above.
#[test]
fn the_runtime_copies_where_nothing_is_said() {
    let Some((_, _)) = device(false) else { return };
    let driver = Arc::new(VirtualDriver::new(VirtualOptions::new(Target::Gfx906)));
    let backend = HipBackend::open_driver("hip-dma", options(), driver).expect("a device");
    assert_eq!(
        (feature(&backend, "copies"), feature(&backend, "weights")),
        ("runtime".into(), "device memory".into())
    );
    bytes_come_and_go(&backend);
    assert_eq!(sum(&backend), wanted());
}

/// On a device that shares the host's memory, kernels copy, and weights are stored in memory that the host
/// can write.
#[test]
fn integrated_devices() {
    let Some((driver, faults)) = device(true) else { return };
    let backend = HipBackend::open_driver("hip-integrated", options(), driver.clone()).expect("a device");
    assert_eq!(
        (feature(&backend, "copies"), feature(&backend, "weights")),
        ("kernel".into(), "device memory as far as they fit, pinned host memory".into())
    );
    let (device, host) = (faults.count("hipMalloc"), faults.count("hipHostMalloc"));
    let weights = backend.allocate(100_000, Usage::Weights).expect("memory");
    assert_eq!((faults.count("hipMalloc"), faults.count("hipHostMalloc")), (device, host + 1));
    // The host writes: nothing is launched.
    let launches = faults.count("hipModuleLaunchKernel");
    let data: Vec<u8> = (0..100_000u32).map(|i| (i * 31) as u8).collect();
    backend.upload(&weights, 0, &data).expect("an upload");
    assert_eq!(faults.count("hipModuleLaunchKernel"), launches);
    let mut back = vec![0; 100_000];
    backend.download(&weights, 0, &mut back).expect("a download");
    assert!(back == data);
    assert_eq!(sum(&backend), wanted());
    assert_eq!(faults.count("hipMemcpyAsync"), 0);
    drop((weights, backend));
    assert_eq!(driver.held(), [0; 6]);

    // If the host cannot pin more memory, weights go to the device.
    let full = Faults::default().at("hipHostMalloc", 1, Injection::Fail(2));
    let (integrated, memory) = (true, 1 << 30);
    let device =
        VirtualOptions { integrated, memory, faults: full.clone(), ..VirtualOptions::new(Target::Gfx906) };
    let full_host = Arc::new(VirtualDriver::new(device));
    let backend = HipBackend::open_driver("hip-integrated", options(), full_host).expect("a device");
    assert_eq!(sum(&backend), wanted());
    assert_eq!(full.count("hipHostMalloc"), 2);

    // The free memory is the host's, if that is more than the device's own part.
    let root = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(root.path().join("proc")).expect("a directory");
    let text = "MemTotal: 130000000 kB\nMemAvailable:   104857600 kB\n";
    std::fs::write(root.path().join("proc/meminfo"), text).expect("a file");
    let rooted = HipOptions { system_root: root.path().into(), ..options() };
    let backend = HipBackend::open_driver("hip-integrated", rooted, driver.clone()).expect("a device");
    assert_eq!(backend.free_memory(), Some(100 << 30));

    let off = HipOptions { host_weights: HostWeights::Off, ..options() };
    let backend = HipBackend::open_driver("hip-integrated", off, driver).expect("a device");
    assert_eq!(feature(&backend, "weights"), "device memory");
    assert_eq!(sum(&backend), wanted());
}

/// A processor whose firmware reserves much memory for the device stores weights there, unless it is told not to.
#[test]
fn integrated_devices_with_memory_of_their_own() {
    if device(true).is_none() {
        return;
    }
    let named = "+hip.host-weights".parse::<Routes>().expect("a choice");
    for (host_weights, routes, of_host) in [
        (HostWeights::Auto, None, false),
        (HostWeights::On, None, true),
        // As the checks of routes on top of this one do.
        (HostWeights::Auto, Some(named), true),
    ] {
        let faults = Faults::default();
        let device = VirtualOptions {
            integrated: true,
            memory: 4 << 30,
            faults: faults.clone(),
            ..VirtualOptions::new(Target::Gfx906)
        };
        let driver = Arc::new(VirtualDriver::new(device));
        let options = HipOptions { host_weights, routes, ..options() };
        let backend = HipBackend::open_driver("hip-carve-out", options, driver).expect("a device");
        let before = faults.count("hipHostMalloc");
        let weights = backend.allocate(2 << 30, Usage::Weights).expect("memory");
        assert_eq!(faults.count("hipHostMalloc") > before, of_host, "{host_weights:?}");
        // The second half would leave nothing to the caches.
        let more = backend.allocate(3 << 29, Usage::Weights).expect("memory");
        assert!(faults.count("hipHostMalloc") > before, "{host_weights:?}");
        drop((weights, more));
        assert_eq!(sum(&backend), wanted());
    }
}

/// A backend whose copy timed out is given up, with advice; the next one of this process does not use DMA.
#[test]
fn a_copy_that_timed_out_is_not_tried_again() {
    let Some((driver, faults)) = device(false) else { return };
    let short = HipOptions { deadlines: Deadlines { transfer: SHORT, ..Deadlines::all(LONG) }, ..options() };
    let backend = HipBackend::open_driver("hip-hangs", short, driver).expect("a device");
    let buffer = backend.allocate(100, Usage::Weights).expect("memory");
    let error = backend.upload(&buffer, 0, &[1; 100]).expect_err("the copy hangs");
    assert!(matches!(error, Error::Timeout { phase: Phase::Upload, .. }), "{error}");
    let text = backend.upload(&buffer, 0, &[1; 100]).expect_err("it was given up").to_string();
    assert!(text.contains("DIPTYCH_HIP_COPIES=kernel"), "{text}");
    faults.release();

    let Some((driver, faults)) = device(false) else { return };
    let backend = HipBackend::open_driver("hip-hangs", options(), driver).expect("a device");
    assert_eq!(feature(&backend, "copies"), "kernel");
    assert_eq!(sum(&backend), wanted());
    assert_eq!(faults.count("hipMemcpyAsync"), 0);
}
