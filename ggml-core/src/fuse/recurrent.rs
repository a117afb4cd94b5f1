//! Finds the nodes around operations with a state: [`Conv`] and [`Delta`].

use super::group::{Conv, Delta, Group};
use super::search::Search;
use crate::dtype::DType;
use crate::graph::Graph;
use crate::op::{Binary, Op};
use crate::tensor::{Tensor, TensorId};

/// Adds convolutions and delta nets.
pub(super) fn find(search: &mut Search<'_>) {
    let graph = search.graph;
    for node in graph.computed().collect::<Vec<_>>() {
        let group = match graph.tensor(node).op() {
            Some(Op::SsmConv(_)) => conv(search, node).map(Group::Conv),
            Some(Op::GatedDeltaNet(_)) => delta(search, node).map(Group::Delta),
            _ => None,
        };
        if let Some(group) = group {
            search.add(group);
        }
    }
}

fn conv(search: &Search<'_>, node: TensorId) -> Option<Conv> {
    let graph = search.graph;
    let &[x, w, state, _] = graph.tensor(node).src() else { return None };
    let ([channels, tokens, ..], taps) = (graph.tensor(x).ne, graph.tensor(w).ne[0]);
    let &[one, other] = search.readers(node) else { return None };
    let is_copy = |id: &TensorId| matches!(graph.tensor(*id).op(), Some(Op::Cpy(_)));
    let kept = [one, other].into_iter().find(is_copy)?;
    let first = if kept == one { other } else { one };
    let of_rows = *graph.tensor(first).src().first()?;
    let (bias, activated) = match bias(graph, first) {
        Some(bias) => (Some((bias, first)), search.only_reader(first)?),
        None => (None, first),
    };
    let Some(Op::Unary(op)) = graph.tensor(activated).op() else { return None };
    let last = bias.map_or(of_rows, |(_, sum)| sum);
    let &[tail, place] = graph.tensor(kept).src() else { return None };
    // The rows of the tokens, and all elements after them.
    let row = 4 * channels;
    let part = |id: TensorId, elements: usize, offset: usize| {
        let t = graph.tensor(id);
        let lies = t.offset == offset && t.elements() == elements && t.is_contiguous();
        lies && graph.producer(id) == node && t.root == node
    };
    let fits = taps <= Conv::TAPS
        && search.is_inner(node)
        && graph.tensor(activated).src() == [last]
        && part(of_rows, channels * tokens, 0)
        && graph.tensor(of_rows).ne == [channels, tokens, 1, 1]
        && part(tail, graph.tensor(state).elements(), row * tokens)
        && place == state
        && graph.tensor(activated).is_contiguous();
    fits.then_some(Conv { node, bias, activation: op.activation, rows: activated, kept })
}

/// Returns the vector that a sum adds to all rows of its first operand.
fn bias(graph: &Graph, node: TensorId) -> Option<TensorId> {
    let t = graph.tensor(node);
    let (Some(Op::Binary(Binary::Add)), &[_, b]) = (t.op(), t.src()) else { return None };
    let bias = graph.tensor(b);
    let fits = bias.dtype == DType::F32 && bias.ne == [t.ne[0], 1, 1, 1] && bias.is_contiguous();
    (fits && bias.op().is_none()).then_some(b)
}

fn delta(search: &Search<'_>, node: TensorId) -> Option<Delta> {
    let graph = search.graph;
    let [q, k, ref others @ ..] = *graph.tensor(node).src() else { return None };
    let scale = graph.producer(q);
    let normed = *graph.tensor(scale).src().first()?;
    let unit = super::norm::scaled(search, graph.producer(normed))?;
    let (all, x) = (graph.tensor(scale), graph.tensor(unit.x));
    let first = |id: TensorId| {
        let t = graph.tensor(id);
        let head = t.offset / (4 * t.ne[0]);
        let inside = t.offset == 4 * t.ne[0] * head && head + t.ne[1] <= all.ne[1];
        (inside && graph.producer(id) == scale && is_of_heads(t, all)).then_some(head)
    };
    let first = [first(q)?, first(k)?];
    let inside = search.readers(scale) == [node] && search.is_inner(scale) && unit.nodes[1] == scale;
    let outside = others.iter().all(|&other| graph.producer(other) != scale);
    let fits = inside && outside && x.dtype == DType::F32 && x.rows_contiguous() && x.ne == all.ne;
    fits.then_some(Delta { unit, first, node })
}

/// True if `t` consists of some heads, for all tokens, of the contiguous tensor `all`.
fn is_of_heads(t: &Tensor, all: &Tensor) -> bool {
    let [d, _, tokens, _] = all.ne;
    all.is_contiguous()
        && (t.ne[0], t.ne[2], t.ne[3]) == (d, tokens, all.ne[3])
        && t.nb[0] == 4
        && (t.nb[1] == all.nb[1] || t.ne[1] == 1)
        && (t.nb[2] == all.nb[2] || tokens == 1)
}
