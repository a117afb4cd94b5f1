//! A sum, RMS_NORM with its weight, a residual sum; a gate; RMS_NORM times a number.

use super::Group;
use super::search::{Search, equal_sum, sum_with};
use crate::dtype::DType;
use crate::graph::Graph;
use crate::op::{Activation, Binary, Op};
use crate::tensor::TensorId;

/// RMS_NORM of rows times a weight of a row's length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormPart {
    /// What is normed: F32, contiguous rows.
    pub x: TensorId,
    /// F32 `[n]`.
    pub weight: TensorId,
    /// Added to the mean square.
    pub eps: f32,
    /// RMS_NORM and MUL.
    pub nodes: [TensorId; 2],
}

/// `a + b`, both of the same extents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sum {
    /// The operands.
    pub of: [TensorId; 2],
    /// The node.
    pub node: TensorId,
}

/// `activation(gate) * n`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gated {
    /// The gate, of the extents of what it gates.
    pub gate: TensorId,
    /// Its function.
    pub activation: Activation,
    /// GLU.
    pub node: TensorId,
}

/// `rms_norm(x) * factor`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaled {
    /// What is normed: F32, contiguous rows.
    pub x: TensorId,
    /// Added to the mean square.
    pub eps: f32,
    /// The factor.
    pub factor: f32,
    /// RMS_NORM and SCALE.
    pub nodes: [TensorId; 2],
}

/// `r = a + b` or a tensor `r`; `n = rms_norm(r) * weight`; perhaps `n + c`, or `n` with a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// The sum that is normed. It leaves the group.
    pub sum: Option<Sum>,
    /// The norm. It leaves the group unless it goes into `residual` or `gated`.
    pub norm: NormPart,
    /// The norm plus something of its extents: which of the operands is not the norm.
    pub residual: Option<Sum>,
    /// The norm behind a gate.
    pub gated: Option<Gated>,
}

impl Norm {
    pub(super) fn nodes(&self) -> Vec<TensorId> {
        let sums = [self.sum, self.residual].into_iter().flatten().map(|sum| sum.node);
        self.norm.nodes.into_iter().chain(sums).chain(self.gated.map(|gated| gated.node)).collect()
    }

    pub(super) fn results(&self) -> Vec<TensorId> {
        self.sum.map(|sum| sum.node).into_iter().chain([self.result()]).collect()
    }

    /// What the norm becomes.
    pub fn result(&self) -> TensorId {
        let behind = self.residual.map(|sum| sum.node).or(self.gated.map(|gated| gated.node));
        behind.unwrap_or(self.norm.nodes[1])
    }

    /// What is added to the norm.
    pub fn added(&self) -> Option<TensorId> {
        let norm = self.norm.nodes[1];
        self.residual.and_then(|sum| sum.of.into_iter().find(|&id| id != norm))
    }
}

/// RMS_NORM times a weight, if a tensor is just that and the norm without its weight is not needed.
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

/// Norms with the sums around them, as many as the backend takes together.
pub(super) fn find(search: &mut Search<'_>) {
    let graph: &Graph = search.graph;
    for mul in graph.computed().collect::<Vec<_>>() {
        let Some(norm) = norm_part(search, mul) else { continue };
        let sum = equal_sum(search, norm.x);
        let residual = search.only_reader(mul).and_then(|add| sum_with(search, add, mul));
        let gated = gated(search, mul);
        // A group does not read what it writes.
        let apart = |sum: &Sum| {
            let added = residual.iter().flat_map(|residual| residual.of);
            added.into_iter().all(|id| graph.producer(id) != sum.node)
        };
        let plain = Norm { sum: None, norm, residual: None, gated: None };
        let forms = [
            Norm { gated, ..plain },
            Norm { sum: sum.filter(apart), residual, ..plain },
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

/// The gate that a norm goes behind.
fn gated(search: &Search<'_>, normed: TensorId) -> Option<Gated> {
    let node = search.only_reader(normed)?;
    let t = search.graph.tensor(node);
    let (Some(Op::Glu(op)), &[gate, up]) = (t.op(), t.src()) else { return None };
    let fits = op.clamped.is_none() && up == normed && search.graph.producer(gate) != normed;
    fits.then_some(Gated { gate, activation: op.activation, node })
}

/// RMS_NORM times a number, if a tensor is one whose only reader is that.
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
