//! The work whose instructions are counted: products of weights, and attention.

use diptych::ggml::backend::{Backend, Bindings, PrepareOptions, Slice, Usage};
use diptych::ggml::encode::encode;
use diptych::ggml::op::FlashAttnExt;
use diptych::ggml::plan::Plan;
use diptych::ggml::rng::Rng;
use diptych::ggml::{Graph, Source, TensorId};
use diptych::{DType, Precision};

/// Width of a head of attention.
const D: usize = 128;

/// Work of one dispatch, or of a few.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// Weights of `m` rows of `k` with `n` columns, counted for each weight, or for each product of two numbers.
    Product { dtype: DType, k: usize, m: usize, n: usize, each: bool },
    /// Attention over an F16 cache, counted for each product of two numbers, those of hidden positions too.
    Attention { tokens: usize, positions: usize, heads: usize, heads_kv: usize, causal: bool },
}

/// Instructions of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) vector: f64,
    pub(super) memory: f64,
    /// All others: scalar arithmetic, branches, waits.
    pub(super) scalar: f64,
    /// Matrix instructions among the vector ones.
    pub(super) matrix: f64,
}

/// A graph, the leaves that live in memory of the device with their contents, and an input with its values.
struct Prepared {
    graph: Graph,
    leaves: Vec<(TensorId, Vec<u8>)>,
    input: (TensorId, Vec<u8>),
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn random(n: usize) -> Vec<f32> {
    let mut rng = Rng::new(1);
    (0..n).map(|_| rng.uniform(-1.0, 1.0)).collect()
}

fn product(dtype: DType, [k, m, n]: [usize; 3]) -> Prepared {
    let mut graph = Graph::new();
    let a = graph.leaf("a", dtype, [k, m, 1, 1], Source::Weight).expect("a");
    let b = graph.leaf("b", DType::F32, [k, n, 1, 1], Source::Input).expect("b");
    let d = graph.mul_mat(a, b).expect("d");
    graph.output(d).expect("an output");
    let row = random(k);
    let weights = encode(dtype, k, &row).expect("weights").repeat(m);
    Prepared { graph, leaves: vec![(a, weights)], input: (b, bytes(&row).repeat(n)) }
}

fn attention(tokens: usize, positions: usize, heads: [usize; 2], causal: bool) -> Prepared {
    let mut graph = Graph::new();
    let input = graph.leaf("q", DType::F32, [D, heads[0], tokens, 1], Source::Input).expect("q");
    let q = graph.permute(input, [0, 2, 1, 3]).expect("q");
    let row = random(D);
    let rows = encode(DType::F16, D, &row).expect("a row").repeat(heads[1] * positions);
    let mut leaves = Vec::new();
    let [k, v] = ["k", "v"].map(|name| {
        let leaf = graph.leaf(name, DType::F16, [D, heads[1], positions, 1], Source::State).expect(name);
        leaves.push((leaf, rows.clone()));
        graph.permute(leaf, [0, 2, 1, 3]).expect(name)
    });
    let mask = graph.leaf("mask", DType::F16, [positions, tokens, 1, 1], Source::State).expect("a mask");
    let hidden = |token: usize, at: usize| causal && at > token + positions - tokens;
    let minus_infinity = 0xfc00u16;
    let values = (0..tokens).flat_map(|t| (0..positions).map(move |at| hidden(t, at)));
    leaves
        .push((mask, values.flat_map(|hidden| (u16::from(hidden) * minus_infinity).to_le_bytes()).collect()));
    let op = FlashAttnExt { scale: 1.0 / (D as f32).sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
    let d = graph.flash_attn_ext(op, q, k, v, Some(mask)).expect("attention");
    graph.output(d).expect("an output");
    Prepared { graph, leaves, input: (input, bytes(&row).repeat(heads[0] * tokens)) }
}

impl Work {
    fn prepare(&self) -> Prepared {
        match *self {
            Work::Product { dtype, k, m, n, .. } => product(dtype, [k, m, n]),
            Work::Attention { tokens, positions, heads, heads_kv, causal } => {
                attention(tokens, positions, [heads, heads_kv], causal)
            }
        }
    }

    /// Returns the number of weights or products.
    fn size(&self) -> f64 {
        let size = match *self {
            Work::Product { k, m, n, each, .. } => k * m * if each { n } else { 1 },
            Work::Attention { tokens, positions, heads, .. } => 2 * D * tokens * positions * heads,
        };
        size as f64
    }

    /// Counts the whole of it: loops, rounding of activations, sums over lanes.
    pub(super) fn count(&self, backend: &dyn Backend) -> Counts {
        let Prepared { graph, leaves, input } = self.prepare();
        let plan = Plan::new(&graph, backend.device().limits.alignment, Precision::Fast).expect("a plan");
        let mut bindings = Bindings::default();
        for (leaf, contents) in leaves {
            let buffer = backend.allocate(contents.len(), Usage::Weights).expect("memory");
            backend.upload(&buffer, 0, &contents).expect("upload");
            bindings.leaves.insert(leaf, Slice { buffer, offset: 0 });
        }
        let mut program =
            backend.prepare(&graph, &plan, &bindings, PrepareOptions::default()).expect("a program");
        program.write(input.0, &input.1).expect("input");
        let before = looked(backend);
        program.run().expect("a run");
        let after = looked(backend);
        let [vector, memory, matrix, all] = std::array::from_fn(|i| (after[i] - before[i]) / self.size());
        Counts { vector, memory, scalar: all - vector - memory, matrix }
    }
}

/// Returns the instructions of lanes since the backend was opened: vector, memory, matrix, all.
fn looked(backend: &dyn Backend) -> [f64; 4] {
    let kernels = backend.counts().expect("counters");
    let names: [&[&str]; 4] =
        [&["valu"], &["smem", "vmem_load", "vmem_store", "lds"], &["matrix"], &["instructions"]];
    names.map(|names| kernels.iter().map(|kernel| kernel.wave() * kernel.sum(names) as f64).sum())
}
