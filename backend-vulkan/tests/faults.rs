//! Errors: deadlines, wrong arguments, memory, caches, and missing libraries or devices.

use crate::common;

use backend_vulkan::{MemoryBudget, VulkanBackend, VulkanOptions, enumerate};
use common::{Layer, close, heavy, open, options};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program, Slice, Usage};
use ggml_core::mapped::MappedBytes;
use ggml_core::phase::Deadlines;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Error, Graph, Missing, Phase, Source, TensorId};
use std::process::Command;
use std::time::{Duration, Instant};

fn with_compute_deadline(limit: Duration, breadcrumbs: bool) -> VulkanOptions {
    let deadlines = Deadlines { compute: limit, ..Deadlines::default() };
    VulkanOptions { deadlines, breadcrumbs, ..options() }
}

fn heavy_program(backend: &VulkanBackend, n: usize, links: usize) -> (Box<dyn Program>, TensorId) {
    let (g, w, y) = heavy(n, links);
    let plan = Plan::new(&g, backend.device().limits.alignment, Precision::Exact).expect("a plan");
    let buffer = backend.allocate(g.tensor(w).span_bytes(), Usage::Weights).expect("memory");
    let zeros = vec![0; g.tensor(w).span_bytes()];
    backend.upload(&buffer, 0, &zeros).expect("upload");
    let mut bindings = Bindings::default();
    bindings.leaves.insert(w, Slice { buffer, offset: 0 });
    let mut program = backend.prepare(&g, &plan, &bindings, PrepareOptions::default()).expect("a program");
    program.write(g.find("x").expect("x"), &zeros).expect("x");
    (program, y)
}

#[test]
fn a_missed_deadline_names_phase_and_node_and_the_device_goes_on() {
    let limit = Duration::from_millis(3);
    for breadcrumbs in [false, true] {
        let Some(backend) = open(with_compute_deadline(limit, breadcrumbs)) else { return };
        let n = if backend.device().arch == "CPU" { 256 } else { 2048 };
        let (mut program, output) = heavy_program(&backend, n, 24);
        let start = Instant::now();
        match program.run() {
            Err(Error::Timeout { backend, phase: Phase::FirstCompute, node: Some(node), after }) => {
                assert!(backend.starts_with("vulkan:") && after == limit);
                println!("breadcrumbs {breadcrumbs}: {node}");
                assert!(node.contains("link_"), "{node}");
                if breadcrumbs {
                    assert!(!node.contains(" .. "), "a breadcrumb names one node: {node}");
                }
            }
            Ok(timing) if timing.host < limit => eprintln!("a fast device: nothing to see"),
            other => panic!("{other:?}"),
        }
        // Transfers have a longer deadline: reading waits for the run that timed out.
        let mut out = vec![1; n * n * 4];
        program.read(output, &mut out).expect("the run ends");
        assert!(out.iter().all(|&b| b == 0) && start.elapsed() < Duration::from_secs(120));
        // Dropped while running: the drop waits, then frees the memory.
        let _ = program.run();
        drop(program);
        let (mut small, _) = heavy_program(&backend, 32, 1);
        let recovers = (0..1000).any(|_| match small.run() {
            Ok(_) => true,
            Err(Error::Timeout { .. }) => {
                std::thread::sleep(Duration::from_millis(2));
                false
            }
            Err(other) => panic!("{other}"),
        });
        assert!(recovers, "the device goes on");
    }
}

#[test]
fn a_missed_deadline_of_compilation_names_a_node() {
    let deadlines = Deadlines { prepare: Duration::ZERO, ..Deadlines::default() };
    let Some(backend) = open(VulkanOptions { deadlines, ..options() }) else { return };
    let layer = Layer::new(2);
    let prepare = || {
        let plan = layer.plan(&backend);
        backend.prepare(&layer.graph, &plan, &layer.bind(&backend), PrepareOptions::default()).map(|_| ())
    };
    match prepare() {
        Err(Error::Timeout { phase: Phase::Compile, node: Some(node), .. }) => {
            assert!(layer.graph.find(&node).is_some(), "{node}");
        }
        // Constants are allocated under the same deadline.
        Err(Error::Timeout { phase: Phase::Allocate, .. }) => {}
        other => panic!("{other:?}"),
    }
    // Compilation continues in the background; the process should not exit during it.
    let mut made = u64::MAX;
    while made != backend.stats().pipelines {
        made = backend.stats().pipelines;
        std::thread::sleep(Duration::from_millis(1500));
    }
}

#[test]
fn wrong_arguments_are_errors() {
    let Some(backend) = open(options()) else { return };
    let reference = ReferenceBackend::default();
    let layer = Layer::new(2);
    let (plan, bindings) = (layer.plan(&backend), layer.bind(&backend));
    let prepare = |plan: &Plan, bindings: &Bindings| {
        backend.prepare(&layer.graph, plan, bindings, PrepareOptions::default()).err().map(|e| e.to_string())
    };
    assert_eq!(prepare(&plan, &bindings), None);
    let says = |error: Option<String>, part: &str| {
        assert!(error.as_ref().is_some_and(|e| e.contains(part)), "{error:?}")
    };
    says(prepare(&plan, &Bindings::default()), "bindings of weight");
    says(prepare(&plan, &layer.bind(&reference)), "another backend");
    let mut small = bindings.clone();
    small.compute = vec![backend.allocate(64, Usage::Compute).expect("memory")];
    says(prepare(&plan, &small), "the plan needs");
    let mut g = Graph::new();
    g.leaf("only", DType::F32, [1; 4], Source::Input).expect("a leaf");
    let foreign = Plan::new(&g, 256, Precision::Exact).expect("a plan");
    says(prepare(&foreign, &bindings), "a plan of this graph");
    let mut shifted = bindings.clone();
    for slice in shifted.leaves.values_mut() {
        slice.offset += 1 << 20;
    }
    says(prepare(&plan, &shifted), "expected a range within");

    let mut program = layer.program(&backend, &bindings);
    assert!(program.write(layer.x, &[0; 3]).is_err());
    assert!(program.write(TensorId(100_000), &[0; 4]).is_err());
    assert!(program.read(layer.out, &mut [0; 3]).is_err());
    let weight = layer.graph.find("norm_1").expect("a weight");
    assert!(program.write(weight, &[0; 256]).is_err(), "weights are not written");

    let buffer = backend.allocate(1000, Usage::Weights).expect("memory");
    assert!(backend.upload(&buffer, 990, &[0; 11]).is_err());
    assert!(backend.download(&buffer, usize::MAX, &mut [0; 2]).is_err());
    let theirs = reference.allocate(1000, Usage::Weights).expect("memory");
    assert!(backend.upload(&theirs, 0, &[0; 8]).is_err());
    let slice = |buffer: &ggml_core::backend::Buffer, offset| Slice { buffer: buffer.clone(), offset };
    assert!(backend.copy(&slice(&buffer, 0), &slice(&buffer, 4), 8).is_err(), "overlap");
    assert!(backend.copy(&slice(&buffer, 0), &slice(&theirs, 0), 8).is_err());
}

#[test]
fn memory_has_limits_and_known_contents() {
    let Some(backend) = open(VulkanOptions { poison: true, ..options() }) else { return };
    let limit = backend.device().limits.max_allocation as usize;
    match backend.allocate(limit + 1, Usage::Weights) {
        Err(Error::OutOfMemory { asked, heap, .. }) => {
            assert!(asked == limit as u64 + 1 && heap.contains("heap"))
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(backend.allocate(usize::MAX, Usage::Weights), Err(Error::OutOfMemory { .. })));
    for (usage, byte) in [(Usage::State, 0), (Usage::Compute, 0xff)] {
        for staged in [false, true] {
            let Some(backend) = open(VulkanOptions { poison: true, force_staging: staged, ..options() })
            else {
                return;
            };
            // The second allocation may reuse the memory of the first.
            for _ in 0..2 {
                let buffer = backend.allocate(100_003, usage).expect("memory");
                let mut bytes = vec![7; 100_003];
                backend.download(&buffer, 0, &mut bytes).expect("download");
                assert!(bytes.iter().all(|&b| b == byte), "{usage:?}");
                backend
                    .upload(&buffer, 0, &bytes.iter().map(|b| b ^ 0x55).collect::<Vec<_>>())
                    .expect("upload");
            }
        }
    }
    assert_eq!(backend.allocate(0, Usage::Weights).expect("nothing").bytes(), 0);
}

#[test]
fn memory_beyond_the_budget_is_refused_before_the_driver_is_asked() {
    const MIB: usize = 1 << 20;
    let with = |memory| open(VulkanOptions { memory: Some(memory), ..options() });
    let Some(backend) = with(MemoryBudget::Bytes(64 << 20)) else { return };
    let first = backend.allocate(30 * MIB, Usage::Weights).expect("within the budget");
    let (before, free) = (backend.stats(), backend.free_memory());
    assert!(free.is_some_and(|free| free + before.allocated_bytes == 64 << 20), "{free:?}");
    match backend.allocate(40 * MIB, Usage::Weights) {
        Err(Error::OutOfMemory { asked, free: reported, heap, .. }) => {
            assert!(
                asked >= 40 << 20 && reported == free && heap.contains("heap"),
                "{asked} {reported:?} {heap}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(backend.stats().driver_allocations, before.driver_allocations, "the driver was not asked");
    // Small allocations share blocks and do not exceed the budget either.
    let small: Vec<_> = (0..100).map_while(|_| backend.allocate(MIB, Usage::Weights).ok()).collect();
    assert!((1..64).contains(&small.len()), "{}", small.len());
    assert!(backend.stats().allocated_bytes <= 64 << 20, "{:?}", backend.stats());
    drop((first, small));
    backend.allocate(40 * MIB, Usage::Weights).expect("what was freed can be had again");

    let Some(backend) = with(MemoryBudget::Ignored) else { return };
    assert_eq!(backend.free_memory(), None);
    backend.allocate(100 * MIB, Usage::Weights).expect("the driver decides");

    let Some(backend) = with(MemoryBudget::Reported) else { return };
    let before = backend.stats().driver_allocations;
    let free = backend.free_memory().expect("reported, or the size of the heaps");
    let beyond = free + (1 << 30);
    if beyond < backend.device().limits.max_allocation {
        let refused = backend.allocate(beyond as usize, Usage::Weights);
        assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
        assert_eq!(backend.stats().driver_allocations, before);
    }
}

const CHILD: &str = "DIPTYCH_ENVIRONMENT_CHILD";

/// Runs in a child process only: prints the result of opening.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_some() {
        println!("{:?}", VulkanBackend::open(options()).map(|_| ()));
    }
}

#[test]
fn wrong_values_in_the_environment_are_argument_errors() {
    for (name, value, expected) in [
        ("DIPTYCH_VULKAN_MEMORY", "16G", "a number of bytes, or 'ignore'"),
        ("DIPTYCH_VULKAN_ARCH", "vega", "AMD_GCN"),
    ] {
        let output = Command::new(std::env::current_exe().expect("a test has a path"))
            .args(["--exact", "faults::child", "--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .env(name, value)
            .output()
            .expect("the test can start itself");
        let text = String::from_utf8_lossy(&output.stdout);
        let wanted = ["InvalidArgument", name, value, expected];
        assert!(wanted.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn transfers_of_any_size_arrive() {
    for force_staging in [false, true] {
        let Some(backend) = open(VulkanOptions { force_staging, ..options() }) else { return };
        let size = (9 << 20) + 5;
        let data: Vec<u8> = (0..size).map(|i: usize| (i * 31 + (i >> 11)) as u8).collect();
        let from = backend.allocate(size + 7, Usage::Weights).expect("memory");
        let to = backend.allocate(size + 1000, Usage::State).expect("memory");
        backend.upload(&from, 7, &data).expect("upload");
        let slice = |buffer: &ggml_core::backend::Buffer, offset| Slice { buffer: buffer.clone(), offset };
        backend.copy(&slice(&from, 7), &slice(&to, 1000), size).expect("copy");
        let mut back = vec![0; size];
        backend.download(&to, 1000, &mut back).expect("download");
        assert!(back == data);
        let held = backend.stats().allocated_bytes;
        drop((from, to));
        assert!(backend.stats().allocated_bytes < held, "finished transfers hold no memory");
        assert!(backend.stats().driver_allocations <= 4, "{:?}", backend.stats());
    }
}

#[test]
fn a_mapped_file_is_read_in_place_where_memory_is_shared() {
    let Some(backend) = open(options()) else { return };
    let mut g = Graph::new();
    let a = g.leaf("a", DType::Q8_0, [64, 32, 1, 1], Source::Weight).expect("a");
    let b = g.leaf("b", DType::F32, [64, 2, 1, 1], Source::Input).expect("b");
    let d = g.mul_mat(a, b).expect("d");
    g.output(d).unwrap();
    let bytes = common::values(&g, a, -1.0, 1.0);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("weights");
    let begin = 4096 + 32 * 7;
    std::fs::write(&path, [vec![0xff; begin], bytes.clone(), vec![0xff; 100]].concat()).expect("a file");
    let map = MappedBytes::map(&path).expect("a map").slice(begin..begin + bytes.len()).expect("a part");
    let Some(buffer) = backend.import(map).expect("no error") else {
        eprintln!("skipped: this device does not read mapped files");
        return;
    };
    assert!(backend.upload(&buffer, 0, &[0; 4]).is_err(), "a map is not written");
    assert!(backend.import(MappedBytes::from(bytes.clone())).expect("no error").is_none(), "only maps");
    let reference = ReferenceBackend::default();
    let outputs = [&backend as &dyn Backend, &reference].map(|backend| {
        let buffer = match backend.device().backend == "reference" {
            true => backend.import(MappedBytes::from(bytes.clone())).expect("memory").expect("memory"),
            false => buffer.clone(),
        };
        let mut bindings = Bindings::default();
        bindings.leaves.insert(a, Slice { buffer, offset: 0 });
        let plan = Plan::new(&g, backend.device().limits.alignment, Precision::Exact).expect("a plan");
        let mut program = backend.prepare(&g, &plan, &bindings, Default::default()).expect("a program");
        program.write(b, &common::values(&g, b, -1.0, 1.0)).expect("b");
        program.run().expect("a run");
        let mut out = vec![0; 32 * 2 * 4];
        program.read(d, &mut out).expect("d");
        common::floats(&out)
    });
    close("from the map", &outputs[0], &outputs[1]);
}

#[test]
fn pipelines_are_kept_on_disk_and_damage_is_ignored() {
    let dir = tempfile::tempdir().expect("a directory");
    let with_cache = || VulkanOptions { pipeline_cache_dir: Some(dir.path().join("cache")), ..options() };
    let layer = Layer::new(1);
    let mut outputs = Vec::new();
    for damage in [false, false, true] {
        let files = || std::fs::read_dir(dir.path().join("cache")).into_iter().flatten().flatten();
        if damage {
            for file in files() {
                let mut bytes = std::fs::read(file.path()).expect("a file");
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0xff;
                std::fs::write(file.path(), bytes).expect("a file");
            }
        }
        let Some(backend) = open(with_cache()) else { return };
        let mut program = layer.program(&backend, &layer.bind(&backend));
        outputs.push(layer.run(&mut *program, 0));
        drop((program, backend));
        assert_eq!(files().count(), 1);
    }
    assert!(outputs.windows(2).all(|w| w[0] == w[1]), "the same pipelines, the same bits");
}

#[test]
fn what_is_not_there_is_told_apart() {
    let library = VulkanOptions { library: Some("/nonexistent/libvulkan.so.1".into()), ..options() };
    let missing = |result: Result<VulkanBackend, Error>| match result {
        Err(Error::Unavailable { missing, phase, reason, .. }) => (missing, phase, reason),
        other => panic!("{:?}", other.map(|_| ())),
    };
    let (what, phase, _) = missing(VulkanBackend::open(library));
    assert_eq!((what, phase), (Missing::Library, Phase::LoadRuntime));
    if let Ok(all) = enumerate(&options()) {
        let (what, phase, reason) =
            missing(VulkanBackend::open(VulkanOptions { device: Some(99), ..options() }));
        assert_eq!((what, phase), (Missing::Device, Phase::Enumerate));
        assert!(reason.contains(&format!("lists {}", all.len())), "{reason}");
    }
}
