//! Tests of the choice of experts with the nodes that compute the scores.

use super::{Activation, Builder, Graph, Group, Source, TensorId, sound_steps, steps};
use crate::catalogue::groups::cases;
use crate::fuse::groups;

fn gates() -> Vec<(String, Graph)> {
    let all = cases().into_iter().filter(|case| case.group == Some("gate"));
    all.map(|case| (case.name, case.graph.unwrap())).collect()
}

/// Every form that models have is one step.
#[test]
fn choices_are_one_step() {
    let gates = gates();
    assert!(gates.len() > 25);
    for (name, graph) in gates {
        assert_eq!(steps(&graph, |_| true), [("gate", 0)], "{name}");
    }
}

/// Intermediate results with other readers are computed by separate steps, and so are the nodes before them;
/// for the weights only the factor.
#[test]
fn choices_that_are_looked_into_are_apart() {
    let (_, graph) = gates().into_iter().find(|(name, _)| name.contains("4 of 8 groups")).unwrap();
    let whole = groups(&graph, &|_| true);
    let [Group::Gate(gate)] = &whole[..] else { panic!("{whole:?}") };
    let weights = gate.choice.normalised.unwrap().node;
    let inner: Vec<TensorId> = graph.computed().filter(|id| !gate.results().contains(id)).collect();
    assert_eq!(inner.len(), 15);
    for id in inner {
        let mut graph = graph.clone();
        graph.output(id).unwrap();
        let name = graph.tensor(id).op().unwrap().name();
        let found = steps(&graph, |_| true);
        let wanted: &[(&str, usize)] = &[("gate", 0), ("SCALE", 1)];
        if id == weights {
            assert_eq!(found, wanted);
        } else {
            assert!(found.iter().all(|(step, _)| *step != "gate"), "{name}: {found:?}");
        }
    }
}

/// Graphs that almost match: with other elements of the best ones, other rows, other constants.
#[test]
fn near_misses_are_apart() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Miss {
        Nothing,
        FirstTwice,
        BestOfThree,
        Factor,
        RowsOfOthers,
        GroupsOfOthers,
        WeightsOfOthers,
    }
    use Miss::*;
    for miss in [Nothing, FirstTwice, BestOfThree, Factor, RowsOfOthers, GroupsOfOthers, WeightsOfOthers] {
        let mut b = Builder::new();
        let x = b.leaf("x", &[32, 1], Source::Input);
        let n = b.norm(x, "norm");
        let scores = b.linear(n, "gate", 12, false);
        let other = b.leaf("other", &[12, 1], Source::Input);
        let p = b.g.unary(Activation::Sigmoid, scores).unwrap();
        let grouped = b.g.reshape(p, [4, 3, 1, 1]).unwrap();
        let of =
            |b: &mut Builder, changed: bool, ne| b.g.reshape(if changed { other } else { p }, ne).unwrap();
        let k = if miss == BestOfThree { 3 } else { 2 };
        let best = b.g.top_k_flat(grouped, k).unwrap();
        let best = b.g.reshape(best, [3 * k, 1, 1, 1]).unwrap();
        let column = of(&mut b, miss == RowsOfOthers, [1, 12, 1, 1]);
        let best = b.g.get_rows(column, best).unwrap();
        let (nb, second) = ([4 * k, 12 * k, 12 * k, 12 * k], if miss == FirstTwice { 0 } else { 4 });
        let parts = [0, second].map(|at| b.g.view(best, [3, 1, 1, 1], nb, at).unwrap());
        let sums = b.g.add(parts[0], parts[1]).unwrap();
        let used = b.g.top_k(sums, 2).unwrap();
        let from = of(&mut b, miss == GroupsOfOthers, [4, 3, 1, 1]);
        let kept = b.g.get_rows(from, used).unwrap();
        let none = b.g.scale(grouped, if miss == Factor { 0.5 } else { 0.0 }, -1e30).unwrap();
        let masked = b.g.set_rows(none, kept, used).unwrap();
        let masked = b.g.reshape(masked, [12, 1, 1, 1]).unwrap();
        let ids = b.g.top_k(masked, 5).unwrap();
        let rows = of(&mut b, miss == WeightsOfOthers, [1, 12, 1, 1]);
        let weights = b.g.get_rows(rows, ids).unwrap();
        b.g.output(ids).unwrap();
        b.g.output(weights).unwrap();
        let found = sound_steps(&b);
        assert_eq!(found.iter().any(|(step, _)| *step == "gate"), miss == Nothing, "{miss:?}: {found:?}");
    }
}
