//! Graphs with their data, and backends to run them on.

use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program, Slice, Usage};
use ggml_core::cpu::{CpuBackend, CpuOptions, Isa};
use ggml_core::encode::encode;
use ggml_core::op::{Activation, FlashAttnExt, Glu, Rope, RopeMode, SoftMax};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::rng::Rng;
use ggml_core::{DType, Graph, Result, Source, TensorId};

pub(crate) const WEIGHTS: [DType; 6] =
    [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q6_K];

pub(crate) fn isas() -> Vec<Isa> {
    Isa::ALL.into_iter().filter(|i| i.available()).collect()
}

pub(crate) fn open(isa: Isa, threads: usize) -> CpuBackend {
    CpuBackend::open(CpuOptions::default().with_isa(isa).with_threads(threads)).unwrap()
}

/// A graph with the contents of its leaves.
pub(crate) struct Work {
    pub(crate) graph: Graph,
    pub(crate) leaves: Vec<(TensorId, Vec<u8>)>,
}

impl Work {
    pub(crate) fn new() -> Work {
        Work { graph: Graph::new(), leaves: Vec::new() }
    }

    /// Adds a leaf with uniform random contents.
    pub(crate) fn leaf(&mut self, name: &str, dtype: DType, ne: [usize; 4], source: Source) -> TensorId {
        let mut rng = Rng::named(name, 7);
        let values: Vec<f32> = (0..ne.iter().product()).map(|_| rng.uniform(-1.0, 1.0)).collect();
        self.filled(name, dtype, ne, source, &values)
    }

    pub(crate) fn filled(
        &mut self,
        name: &str,
        dtype: DType,
        ne: [usize; 4],
        source: Source,
        values: &[f32],
    ) -> TensorId {
        let id = self.graph.leaf(name, dtype, ne, source).unwrap();
        self.leaves.push((id, encode(dtype, ne[0], values).unwrap()));
        id
    }

    /// Binds, writes, runs twice and reads the outputs' roots. `shift` moves weights and state in their
    /// buffers.
    pub(crate) fn run_with(&self, backend: &dyn Backend, plan: &Plan, shift: usize) -> Result<Vec<Vec<u8>>> {
        let mut bindings = Bindings::default();
        for (id, data) in &self.leaves {
            let usage = match self.graph.tensor(*id).source {
                Source::Weight => Usage::Weights,
                Source::State => Usage::State,
                _ => continue,
            };
            let buffer = backend.allocate(data.len() + shift, usage)?;
            backend.upload(&buffer, shift, data)?;
            bindings.leaves.insert(*id, Slice { buffer, offset: shift });
        }
        let mut program = backend.prepare(&self.graph, plan, &bindings, PrepareOptions::default())?;
        for _ in 0..2 {
            for (id, data) in &self.leaves {
                if self.graph.tensor(*id).source != Source::Weight {
                    program.write(*id, data)?;
                }
            }
            program.run()?;
        }
        self.graph.outputs().iter().map(|&id| self.read(&mut *program, id)).collect()
    }

    pub(crate) fn read(&self, program: &mut dyn Program, id: TensorId) -> Result<Vec<u8>> {
        let root = self.graph.tensor(id).root;
        let mut bytes = vec![0; self.graph.tensor(root).dense_bytes()];
        program.read(root, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn run(&self, backend: &dyn Backend, precision: Precision) -> Vec<Vec<u8>> {
        self.run_with(backend, &Plan::new(&self.graph, 64, precision).unwrap(), 0).unwrap()
    }
}

pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Builds a graph with every kind of operation, large enough for several threads, with a model layer in the
/// middle.
pub(crate) fn layers(tokens: usize) -> Work {
    let mut w = Work::new();
    let (d, heads, heads_kv, ff, context) = (256, 8, 2, 768, 320);
    let head = d / heads;
    let ids: Vec<f32> = (0..tokens).map(|t| (t * 37 % 512) as f32).collect();
    let ids = w.filled("ids", DType::I32, [tokens, 1, 1, 1], Source::Input, &ids);
    let slots: Vec<f32> = (0..tokens).map(|t| (context - 1 - t) as f32).collect();
    let slots = w.filled("slots", DType::I32, [tokens, 1, 1, 1], Source::Input, &slots);
    let table = w.leaf("table", DType::Q8_0, [d, 512, 1, 1], Source::Weight);
    let mask = w.leaf("mask", DType::F16, [context, tokens, 1, 1], Source::Input);
    let mut g = std::mem::take(&mut w.graph);
    let x = g.get_rows(table, ids).unwrap();
    w.graph = g;
    let mut x = x;
    for (layer, dtype) in WEIGHTS.into_iter().enumerate() {
        let weight = |w: &mut Work, name: &str, k: usize, m: usize| {
            w.leaf(&format!("{name}{layer}"), dtype, [k, m, 1, 1], Source::Weight)
        };
        let (wq, wk) = (weight(&mut w, "q", d, d), weight(&mut w, "k", d, head * heads_kv));
        let (wg, wu, wd) =
            (weight(&mut w, "g", d, ff), weight(&mut w, "u", d, ff), weight(&mut w, "d", ff, d));
        let scale = w.leaf(&format!("scale{layer}"), DType::F32, [d, 1, 1, 1], Source::Weight);
        let cache_type = if layer % 2 == 0 { DType::F16 } else { DType::F32 };
        let cache =
            w.leaf(&format!("cache{layer}"), cache_type, [head * heads_kv, context, 1, 1], Source::State);
        let g = &mut w.graph;
        let n = g.rms_norm(x, 1e-5).unwrap();
        let n = g.mul(n, scale).unwrap();
        let q = g.mul_mat(wq, n).unwrap();
        let k = g.mul_mat(wk, n).unwrap();
        let q = g.reshape(q, [head, heads, tokens, 1]).unwrap();
        let mode = if layer % 2 == 0 { RopeMode::Neox } else { RopeMode::Normal };
        let q = g.rope(Rope::plain(mode, head, 10000.0), q, ids, None).unwrap();
        let q = g.permute(q, [0, 2, 1, 3]).unwrap();
        let kv = g.set_rows(cache, k, slots).unwrap();
        let kv = g.reshape(kv, [head, heads_kv, context, 1]).unwrap();
        let kv = g.permute(kv, [0, 2, 1, 3]).unwrap();
        let op = FlashAttnExt { scale: 0.2, max_bias: 4.0, logit_softcap: 3.0 * (layer % 2) as f32 };
        let a = g.flash_attn_ext(op, q, kv, kv, Some(mask)).unwrap();
        let a = g.reshape(a, [d, tokens, 1, 1]).unwrap();
        x = g.add(a, x).unwrap();
        let n = g.rms_norm(x, 1e-5).unwrap();
        let (gate, up) = (g.mul_mat(wg, n).unwrap(), g.mul_mat(wu, n).unwrap());
        let h = g.glu(Glu::new(Activation::ALL[layer % Activation::ALL.len()]), gate, Some(up)).unwrap();
        let y = g.mul_mat(wd, h).unwrap();
        let y = g.scale(y, 0.05, 0.0).unwrap();
        x = g.add(x, y).unwrap();
        if layer == 0 {
            w.graph.output(x).unwrap();
        }
    }
    let g = &mut w.graph;
    let t = g.transpose(x).unwrap();
    let t = g.cont(t).unwrap();
    let p = g.soft_max(SoftMax { scale: 2.0, max_bias: 0.0 }, t, None).unwrap();
    let u = g.unary(Activation::Gelu, p).unwrap();
    g.output(x).unwrap();
    g.output(u).unwrap();
    w
}
