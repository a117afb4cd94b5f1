//! Products and attention of the CPU backend. `cargo bench`; the numbers are for comparing two builds on one machine.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use diptych::ggml::backend::{Bindings, PrepareOptions, Slice, Usage};
use diptych::ggml::encode::encode;
use diptych::ggml::plan::Plan;
use diptych::ggml::rng::Rng;
use diptych::ggml::{Graph, Source};
use diptych::{DType, OpenOptions, Precision, open};
use std::hint::black_box;

/// One MUL_MAT of `k x m` weights with `n` columns.
fn mul_mat(
    c: &mut Criterion,
    backend: &str,
    dtype: DType,
    k: usize,
    m: usize,
    n: usize,
    precision: Precision,
) {
    let Ok(device) = open(backend, &OpenOptions::default()) else { return };
    let mut rng = Rng::new(1);
    let mut values = |count: usize| (0..count).map(|_| rng.uniform(-1.0, 1.0)).collect::<Vec<f32>>();
    let weights = encode(dtype, k, &values(k * m)).expect("weights");
    let input = values(k * n);
    let mut g = Graph::new();
    let a = g.leaf("a", dtype, [k, m, 1, 1], Source::Weight).expect("a");
    let b = g.leaf("b", DType::F32, [k, n, 1, 1], Source::Input).expect("b");
    let d = g.mul_mat(a, b).expect("product");
    g.output(d).unwrap();
    let plan = Plan::new(&g, device.device().limits.alignment, precision).expect("plan");
    let buffer = device.allocate(weights.len(), Usage::Weights).expect("memory");
    device.upload(&buffer, 0, &weights).expect("upload");
    let mut bindings = Bindings::default();
    bindings.leaves.insert(a, Slice { buffer, offset: 0 });
    let mut program = device.prepare(&g, &plan, &bindings, PrepareOptions::default()).expect("program");
    program.write(b, bytemuck::cast_slice(&input)).expect("input");
    let mut group = c.benchmark_group(format!("{backend}/mul_mat"));
    // Mat-vec is judged by bytes of weights, mat-mul by multiplications.
    group.throughput(if n == 1 {
        Throughput::Bytes(weights.len() as u64)
    } else {
        Throughput::Elements((k * m * n) as u64)
    });
    group.sample_size(10);
    group.bench_function(format!("{dtype} k={k} m={m} n={n} {}", precision.name()), |bench| {
        bench.iter(|| black_box(program.run().expect("run")));
    });
    group.finish();
}

fn products(c: &mut Criterion) {
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0, DType::Q4_K, DType::Q6_K] {
        for precision in [Precision::Exact, Precision::Fast] {
            mul_mat(c, "cpu", dtype, 4096, 4096, 1, precision);
            mul_mat(c, "cpu", dtype, 1024, 1024, 64, precision);
        }
    }
    mul_mat(c, "vulkan", DType::Q8_0, 4096, 4096, 1, Precision::Fast);
    mul_mat(c, "vulkan", DType::Q8_0, 1024, 1024, 64, Precision::Fast);
}

criterion_group!(benches, products);
criterion_main!(benches);
