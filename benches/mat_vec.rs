//! Products of large matrices with one column and with eight: bytes of weights per second.
//!
//! `cargo bench -p diptych-benches --bench mat_vec vulkan`; the executable also runs without cargo: `mat_vec
//! --bench vulkan`.

use criterion::{Criterion, criterion_group, criterion_main};
use diptych::{DType, Precision};
use harness::{Rate, bench, enough, products};

#[allow(dead_code, reason = "other benches count more than weights")]
mod harness;

fn mat_vec(c: &mut Criterion) {
    for [k, m, n] in [[4096, 14336, 1], [16384, 16384, 1], [4096, 14336, 8]] {
        for dtype in [DType::F16, DType::Q8_0, DType::Q4_0, DType::Q4_K, DType::Q6_K] {
            let what = format!("{dtype}/{k}x{m}x{n}");
            let count = enough(dtype.row_bytes(k).unwrap_or(0) * m);
            bench(c, "mat_vec", &what, Rate::Weights, Precision::Fast, |g| {
                products(g, count, dtype, [k, m, n])
            });
        }
    }
}

criterion_group! { name = benches; config = harness::config(); targets = mat_vec }
criterion_main!(benches);
