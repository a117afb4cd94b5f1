//! Kernels other than matrix-vector products, by family: products with many columns and in `exact`, attention
//! of a decode step and of a prompt, norms, rotations, writes to the cache, copies. `cargo bench -p
//! diptych-benches --bench kernels cpu/norm`.

use criterion::{Criterion, criterion_group, criterion_main};
use diptych::ggml::op::{FlashAttnExt, Rope, RopeMode};
use diptych::ggml::{Graph, Source};
use diptych::{DType, Precision, Result};
use harness::{NODES, Rate, bench, enough, products, read_little};

mod harness;

/// Number of heads, number of key and value heads, and elements per head.
const HEADS: usize = 32;
const KV: usize = 8;
const HEAD: usize = 128;
/// Elements per row of the residual stream.
const WIDTH: usize = HEADS * HEAD;

fn tiles(c: &mut Criterion) {
    for [k, m, n] in [[1024, 1024, 64], [14336, 4096, 512]] {
        for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_K] {
            for precision in [Precision::Fast, Precision::Exact] {
                let what = format!("{dtype}/{k}x{m}x{n}/{}", precision.name());
                bench(c, "tiles", &what, Rate::Operations, precision, |g| {
                    products(g, NODES, dtype, [k, m, n])
                });
            }
        }
    }
}

fn exact(c: &mut Criterion) {
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_K] {
        let what = format!("{dtype}/4096x4096x1");
        let count = enough(dtype.row_bytes(4096).unwrap_or(0) * 4096);
        bench(c, "mat_vec_exact", &what, Rate::Weights, Precision::Exact, |g| {
            products(g, count, dtype, [4096, 4096, 1])
        });
    }
}

/// Adds `count` attentions of some tokens over some cells. `shape`: elements per head, heads, key and value
/// heads.
fn attend(
    g: &mut Graph,
    count: usize,
    cache: DType,
    [head, heads, kv]: [usize; 3],
    [tokens, cells]: [usize; 2],
) -> Result<()> {
    for i in 0..count {
        let q = g.leaf(&format!("q{i}"), DType::F32, [head, tokens, heads, 1], Source::Input)?;
        let mask = g.leaf(&format!("mask{i}"), DType::F16, [cells, tokens, 1, 1], Source::Input)?;
        let mut stored = |name: &str| -> Result<_> {
            let leaf = g.leaf(&format!("{name}{i}"), cache, [head, kv, cells, 1], Source::State)?;
            g.permute(leaf, [0, 2, 1, 3])
        };
        let (k, v) = (stored("k")?, stored("v")?);
        let op = FlashAttnExt { scale: 1.0 / (head as f32).sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
        let result = g.flash_attn_ext(op, q, k, v, Some(mask))?;
        if i == 0 {
            read_little(g, result)?;
        }
    }
    Ok(())
}

/// Adds `count` latent attentions: one key row for all heads, whose first elements are the values.
fn attend_latents(g: &mut Graph, count: usize, tokens: usize, cells: usize) -> Result<()> {
    let (heads, key, value) = (16, 576, 512);
    for i in 0..count {
        let q = g.leaf(&format!("q{i}"), DType::F32, [key, tokens, heads, 1], Source::Input)?;
        let mask = g.leaf(&format!("mask{i}"), DType::F16, [cells, tokens, 1, 1], Source::Input)?;
        let k = g.leaf(&format!("k{i}"), DType::F16, [key, cells, 1, 1], Source::State)?;
        let strides = g.tensor(k).nb;
        let v = g.view(k, [value, cells, 1, 1], strides, 0)?;
        let op = FlashAttnExt { scale: 1.0 / 192f32.sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
        let result = g.flash_attn_ext(op, q, k, v, Some(mask))?;
        if i == 0 {
            read_little(g, result)?;
        }
    }
    Ok(())
}

fn attention(c: &mut Criterion) {
    for cache in [DType::F16, DType::Q8_0] {
        let row = cache.row_bytes(HEAD * KV).unwrap_or(0);
        for (name, rate, count, tokens, cells) in [
            ("decode", Rate::Bytes, enough(2 * row * 4096), 1, 4096),
            ("prompt", Rate::Operations, NODES, 512, 1024),
        ] {
            let what = format!("{name}/{cache}/{tokens}x{cells}");
            bench(c, "attention", &what, rate, Precision::Fast, |g| {
                attend(g, count, cache, [HEAD, HEADS, KV], [tokens, cells])
            });
        }
    }
    // A prompt after a long cache: heads as in a model with eight billion parameters, and in one with half a
    // billion.
    for shape @ [head, heads, kv] in [[HEAD, HEADS, KV], [64, 14, 2]] {
        let what = format!("depth/F16/{head}x{heads}x{kv}/512x4608");
        bench(c, "attention", &what, Rate::Operations, Precision::Fast, |g| {
            attend(g, NODES, DType::F16, shape, [512, 4608])
        });
    }
    for [tokens, cells] in [[8, 4096], [32, 4096], [512, 512], [512, 4096]] {
        let what = format!("latents/F16/{tokens}x{cells}");
        let attend = |g: &mut Graph| attend_latents(g, NODES, tokens, cells);
        bench(c, "attention", &what, Rate::Operations, Precision::Fast, attend);
    }
}

/// Benches of row-wise operations, which read and write `bytes` per row.
fn rows(
    c: &mut Criterion,
    family: &str,
    bytes: usize,
    build: impl Fn(&mut Graph, usize, usize) -> Result<()>,
) {
    for rows in [1, 512] {
        bench(c, family, &format!("{rows}"), Rate::Bytes, Precision::Fast, |g| {
            (0..enough(bytes * rows)).try_for_each(|i| build(g, i, rows))
        });
    }
}

fn small(c: &mut Criterion) {
    rows(c, "norm", 8 * WIDTH, |g, i, rows| {
        let x = g.leaf(&format!("x{i}"), DType::F32, [WIDTH, rows, 1, 1], Source::Input)?;
        let weight = g.leaf(&format!("w{i}"), DType::F32, [WIDTH, 1, 1, 1], Source::Weight)?;
        let norm = g.rms_norm(x, 1e-5)?;
        let result = g.mul(norm, weight)?;
        g.output(result)
    });
    rows(c, "rope", 8 * WIDTH, |g, i, rows| {
        let x = g.leaf(&format!("x{i}"), DType::F32, [HEAD, HEADS, rows, 1], Source::Input)?;
        let positions = g.leaf(&format!("p{i}"), DType::I32, [rows, 1, 1, 1], Source::Input)?;
        let result = g.rope(Rope::plain(RopeMode::Neox, HEAD, 1e4), x, positions, None)?;
        g.output(result)
    });
    for cache in [DType::F16, DType::Q8_0] {
        rows(c, &format!("cache/{cache}"), 6 * HEAD * KV, |g, i, rows| {
            let cells = g.leaf(&format!("c{i}"), cache, [HEAD * KV, 4096, 1, 1], Source::State)?;
            let values = g.leaf(&format!("v{i}"), DType::F32, [HEAD * KV, rows, 1, 1], Source::Input)?;
            let ids = g.leaf(&format!("i{i}"), DType::I32, [rows, 1, 1, 1], Source::Input)?;
            g.set_rows(cells, values, ids).map(|_| ())
        });
    }
    for to in [DType::F32, DType::F16] {
        bench(c, "copy", &format!("F32 to {to}"), Rate::Bytes, Precision::Fast, |g| {
            for i in 0..3 {
                let from = g.leaf(&format!("from{i}"), DType::F32, [WIDTH, 8192, 1, 1], Source::State)?;
                let into = g.leaf(&format!("to{i}"), to, [WIDTH, 8192, 1, 1], Source::State)?;
                g.cpy(from, into)?;
            }
            Ok(())
        });
    }
}

criterion_group! { name = benches; config = harness::config(); targets = tiles, exact, attention, small }
criterion_main!(benches);
