//! Groups: nodes computed together in one step give the results of the nodes computed one by one.

use super::mixture::mixture;
use super::work::{Work, floats, isas, layers, open};
use ggml_core::catalogue::{self, Case};
use ggml_core::cpu::Isa;
use ggml_core::op::{Activation, Glu};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::{DType, Source};

/// Returns all cases with groups, except groups that the CPU computes in parts: scores of experts and squares
/// of logits are ordinary nodes there.
fn cases() -> Vec<Case> {
    let single = ["gate", "conv", "delta", "best"];
    catalogue::cases().into_iter().filter(|case| case.group.is_some_and(|g| !single.contains(&g))).collect()
}

#[test]
fn groups_are_one_step() {
    let cases = cases();
    assert!(cases.len() > 90);
    for threads in [1, 2] {
        let backend = open(Isa::best(), threads);
        for precision in [Precision::Exact, Precision::Fast] {
            let ungrouped = cases.iter().filter_map(|case| catalogue::ungrouped(case, &backend, precision));
            let ungrouped: Vec<String> = ungrouped.collect();
            assert!(ungrouped.is_empty(), "{}:\n{}", precision.name(), ungrouped.join("\n"));
        }
    }
}

/// Results with all NaNs replaced by one: the NaN of a sum depends on the order of its operands.
fn results(work: &Work, threads: usize, isa: Isa, precision: Precision, fused: bool) -> Vec<Vec<u8>> {
    let backend = open(isa, threads);
    let plan = if fused {
        Plan::fused(&work.graph, &backend, precision).unwrap()
    } else {
        Plan::new(&work.graph, 64, precision).unwrap()
    };
    let mut results = work.run_with(&backend, &plan, 0).unwrap();
    for (result, &id) in results.iter_mut().zip(work.graph.outputs()) {
        if work.graph.tensor(id).dtype == DType::F32 {
            let same = |x: f32| if x.is_nan() { f32::NAN } else { x };
            *result = floats(result).into_iter().flat_map(|x| same(x).to_le_bytes()).collect();
        }
    }
    results
}

fn compare(what: &str, work: &Work, threads: &[usize]) {
    for isa in isas() {
        for precision in [Precision::Exact, Precision::Fast] {
            let want = results(work, 1, isa, precision, false);
            for &threads in threads {
                let got = results(work, threads, isa, precision, true);
                assert!(got == want, "{what} on {}, {}, {threads} threads", isa.name(), precision.name());
            }
        }
    }
}

/// Results must be bit-identical.
#[test]
fn groups_are_their_nodes() {
    for case in cases() {
        let mut graph = case.graph.clone().unwrap();
        graph.output(case.node).unwrap();
        compare(&case.name, &Work { graph, leaves: case.leaves().unwrap() }, &[1, 2]);
    }
}

#[test]
fn groups_of_a_model_are_their_nodes() {
    for tokens in [1, 3, 67] {
        for (what, work) in [("layers", layers(tokens)), ("mixture", mixture(tokens))] {
            compare(&format!("{what}, {tokens} tokens"), &work, &[1, 2, 7]);
        }
    }
}

/// More columns than fit into a thread's scratch memory next to its tile.
#[test]
fn gates_of_many_columns_are_their_nodes() {
    for (dtype, halves) in [(DType::Q8_0, false), (DType::Q4_0, true), (DType::F16, false)] {
        let (k, m, n) = (64, 77, 1500);
        let mut w = Work::new();
        let x = w.leaf("x", DType::F32, [k, n, 1, 1], Source::Input);
        let scale = w.leaf("scale", DType::F32, [k, 1, 1, 1], Source::Weight);
        let rows = if halves { 2 * m } else { m };
        let [gate, up] = ["gate", "up"].map(|name| w.leaf(name, dtype, [k, rows, 1, 1], Source::Weight));
        let bias = w.leaf("bias", DType::F32, [rows, 1, 1, 1], Source::Weight);
        let g = &mut w.graph;
        let normed = g.rms_norm(x, 1e-5).unwrap();
        let normed = g.mul(normed, scale).unwrap();
        let gate = g.mul_mat(gate, normed).unwrap();
        let gate = g.add(gate, bias).unwrap();
        let up = if halves { None } else { Some(g.mul_mat(up, normed).unwrap()) };
        let glu = g.glu(Glu::new(Activation::Silu), gate, up).unwrap();
        g.output(glu).unwrap();
        let backend = open(Isa::best(), 2);
        for precision in [Precision::Exact, Precision::Fast] {
            assert_eq!(Plan::fused(&w.graph, &backend, precision).unwrap().steps.len(), 1);
        }
        compare(&format!("{dtype}"), &w, &[1, 2]);
    }
}
