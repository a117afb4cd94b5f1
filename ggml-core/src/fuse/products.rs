//! Finds products of one input, with the nodes before and after them: [`Products`].

use super::group::{GluPart, Group, Product, Products};
use super::norm::norm_part;
use super::search::{Search, sum_with};
use crate::dtype::DType;
use crate::graph::Graph;
use crate::op::{Binary, Op};
use crate::tensor::TensorId;

/// Maximum rows of a product whose columns are not split into tiles.
pub const FEW_ROWS: usize = 32;

/// Maximum number of matrices of a group.
const MOST: usize = 3;

/// Adds products, with the inputs in the order of the graph.
pub(super) fn find(search: &mut Search<'_>) {
    let graph = search.graph;
    let mut inputs: Vec<(TensorId, Vec<TensorId>)> = Vec::new();
    let of_rows = |id: TensorId| graph.tensor(id).ne[2..] == [1, 1];
    for node in graph.computed() {
        let (Some(Op::MulMat(_)), &[_, input]) = (graph.tensor(node).op(), graph.tensor(node).src()) else {
            continue;
        };
        if !of_rows(node) {
            continue;
        }
        // Products of one input are near each other in the graph.
        match inputs.iter_mut().rev().take(8).find(|(known, _)| *known == input) {
            Some((_, nodes)) => nodes.push(node),
            None => inputs.push((input, vec![node])),
        }
    }
    for (input, nodes) in inputs {
        let norm = norm_part(search, input).filter(|_| {
            search.is_inner(input)
                && search.readers(input).iter().all(|reader| nodes.binary_search(reader).is_ok())
        });
        let parts = divide(search, input, &nodes);
        let with_norm = norm.is_some() && {
            // Each part in the longest form that is accepted with the norm; all parts or none.
            let choices = parts.iter().map(|part| {
                let forms = forms(part).into_iter().map(|form| Products { norm, ..form });
                forms.filter(|form| form.joins(graph)).map(Group::Products).collect::<Vec<_>>()
            });
            all_with(search, choices.collect())
        };
        if with_norm {
            continue;
        }
        for part in parts {
            let _ = forms(&part).into_iter().any(|form| add_form(search, form));
        }
        few_rows(search, input, &nodes);
    }
}

/// Adds groups of products with few rows that are in no group yet. With many columns they are not divided
/// into tiles, and together they read the columns once.
fn few_rows(search: &mut Search<'_>, input: TensorId, nodes: &[TensorId]) {
    let graph = search.graph;
    let weight = |node: TensorId| graph.tensor(graph.tensor(node).src()[0]);
    let is_left = |node: &TensorId| search.is_free(*node) && weight(*node).ne[1] <= FEW_ROWS;
    let left: Vec<TensorId> = nodes.iter().copied().filter(is_left).collect();
    for alike in left.chunk_by(|&a, &b| weight(a).dtype == weight(b).dtype) {
        for some in alike.chunks(MOST).filter(|some| some.len() > 1) {
            let alone =
                |&node| Product { weight: graph.tensor(node).src()[0], node, bias: None, result: node };
            let products = some.iter().map(alone).collect();
            let together = Products { norm: None, input, products, glu: None, residual: None };
            add_group(search, together);
        }
    }
}

/// Adds the first form of each part if all are accepted together; otherwise the second forms, and so on.
fn all_with(search: &mut Search<'_>, choices: Vec<Vec<Group>>) -> bool {
    let longest = choices.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).any(|i| {
        let form = |forms: &Vec<Group>| forms.get(i.min(forms.len().saturating_sub(1))).cloned();
        choices.iter().map(form).collect::<Option<Vec<_>>>().is_some_and(|groups| search.add_all(groups))
    })
}

/// Adds a form. If its matrices are not accepted together, adds each of them with its own bias and norm.
/// Returns true if any was added.
fn add_form(search: &mut Search<'_>, form: Products) -> bool {
    if add_group(search, form.clone()) {
        return true;
    }
    if form.products.len() < 2 || form.glu.is_some() {
        return false;
    }
    let alone = form.products.iter().map(|&product| Products { products: vec![product], ..form.clone() });
    alone.filter(|alone| add_group(search, alone.clone())).count() > 0
}

/// Adds a group, if it is one.
fn add_group(search: &mut Search<'_>, group: Products) -> bool {
    group.joins(search.graph) && search.add(Group::Products(group))
}

/// Divides the products of an input into groups that are as large as possible.
fn divide(search: &Search<'_>, input: TensorId, nodes: &[TensorId]) -> Vec<Products> {
    let graph = search.graph;
    let plain = |products| Products { norm: None, input, products, glu: None, residual: None };
    let mut rest: Vec<Product> = nodes.iter().map(|&node| product(search, node)).collect();
    let mut parts = Vec::new();
    // Pairs of gate and up first.
    while let Some((pair, glu)) = rest.iter().find_map(|gate| pair(search, &rest, gate)) {
        rest.retain(|product| !pair.contains(product));
        parts.push(Products { glu: Some(glu), ..plain(pair) });
    }
    // Then products that are followed by their own GLU or sum.
    rest.retain(|product| {
        let reader = search.only_reader(product.result);
        let glu = reader.and_then(|reader| glu(graph, reader, &[product.result]));
        let sum = reader.and_then(|reader| sum_with(search, reader, product.result));
        if glu.is_some() || sum.is_some() {
            parts.push(Products { glu, residual: sum.filter(|_| glu.is_none()), ..plain(vec![*product]) });
        }
        glu.is_none() && sum.is_none()
    });
    while let Some(first) = rest.first().copied() {
        let dtype = |product: &Product| graph.tensor(product.weight).dtype;
        let same = rest.iter().filter(|product| dtype(product) == dtype(&first)).take(MOST).copied();
        let together: Vec<Product> = same.collect();
        rest.retain(|product| !together.contains(product));
        parts.push(plain(together));
    }
    parts
}

/// Returns the forms in which a part may be added, the largest first.
fn forms(part: &Products) -> Vec<Products> {
    let mut forms = vec![part.clone()];
    if part.glu.is_some() || part.residual.is_some() {
        forms.push(Products { glu: None, residual: None, ..part.clone() });
    }
    if part.products.iter().any(|product| product.bias.is_some()) {
        let products = part.products.iter().map(|p| Product { bias: None, result: p.node, ..*p });
        forms.push(Products { glu: None, residual: None, products: products.collect(), ..part.clone() });
    }
    forms
}

/// Returns a product with its bias.
pub(super) fn product(search: &Search<'_>, node: TensorId) -> Product {
    let graph = search.graph;
    let weight = graph.tensor(node).src()[0];
    let with_bias = search.only_reader(node).and_then(|add| {
        let (Some(Op::Binary(Binary::Add)), &[a, b]) = (graph.tensor(add).op(), graph.tensor(add).src())
        else {
            return None;
        };
        let bias = graph.tensor(b);
        let is_bias = bias.dtype == DType::F32
            && bias.ne == [graph.tensor(node).ne[0], 1, 1, 1]
            && bias.rows_contiguous()
            && bias.op().is_none();
        (a == node && is_bias).then_some((b, add))
    });
    match with_bias {
        Some((bias, add)) => Product { weight, node, bias: Some(bias), result: add },
        None => Product { weight, node, bias: None, result: node },
    }
}

/// Returns the pair of gate and up products with their GLU, for the gate.
fn pair(search: &Search<'_>, all: &[Product], gate: &Product) -> Option<(Vec<Product>, GluPart)> {
    let graph = search.graph;
    let reader = search.only_reader(gate.result)?;
    let up = all.iter().find(|up| up != &gate && search.only_reader(up.result) == Some(reader))?;
    let same = graph.tensor(gate.weight).dtype == graph.tensor(up.weight).dtype;
    let glu = glu(graph, reader, &[gate.result, up.result]).filter(|_| same)?;
    Some((vec![*gate, *up], glu))
}

/// Matches a GLU of exactly these operands.
fn glu(graph: &Graph, node: TensorId, of: &[TensorId]) -> Option<GluPart> {
    match graph.tensor(node).op() {
        Some(Op::Glu(op)) if graph.tensor(node).src() == of => Some(GluPart { op: *op, node }),
        _ => None,
    }
}
