//! Finds the nodes around operations with a state: [`Conv`] and [`Delta`].

use super::group::{Conv, Delta, DeltaGates, Group};
use super::search::Search;
use crate::dtype::DType;
use crate::graph::Graph;
use crate::op::{Activation, Binary, Op};
use crate::tensor::{Tensor, TensorId};

/// Adds convolutions and delta nets.
pub(super) fn find(search: &mut Search<'_>) {
    let graph = search.graph;
    for node in graph.computed().collect::<Vec<_>>() {
        match graph.tensor(node).op() {
            Some(Op::SsmConv(_)) => {
                if let Some(conv) = conv(search, node) {
                    search.add(Group::Conv(conv));
                }
            }
            Some(Op::GatedDeltaNet(_)) => {
                if let Some(alone) = delta(search, node) {
                    let (gates, kept) = (gates(search, node), kept(search, node));
                    let _ = search.add(Group::Delta(Delta { gates, kept, ..alone }))
                        || search.add(Group::Delta(alone));
                }
            }
            _ => {}
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
    fits.then_some(Delta { unit, first, node, gates: None, kept: None })
}

/// Returns the nodes that make the decays and betas of a delta net, if nothing else reads their results.
fn gates(search: &Search<'_>, node: TensorId) -> Option<DeltaGates> {
    let graph = search.graph;
    let &[_, _, v, decay, beta, ..] = graph.tensor(node).src() else { return None };
    let activated = |id: TensorId, activation: Activation| match graph.tensor(id).op() {
        Some(Op::Unary(op)) if op.activation == activation => graph.tensor(id).src().first().copied(),
        _ => None,
    };
    let only = |id: TensorId, reader: TensorId| search.only_reader(id) == Some(reader);
    let (Some(Op::Binary(Binary::Mul)), &[softplus, factor]) =
        (graph.tensor(decay).op(), graph.tensor(decay).src())
    else {
        return None;
    };
    let (step, of_beta) = (activated(softplus, Activation::Softplus)?, activated(beta, Activation::Sigmoid)?);
    let ([_, heads, tokens, _], f) = (graph.tensor(v).ne, graph.tensor(factor));
    let plain = |id: TensorId| {
        let t = graph.tensor(id);
        t.dtype == DType::F32 && t.is_contiguous() && t.ne == [heads, tokens, 1, 1]
    };
    let fits = only(softplus, decay)
        && only(decay, node)
        && only(beta, node)
        && plain(step)
        && plain(of_beta)
        && (f.dtype, f.ne, f.is_contiguous(), f.op()) == (DType::F32, [heads, 1, 1, 1], true, None);
    fits.then_some(DeltaGates { step, factor, beta: of_beta, nodes: [softplus, decay, beta] })
}

/// Returns the copy of a delta net's new state, the elements after the rows of the tokens, over the old one.
fn kept(search: &Search<'_>, node: TensorId) -> Option<TensorId> {
    let graph = search.graph;
    let &[_, _, v, _, _, state, _] = graph.tensor(node).src() else { return None };
    let (rows, elements) = (graph.tensor(v).elements(), graph.tensor(state).elements());
    let is_kept = |id: &&TensorId| {
        let t = graph.tensor(**id);
        let (Some(Op::Cpy(_)), &[tail, place]) = (t.op(), t.src()) else { return false };
        let t = graph.tensor(tail);
        let lies = t.offset == 4 * rows && t.elements() == elements && t.is_contiguous();
        lies && place == state && t.root == node
    };
    search.readers(node).iter().find(is_kept).copied()
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
