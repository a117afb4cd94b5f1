use super::*;
use crate::backend::{Backend, PrepareOptions, Support};
use crate::catalogue::groups::cases;
use crate::dtype::DType;
use crate::error::Result;
use crate::evaluate::{self, Contents};
use crate::graph::Graph;
use crate::op::{Activation, FlashAttnExt, Glu, Rope, RopeMode, SoftMax};
use crate::plan::Plan;
use crate::precision::Precision;
use crate::reference::ReferenceBackend;
use crate::rng::Rng;
use crate::tensor::{Source, TensorId};

mod best;
mod gates;
mod places;

const EPS: f32 = 1e-5;

/// Kinds of groups with several nodes.
const KINDS: [&str; 11] =
    ["products", "heads", "experts", "router", "gate", "norm", "scaled", "chain", "conv", "delta", "best"];

/// Graph with leaves by name.
struct Builder {
    g: Graph,
}

impl Builder {
    fn new() -> Builder {
        Builder { g: Graph::new() }
    }

    fn leaf(&mut self, name: &str, ne: &[usize], source: Source) -> TensorId {
        let dtype = if ["tokens", "at", "cells"].contains(&name) { DType::I32 } else { DType::F32 };
        let mut extents = [1; 4];
        extents[..ne.len()].copy_from_slice(ne);
        self.g.leaf(name, dtype, extents, source).unwrap()
    }

    fn weight(&mut self, name: &str, ne: &[usize]) -> TensorId {
        self.leaf(name, ne, Source::Weight)
    }

    fn norm(&mut self, x: TensorId, name: &str) -> TensorId {
        let n = self.g.tensor(x).ne[0];
        let weight = self.weight(name, &[n]);
        let normed = self.g.rms_norm(x, EPS).unwrap();
        self.g.mul(normed, weight).unwrap()
    }

    fn linear(&mut self, x: TensorId, name: &str, rows: usize, bias: bool) -> TensorId {
        let k = self.g.tensor(x).ne[0];
        let weight = self.weight(name, &[k, rows]);
        let product = self.g.mul_mat(weight, x).unwrap();
        if !bias {
            return product;
        }
        let bias = self.weight(&format!("{name}.bias"), &[rows]);
        self.g.add(product, bias).unwrap()
    }

    /// Stores the rows of `x` `[d, heads, tokens]` in a cache and returns the view that attention reads.
    fn cached(&mut self, x: TensorId, name: &str, cells: TensorId) -> TensorId {
        let [d, heads, tokens, _] = self.g.tensor(x).ne;
        let (row, nb) = (d * heads, self.g.tensor(x).nb);
        let cache = self.leaf(name, &[row, 16], Source::State);
        let strides = [nb[0], nb[2], nb[2] * tokens, nb[2] * tokens];
        let rows = self.g.view(x, [row, tokens, 1, 1], strides, 0).unwrap();
        let written = self.g.set_rows(cache, rows, cells).unwrap();
        self.g.view(written, [d, 16, heads, 1], [4, 4 * row, 4 * d, 64 * row], 0).unwrap()
    }

    /// Builds a decoder layer on `x` `[32, tokens]`: heads of 8, four of queries, two of keys. `normed`:
    /// norms of the heads of q and k; `after`: norms of the results of attention and feed-forward network.
    fn layer(&mut self, x: TensorId, bias: bool, normed: bool, after: bool) -> TensorId {
        let tokens = self.g.tensor(x).ne[1];
        let at = self.leaf("at", &[tokens], Source::Input);
        let cells = self.leaf("cells", &[tokens], Source::Input);
        let mask = self.leaf("mask", &[16, tokens], Source::Input);
        let input = self.norm(x, "attn_norm");
        let [q, k, v] = [("q", 4), ("k", 2), ("v", 2)].map(|(name, heads)| {
            let product = self.linear(input, name, 8 * heads, bias);
            self.g.reshape(product, [8, heads, tokens, 1]).unwrap()
        });
        let [q, k] = [(q, "q_norm"), (k, "k_norm")].map(|(x, name)| {
            let x = if normed { self.norm(x, name) } else { x };
            self.g.rope(Rope::plain(RopeMode::Neox, 8, 1e4), x, at, None).unwrap()
        });
        let (k, v) = (self.cached(k, "k_cache", cells), self.cached(v, "v_cache", cells));
        let q = self.g.permute(q, [0, 2, 1, 3]).unwrap();
        let op = FlashAttnExt { scale: 0.3, max_bias: 0.0, logit_softcap: 0.0 };
        let out = self.g.flash_attn_ext(op, q, k, v, Some(mask)).unwrap();
        let out = self.g.reshape(out, [32, tokens, 1, 1]).unwrap();
        let mut out = self.linear(out, "o", 32, false);
        if after {
            out = self.norm(out, "after_attn");
        }
        let x = self.g.add(x, out).unwrap();
        let input = self.norm(x, "ffn_norm");
        let (gate, up) = (self.linear(input, "gate", 64, false), self.linear(input, "up", 64, false));
        let glu = self.g.glu(Glu::new(Activation::Silu), gate, Some(up)).unwrap();
        let mut down = self.linear(glu, "down", 32, false);
        if after {
            down = self.norm(down, "after_ffn");
        }
        self.g.add(x, down).unwrap()
    }

    /// Returns seeded contents of every leaf that is no state.
    fn contents(&self) -> Contents {
        let leaves =
            self.g.ids().filter(|&id| matches!(self.g.tensor(id).source, Source::Weight | Source::Input));
        let fill = |id: TensorId| {
            let t = self.g.tensor(id);
            let mut rng = Rng::named(&t.name, 1);
            let bytes: Vec<u8> = match t.dtype {
                DType::I32 => (0..t.elements() as i32).flat_map(i32::to_le_bytes).collect(),
                _ => (0..t.elements()).flat_map(|_| rng.uniform(-1.0, 1.0).to_le_bytes()).collect(),
            };
            (id, bytes)
        };
        leaves.map(fill).collect()
    }
}

/// Reference backend that joins given kinds of groups: it computes the members in order.
struct Joining<F>(ReferenceBackend, F);

impl<F: Fn(&Group) -> bool + Send + Sync> Backend for Joining<F> {
    fn device(&self) -> &crate::backend::DeviceInfo {
        self.0.device()
    }
    fn deadlines(&self) -> &crate::phase::Deadlines {
        self.0.deadlines()
    }
    fn supports(&self, graph: &Graph, node: TensorId) -> Support {
        self.0.supports(graph, node)
    }
    fn joins(&self, _: &Graph, group: &Group, _: Precision) -> Support {
        if (self.1)(group) { Support::Native } else { Support::no("no") }
    }
    fn supports_weights(&self, dtype: DType) -> bool {
        self.0.supports_weights(dtype)
    }
    fn allocate(&self, bytes: usize, usage: crate::backend::Usage) -> Result<crate::backend::Buffer> {
        self.0.allocate(bytes, usage)
    }
    fn import(&self, bytes: crate::mapped::MappedBytes) -> Result<Option<crate::backend::Buffer>> {
        self.0.import(bytes)
    }
    fn upload(&self, buffer: &crate::backend::Buffer, offset: usize, data: &[u8]) -> Result<()> {
        self.0.upload(buffer, offset, data)
    }
    fn download(&self, buffer: &crate::backend::Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        self.0.download(buffer, offset, out)
    }
    fn copy(&self, from: &crate::backend::Slice, to: &crate::backend::Slice, bytes: usize) -> Result<()> {
        self.0.copy(from, to, bytes)
    }
    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &crate::backend::Bindings,
        options: PrepareOptions,
    ) -> Result<Box<dyn crate::backend::Program>> {
        self.0.prepare(graph, plan, bindings, options)
    }
    fn stats(&self) -> crate::backend::Stats {
        self.0.stats()
    }
}

/// Returns names and levels of the steps, abbreviated.
fn steps(g: &Graph, joins: impl Fn(&Group) -> bool + Send + Sync) -> Vec<(&'static str, usize)> {
    let plan = Plan::fused(g, &Joining(ReferenceBackend::default(), joins), Precision::Exact).unwrap();
    plan.steps.iter().map(|step| (step.group.name(g), step.level)).collect()
}

/// Returns the steps of a graph, after checking that groups change no result: neither all groups nor those of
/// any one kind.
fn sound_steps(b: &Builder) -> Vec<(&'static str, usize)> {
    let data = b.contents();
    let outputs = |joins: &(dyn Fn(&Group) -> bool + Sync)| {
        let backend = Joining(ReferenceBackend::default(), |group: &Group| joins(group));
        let results = evaluate::evaluate(&backend, &b.g, &data, Precision::Exact).unwrap();
        results.into_iter().map(|tensor| tensor.bytes).collect::<Vec<_>>()
    };
    let plain = outputs(&|_| false);
    assert_eq!(outputs(&|_| true), plain);
    for kind in KINDS {
        assert_eq!(outputs(&|group| group.name(&b.g) == kind), plain, "{kind}");
    }
    steps(&b.g, |_| true)
}

#[test]
fn a_layer_is_six_steps() {
    for bias in [false, true] {
        let mut b = Builder::new();
        let x = b.leaf("x", &[32, 1], Source::Input);
        let y = b.layer(x, bias, bias, false);
        b.g.output(y).unwrap();
        let wanted = ["products", "heads", "FLASH_ATTN_EXT", "products", "products", "products"];
        assert_eq!(sound_steps(&b), wanted.iter().copied().zip(0..).collect::<Vec<_>>());
    }
}

/// Results that stay in a group cost no bytes, and operands of several members cost their bytes once.
#[test]
fn groups_cost_what_enters_and_leaves() {
    let mut b = Builder::new();
    let x = b.leaf("x", &[32, 1], Source::Input);
    let y = b.layer(x, false, false, false);
    b.g.output(y).unwrap();
    let backend = Joining(ReferenceBackend::default(), |_: &Group| true);
    let plan = Plan::fused(&b.g, &backend, Precision::Exact).unwrap();
    let bytes = |step: usize| crate::cost::group_work(&b.g, &plan.steps[step].group).bytes / 4.0;
    // Matrices, x, weights of the norm, results.
    assert_eq!(bytes(0), (32.0 * 64.0) + 32.0 + 32.0 + 64.0);
    assert_eq!(bytes(4), (32.0 * 128.0) + 32.0 + 32.0 + 64.0);
    // Matrix, input, what is added, result.
    assert_eq!(bytes(3), (32.0 * 32.0) + 32.0 + 32.0 + 32.0);
}

#[test]
fn norms_after_take_the_residual_sum() {
    let mut b = Builder::new();
    let x = b.leaf("x", &[32, 3], Source::Input);
    let y = b.layer(x, false, true, true);
    b.g.output(y).unwrap();
    let names: Vec<_> = sound_steps(&b).into_iter().map(|(name, _)| name).collect();
    let wanted = ["products", "heads", "FLASH_ATTN_EXT", "MUL_MAT", "norm", "products", "MUL_MAT", "norm"];
    assert_eq!(names, wanted);
}

/// If fewer queries are needed than there are keys, keys and values are a group without the queries.
#[test]
fn heads_of_a_group_have_as_many_tokens() {
    let mut b = Builder::new();
    let [at, cells] = ["at", "cells"].map(|name| b.leaf(name, &[3], Source::Input));
    let needed = b.leaf("tokens", &[1], Source::Input);
    let (x, mask) = (b.leaf("x", &[32, 3], Source::Input), b.leaf("mask", &[16, 1], Source::Input));
    let last = b.g.get_rows(x, needed).unwrap();
    let [q, k, v] = [("q", last, 4), ("k", x, 2), ("v", x, 2)].map(|(name, x, heads)| {
        let product = b.linear(x, name, 8 * heads, false);
        let tokens = b.g.tensor(product).ne[1];
        b.g.reshape(product, [8, heads, tokens, 1]).unwrap()
    });
    let rope = Rope::plain(RopeMode::Neox, 8, 1e4);
    let (q, k) = (b.g.rope(rope, q, needed, None).unwrap(), b.g.rope(rope, k, at, None).unwrap());
    let (k, v) = (b.cached(k, "k_cache", cells), b.cached(v, "v_cache", cells));
    let q = b.g.permute(q, [0, 2, 1, 3]).unwrap();
    let op = FlashAttnExt { scale: 0.3, max_bias: 0.0, logit_softcap: 0.0 };
    let out = b.g.flash_attn_ext(op, q, k, v, Some(mask)).unwrap();
    b.g.output(out).unwrap();
    let names: Vec<_> = steps(&b.g, |_| true).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.iter().filter(|name| ["heads", "ROPE"].contains(name)).count(), 2, "{names:?}");
}

/// Refused groups are offered as smaller groups.
#[test]
fn a_refusal_leaves_smaller_groups() {
    let mut b = Builder::new();
    let x = b.leaf("x", &[32, 1], Source::Input);
    let y = b.layer(x, true, true, false);
    b.g.output(y).unwrap();
    let without_norm = |group: &Group| match group {
        Group::Products(p) => p.norm.is_none(),
        Group::Heads(h) => h.heads.iter().all(|head| head.norm.is_none()),
        _ => true,
    };
    let wanted = [
        ("norm", 0),
        ("products", 1),
        ("norm", 2),
        ("norm", 2),
        ("heads", 3),
        ("FLASH_ATTN_EXT", 4),
        ("products", 5),
        ("norm", 6),
        ("products", 7),
        ("products", 8),
    ];
    assert_eq!(steps(&b.g, without_norm), wanted);
    // One matrix at a time: q, k and v with their biases side by side.
    let one =
        |group: &Group| matches!(group, Group::Products(p) if p.products.len() == 1 && p.norm.is_none());
    let levels = steps(&b.g, one);
    assert_eq!(levels.iter().filter(|(name, level)| *name == "products" && *level == 2).count(), 3);
    assert_eq!(steps(&b.g, |_| false).len(), b.g.computed().count());
}

/// Where a backend joins neither products with their biases nor a product with its own, it joins the products alone.
#[test]
fn products_are_joined_without_their_biases() {
    let mut b = Builder::new();
    let x = b.leaf("x", &[32, 1], Source::Input);
    for name in ["q", "k", "v"] {
        let sum = b.linear(x, name, 2 * FEW_ROWS, true);
        b.g.output(sum).unwrap();
    }
    let plain = |group: &Group| match group {
        Group::Products(p) => p.products.iter().all(|product| product.bias.is_none()),
        _ => false,
    };
    assert_eq!(steps(&b.g, plain), [("products", 0), ("ADD", 1), ("ADD", 1), ("ADD", 1)]);
    assert_eq!(steps(&b.g, |_| true), [("products", 0)]);
}

/// A node with a reader outside of the group remains a result.
#[test]
fn results_that_are_needed_elsewhere_leave() {
    let mut b = Builder::new();
    let x = b.leaf("x", &[32, 1], Source::Input);
    let n = b.norm(x, "norm");
    let a = b.linear(n, "a", 32, true);
    let other = b.g.unary(Activation::Relu, n).unwrap();
    let sum = b.g.add(a, other).unwrap();
    b.g.output(sum).unwrap();
    b.g.output(a).unwrap();
    let names: Vec<_> = sound_steps(&b).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        ["norm", "products", "chain"],
        "the norm is read by RELU, the sum with the bias is an output"
    );
}

/// A sum, its norm, and a sum of the norm with a function of the first sum: all of it together would be a
/// circle.
#[test]
fn no_group_waits_for_itself() {
    let mut b = Builder::new();
    let x = b.leaf("x", &[32, 1], Source::Input);
    let y = b.leaf("y", &[32, 1], Source::Input);
    let r = b.g.add(x, y).unwrap();
    let n = b.norm(r, "norm");
    let z = b.g.scale(r, 2.0, 0.0).unwrap();
    let out = b.g.add(z, n).unwrap();
    b.g.output(out).unwrap();
    assert_eq!(sound_steps(&b), [("ADD", 0), ("SCALE", 1), ("norm", 2)]);
}

/// A sum with a view of a product or of a norm, or of it and a view of it, is not part of its group.
#[test]
fn sums_with_views_stand_alone() {
    type Make = fn(&mut Builder, TensorId) -> TensorId;
    let makers: [Make; 2] = [|b, x| b.linear(x, "w", 32, true), |b, x| b.norm(x, "norm")];
    for (make, name) in makers.into_iter().zip(["products", "norm"]) {
        for itself in [false, true] {
            let mut b = Builder::new();
            let x = b.leaf("x", &[32, 4], Source::Input);
            let y = b.leaf("y", &[32, 4], Source::Input);
            let result = make(&mut b, x);
            let view = b.g.view(result, [32, 4, 1, 1], [4, 128, 512, 512], 0).unwrap();
            let sum = b.g.add(view, if itself { result } else { y }).unwrap();
            b.g.output(sum).unwrap();
            assert_eq!(sound_steps(&b), [(name, 0), ("ADD", 1)]);
        }
    }
}

/// The summand after a norm is not the sum before it, nor a view of that: a group does not read its own
/// results.
#[test]
fn a_norm_and_the_sum_before_it() {
    for view in [false, true] {
        let mut b = Builder::new();
        let (x, y) = (b.leaf("x", &[32, 4], Source::Input), b.leaf("y", &[32, 4], Source::Input));
        let sum = b.g.add(x, y).unwrap();
        let normed = b.norm(sum, "norm");
        let added = if view { b.g.view(sum, [32, 4, 1, 1], [4, 0, 0, 0], 128).unwrap() } else { sum };
        let out = b.g.add(normed, added).unwrap();
        b.g.output(out).unwrap();
        assert_eq!(sound_steps(&b), [("ADD", 0), ("norm", 1)]);
    }
}

/// Weights that are a view of the experts' product, and sums with views of the group's results, are not part
/// of it.
#[test]
fn experts_with_views() {
    #[derive(PartialEq)]
    enum Of {
        Product,
        Weighted,
        Sum,
    }
    let wanted: [(Of, &[&str]); 3] = [
        (Of::Product, &["MUL_MAT_ID", "MUL", "ADD", "ADD"]),
        (Of::Weighted, &["MUL_MAT_ID", "MUL", "ADD", "ADD"]),
        (Of::Sum, &["experts", "ADD"]),
    ];
    for (of, wanted) in wanted {
        let mut b = Builder::new();
        let ids = b.leaf("tokens", &[2, 1], Source::Input);
        let x = b.leaf("x", &[32, 2, 1], Source::Input);
        let (weight, y) = (b.weight("down", &[32, 16, 4]), b.leaf("y", &[16, 1], Source::Input));
        let down = b.g.mul_mat_id(weight, x, ids).unwrap();
        let weights = match of {
            Of::Product => b.g.view(down, [1, 2, 1, 1], [4, 64, 128, 128], 8).unwrap(),
            _ => b.leaf("weights", &[1, 2, 1], Source::Input),
        };
        let weighted = b.g.mul(down, weights).unwrap();
        let [first, second] = [0, 64].map(|at| b.g.view(weighted, [16, 1, 1, 1], [4, 128, 128, 128], at));
        let sum = b.g.add(first.unwrap(), second.unwrap()).unwrap();
        let added = match of {
            Of::Product => y,
            Of::Weighted => b.g.view(weighted, [16, 1, 1, 1], [4, 128, 128, 128], 64).unwrap(),
            Of::Sum => b.g.view(sum, [16, 1, 1, 1], [4, 64, 64, 64], 0).unwrap(),
        };
        let out = b.g.add(sum, added).unwrap();
        b.g.output(out).unwrap();
        let names: Vec<_> = sound_steps(&b).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, wanted);
    }
}

/// A product that is both gate and up is one product: no group contains it twice.
#[test]
fn a_product_times_itself() {
    let mut b = Builder::new();
    let ids = b.leaf("tokens", &[2, 1], Source::Input);
    let x = b.leaf("x", &[32, 1, 1], Source::Input);
    let weight = b.weight("up", &[32, 16, 4]);
    let up = b.g.mul_mat_id(weight, x, ids).unwrap();
    let squares = b.g.glu(Glu::new(Activation::Relu), up, Some(up)).unwrap();
    b.g.output(squares).unwrap();
    assert_eq!(sound_steps(&b), [("MUL_MAT_ID", 0), ("REGLU", 1)]);
}

/// The catalogue has cases of every kind of group.
#[test]
fn every_kind_has_cases() {
    let cases = cases();
    for kind in KINDS {
        assert!(cases.iter().filter(|case| case.group == Some(kind)).count() > 1, "{kind}");
    }
    assert!(cases.iter().all(|case| case.group.is_some_and(|group| KINDS.contains(&group))));
}

/// State that is read before it is overwritten is not overwritten earlier.
#[test]
fn writers_wait_for_readers() {
    let mut b = Builder::new();
    let state = b.leaf("state", &[32], Source::State);
    let x = b.leaf("x", &[32], Source::Input);
    let first = b.g.scale(x, 2.0, 0.0).unwrap();
    let second = b.g.scale(first, 3.0, 0.0).unwrap();
    let old = b.g.add(state, second).unwrap();
    let new = b.g.cpy(x, state).unwrap();
    let again = b.g.scale(new, 1.0, 1.0).unwrap();
    b.g.output(old).unwrap();
    b.g.output(again).unwrap();
    let wanted = [("chain", 0), ("CPY", 1), ("SCALE", 2)];
    assert_eq!(sound_steps(&b), wanted);
}

#[test]
fn a_mixture_is_three_steps() {
    let mut b = Builder::new();
    let (tokens, used, experts) = (2, 3, 4);
    let x = b.leaf("x", &[32, tokens], Source::Input);
    let input = b.norm(x, "norm");
    let scores = b.linear(input, "router", experts, true);
    let ids = b.g.top_k(scores, used).unwrap();
    let rows = b.g.reshape(scores, [1, experts, tokens, 1]).unwrap();
    let best = b.g.get_rows(rows, ids).unwrap();
    let best = b.g.reshape(best, [used, tokens, 1, 1]).unwrap();
    let weights = b.g.soft_max(SoftMax { scale: 1.0, max_bias: 0.0 }, best, None).unwrap();
    let weights = b.g.reshape(weights, [1, used, tokens, 1]).unwrap();
    let flat = b.g.reshape(ids, [used * tokens, 1, 1, 1]).unwrap();
    let expert = |b: &mut Builder, x: TensorId, name: &str, rows: usize| {
        let k = b.g.tensor(x).ne[0];
        let weight = b.weight(name, &[k, rows, experts]);
        let product = b.g.mul_mat_id(weight, x, ids).unwrap();
        let bias = b.weight(&format!("{name}.bias"), &[rows, experts]);
        let bias = b.g.get_rows(bias, flat).unwrap();
        let bias = b.g.reshape(bias, [rows, used, tokens, 1]).unwrap();
        b.g.add(product, bias).unwrap()
    };
    let wide = b.g.reshape(input, [32, 1, tokens, 1]).unwrap();
    let (gate, up) = (expert(&mut b, wide, "gate", 64), expert(&mut b, wide, "up", 64));
    let glu = b.g.glu(Glu::clamped(1.7, 7.0), gate, Some(up)).unwrap();
    let down = expert(&mut b, glu, "down", 32);
    let weighted = b.g.mul(down, weights).unwrap();
    let part = |b: &mut Builder, expert: usize| {
        let row = 4 * 32;
        let strides = [4, used * row, used * row * tokens, used * row * tokens];
        b.g.view(weighted, [32, tokens, 1, 1], strides, expert * row).unwrap()
    };
    let (first, second, third) = (part(&mut b, 0), part(&mut b, 1), part(&mut b, 2));
    let sum = b.g.add(first, second).unwrap();
    let sum = b.g.add(sum, third).unwrap();
    let y = b.g.add(x, sum).unwrap();
    b.g.output(y).unwrap();
    assert_eq!(sound_steps(&b), [("gate", 0), ("experts", 1), ("experts", 2)]);
}

/// The small operations of a delta net's layer: after its projections, its convolution and its recurrence.
#[test]
fn small_operations_are_few_steps() {
    let mut b = Builder::new();
    let alpha = b.leaf("alpha", &[8, 3], Source::Input);
    let a = b.weight("a", &[8]);
    let step = b.g.unary(Activation::Softplus, alpha).unwrap();
    let decay = b.g.mul(step, a).unwrap();
    let qk = b.leaf("qk", &[16, 4, 3], Source::Input);
    let normed = b.g.rms_norm(qk, EPS).unwrap();
    let unit = b.g.scale(normed, 0.25, 0.0).unwrap();
    let (x, z) = (b.leaf("x", &[16, 8, 3], Source::Input), b.leaf("z", &[16, 8, 3], Source::Input));
    let normed = b.norm(x, "norm");
    let gated = b.g.glu(Glu::new(Activation::Silu), z, Some(normed)).unwrap();
    [decay, unit, gated].into_iter().for_each(|id| b.g.output(id).unwrap());
    assert_eq!(sound_steps(&b), [("chain", 0), ("scaled", 0), ("norm", 0)]);
    // A summand is not also a factor; the result of a norm is an operand at most once.
    let mut b = Builder::new();
    let x = b.leaf("x", &[16, 3], Source::Input);
    let normed = b.g.rms_norm(x, EPS).unwrap();
    let shifted = b.g.scale(normed, 1.0, 1.0).unwrap();
    let steep = b.g.unary(Activation::Tanh, shifted).unwrap();
    let sum = b.g.add(steep, x).unwrap();
    b.g.output(sum).unwrap();
    assert_eq!(sound_steps(&b), [("RMS_NORM", 0), ("chain", 1)]);
}
