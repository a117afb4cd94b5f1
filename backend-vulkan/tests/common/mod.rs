//! Shared by the tests of this crate: opening a backend or skipping, and a small decoder layer.
#![allow(dead_code, unreachable_pub)]

use backend_vulkan::{VulkanBackend, VulkanOptions};
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program, Slice, Usage};
use ggml_core::metrics::distance;
use ggml_core::op::{Activation, FlashAttnExt, Glu, Rope, RopeMode};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::rng::Rng;
use ggml_core::{DType, Error, Graph, Missing, Source, TensorId, encode};
use std::path::PathBuf;

/// Returns options without a cache on disk, so that tests leave no files behind.
pub fn options() -> VulkanOptions {
    VulkanOptions { pipeline_cache_dir: None, ..VulkanOptions::default() }
}

/// Returns a folder of Diptych in the user's cache; `None` if the environment names no cache.
pub fn user_cache(name: &str) -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("diptych").join(name))
}

/// Opens a backend; `None` with a message if the machine has no Vulkan (or no validation layer, if
/// requested).
pub fn open(options: VulkanOptions) -> Option<VulkanBackend> {
    let validation = options.validation;
    match VulkanBackend::open(options) {
        Ok(backend) => Some(backend),
        Err(Error::Unavailable { missing, reason, .. })
            if missing != Missing::Feature || (validation && reason.contains("VALIDATION")) =>
        {
            eprintln!("skipped: {reason}");
            None
        }
        Err(Error::Unavailable { reason, .. }) if validation && reason.contains("validation") => {
            eprintln!("skipped: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns values of a tensor, seeded by its name.
pub fn values(graph: &Graph, id: TensorId, lo: f32, hi: f32) -> Vec<u8> {
    let t = graph.tensor(id);
    let mut rng = Rng::named(&t.name, 7);
    let values: Vec<f32> = (0..t.elements()).map(|_| rng.uniform(lo, hi)).collect();
    encode::encode(t.dtype, t.ne[0], &values).expect("a type that can be encoded")
}

/// Converts I32 values to bytes.
pub fn ints(values: impl IntoIterator<Item = usize>) -> Vec<u8> {
    values.into_iter().flat_map(|v| (v as i32).to_le_bytes()).collect()
}

/// Converts bytes to F32 values.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Panics unless two results agree within F32 rounding.
pub fn close(what: &str, got: &[f32], want: &[f32]) {
    let d = distance(got, want);
    assert!(d.nmse < 1e-7, "{what}: {d:?}");
}

/// Rows of the cache.
pub const CACHE: usize = 16;
const EMBD: usize = 64;
const HEADS: usize = 4;
const HEAD: usize = EMBD / HEADS;

/// A decoder layer with a key-value cache: every family of operations, weights, state, inputs and a constant.
pub struct Layer {
    pub graph: Graph,
    pub x: TensorId,
    pub positions: TensorId,
    pub rows: TensorId,
    pub mask: TensorId,
    pub out: TensorId,
    pub tokens: usize,
}

impl Layer {
    /// Builds a layer for a number of tokens. Leaves are always added in the same order, so that they have
    /// the same IDs.
    pub fn new(tokens: usize) -> Layer {
        Layer::build(tokens).expect("a valid graph")
    }

    fn build(tokens: usize) -> Result<Layer, Error> {
        let g = &mut Graph::new();
        let weight = |g: &mut Graph, name: &str, dtype, ne| g.leaf(name, dtype, ne, Source::Weight);
        let square = [EMBD, EMBD, 1, 1];
        let norm_1 = weight(g, "norm_1", DType::F32, [EMBD, 1, 1, 1])?;
        let norm_2 = weight(g, "norm_2", DType::F32, [EMBD, 1, 1, 1])?;
        let wq = weight(g, "wq", DType::Q8_0, square)?;
        let wk = weight(g, "wk", DType::Q4_0, square)?;
        let wv = weight(g, "wv", DType::F16, square)?;
        let wo = weight(g, "wo", DType::BF16, square)?;
        let gate = weight(g, "gate", DType::Q8_0, [EMBD, 2 * EMBD, 1, 1])?;
        let up = weight(g, "up", DType::Q8_0, [EMBD, 2 * EMBD, 1, 1])?;
        let down = weight(g, "down", DType::F32, [2 * EMBD, EMBD, 1, 1])?;
        let cache_k = g.leaf("cache_k", DType::F16, [EMBD, CACHE, 1, 1], Source::State)?;
        let cache_v = g.leaf("cache_v", DType::F32, [EMBD, CACHE, 1, 1], Source::State)?;
        let x = g.leaf("x", DType::F32, [EMBD, tokens, 1, 1], Source::Input)?;
        let positions = g.leaf("positions", DType::I32, [tokens, 1, 1, 1], Source::Input)?;
        let rows = g.leaf("rows", DType::I32, [tokens, 1, 1, 1], Source::Input)?;
        let mask = g.leaf("mask", DType::F32, [CACHE, tokens, 1, 1], Source::Input)?;

        let normed = g.rms_norm(x, 1e-5)?;
        let normed = g.mul(normed, norm_1)?;
        let rope = Rope::plain(RopeMode::Neox, HEAD, 10000.0);
        let heads = [HEAD, HEADS, tokens, 1];
        let q = g.mul_mat(wq, normed)?;
        let q = g.reshape(q, heads)?;
        let q = g.rope(rope, q, positions, None)?;
        let k = g.mul_mat(wk, normed)?;
        let k = g.reshape(k, heads)?;
        let k = g.rope(rope, k, positions, None)?;
        let k = g.reshape(k, [EMBD, tokens, 1, 1])?;
        let v = g.mul_mat(wv, normed)?;
        let k = g.set_rows(cache_k, k, rows)?;
        let v = g.set_rows(cache_v, v, rows)?;
        let v16 = g.leaf("v16", DType::F16, [EMBD, CACHE, 1, 1], Source::State)?;
        let v = g.cpy(v, v16)?;
        let by_head = |g: &mut Graph, t| {
            let t = g.reshape(t, [HEAD, HEADS, CACHE, 1])?;
            g.permute(t, [0, 2, 1, 3])
        };
        let (k, v) = (by_head(g, k)?, by_head(g, v)?);
        let q = g.permute(q, [0, 2, 1, 3])?;
        let op = FlashAttnExt { scale: 1.0 / (HEAD as f32).sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
        let attended = g.flash_attn_ext(op, q, k, v, Some(mask))?;
        let attended = g.reshape(attended, [EMBD, tokens, 1, 1])?;
        let attended = g.mul_mat(wo, attended)?;
        let x1 = g.add(attended, x)?;
        let normed = g.rms_norm(x1, 1e-5)?;
        let normed = g.mul(normed, norm_2)?;
        let (a, b) = (g.mul_mat(gate, normed)?, g.mul_mat(up, normed)?);
        let h = g.glu(Glu::new(Activation::Silu), a, Some(b))?;
        let h = g.mul_mat(down, h)?;
        let h = g.scale(h, 0.5, 0.0)?;
        let out = g.add(h, x1)?;
        g.name(out, "out")?;
        g.output(out).unwrap();
        Ok(Layer { graph: std::mem::take(g), x, positions, rows, mask, out, tokens })
    }

    /// Allocates memory for the weights and the state: one arena each.
    pub fn bind(&self, backend: &dyn Backend) -> Bindings {
        let alignment = backend.device().limits.alignment;
        let mut bindings = Bindings::default();
        for (source, usage) in [(Source::Weight, Usage::Weights), (Source::State, Usage::State)] {
            let of_kind = |id: &TensorId| self.graph.tensor(*id).source == source;
            let mut offset = 0;
            let mut places = Vec::new();
            for id in self.graph.ids().filter(of_kind) {
                places.push((id, offset));
                offset += self.graph.tensor(id).span_bytes().next_multiple_of(alignment);
            }
            let buffer = backend.allocate(offset, usage).expect("memory");
            for (id, offset) in places {
                if usage == Usage::Weights {
                    backend.upload(&buffer, offset, &values(&self.graph, id, -0.5, 0.5)).expect("upload");
                }
                bindings.leaves.insert(id, Slice { buffer: buffer.clone(), offset });
            }
        }
        bindings
    }

    /// Returns the bindings of another layer's leaves, matched by name.
    pub fn rebind(&self, other: &Layer, bindings: &Bindings) -> Bindings {
        let leaves = bindings.leaves.iter().filter_map(|(id, slice)| {
            let id = self.graph.find(&other.graph.tensor(*id).name)?;
            Some((id, slice.clone()))
        });
        Bindings { leaves: leaves.collect(), compute: bindings.compute.clone() }
    }

    /// Returns a plan without fast arithmetic.
    pub fn plan(&self, backend: &dyn Backend) -> Plan {
        Plan::new(&self.graph, backend.device().limits.alignment, Precision::Exact).expect("a plan")
    }

    /// Prepares a program with its own memory.
    pub fn program(&self, backend: &dyn Backend, bindings: &Bindings) -> Box<dyn Program> {
        backend
            .prepare(&self.graph, &self.plan(backend), bindings, PrepareOptions::default())
            .expect("a program")
    }

    /// Writes the inputs for the tokens from position `at` on.
    pub fn write(&self, program: &mut dyn Program, at: usize) {
        let mut rng = Rng::new(at as u64 + 1);
        let x: Vec<u8> = (0..EMBD * self.tokens).flat_map(|_| rng.uniform(-1.0, 1.0).to_le_bytes()).collect();
        let mask = (0..self.tokens).flat_map(|t| {
            (0..CACHE).flat_map(move |j| if j <= at + t { 0.0f32 } else { f32::NEG_INFINITY }.to_le_bytes())
        });
        program.write(self.x, &x).expect("x");
        program.write(self.positions, &ints(at..at + self.tokens)).expect("positions");
        program.write(self.rows, &ints(at..at + self.tokens)).expect("rows");
        program.write(self.mask, &mask.collect::<Vec<u8>>()).expect("mask");
    }

    /// Runs the tokens from position `at` on and returns the output.
    pub fn run(&self, program: &mut dyn Program, at: usize) -> Vec<f32> {
        self.write(program, at);
        program.run().expect("a run");
        self.output(program)
    }

    /// Returns the output of the last run.
    pub fn output(&self, program: &mut dyn Program) -> Vec<f32> {
        let mut out = vec![0u8; EMBD * self.tokens * 4];
        program.read(self.out, &mut out).expect("output");
        floats(&out)
    }
}

/// Builds a chain of square products that keeps a device busy: about `2 * n^3 * links` operations.
pub fn heavy(n: usize, links: usize) -> (Graph, TensorId, TensorId) {
    let mut g = Graph::new();
    let w = g.leaf("w", DType::F32, [n, n, 1, 1], Source::Weight).expect("w");
    let x = g.leaf("x", DType::F32, [n, n, 1, 1], Source::Input).expect("x");
    let mut y = x;
    for i in 0..links {
        y = g.mul_mat(w, y).expect("product");
        g.name(y, &format!("link_{i}")).expect("name");
    }
    g.output(y).unwrap();
    (g, w, y)
}
