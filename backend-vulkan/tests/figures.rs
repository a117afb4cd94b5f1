//! Figures of a device, for people: `cargo test -p backend-vulkan --test figures -- --ignored --nocapture`.

mod common;

use backend_vulkan::VulkanBackend;
use common::{Layer, open, options};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program, Slice, Usage};
use ggml_core::plan::{Plan, Precision};
use ggml_core::{DType, Graph, Source};
use std::time::{Duration, Instant};

/// The shortest host and device time of a few runs.
fn shortest(program: &mut dyn Program, runs: usize) -> (Duration, Duration) {
    let times: Vec<_> = (0..runs).map(|_| program.run().expect("a run")).collect();
    let host = times.iter().map(|t| t.host).min().unwrap_or_default();
    (host, times.iter().filter_map(|t| t.device).min().unwrap_or_default())
}

fn product(backend: &VulkanBackend, dtype: DType, k: usize, m: usize, n: usize, precision: Precision) {
    let mut g = Graph::new();
    let a = g.leaf("a", dtype, [k, m, 1, 1], Source::Weight).expect("a");
    let b = g.leaf("b", DType::F32, [k, n, 1, 1], Source::Input).expect("b");
    let d = g.mul_mat(a, b).expect("d");
    g.output(d).unwrap();
    let plan = Plan::new(&g, backend.device().limits.alignment, precision).expect("a plan");
    let bytes = g.tensor(a).span_bytes();
    let buffer = backend.allocate(bytes, Usage::Weights).expect("memory");
    let zeros = vec![0; bytes];
    let start = Instant::now();
    backend.upload(&buffer, 0, &zeros).expect("upload");
    let mut first = [0; 4];
    backend.download(&buffer, 0, &mut first).expect("download");
    let upload = bytes as f64 / start.elapsed().as_secs_f64() / 1e9;
    let mut bindings = Bindings::default();
    bindings.leaves.insert(a, Slice { buffer, offset: 0 });
    let mut program = backend.program(&g, &plan, &bindings, PrepareOptions::default()).expect("a program");
    let (host, device) = shortest(&mut program, 8);
    let seconds = device.as_secs_f64().max(1e-9);
    println!(
        "MUL_MAT {dtype} k={k} m={m} n={n} {}: host {host:?}, device {device:?}, {:.1} GFLOP/s, {:.1} GB/s; upload {upload:.1} GB/s",
        precision.name(),
        2e-9 * (k * m * n) as f64 / seconds,
        1e-9 * bytes as f64 / seconds,
    );
}

#[test]
#[ignore = "measures; nothing to assert"]
fn figures() {
    let start = Instant::now();
    let Some(backend) = open(options()) else { return };
    println!("open: {:?}\n{:#?}", start.elapsed(), backend.device());
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [64, 1, 1, 1], Source::Input).expect("x");
    g.output(x).unwrap();
    let plan = Plan::new(&g, backend.device().limits.alignment, Precision::Exact).expect("a plan");
    let mut empty =
        backend.program(&g, &plan, &Bindings::default(), PrepareOptions::default()).expect("a program");
    println!("empty submission: {:?}", shortest(&mut empty, 500));
    let layer = Layer::new(1);
    let bindings = layer.bind(&backend);
    let start = Instant::now();
    let mut program = backend
        .program(&layer.graph, &layer.plan(&backend), &bindings, PrepareOptions::default())
        .expect("a program");
    println!("layer: prepared in {:?}, {:?}", start.elapsed(), program.stats());
    layer.write(&mut program, 0);
    println!("layer: {:?}; {:?}", shortest(&mut program, 100), backend.stats());
    let sizes: &[(usize, usize, usize)] = match backend.device().arch.as_str() {
        "CPU" => &[(1024, 1024, 1), (512, 512, 64)],
        _ => &[(4096, 14336, 1), (4096, 4096, 4), (4096, 4096, 512), (8192, 8192, 2048)],
    };
    for &(k, m, n) in sizes {
        for dtype in [DType::F16, DType::Q8_0, DType::Q4_0, DType::Q4_K, DType::Q6_K] {
            for precision in [Precision::Exact, Precision::Fast] {
                product(&backend, dtype, k, m, n, precision);
            }
        }
    }
}
