//! Logits against a forward pass written here from the papers' formulas, in f64, with plain loops over plain vectors.
//!
//! It shares nothing with the library but the GGUF reader: no graph, no operation, no kernel. Sources: RMS norm (Zhang
//! and Sennrich 2019), rotary embedding (Su et al. 2021), grouped-query attention (Ainslie et al. 2023), SwiGLU
//! (Shazeer 2020); arrangement of llama (Touvron et al. 2023), qwen2 (biases), qwen3 (normed heads), phi3 (fused weights,
//! LongRoPE: Ding et al. 2024), granite (factors), gemma2 and gemma3 (local and global layers, more norms, GELU, soft caps),
//! gpt-oss (YaRN: Peng et al. 2023, sinks), mixtures of experts (Shazeer et al. 2017), qwen35 (gated delta net: Yang et al.
//! 2024).

#[path = "../common/mod.rs"]
mod common;
mod delta;
mod mixture;

use common::{backend, backends, file, tiny};
use diptych::ggml::metrics::distance;
use diptych::model::{Experts, ModelFile};
use diptych::synthesize::Shape;
use diptych::{DType, Model, Precision, SessionOptions, greedy};

/// A matrix of the file, row by row, or a vector as one row.
struct Matrix {
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    /// Of each 2 n rows the first n, and the others.
    fn halves(&self, n: usize) -> (Matrix, Matrix) {
        let pick = |second: usize| {
            let parts = self.values.chunks_exact(n * self.columns).skip(second).step_by(2);
            Matrix { columns: self.columns, values: parts.flatten().copied().collect() }
        };
        (pick(0), pick(1))
    }

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

/// What the architectures do differently, from the metadata.
struct Formulas {
    /// Elements of a head.
    d: usize,
    heads: usize,
    heads_kv: usize,
    layers: usize,
    eps: f64,
    /// Pairs are neighbours in llama's files, halves in qwen's.
    neighbours: bool,
    /// Elements of a head that are rotated.
    rotated: usize,
    base: f64,
    /// Divisors of the frequencies.
    factors: Option<Matrix>,
    /// Factor of rotated elements.
    magnitude: f64,
    /// Positions that a layer with a window sees.
    window: Option<usize>,
    gemma: bool,
    /// Of so many layers the last is global; 1: none is.
    period: usize,
    /// Base of local layers' frequencies.
    local_base: f64,
    /// YaRN: factor and context of the training.
    yarn: Option<(f64, f64)>,
    /// Bounds of scores and logits.
    caps: [Option<f64>; 2],
    embedding_scale: f64,
    residual_scale: f64,
    attention_scale: f64,
    logit_divisor: f64,
}

impl Formulas {
    fn new(file: &ModelFile, context: usize) -> Formulas {
        let m = file.gguf().metadata();
        let architecture = m.str("general.architecture").unwrap();
        let key = |name: &str| format!("{architecture}.{name}");
        let int = |name: &str| m.usize(&key(name)).unwrap();
        let float = |name: &str, default: f64| m.opt_f64(&key(name)).unwrap().unwrap_or(default);
        let (d, gemma) = (int("attention.key_length"), architecture.starts_with("gemma"));
        let gemma2 = architecture == "gemma2";
        let original = m.opt_usize(&key("rope.scaling.original_context_length")).unwrap();
        let yarn = (architecture == "gpt-oss")
            .then(|| (float("rope.scaling.factor", 0.0), original.expect("YaRN's context") as f64));
        let base = float("rope.freq_base", 0.0);
        let kind = if original.is_some_and(|original| context > original) { "long" } else { "short" };
        Formulas {
            d,
            heads: int("attention.head_count"),
            heads_kv: int("attention.head_count_kv"),
            layers: int("block_count"),
            eps: float("attention.layer_norm_rms_epsilon", 0.0),
            neighbours: ["llama", "granite"].contains(&architecture),
            rotated: int("rope.dimension_count"),
            base,
            local_base: if architecture == "gemma3" { 10000.0 } else { base },
            yarn,
            caps: [gemma2.then_some(50.0), gemma2.then_some(30.0)],
            period: match architecture {
                "gemma2" | "gpt-oss" => 2,
                "gemma3" => 6,
                _ => 1,
            },
            factors: weight(file, &format!("rope_factors_{kind}.weight")),
            magnitude: yarn
                .map_or(float("rope.scaling.attn_factor", 1.0), |(factor, _)| 1.0 + 0.1 * factor.ln()),
            window: m.opt_usize(&key("attention.sliding_window")).unwrap(),
            gemma,
            embedding_scale: if gemma {
                (int("embedding_length") as f64).sqrt()
            } else {
                float("embedding_scale", 1.0)
            },
            residual_scale: float("residual_scale", 1.0),
            attention_scale: float("attention.scale", 1.0 / (d as f64).sqrt()),
            logit_divisor: float("logit_scale", 1.0),
        }
    }

    /// Local layers, then a global one. With a period of 1 a window is for all layers.
    fn is_local(&self, layer: usize) -> bool {
        self.window.is_some() && (self.period == 1 || (layer + 1) % self.period != 0)
    }

    /// Radians for each position of pair `i`. YaRN: pairs that turn more than 32 times in the context of the training are left
    /// alone, those that turn less than once are stretched by the factor, those in between are mixed.
    fn frequency(&self, i: usize, base: f64) -> f64 {
        let n = self.rotated as f64;
        let plain = base.powf(-2.0 * i as f64 / n);
        let Some((factor, context)) = self.yarn else { return plain };
        let pair = |turns: f64| n * (context / (turns * std::f64::consts::TAU)).ln() / (2.0 * base.ln());
        let (low, high) = (pair(32.0).floor().max(0.0), pair(1.0).ceil().min(n - 1.0));
        let stretched = ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
        plain * (1.0 - stretched) + plain / factor * stretched
    }

    /// Rotates the pairs of a head.
    fn rotate(&self, head: &mut [f64], position: usize, layer: usize) {
        let n = self.rotated;
        let base = if self.is_local(layer) { self.local_base } else { self.base };
        for i in 0..n / 2 {
            let factor = self.factors.as_ref().map_or(1.0, |f| f.values[i]);
            let angle = position as f64 * self.frequency(i, base) / factor;
            let (cos, sin) = (angle.cos() * self.magnitude, angle.sin() * self.magnitude);
            let (a, b) = if self.neighbours { (2 * i, 2 * i + 1) } else { (i, i + n / 2) };
            let (x, y) = (head[a], head[b]);
            head[a] = x * cos - y * sin;
            head[b] = x * sin + y * cos;
        }
    }

    fn gate(&self, x: f64) -> f64 {
        if self.gemma {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        } else {
            x / (1.0 + (-x).exp())
        }
    }

    /// Soft-max of the scores of query head `head` at position `t`, times the values.
    fn attend(
        &self,
        [q, k, v]: [&[Vec<f64>]; 3],
        t: usize,
        head: usize,
        layer: usize,
        sinks: Option<&Matrix>,
    ) -> Vec<f64> {
        let d = self.d;
        let kv = head / (self.heads / self.heads_kv) * d;
        let first = match self.window.filter(|_| self.is_local(layer)) {
            Some(window) => (t + 1).saturating_sub(window),
            None => 0,
        };
        let query = &q[t][head * d..(head + 1) * d];
        let dot = |key: &[f64]| query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>();
        let capped = |x: f64| self.caps[0].map_or(x, |cap| cap * (x / cap).tanh());
        let score = |s: usize| capped(dot(&k[s][kv..kv + d]) * self.attention_scale);
        let scores: Vec<f64> = (first..=t).map(score).collect();
        let sink = sinks.map(|sinks| sinks.values[head]);
        let max = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().copied().chain(sink).map(|s| (s - max).exp()).sum();
        let mut out = vec![0.0; d];
        for (s, score) in scores.iter().enumerate() {
            for i in 0..d {
                out[i] += (score - max).exp() / total * v[first + s][kv + i];
            }
        }
        out
    }
}

/// Rows of a weight, or of the one that it is fused into, from row `first` on.
fn rows(file: &ModelFile, name: &str, fused: &str, first: usize, n: usize) -> Matrix {
    if let Some(own) = weight(file, name) {
        return own;
    }
    let all = weight(file, fused).unwrap_or_else(|| panic!("{name}"));
    let columns = all.columns;
    Matrix { columns, values: all.values[first * columns..(first + n) * columns].to_vec() }
}

fn add(x: &mut [f64], y: &[f64], scale: f64) {
    x.iter_mut().zip(y).for_each(|(a, b)| *a += b * scale);
}

/// A layer of a file.
struct Layer<'a> {
    file: &'a ModelFile,
    f: &'a Formulas,
    index: usize,
}

impl Layer<'_> {
    fn name(&self, part: &str) -> String {
        format!("blk.{}.{part}", self.index)
    }

    fn find(&self, part: &str) -> Option<Matrix> {
        weight(self.file, &self.name(part))
    }

    fn get(&self, part: &str) -> Matrix {
        self.find(part).unwrap_or_else(|| panic!("{part}"))
    }

    /// Heads of q, k or v at every position; in a fused weight they begin with head `first`.
    fn project(&self, inputs: &[Vec<f64>], part: &str, first: usize, heads: usize) -> Vec<Vec<f64>> {
        let (f, d) = (self.f, self.f.d);
        let (own, fused) = (self.name(&format!("{part}.weight")), self.name("attn_qkv.weight"));
        let mut matrix = rows(self.file, &own, &fused, first * d, heads * d);
        if part == "attn_q" && matrix.values.len() == 2 * heads * d * matrix.columns {
            matrix = matrix.halves(d).0;
        }
        let (bias, norm) = (self.find(&format!("{part}.bias")), self.find(&format!("{part}_norm.weight")));
        let project = |(position, x): (usize, &Vec<f64>)| {
            let mut y = matrix.times(x);
            assert_eq!(y.len(), heads * d);
            bias.iter().for_each(|bias| add(&mut y, &bias.values, 1.0));
            for head in y.chunks_exact_mut(d) {
                if let Some(norm) = &norm {
                    head.copy_from_slice(&rms(head, norm, f.eps));
                }
                if part != "attn_v" {
                    f.rotate(head, position, self.index);
                }
            }
            y
        };
        inputs.iter().enumerate().map(project).collect()
    }

    /// Adds what a branch gave to the stream, normed first where the file has a norm for it.
    fn join(&self, x: &mut [f64], out: Vec<f64>, norm: Option<&str>) {
        let out = norm.and_then(|name| self.find(name)).map_or(out.clone(), |w| rms(&out, &w, self.f.eps));
        add(x, &out, self.f.residual_scale);
    }

    fn attention(&self, stream: &mut [Vec<f64>]) {
        let f = self.f;
        let norm = self.get("attn_norm.weight");
        let inputs: Vec<_> = stream.iter().map(|x| rms(x, &norm, f.eps)).collect();
        let q = self.project(&inputs, "attn_q", 0, f.heads);
        let k = self.project(&inputs, "attn_k", f.heads, f.heads_kv);
        let v = self.project(&inputs, "attn_v", f.heads + f.heads_kv, f.heads_kv);
        let (output, bias) = (self.get("attn_output.weight"), self.find("attn_output.bias"));
        let sinks = self.find("attn_sinks.weight");
        let gates = self.gates(&inputs);
        for (t, x) in stream.iter_mut().enumerate() {
            let attend = |head| f.attend([&q, &k, &v], t, head, self.index, sinks.as_ref());
            let mut attended: Vec<f64> = (0..f.heads).flat_map(attend).collect();
            if let Some(gates) = &gates {
                attended.iter_mut().zip(&gates[t]).for_each(|(a, g)| *a /= 1.0 + (-g).exp());
            }
            let mut out = output.times(&attended);
            bias.iter().for_each(|bias| add(&mut out, &bias.values, 1.0));
            self.join(x, out, f.gemma.then_some("post_attention_norm.weight"));
        }
    }

    /// What the layer does with its normed stream before the feed-forward network.
    fn mix(&self, stream: &mut [Vec<f64>]) {
        if self.find("ssm_a").is_some() { self.delta_net(stream) } else { self.attention(stream) }
    }

    fn feed_forward(&self, stream: &mut [Vec<f64>]) {
        let norm = self.find("ffn_norm.weight").unwrap_or_else(|| self.get("post_attention_norm.weight"));
        if self.find("ffn_gate_inp.weight").is_some() {
            return self.mixture(stream, &norm);
        }
        let down = self.get("ffn_down.weight");
        let (both, n) = (self.get("ffn_up.weight"), down.columns);
        let width = both.columns;
        let (gate, up) = match self.find("ffn_gate.weight") {
            Some(gate) => (gate, both),
            // One weight: rows of the gate, then of up.
            None => {
                let (gate, up) = both.values.split_at(n * width);
                let half = |values: &[f64]| Matrix { columns: width, values: values.to_vec() };
                (half(gate), half(up))
            }
        };
        for x in stream {
            let normed = rms(x, &norm, self.f.eps);
            let (gate, up) = (gate.times(&normed), up.times(&normed));
            let inner: Vec<f64> = gate.iter().zip(&up).map(|(&g, u)| self.f.gate(g) * u).collect();
            self.join(x, down.times(&inner), Some("post_ffw_norm.weight"));
        }
    }
}

/// Logits after every token, in a session of `context` positions.
fn forward(file: &ModelFile, tokens: &[u32], context: usize) -> Vec<f32> {
    let f = Formulas::new(file, context);
    let embedding = weight(file, "token_embd.weight").expect("an embedding");
    let scaled = |row: &[f64]| -> Vec<f64> { row.iter().map(|x| x * f.embedding_scale).collect() };
    let mut stream: Vec<Vec<f64>> = tokens.iter().map(|&t| scaled(embedding.row(t as usize))).collect();
    for index in 0..f.layers {
        let layer = Layer { file, f: &f, index };
        layer.mix(&mut stream);
        layer.feed_forward(&mut stream);
    }
    let output = weight(file, "output.weight").unwrap_or(embedding);
    let norm = weight(file, "output_norm.weight").expect("a norm");
    let logits = stream.iter().flat_map(|x| output.times(&rms(x, &norm, f.eps)));
    let capped = |x: f64| f.caps[1].map_or(x, |cap| cap * (x / cap).tanh());
    logits.map(|v| capped(v / f.logit_divisor) as f32).collect()
}

const TOKENS: [u32; 19] = [1, 150, 7, 33, 33, 202, 0, 91, 64, 18, 5, 77, 140, 199, 3, 12, 111, 58, 170];

/// Room in the cache of the sessions here.
const CONTEXT: usize = 32;

/// One tiny model for each way of computing. The windows are smaller than the prompt, gemma3 has local and global layers.
fn shapes(dtype: DType) -> Vec<Shape> {
    let mut shapes: Vec<Shape> =
        ["llama", "qwen2", "qwen3", "granite"].iter().map(|name| tiny(name, dtype)).collect();
    let phi3 = |original_context, window| Shape { original_context, window, ..tiny("phi3", dtype) };
    shapes.push(phi3(Some(CONTEXT), None));
    shapes.push(phi3(Some(CONTEXT - 1), Some(6)));
    shapes.push(phi3(None, None));
    shapes.push(Shape { layers: 7, window: Some(5), ..tiny("gemma3", dtype) });
    shapes.push(Shape { layers: 2, window: Some(5), ..tiny("gemma2", dtype) });
    shapes.push(tiny("qwen3moe", dtype));
    let experts = Some(Experts { count: 4, used: 3, feed_forward: 96 });
    shapes.push(Shape { experts, ..tiny("llama", dtype) });
    // A context of the training that makes YaRN's ramp begin and end among the pairs.
    shapes.push(Shape { layers: 3, window: Some(5), ..tiny("gpt-oss", dtype) });
    shapes.push(Shape { layers: 4, ..tiny("qwen35", dtype) });
    shapes
}

fn options(precision: Precision) -> SessionOptions {
    SessionOptions::default().with_context(CONTEXT).with_precision(precision)
}

#[test]
fn logits_agree_with_the_formulas() {
    for dtype in [DType::F32, DType::F16, DType::Q8_0] {
        for shape in shapes(dtype) {
            let want = forward(&file(&shape), &TOKENS, CONTEXT);
            for (name, backend) in backends() {
                let model = Model::from_file(file(&shape), backend).unwrap();
                for precision in [Precision::Exact, Precision::Fast] {
                    let got = model.session(&options(precision)).unwrap().logits(&TOKENS).unwrap();
                    let nmse = distance(&got, &want).nmse;
                    let bound = match (name, precision, dtype) {
                        ("reference", ..) => 1e-12,
                        (_, Precision::Exact, _) => 1e-10,
                        // The norm behind a delta net makes much of a small difference where a head's result is small.
                        (_, Precision::Fast, DType::Q8_0) if shape.recurrent.is_some() => 1e-2,
                        (_, Precision::Fast, DType::Q8_0) => 2e-3,
                        (_, Precision::Fast, _) => 1e-5,
                    };
                    assert!(nmse < bound, "{name} {shape:?} {}: {nmse:.1e}", precision.name());
                }
            }
        }
    }
}

/// Windows reach into the cache in the same way however a prompt is cut.
#[test]
fn batches_of_every_size_give_the_same_logits() {
    let backend = backend("cpu").expect("always there");
    for shape in shapes(DType::F16) {
        let model = Model::from_file(file(&shape), backend.clone()).unwrap();
        let whole = model.session(&options(Precision::Exact)).unwrap().logits(&TOKENS).unwrap();
        for batch in [1, 7] {
            let options = options(Precision::Exact).with_batch(batch);
            let got = model.session(&options).unwrap().logits(&TOKENS).unwrap();
            let nmse = distance(&got, &whole).nmse;
            assert!(nmse < 1e-12, "{} in batches of {batch}: {nmse:.1e}", shape.architecture);
        }
    }
}

#[test]
fn greedy_tokens_agree_with_the_formulas() {
    for shape in shapes(DType::F16) {
        let architecture = &shape.architecture;
        let mut tokens = TOKENS[..5].to_vec();
        for _ in 0..6 {
            let file = file(&shape);
            let logits = forward(&file, &tokens, CONTEXT);
            tokens.push(greedy(&logits[logits.len() - file.hparams().vocabulary..]));
        }
        for (name, backend) in backends() {
            let model = Model::from_file(file(&shape), backend).unwrap();
            let mut session = model.session(&options(Precision::Exact)).unwrap();
            let mut logits = session.prefill(&tokens[..5]).unwrap();
            for &want in &tokens[5..] {
                assert_eq!(greedy(&logits), want, "{name} {architecture}");
                logits = session.decode(want).unwrap();
            }
        }
    }
}
