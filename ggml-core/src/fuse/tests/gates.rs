//! Choices of experts with what gives their scores.

use super::{Graph, Group, TensorId, steps};
use crate::fuse::cases;

fn gates() -> Vec<(String, Graph)> {
    let all = cases::cases().into_iter().filter(|case| case.group == Some("gate"));
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

/// What somebody else needs of the way from the scores to the choice leaves the group that computes it.
#[test]
fn choices_that_are_looked_into_are_apart() {
    let (_, graph) = gates().into_iter().find(|(name, _)| name.contains("4 of 8 groups")).unwrap();
    let whole = super::super::groups(&graph, &|_| true);
    let [Group::Gate(gate)] = &whole[..] else { panic!("{whole:?}") };
    let inner: Vec<TensorId> = graph.computed().filter(|id| !gate.results().contains(id)).collect();
    assert_eq!(inner.len(), 15);
    for id in inner {
        let mut graph = graph.clone();
        graph.output(id).unwrap();
        let name = graph.tensor(id).op().unwrap().name();
        let found = super::super::groups(&graph, &|_| true);
        let hidden = |group: &Group| group.nodes().contains(&id) && !group.results().contains(&id);
        assert!(!found.iter().any(hidden), "{name}: {found:?}");
    }
}
