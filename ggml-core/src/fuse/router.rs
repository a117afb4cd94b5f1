//! Finds the choice of experts: [`Gate`](super::Gate) or [`Router`].

use super::choice::choice;
use super::gate::gate;
use super::group::{Group, Router};
use super::search::{Search, entire_result, op_of, same_elements};
use crate::op::{Op, TopK};
use crate::tensor::TensorId;

/// Adds each choice of experts with the nodes that compute its scores, if the backend accepts that; otherwise
/// routers.
pub(super) fn find(search: &mut Search<'_>) {
    let graph = search.graph;
    for ids in graph.computed().collect::<Vec<_>>() {
        let gate = choice(search, ids).and_then(|choice| gate(search, choice));
        if gate.is_some_and(|gate| search.add(Group::Gate(gate))) {
            continue;
        }
        if let Some(router) = router(search, ids) {
            search.add(Group::Router(router));
        }
    }
}

fn router(search: &Search<'_>, ids: TensorId) -> Option<Router> {
    let graph = search.graph;
    let Some(Op::TopK(TopK { flat: false, .. })) = graph.tensor(ids).op() else { return None };
    let scores = graph.tensor(ids).src()[0];
    let chosen = search.readers(ids).iter().copied().find(|&reader| {
        let src = graph.tensor(reader).src();
        matches!(graph.tensor(reader).op(), Some(Op::GetRows(_)))
            && same_elements(graph, src[0], scores)
            && src[1] == ids
    })?;
    let weights = search.only_reader(chosen)?;
    let Some(Op::SoftMax(soft_max)) = op_of(graph, weights) else { return None };
    let [used, tokens, ..] = graph.tensor(ids).ne;
    let experts = graph.tensor(scores);
    // One score for each expert, and exactly the chosen ones in a row of the soft-max.
    let rows = graph.tensor(graph.tensor(chosen).src()[0]);
    let fits = rows.ne == [1, experts.ne[0], tokens, 1]
        && experts.ne == [experts.ne[0], tokens, 1, 1]
        && entire_result(graph, graph.tensor(weights).src()[0]) == Some(chosen)
        && graph.tensor(weights).ne == [used, tokens, 1, 1]
        && graph.tensor(weights).src().len() == 1;
    fits.then_some(Router { scores, ids, chosen, weights, soft_max: *soft_max })
}
