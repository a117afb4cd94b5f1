//! Logits against a forward pass written here from the papers' formulas, in f64, with plain loops over plain vectors.
//!
//! It shares nothing with the library but the GGUF reader: no graph, no operation, no kernel. Sources: RMS norm (Zhang
//! and Sennrich 2019), rotary embedding (Su et al. 2021), grouped-query attention (Ainslie et al. 2023), SwiGLU
//! (Shazeer 2020); arrangement of llama (Touvron et al. 2023), qwen2 (biases), qwen3 (normed heads).

mod common;

use common::{backends, file, tiny};
use diptych::core::metrics::distance;
use diptych::model::ModelFile;
use diptych::{DType, Model, Precision, SessionOptions, greedy};

/// A matrix of the file, row by row, or a vector as one row.
struct Matrix {
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    fn row(&self, i: usize) -> &[f64] {
        &self.values[i * self.columns..(i + 1) * self.columns]
    }

    fn times(&self, x: &[f64]) -> Vec<f64> {
        self.values
            .chunks_exact(self.columns)
            .map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum())
            .collect()
    }
}

fn half(bits: u16) -> f64 {
    let (sign, e, m) =
        (if bits >> 15 == 1 { -1.0 } else { 1.0 }, i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * if e == 0 { m * 2f64.powi(-24) } else { (1.0 + m / 1024.0) * 2f64.powi(e - 15) }
}

fn weight(file: &ModelFile, name: &str) -> Option<Matrix> {
    let t = file.gguf().tensor(name)?;
    let data = file.gguf().data(t).unwrap();
    let values = match t.dtype {
        DType::F32 => {
            data.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
        }
        DType::F16 => data.chunks_exact(2).map(|b| half(u16::from_le_bytes(b.try_into().unwrap()))).collect(),
        DType::Q8_0 => data
            .chunks_exact(34)
            .flat_map(|b| b[2..].iter().map(|&q| half(u16::from_le_bytes([b[0], b[1]])) * f64::from(q as i8)))
            .collect(),
        other => panic!("{other}"),
    };
    Some(Matrix { columns: t.ne[0], values })
}

fn rms(x: &[f64], w: &Matrix, eps: f64) -> Vec<f64> {
    let scale = 1.0 / (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64 + eps).sqrt();
    x.iter().zip(&w.values).map(|(v, w)| v * scale * w).collect()
}

/// Rotates pairs of a head: neighbours for llama's files, halves for qwen's.
fn rotate(head: &mut [f64], position: usize, base: f64, neighbours: bool) {
    let n = head.len();
    for i in 0..n / 2 {
        let angle = position as f64 * base.powf(-2.0 * i as f64 / n as f64);
        let (a, b) = if neighbours { (2 * i, 2 * i + 1) } else { (i, i + n / 2) };
        let (x, y) = (head[a], head[b]);
        head[a] = x * angle.cos() - y * angle.sin();
        head[b] = x * angle.sin() + y * angle.cos();
    }
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(a, b)| *a += b);
}

/// Logits after every token.
fn forward(file: &ModelFile, tokens: &[u32]) -> Vec<f32> {
    let h = file.hparams();
    let (d, eps, base) = (h.key_length, f64::from(h.eps), f64::from(h.rope.freq_base));
    let neighbours = h.architecture == "llama";
    let get = |name: &str| weight(file, name).unwrap_or_else(|| panic!("{name}"));
    let embedding = get("token_embd.weight");
    let mut stream: Vec<Vec<f64>> = tokens.iter().map(|&t| embedding.row(t as usize).to_vec()).collect();
    for layer in 0..h.layers {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let project = |part: &str, x: &[f64], heads: usize, position: Option<usize>| -> Vec<f64> {
            let mut y = get(&name(&format!("{part}.weight"))).times(x);
            if let Some(bias) = weight(file, &name(&format!("{part}.bias"))) {
                add(&mut y, &bias.values);
            }
            assert_eq!(y.len(), heads * d);
            for head in y.chunks_exact_mut(d) {
                if let Some(norm) = weight(file, &name(&format!("{part}_norm.weight"))) {
                    head.copy_from_slice(&rms(head, &norm, eps));
                }
                if let Some(position) = position {
                    rotate(head, position, base, neighbours);
                }
            }
            y
        };
        let normed: Vec<_> = stream.iter().map(|x| rms(x, &get(&name("attn_norm.weight")), eps)).collect();
        let q: Vec<_> =
            normed.iter().enumerate().map(|(p, x)| project("attn_q", x, h.heads, Some(p))).collect();
        let k: Vec<_> =
            normed.iter().enumerate().map(|(p, x)| project("attn_k", x, h.heads_kv, Some(p))).collect();
        let v: Vec<_> = normed.iter().map(|x| project("attn_v", x, h.heads_kv, None)).collect();
        let (out_w, ffn_norm) = (get(&name("attn_output.weight")), get(&name("ffn_norm.weight")));
        let (gate_w, up_w, down_w) =
            (get(&name("ffn_gate.weight")), get(&name("ffn_up.weight")), get(&name("ffn_down.weight")));
        for t in 0..tokens.len() {
            let mut attended = vec![0.0; h.heads * d];
            for head in 0..h.heads {
                let kv = head / (h.heads / h.heads_kv) * d;
                let query = &q[t][head * d..(head + 1) * d];
                let scores: Vec<f64> = (0..=t)
                    .map(|s| {
                        query.iter().zip(&k[s][kv..kv + d]).map(|(a, b)| a * b).sum::<f64>()
                            / (d as f64).sqrt()
                    })
                    .collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|s| (s - max).exp()).sum();
                for (s, score) in scores.iter().enumerate() {
                    for i in 0..d {
                        attended[head * d + i] += (score - max).exp() / total * v[s][kv + i];
                    }
                }
            }
            add(&mut stream[t], &out_w.times(&attended));
            let x = rms(&stream[t], &ffn_norm, eps);
            let (gate, up) = (gate_w.times(&x), up_w.times(&x));
            let inner: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            add(&mut stream[t], &down_w.times(&inner));
        }
    }
    let output = weight(file, "output.weight").unwrap_or(embedding);
    let norm = get("output_norm.weight");
    stream.iter().flat_map(|x| output.times(&rms(x, &norm, eps))).map(|v| v as f32).collect()
}

const TOKENS: [u32; 19] = [1, 150, 7, 33, 33, 202, 0, 91, 64, 18, 5, 77, 140, 199, 3, 12, 111, 58, 170];

#[test]
fn logits_agree_with_the_formulas() {
    for (name, backend) in backends() {
        for architecture in ["llama", "qwen2", "qwen3"] {
            for dtype in [DType::F32, DType::F16, DType::Q8_0] {
                let file = file(&tiny(architecture, dtype));
                let want = forward(&file, &TOKENS);
                let model = Model::from_file(file, backend.clone()).unwrap();
                for precision in [Precision::Exact, Precision::Fast] {
                    let options =
                        SessionOptions { context: Some(32), precision, ..SessionOptions::default() };
                    let got = model.session(&options).unwrap().logits(&TOKENS).unwrap();
                    let nmse = distance(&got, &want).nmse;
                    let bound = match (name, precision, dtype) {
                        ("reference", ..) => 1e-12,
                        (_, Precision::Exact, _) => 1e-10,
                        (_, Precision::Fast, DType::Q8_0) => 2e-3,
                        (_, Precision::Fast, _) => 1e-5,
                    };
                    assert!(nmse < bound, "{name} {architecture} {dtype} {}: {nmse:.1e}", precision.name());
                }
            }
        }
    }
}

#[test]
fn greedy_tokens_agree_with_the_formulas() {
    for (name, backend) in backends() {
        let file = file(&tiny("qwen3", DType::F16));
        let mut tokens = TOKENS[..5].to_vec();
        for _ in 0..6 {
            let logits = forward(&file, &tokens);
            tokens.push(greedy(&logits[logits.len() - file.hparams().vocabulary..]));
        }
        let model = Model::from_file(file, backend).unwrap();
        let options =
            SessionOptions { context: Some(32), precision: Precision::Exact, ..SessionOptions::default() };
        let mut session = model.session(&options).unwrap();
        let mut logits = session.prefill(&tokens[..5]).unwrap();
        for &want in &tokens[5..] {
            assert_eq!(greedy(&logits), want, "{name}");
            logits = session.decode(want).unwrap();
        }
    }
}
