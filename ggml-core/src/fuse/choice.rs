//! Finds the choice of experts and of their weights, in the forms that models have: [`Choice`].
//!
//! Sources of the mixtures: Shazeer et al., "Outrageously large neural networks: the sparsely-gated
//! mixture-of-experts layer" (2017); DeepSeek-AI, "DeepSeek-V3 technical report" (2024).

use super::group::{Biased, Choice, ExpertGroups, Normalised, Probabilities, ProbabilityOf};
use super::search::{Search, entire_result};
use crate::dtype::DType;
use crate::graph::Graph;
use crate::op::{Activation, Binary, Op, Scale, SoftMax, TopK, Unary};
use crate::tensor::TensorId;

/// Number of candidates of a group whose sum ranks the group.
const BEST_OF_GROUP: usize = 2;

/// Returns the choice around a TOP_K. Other readers of its nodes are not checked.
pub(super) fn choice(search: &Search<'_>, ids: TensorId) -> Option<Choice> {
    let graph = search.graph;
    let (Some(Op::TopK(TopK { flat: false, .. })), &[from]) =
        (graph.tensor(ids).op(), graph.tensor(ids).src())
    else {
        return None;
    };
    let from = entire_result(graph, from)?;
    let (groups, candidates) = match groups(graph, from) {
        Some((groups, of)) => (Some(groups), of),
        None => (None, from),
    };
    let bias = biased(graph, candidates);
    let (bias, of_all) = bias.map_or((None, candidates), |(bias, of)| (Some(bias), of));
    let (probabilities, scores) = match probabilities(graph, of_all) {
        Some((probabilities, scores)) => (Some(probabilities), scores),
        None => (None, of_all),
    };
    let [experts, tokens, ..] = graph.tensor(scores).ne;
    let [used, rows, ..] = graph.tensor(ids).ne;
    let column = |id: TensorId| {
        (graph.tensor(id).ne == [1, experts, tokens, 1]).then(|| entire_result(graph, id)).flatten()
    };
    let picked = |&reader: &TensorId| {
        let t = graph.tensor(reader);
        let (Some(Op::GetRows(_)), &[of, by]) = (t.op(), t.src()) else { return None };
        column(of).filter(|&of| by == ids && (of == scores || of == of_all)).map(|of| (reader, of))
    };
    let (chosen, of) = search.readers(ids).iter().find_map(picked)?;
    let normalised = normalised(search, chosen, [used, tokens, 1, 1]).filter(|_| of == scores);
    let last = normalised.map_or(chosen, |n| n.node);
    let fits = graph.tensor(scores).ne == [experts, tokens, 1, 1]
        && graph.tensor(scores).is_contiguous()
        && graph.tensor(ids).ne == [used, rows, 1, 1]
        && rows == tokens
        && (normalised.is_some() || of == of_all);
    let scaled = scaled(search, last).filter(|(_, by)| by.bias == 0.0).map(|(node, by)| (node, by.scale));
    fits.then_some(Choice { scores, probabilities, bias, groups, ids, chosen, normalised, scaled })
}

/// Matches the sum of probabilities and a row; also returns the probabilities.
fn biased(graph: &Graph, node: TensorId) -> Option<(Biased, TensorId)> {
    let t = graph.tensor(node);
    let (Some(Op::Binary(Binary::Add)), &[of, bias]) = (t.op(), t.src()) else { return None };
    let (row, of) = (graph.tensor(bias), entire_result(graph, of)?);
    let fits = row.dtype == DType::F32
        && row.ne == [t.ne[0], 1, 1, 1]
        && row.rows_contiguous()
        && row.op().is_none()
        && graph.tensor(of).ne == t.ne;
    // Without probabilities, it would be the bias of the product that gives the scores.
    (fits && probabilities(graph, of).is_some()).then_some((Biased { bias, node }, of))
}

/// Matches a function of scores; also returns the scores.
fn probabilities(graph: &Graph, node: TensorId) -> Option<(Probabilities, TensorId)> {
    let t = graph.tensor(node);
    let of = match (t.op(), t.src()) {
        (Some(Op::Unary(Unary { activation: Activation::Sigmoid })), [_]) => ProbabilityOf::Sigmoid,
        (Some(Op::SoftMax(SoftMax { scale: 1.0, .. })), [_]) => ProbabilityOf::SoftMax,
        _ => return None,
    };
    let scores = entire_result(graph, t.src()[0]).filter(|&scores| graph.tensor(scores).ne == t.ne)?;
    Some((Probabilities { of, node }, scores))
}

/// Matches candidates masked by groups; also returns the unmasked candidates.
fn groups(graph: &Graph, masked: TensorId) -> Option<(ExpertGroups, TensorId)> {
    let node = |id: TensorId| Some((graph.tensor(id).op()?, graph.tensor(id).src()));
    let (Op::SetRows(_), &[none, kept, used]) = node(masked)? else { return None };
    let (Op::Scale(Scale { scale: 0.0, bias: never }), &[grouped]) = node(none)? else { return None };
    let candidates = entire_result(graph, grouped)?;
    let [size, count, tokens, 1] = graph.tensor(grouped).ne else { return None };
    let is_grouped = |id: TensorId| {
        entire_result(graph, id) == Some(candidates) && graph.tensor(id).ne == [size, count, tokens, 1]
    };
    let (Op::GetRows(_), &[of_kept, by]) = node(kept)? else { return None };
    let (Op::TopK(TopK { flat: false, k }), &[sums]) = node(used)? else { return None };
    let (Op::Binary(Binary::Add), &[first, second]) = node(sums)? else { return None };
    let scores = graph.producer(first);
    let (Op::GetRows(_), &[column, best_rows]) = node(scores)? else { return None };
    let best = entire_result(graph, best_rows)?;
    let (Op::TopK(TopK { flat: true, k: BEST_OF_GROUP }), &[of_best]) = node(best)? else { return None };
    // The even elements of the picked ones (`first`), then the odd ones (`second`).
    let every_second = |(i, id): (usize, TensorId)| {
        let t = graph.tensor(id);
        graph.producer(id) == scores
            && t.offset == graph.tensor(scores).offset + 4 * i
            && t.ne == [count, tokens, 1, 1]
            && t.nb[..2] == [4 * BEST_OF_GROUP, 4 * BEST_OF_GROUP * count]
    };
    let fits = is_grouped(of_kept)
        && is_grouped(of_best)
        && by == used
        && entire_result(graph, column) == Some(candidates)
        && graph.tensor(column).ne == [1, size * count, tokens, 1]
        && graph.tensor(best_rows).ne == [BEST_OF_GROUP * count, tokens, 1, 1]
        && (0..).zip([first, second]).all(every_second)
        && never.is_finite();
    let nodes = [best, scores, sums, used, kept, none, masked];
    fits.then_some((ExpertGroups { count, used: *k, never: *never, nodes }, candidates))
}

/// Returns the SCALE that is the only reader of a node's result.
fn scaled(search: &Search<'_>, of: TensorId) -> Option<(TensorId, Scale)> {
    let node = search.only_reader(of)?;
    let t = search.graph.tensor(node);
    let (Some(Op::Scale(by)), &[x]) = (t.op(), t.src()) else { return None };
    (entire_result(search.graph, x) == Some(of)).then_some((node, *by))
}

/// Returns the soft-max of chosen scores, with rows of these extents.
fn normalised(search: &Search<'_>, chosen: TensorId, ne: [usize; 4]) -> Option<Normalised> {
    let graph = search.graph;
    let soft_max = |of: TensorId, logarithms: Option<[TensorId; 2]>| {
        let node = search.only_reader(of)?;
        let t = graph.tensor(node);
        let (Some(Op::SoftMax(op)), &[x]) = (t.op(), t.src()) else { return None };
        let fits = t.ne == ne && entire_result(graph, x) == Some(of);
        fits.then_some(Normalised { logarithms, op: *op, node })
    };
    let Some((negative, Scale { scale: -1.0, bias: 0.0 })) = scaled(search, chosen) else {
        return soft_max(chosen, None);
    };
    let softplus = search.only_reader(negative)?;
    let t = graph.tensor(softplus);
    let (Some(Op::Unary(Unary { activation: Activation::Softplus })), &[x]) = (t.op(), t.src()) else {
        return None;
    };
    (entire_result(graph, x) == Some(negative))
        .then(|| soft_max(softplus, Some([negative, softplus])))
        .flatten()
}
