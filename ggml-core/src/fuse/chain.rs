//! Element-wise functions of one operand, one after the other.

use super::Group;
use super::search::Search;
use crate::op::Op;
use crate::tensor::TensorId;

/// UNARY and SCALE, each of the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// What the first is applied to.
    pub x: TensorId,
    /// The nodes in order; the last leaves the group.
    pub nodes: Vec<TensorId>,
}

/// The most functions of a chain: as many as kernels have parameters for.
const LONGEST: usize = 4;

/// Chains of two functions or more.
pub(super) fn find(search: &mut Search<'_>) {
    let graph = search.graph;
    let is_link = |id: TensorId| matches!(graph.tensor(id).op(), Some(Op::Unary(_) | Op::Scale(_)));
    for first in graph.computed().filter(|&id| is_link(id)).collect::<Vec<_>>() {
        if !search.is_free(first) {
            continue;
        }
        let mut nodes = vec![first];
        while let Some(&last) = nodes.last()
            && nodes.len() < LONGEST
            && let Some(next) = search.only_reader(last)
            && is_link(next)
            && graph.tensor(next).src().first() == Some(&last)
        {
            nodes.push(next);
        }
        let x = graph.tensor(first).src()[0];
        while nodes.len() > 1 && !search.add(Group::Chain(Chain { x, nodes: nodes.clone() })) {
            nodes.pop();
        }
    }
}
