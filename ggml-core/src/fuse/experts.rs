//! Finds products with the experts of each token: [`Experts`].

use super::group::{ExpertProduct, Experts, GluPart, Group, Weighted};
use super::search::{Search, entire_result, op_of, same_elements, sum_with};
use crate::dtype::DType;
use crate::op::{Binary, Op};
use crate::tensor::TensorId;

/// Adds gate and up with their GLU, and down with the weighted sum.
pub(super) fn find(search: &mut Search<'_>) {
    let graph = search.graph;
    let of_experts = |&id: &TensorId| matches!(graph.tensor(id).op(), Some(Op::MulMatId(_)));
    for node in graph.computed().filter(of_experts).collect::<Vec<_>>() {
        if !search.is_free(node) {
            continue;
        }
        let forms = forms(search, node);
        let _ = forms
            .into_iter()
            .filter(|form| form.nodes().len() > 1)
            .any(|form| search.add(Group::Experts(form)));
    }
}

/// Returns the groups that begin with a product, the largest first.
fn forms(search: &Search<'_>, node: TensorId) -> Vec<Experts> {
    let graph = search.graph;
    let (Some(first), &[_, input, ids]) = (product(search, node), graph.tensor(node).src()) else {
        return Vec::new();
    };
    let alone = Experts { input, ids, products: vec![first], glu: None, weighted: None, residual: None };
    let mut forms = Vec::new();
    if let Some((up, glu)) = gated(search, &first) {
        forms.push(Experts { products: vec![first, up], glu: Some(glu), ..alone.clone() });
    }
    if let Some(weighted) = weighted(search, &first) {
        let last = weighted.nodes.last().copied();
        let residual = last.and_then(|last| sum_with(search, search.only_reader(last)?, last));
        let with = Experts { weighted: Some(weighted), residual, ..alone.clone() };
        forms.extend([with.clone(), Experts { residual: None, ..with }]);
    }
    forms.push(alone);
    forms
}

/// Returns a product with its bias.
fn product(search: &Search<'_>, node: TensorId) -> Option<ExpertProduct> {
    let graph = search.graph;
    let &[weight, _, ids] = graph.tensor(node).src() else { return None };
    let plain = ExpertProduct { weight, node, bias: None, result: node };
    let with_bias = || {
        let add = search.only_reader(node)?;
        let (Some(Op::Binary(Binary::Add)), &[a, b]) = (graph.tensor(add).op(), graph.tensor(add).src())
        else {
            return None;
        };
        let rows = graph.producer(b);
        let (Some(Op::GetRows(_)), &[matrix, of]) = (graph.tensor(rows).op(), graph.tensor(rows).src())
        else {
            return None;
        };
        let (table, [_, m, experts, _]) = (graph.tensor(matrix), graph.tensor(weight).ne);
        let chosen = graph.tensor(b).ne == graph.tensor(node).ne
            && entire_result(graph, b) == Some(rows)
            && same_elements(graph, of, ids)
            && (table.dtype, table.ne) == (DType::F32, [m, experts, 1, 1])
            && table.is_contiguous()
            && search.only_reader(rows) == Some(add);
        (a == node && chosen).then_some(ExpertProduct {
            bias: Some((matrix, [rows, add])),
            result: add,
            ..plain
        })
    };
    Some(with_bias().unwrap_or(plain))
}

/// Returns the `up` product and the GLU of which a product is the gate.
fn gated(search: &Search<'_>, gate: &ExpertProduct) -> Option<(ExpertProduct, GluPart)> {
    let graph = search.graph;
    let node = search.only_reader(gate.result)?;
    let (Some(Op::Glu(op)), &[of, up]) = (graph.tensor(node).op(), graph.tensor(node).src()) else {
        return None;
    };
    // A product that is gated by itself is one product, not two.
    if up == of {
        return None;
    }
    let mut product_node = graph.producer(up);
    if let Some(Op::Binary(Binary::Add)) = op_of(graph, up) {
        product_node = graph.producer(graph.tensor(product_node).src()[0]);
    }
    let Some(Op::MulMatId(_)) = graph.tensor(product_node).op() else { return None };
    let other = product(search, product_node)?;
    let [a, b] = [gate.weight, other.weight].map(|id| graph.tensor(id));
    let same = a.dtype == b.dtype
        && a.ne == b.ne
        && graph.tensor(gate.node).src()[1..] == graph.tensor(other.node).src()[1..]
        && gate.bias.is_some() == other.bias.is_some();
    let fits = same && of == gate.result && up == other.result && search.only_reader(up) == Some(node);
    fits.then_some((other, GluPart { op: *op, node }))
}

/// Returns the weighted sum of a product's results, one view for each expert.
fn weighted(search: &Search<'_>, down: &ExpertProduct) -> Option<Weighted> {
    let graph = search.graph;
    let mul = search.only_reader(down.result)?;
    let (Some(Op::Binary(Binary::Mul)), &[of, weights]) = (graph.tensor(mul).op(), graph.tensor(mul).src())
    else {
        return None;
    };
    let [width, used, tokens, _] = graph.tensor(mul).ne;
    let outside = graph.producer(weights) != down.result;
    if of != down.result
        || graph.tensor(weights).ne != [1, used, tokens, 1]
        || !(outside && search.is_inner(mul))
    {
        return None;
    }
    let nb = graph.tensor(mul).nb;
    // True if a tensor is the weighted result of an expert.
    let part = |id: TensorId, expert: usize| {
        let t = graph.tensor(id);
        graph.producer(id) == mul
            && t.ne == [width, tokens, 1, 1]
            && t.offset == expert * nb[1]
            && (t.nb[0], t.nb[1]) == (nb[0], nb[2])
    };
    let mut nodes = vec![mul];
    let mut sum: Option<TensorId> = None;
    for expert in 1..used {
        let next = search.readers(mul).iter().copied().find(|&add| {
            let (Some(Op::Binary(Binary::Add)), &[a, b]) = (graph.tensor(add).op(), graph.tensor(add).src())
            else {
                return false;
            };
            let before = sum.map_or_else(|| part(a, 0), |sum| a == sum);
            before && part(b, expert)
        })?;
        if let Some(sum) = sum
            && search.only_reader(sum) != Some(next)
        {
            return None;
        }
        nodes.push(next);
        sum = Some(next);
    }
    // Every reader of the weighted products is one of the sums.
    let inside = search.readers(mul).iter().all(|reader| nodes.contains(reader));
    (used > 1 && inside).then_some(Weighted { weights, nodes })
}
