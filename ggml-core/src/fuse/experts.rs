//! Products with the experts of each token.

use super::search::{Search, sum_with};
use super::{GluPart, Group, Sum, op_of};
use crate::op::{Binary, Op};
use crate::tensor::TensorId;

/// The matrices of all experts, their products, and perhaps biases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertProduct {
    /// `[k, m, experts]`.
    pub weight: TensorId,
    /// MUL_MAT_ID.
    pub node: TensorId,
    /// F32 `[m, experts]`, GET_ROWS of the chosen experts' rows, and the sum.
    pub bias: Option<(TensorId, [TensorId; 2])>,
    /// `node`, or the sum with the bias: F32 `[m, used, tokens]`.
    pub result: TensorId,
}

/// The sum over a token's experts, each with its weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighted {
    /// F32 `[1, used, tokens]`.
    pub weights: TensorId,
    /// MUL, then the sums, from the first expert to the last.
    pub nodes: Vec<TensorId>,
}

/// Products of one input with one or two matrices of each chosen expert.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// F32 `[k, 1 or used, tokens]`.
    pub input: TensorId,
    /// I32 `[used, tokens]`.
    pub ids: TensorId,
    /// One, or two of the same type and extents.
    pub products: Vec<ExpertProduct>,
    /// Of two products, gate and up.
    pub glu: Option<GluPart>,
    /// Of one product: F32 `[m, tokens]`.
    pub weighted: Option<Weighted>,
    /// Added to the weighted sum.
    pub residual: Option<Sum>,
}

impl Experts {
    pub(super) fn nodes(&self) -> Vec<TensorId> {
        let of = |p: &ExpertProduct| [Some(p.node), p.bias.map(|b| b.1[0]), p.bias.map(|b| b.1[1])];
        let products = self.products.iter().flat_map(of).flatten();
        let after = self.glu.map(|glu| glu.node).into_iter();
        let sums = self.weighted.iter().flat_map(|weighted| weighted.nodes.iter().copied());
        products.chain(after).chain(sums).chain(self.residual.map(|sum| sum.node)).collect()
    }

    /// What leaves the group.
    pub fn results(&self) -> Vec<TensorId> {
        if let Some(sum) = self.residual {
            return vec![sum.node];
        }
        match (&self.glu, &self.weighted) {
            (Some(glu), _) => vec![glu.node],
            (None, Some(weighted)) => weighted.nodes.last().copied().into_iter().collect(),
            (None, None) => self.products.iter().map(|product| product.result).collect(),
        }
    }

    /// What is added to the weighted sum.
    pub fn added(&self) -> Option<TensorId> {
        let sum = *self.weighted.as_ref()?.nodes.last()?;
        self.residual.and_then(|residual| residual.of.into_iter().find(|&id| id != sum))
    }
}

/// Gate and up with their GLU, and down with the weighted sum.
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

/// The groups that a product may begin, the largest first.
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

/// A product with its bias.
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
        let chosen = graph.tensor(b).ne == graph.tensor(node).ne
            && graph.producer(of) == graph.producer(ids)
            && graph.tensor(of).elements() == graph.tensor(ids).elements()
            && graph.tensor(ids).is_contiguous()
            && graph.tensor(matrix).is_contiguous()
            && search.only_reader(rows) == Some(add);
        (a == node && chosen).then_some(ExpertProduct {
            bias: Some((matrix, [rows, add])),
            result: add,
            ..plain
        })
    };
    Some(with_bias().unwrap_or(plain))
}

/// The product whose GLU another one makes as the gate, and the GLU.
fn gated(search: &Search<'_>, gate: &ExpertProduct) -> Option<(ExpertProduct, GluPart)> {
    let graph = search.graph;
    let node = search.only_reader(gate.result)?;
    let (Some(Op::Glu(op)), &[of, up]) = (graph.tensor(node).op(), graph.tensor(node).src()) else {
        return None;
    };
    // A product times itself: one product, not two.
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

/// The weighted sum of a product's results, one view for each expert.
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
    // The part of an expert.
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
