//! Finds norms with the sums or the gate around them: [`Norm`], and RMS_NORM times a constant: [`Scaled`].

use super::group::{Gated, Group, Norm, NormPart, Scaled, Sum};
use super::search::{Search, equal_sum, sum_with};
use crate::dtype::DType;
use crate::graph::Graph;
use crate::op::{Binary, Op};
use crate::tensor::TensorId;

/// Matches RMS_NORM times a weight, if the norm without its weight is not needed.
pub(super) fn norm_part(search: &Search<'_>, mul: TensorId) -> Option<NormPart> {
    let graph = search.graph;
    let t = graph.tensor(mul);
    let (Some(Op::Binary(Binary::Mul)), &[normed, weight]) = (t.op(), t.src()) else { return None };
    let Some(Op::RmsNorm(op)) = graph.tensor(normed).op() else { return None };
    let w = graph.tensor(weight);
    let is_row = w.dtype == DType::F32 && w.ne == [t.ne[0], 1, 1, 1] && w.rows_contiguous();
    let inner = search.only_reader(normed) == Some(mul) && graph.producer(weight) != normed;
    (is_row && inner).then(|| NormPart {
        x: graph.tensor(normed).src()[0],
        weight,
        eps: op.eps,
        nodes: [normed, mul],
    })
}

/// Adds norms with the sums around them, in the largest form that the backend accepts.
pub(super) fn find(search: &mut Search<'_>) {
    let graph: &Graph = search.graph;
    for mul in graph.computed().collect::<Vec<_>>() {
        let Some(norm) = norm_part(search, mul) else { continue };
        let sum = equal_sum(search, norm.x).filter(|sum| graph.producer(norm.weight) != sum.node);
        let residual = search.only_reader(mul).and_then(|add| sum_with(search, add, mul));
        let gated = gated(search, mul);
        // A group does not read its own results.
        let is_independent = |sum: &Sum| {
            let added = residual.iter().flat_map(|residual| residual.of);
            added.into_iter().all(|id| graph.producer(id) != sum.node)
        };
        let plain = Norm { sum: None, norm, residual: None, gated: None };
        let forms = [
            Norm { gated, ..plain },
            Norm { sum: sum.filter(is_independent), residual, ..plain },
            Norm { residual, ..plain },
            Norm { sum, ..plain },
            plain,
        ];
        for norm in forms.into_iter().skip(gated.is_none() as usize) {
            if search.add(Group::Norm(norm)) {
                break;
            }
        }
    }
    for normed in graph.computed().collect::<Vec<_>>() {
        if let Some(scaled) = scaled(search, normed) {
            search.add(Group::Scaled(scaled));
        }
    }
}

/// Returns the gated unit that multiplies a norm by a gate.
fn gated(search: &Search<'_>, normed: TensorId) -> Option<Gated> {
    let node = search.only_reader(normed)?;
    let t = search.graph.tensor(node);
    let (Some(Op::Glu(op)), &[gate, up]) = (t.op(), t.src()) else { return None };
    let fits = op.clamped.is_none() && up == normed && search.graph.producer(gate) != normed;
    fits.then_some(Gated { gate, activation: op.activation, node })
}

/// Matches RMS_NORM times a constant, if the norm has no other reader.
pub(super) fn scaled(search: &Search<'_>, normed: TensorId) -> Option<Scaled> {
    let graph = search.graph;
    let Some(Op::RmsNorm(op)) = graph.tensor(normed).op() else { return None };
    let scale = search.only_reader(normed)?;
    let t = graph.tensor(scale);
    let (Some(Op::Scale(by)), &[operand]) = (t.op(), t.src()) else { return None };
    let fits = by.bias == 0.0 && operand == normed;
    let x = graph.tensor(normed).src()[0];
    fits.then_some(Scaled { x, eps: op.eps, factor: by.scale, nodes: [normed, scale] })
}
