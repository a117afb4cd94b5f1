//! Finds the nodes between the projections and attention: norm, ROPE and storing of heads: [`Heads`].

use super::group::{Group, Head, Heads, Rotated, Stored};
use super::norm::norm_part;
use super::search::Search;
use crate::op::Op;
use crate::tensor::TensorId;

/// Adds the heads before each attention.
pub(super) fn find(search: &mut Search<'_>) {
    let graph = search.graph;
    for attention in graph.computed().collect::<Vec<_>>() {
        let Some(Op::FlashAttnExt(_)) = graph.tensor(attention).op() else { continue };
        let src = graph.tensor(attention).src();
        let mut all: Vec<Head> = src[..3].iter().filter_map(|&operand| head(search, operand)).collect();
        // There may be fewer queries than keys: only the queries of wanted outputs.
        let tokens = |head: &Head| head.tokens().map_or(0, |ids| graph.tensor(ids).ne[0]);
        let stored = all.last().map_or(0, tokens);
        all.retain(|head| tokens(head) == stored);
        let plain: Vec<Head> = all.iter().map(|&head| head.without_norm()).collect();
        let plain: Vec<Head> = plain.into_iter().filter(|head| head.nodes().next().is_some()).collect();
        for heads in [all, plain] {
            let group = Heads { heads };
            if group.nodes().len() > 1 && group.are_independent(graph) && search.add(Group::Heads(group)) {
                break;
            }
        }
    }
}

/// Matches the nodes that compute an operand of attention from a projection.
fn head(search: &Search<'_>, operand: TensorId) -> Option<Head> {
    let graph = search.graph;
    let (mut stored, mut rope) = (None, None);
    let mut x = graph.producer(operand);
    if let (Some(Op::SetRows(_)), &[cache, rows, cells]) = (graph.tensor(x).op(), graph.tensor(x).src()) {
        stored = Some(Stored { cache, cells, node: x });
        x = rows;
    }
    // SET_ROWS may read the rows of all heads as one row: the same elements with other extents.
    let inner = |node: TensorId, reader: Option<TensorId>| match reader {
        Some(reader) => {
            let (node, view) = (graph.tensor(node), graph.tensor(x));
            search.only_reader(graph.producer(x)) == Some(reader)
                && view.elements() == node.elements()
                && (view.is_contiguous() && node.is_contiguous() && view.offset == node.offset)
        }
        None => true,
    };
    let producer = graph.producer(x);
    if let Some(Op::Rope(op)) = graph.tensor(producer).op()
        && inner(producer, stored.map(|s| s.node))
    {
        let src = graph.tensor(producer).src();
        rope = Some(Rotated { op: *op, positions: src[1], factors: src.get(2).copied(), node: producer });
        x = src[0];
    }
    let norm = norm_part(search, x).filter(|norm| {
        let reader = rope.map(|r| r.node);
        reader.is_some() && search.only_reader(norm.nodes[1]) == reader
    });
    let x = norm.map_or(x, |norm| norm.x);
    let head = Head { x, norm, rope, stored };
    head.nodes().next().map(|_| head)
}
