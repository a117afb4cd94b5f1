//! Operands that lie elsewhere than a group expects, or that the group itself computes: such groups are not
//! made. The CPU backend, which joins groups, agrees with the reference.

use super::{Builder, EPS, sound_steps};
use crate::catalogue::groups::cases;
use crate::cpu::{CpuBackend, CpuOptions};
use crate::evaluate::compare_backends;
use crate::op::{Activation, FlashAttnExt, Glu, Op, Rope, RopeMode, SoftMax};
use crate::precision::Precision;
use crate::reference::ReferenceBackend;
use crate::rng::Rng;
use crate::tensor::{Source, TensorId};

const SOFT_MAX: SoftMax = SoftMax { scale: 1.0, max_bias: 0.0 };

/// Returns the names of the steps, after a comparison of the CPU backend with the reference.
fn names(b: &Builder) -> Vec<&'static str> {
    let (reference, cpu) = (ReferenceBackend::default(), CpuBackend::open(CpuOptions::default()).unwrap());
    let compared = compare_backends(&[&reference, &cpu], &b.g, &b.contents(), Precision::Exact).unwrap();
    assert!(compared.iter().all(|one| one.agrees()), "{}", compared[0]);
    sound_steps(b).into_iter().map(|(name, _)| name).collect()
}

/// Builds the choice of two of four experts by `scores`, weighted by the soft-max of `by`.
fn route(b: &mut Builder, scores: TensorId, by: TensorId, stride: usize) {
    let tokens = b.g.tensor(scores).ne[1];
    let ids = b.g.top_k(scores, 2).unwrap();
    let rows = b.g.reshape(by, [1, 4, tokens, 1]).unwrap();
    let chosen = b.g.get_rows(rows, ids).unwrap();
    let chosen = b.g.view(chosen, [2, tokens, 1, 1], [4, stride, 8 * tokens, 8 * tokens], 0).unwrap();
    let weights = b.g.soft_max(SOFT_MAX, chosen, None).unwrap();
    [ids, weights].into_iter().for_each(|id| b.g.output(id).unwrap());
}

/// Experts chosen by one half of a product and weighted by the other half.
#[test]
fn a_router_weighs_the_scores_that_it_chose_by() {
    for (half, wanted) in
        [(0, &["MUL_MAT", "router"][..]), (16, &["MUL_MAT", "TOP_K", "GET_ROWS", "SOFT_MAX"])]
    {
        let mut b = Builder::new();
        let x = b.leaf("x", &[32, 1], Source::Input);
        let both = b.linear(x, "both", 8, false);
        let [scores, by] = [0, half].map(|at| b.g.view(both, [4, 1, 1, 1], [4, 16, 16, 16], at).unwrap());
        route(&mut b, scores, by, 8);
        assert_eq!(names(&b), wanted);
    }
}

/// A soft-max of the first token's scores for all tokens.
#[test]
fn a_router_weighs_each_token() {
    for (stride, wanted) in [(8, &["router"][..]), (0, &["TOP_K", "GET_ROWS", "SOFT_MAX"])] {
        let mut b = Builder::new();
        let scores = b.leaf("x", &[4, 2], Source::Input);
        route(&mut b, scores, scores, stride);
        assert_eq!(names(&b), wanted);
    }
}

/// Biases of other experts than those of the product: ids from elsewhere, or a table for each token.
#[test]
fn biases_belong_to_the_experts_of_the_product() {
    for (at, tables, wanted) in [
        (0, 1, &["experts"][..]),
        (16, 1, &["MUL_MAT_ID", "GET_ROWS", "ADD"]),
        (0, 2, &["MUL_MAT_ID", "GET_ROWS", "ADD"]),
    ] {
        let mut b = Builder::new();
        let all = b.leaf("tokens", &[8], Source::Input);
        let x = b.leaf("x", &[32, 1, 2], Source::Input);
        let (weight, bias) = (b.weight("up", &[32, 16, 8]), b.weight("bias", &[16, 8, tables]));
        let ids = b.g.view(all, [2, 2, 1, 1], [4, 8, 16, 16], 0).unwrap();
        let of = b.g.view(all, [4 / tables, tables, 1, 1], [4, 16 / tables, 16, 16], at).unwrap();
        let product = b.g.mul_mat_id(weight, x, ids).unwrap();
        let rows = b.g.get_rows(bias, of).unwrap();
        let rows = b.g.reshape(rows, [16, 2, 2, 1]).unwrap();
        let sum = b.g.add(product, rows).unwrap();
        b.g.output(sum).unwrap();
        let mut names = names(&b);
        names.sort_by_key(|name| *name != "MUL_MAT_ID");
        assert_eq!(names, wanted);
    }
}

/// A norm that is multiplied by itself, or by a view of itself, next to another product or not.
#[test]
fn a_norm_may_be_its_own_matrix() {
    for other in [false, true] {
        let mut b = Builder::new();
        let x = b.leaf("x", &[32, 3], Source::Input);
        let y = b.norm(x, "norm");
        let view = b.g.view(y, [32, 2, 1, 1], [4, 128, 256, 256], 128).unwrap();
        for weight in if other { vec![view] } else { vec![y, view] } {
            let product = b.g.mul_mat(weight, y).unwrap();
            b.g.output(product).unwrap();
        }
        if other {
            let product = b.linear(y, "other", 5, true);
            b.g.output(product).unwrap();
        }
        assert_eq!(names(&b)[0], "norm");
    }
}

/// Scores that are the products of the tokens with each other.
#[test]
fn a_gate_does_not_choose_by_its_own_norm() {
    let mut b = Builder::new();
    let x = b.leaf("x", &[32, 4], Source::Input);
    let y = b.norm(x, "norm");
    let scores = b.g.mul_mat(y, y).unwrap();
    route(&mut b, scores, scores, 8);
    assert_eq!(names(&b), ["norm", "MUL_MAT", "router"]);
}

/// A product whose matrix is another product of the same input.
#[test]
fn a_matrix_may_be_a_product_of_the_same_input() {
    let mut b = Builder::new();
    let x = b.leaf("x", &[32, 2], Source::Input);
    let matrix = b.linear(x, "matrix", 32, false);
    let product = b.g.mul_mat(matrix, x).unwrap();
    [matrix, product].into_iter().for_each(|id| b.g.output(id).unwrap());
    assert_eq!(names(&b), ["MUL_MAT", "MUL_MAT"]);
}

/// A norm whose weight is the sum that it normalises.
#[test]
fn the_sum_before_a_norm_may_be_its_weight() {
    let mut b = Builder::new();
    let [x, y] = ["x", "y"].map(|name| b.leaf(name, &[32, 1], Source::Input));
    let sum = b.g.add(x, y).unwrap();
    let normed = b.g.rms_norm(sum, EPS).unwrap();
    let out = b.g.mul(normed, sum).unwrap();
    b.g.output(out).unwrap();
    assert_eq!(names(&b), ["ADD", "norm"]);
}

/// Keys that are rotated queries, and values in the cache of the keys.
#[test]
fn heads_do_not_wait_for_each_other() {
    for shared in [false, true] {
        let mut b = Builder::new();
        let [at, cells] = ["at", "cells"].map(|name| b.leaf(name, &[3], Source::Input));
        let mask = b.leaf("mask", &[16, 3], Source::Input);
        let [q, k, v] = ["q", "k", "v"].map(|name| b.leaf(name, &[8, 2, 3], Source::Input));
        let rope = Rope::plain(RopeMode::Neox, 8, 1e4);
        let q = b.g.rope(rope, q, at, None).unwrap();
        let k = b.g.rope(rope, if shared { k } else { q }, at, None).unwrap();
        let keys = b.cached(k, "cache", cells);
        let values = if shared {
            let rows = b.g.reshape(v, [16, 3, 1, 1]).unwrap();
            let written = b.g.set_rows(b.g.producer(keys), rows, cells).unwrap();
            b.g.view(written, [8, 16, 2, 1], [4, 64, 32, 1024], 0).unwrap()
        } else {
            b.cached(v, "other", cells)
        };
        let q = b.g.permute(q, [0, 2, 1, 3]).unwrap();
        let op = FlashAttnExt { scale: 0.3, max_bias: 0.0, logit_softcap: 0.0 };
        let out = b.g.flash_attn_ext(op, q, keys, values, Some(mask)).unwrap();
        b.g.output(out).unwrap();
        let names = names(&b);
        assert!(!names.contains(&"heads"), "{names:?}");
    }
}

/// A delta net whose values are normed with its queries and keys.
#[test]
fn a_delta_net_needs_its_values() {
    let case = cases().into_iter().find(|case| case.group == Some("delta")).unwrap().graph.unwrap();
    let node =
        case.computed().find(|&id| matches!(case.tensor(id).op(), Some(Op::GatedDeltaNet(_)))).unwrap();
    let (op, mut src) = (case.tensor(node).op().unwrap().clone(), case.tensor(node).src().to_vec());
    let mut b = Builder::new();
    for t in &case.tensors()[..node.index()] {
        match t.op() {
            None => b.g.leaf(&t.name, t.dtype, t.ne, t.source.clone()).unwrap(),
            Some(op) => b.g.named_node(op.clone(), t.src(), &t.name).unwrap(),
        };
    }
    let normed = b.g.producer(src[0]);
    src[2] = b.g.view(normed, case.tensor(src[2]).ne, b.g.tensor(normed).nb, 0).unwrap();
    let net = b.g.node(op, &src).unwrap();
    b.g.output(net).unwrap();
    assert!(!super::steps(&b.g, |_| true).iter().any(|(name, _)| *name == "delta"));
}

/// An intermediate result of a group that reads state, which a later node overwrites.
#[test]
fn writers_wait_for_readers_inside_groups() {
    let mut b = Builder::new();
    let state = b.leaf("state", &[32], Source::State);
    let x = b.leaf("x", &[32], Source::Input);
    let sum = b.linear(state, "w", 4, true);
    let new = b.g.cpy(x, state).unwrap();
    [sum, new].into_iter().for_each(|id| b.g.output(id).unwrap());
    assert_eq!(sound_steps(&b), [("products", 0), ("CPY", 1)]);
}

/// Groups of random graphs, in which most joins would be circles, have levels.
#[test]
fn groups_of_random_graphs_do_not_wait_for_each_other() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut b = Builder::new();
        let mut all = vec![b.leaf("x", &[32, 1], Source::Input)];
        let (weight, scale) = (b.weight("weight", &[32, 32]), b.weight("scale", &[32]));
        for _ in 0..120 {
            // One of the last eight results.
            let mut any = || all[all.len() - 1 - rng.uniform(0.0, all.len().min(8) as f32 - 0.01) as usize];
            let (x, y) = (any(), any());
            let next = match rng.uniform(0.0, 5.99) as u32 {
                0 | 1 => b.g.mul_mat(weight, x),
                2 => b.g.rms_norm(x, EPS).and_then(|n| b.g.mul(n, scale)),
                3 => b.g.scale(x, 0.5, 0.0),
                4 => b.g.glu(Glu::new(Activation::Silu), x, Some(y)),
                _ => b.g.add(x, y),
            };
            all.push(next.unwrap());
        }
        b.g.output(all[all.len() - 1]).unwrap();
        let groups = crate::fuse::find::groups(&b.g, &|_| true);
        assert!(groups.iter().any(|group| group.nodes().len() > 1), "{seed}");
        assert!(crate::fuse::levels(&b.g, groups).is_some(), "{seed}");
    }
}

/// A group looks only at the nodes between its members, however long the graph is.
#[test]
fn the_work_grows_with_the_number_of_nodes() {
    let visited = |nodes: usize| {
        let mut b = Builder::new();
        let (weight, bias) = (b.weight("weight", &[32, 32]), b.weight("bias", &[32]));
        let mut x = b.leaf("x", &[32, 1], Source::Input);
        for _ in 0..nodes / 4 {
            x = b.g.mul_mat(weight, x).unwrap();
            x = b.g.add(x, bias).unwrap();
            x = b.g.scale(x, 0.5, 0.0).unwrap();
            x = b.g.scale(x, 2.0, 0.0).unwrap();
        }
        b.g.output(x).unwrap();
        assert_eq!(b.g.computed().count(), nodes);
        let search = crate::fuse::find::searched(&b.g, &|_| true);
        let visited = search.visited();
        assert_eq!(search.finish().len(), nodes / 2);
        visited
    };
    // The shorter chains first: they fail soon if the work grows with the square.
    let short = visited(480);
    for times in [10, 100] {
        let long = visited(480 * times);
        assert!(long <= (times + 1) * short && long <= 4 * 480 * times, "{times}: {short} and {long}");
    }
}

/// Nodes that are too far apart for a search of bounded length stay alone.
#[test]
fn members_far_apart_are_no_group() {
    for (between, wanted) in [(100, 1), (10_000, 2)] {
        let mut b = Builder::new();
        let mut x = b.leaf("x", &[32, 1], Source::Input);
        let first = b.linear(x, "first", 32, false);
        let y = b.leaf("y", &[32, 1], Source::Input);
        for _ in 0..between {
            x = b.g.add(x, y).unwrap();
        }
        let sum = b.g.add(x, first).unwrap();
        b.g.output(sum).unwrap();
        let products = |group: &crate::fuse::Group| group.name(&b.g) == "products";
        let groups = crate::fuse::find::groups(&b.g, &products);
        assert_eq!(groups.len(), between + wanted);
    }
}
