//! Element-wise functions of one operand, one after the other.

use super::Group;
use super::search::Search;
use crate::dtype::DType;
use crate::graph::Graph;
use crate::op::Op;
use crate::tensor::TensorId;

/// UNARY and SCALE, and ADD or MUL with a row, each of the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// What the first is applied to.
    pub x: TensorId,
    /// The nodes in order; the last leaves the group.
    pub nodes: Vec<TensorId>,
    /// What the ADD or MUL takes beside the result before it: F32, a row.
    pub row: Option<TensorId>,
}

impl Chain {
    /// A chain of one function.
    pub fn of_one(graph: &Graph, node: TensorId) -> Chain {
        let x = graph.tensor(node).src().first().copied().unwrap_or(node);
        Chain { x, nodes: vec![node], row: None }
    }

    /// What leaves the group.
    pub fn result(&self) -> TensorId {
        self.nodes.last().copied().unwrap_or(self.x)
    }
}

/// The most functions of a chain: as many as kernels have parameters for.
const LONGEST: usize = 4;

/// Chains of two functions or more.
pub(super) fn find(search: &mut Search<'_>) {
    let graph = search.graph;
    let is_function = |id: TensorId| matches!(graph.tensor(id).op(), Some(Op::Unary(_) | Op::Scale(_)));
    for first in graph.computed().filter(|&id| is_function(id)).collect::<Vec<_>>() {
        if !search.is_free(first) {
            continue;
        }
        let mut chain = Chain::of_one(graph, first);
        while let Some(&last) = chain.nodes.last()
            && chain.nodes.len() < LONGEST
            && let Some(next) = search.only_reader(last)
            && graph.tensor(next).src().first() == Some(&last)
        {
            let row = row(graph, next).filter(|_| chain.row.is_none());
            if !is_function(next) && row.is_none() {
                break;
            }
            chain.row = chain.row.or(row);
            chain.nodes.push(next);
        }
        while chain.nodes.len() > 1 && !search.add(Group::Chain(chain.clone())) {
            let last = chain.nodes.pop();
            chain.row = chain.row.filter(|_| last.is_some_and(&is_function));
        }
    }
}

/// The row that a node adds to or multiplies with all rows of its operand.
fn row(graph: &Graph, node: TensorId) -> Option<TensorId> {
    let t = graph.tensor(node);
    let (Some(Op::Binary(_)), &[a, b]) = (t.op(), t.src()) else { return None };
    let row = graph.tensor(b);
    let fits = row.dtype == DType::F32 && row.ne == [t.ne[0], 1, 1, 1] && row.rows_contiguous();
    (fits && graph.producer(b) != graph.producer(a)).then_some(b)
}
