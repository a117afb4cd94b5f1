//! Finds consecutive element-wise functions: [`Chain`].

use super::group::chain::other;
use super::group::{Chain, Group};
use super::search::Search;
use crate::graph::Graph;
use crate::tensor::TensorId;

/// Adds chains of two functions or more.
pub(super) fn find(search: &mut Search<'_>) {
    let graph = search.graph;
    for first in graph.computed().collect::<Vec<_>>() {
        if !search.is_free(first) {
            continue;
        }
        let Some(mut chain) = begin(graph, first) else { continue };
        while let Some(next) = search.only_reader(chain.result())
            && search.is_free(next)
            && let Some(longer) = chain.and(graph, next)
        {
            chain = longer;
        }
        while chain.nodes.len() > 1 && !search.add(Group::Chain(chain.clone())) {
            chain = chain.but_last(graph);
        }
    }
}

/// Returns a chain of one function, applied to its first operand, if that has the extents of the result.
fn begin(graph: &Graph, node: TensorId) -> Option<Chain> {
    let &x = graph.tensor(node).src().first()?;
    let others = other(graph, node, x)?.into_iter().collect();
    Some(Chain { x, nodes: vec![node], others })
}
