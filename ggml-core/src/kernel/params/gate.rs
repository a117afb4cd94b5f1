//! Parameters of fused expert selection.

use super::outer;
use crate::error::{Error, Result};
use crate::fuse::{Choice, Gate, Normalised, ProbabilityOf};
use crate::graph::Graph;
use crate::kernel::{extents, narrow};
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

/// Parameters of a [`Gate`]: `n = rms_norm(x) * s`, `scores = w n + b`, the indices of the experts selected
/// by the scores, and their weights.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct GateParams {
    /// Elements of a row of x.
    pub k: u32,
    /// Rows of w.
    pub experts: u32,
    /// Rows of x.
    pub tokens: u32,
    /// Experts selected for each token.
    pub used: u32,
    /// Stride of rows of x.
    pub nbx: u32,
    /// Stride of rows of w.
    pub nbw: u32,
    /// Stride of rows of n.
    pub nbn: u32,
    /// Stride of rows of the indices and of the weights.
    pub nbd: u32,
    /// Offset of x.
    pub offx: u32,
    /// Offset of s.
    pub offs: u32,
    /// Offset of w.
    pub offw: u32,
    /// Offset of b.
    pub offb: u32,
    /// Offset of n.
    pub offn: u32,
    /// Offset of the indices.
    pub offd: u32,
    /// Offset of the weights.
    pub offe: u32,
    /// 1 if b is present.
    pub bias: u32,
    /// Epsilon added to the mean square.
    pub eps: f32,
    /// Factor of the scores in the soft-max of the weights.
    pub scale: f32,
    /// Probabilities from scores: [`GateParams::SIGMOID`], [`GateParams::SOFT_MAX`], or 0 for the scores
    /// themselves.
    pub probabilities: u32,
    /// Weights: [`GateParams::OF_SCORES`], [`GateParams::OF_LOGARITHMS`], or 0 for the probabilities
    /// themselves.
    pub weights: u32,
    /// Factor of the weights.
    pub factor: f32,
    /// 1 if c is present; it is added to the probabilities for the selection only.
    pub biased: u32,
    /// Offset of c.
    pub offc: u32,
    /// Number of groups of experts.
    pub groups: u32,
    /// Number of groups from which experts are selected.
    pub groups_used: u32,
    /// Value that replaces finite candidates of the other groups.
    pub never: f32,
}

impl GateParams {
    /// Sigmoid of each score.
    pub const SIGMOID: u32 = 1;
    /// Soft-max of all scores.
    pub const SOFT_MAX: u32 = 2;
    /// Soft-max of the selected scores.
    pub const OF_SCORES: u32 = 1;
    /// Soft-max of `scale * ln(1 + exp(-score))` of the selected scores.
    pub const OF_LOGARITHMS: u32 = 2;

    /// True if experts are selected by their raw scores and the weights are the soft-max of these scores.
    pub fn is_plain(&self) -> bool {
        let GateParams { probabilities, weights, factor, biased, groups, .. } = *self;
        (probabilities, weights, factor, biased, groups) == (0, Self::OF_SCORES, 1.0, 0, 1)
    }

    /// Builds the parameters of a group. `off` gives the remainder of a tensor's offset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if rows are no multiple of four elements at multiples of four elements, or
    /// the elements of an operand's rows are not contiguous.
    pub fn new(graph: &Graph, gate: &Gate, off: &dyn Fn(TensorId) -> u32) -> Result<Self> {
        let [x, s, w, b, c, n, ids, weights] = Self::operands(gate).map(|id| graph.tensor(id));
        let [ox, os, ow, ob, oc, on, oi, oe] = Self::operands(gate).map(off);
        let row = |t| Ok::<_, Error>(outer(t)?[0]);
        let [k, tokens, ..] = extents(x)?;
        let [used, ..] = extents(ids)?;
        let p = GateParams {
            k,
            experts: narrow(w.ne[1], "experts", w)?,
            tokens,
            used,
            nbx: row(x)?,
            nbw: row(w)?,
            nbn: row(n)?,
            nbd: used,
            offx: ox,
            offs: os,
            offw: ow,
            offb: ob,
            offn: on,
            offd: oi,
            offe: oe,
            bias: gate.scores.bias.is_some().into(),
            eps: gate.norm.eps,
            offc: oc,
            ..Self::of_choice(graph, &gate.choice)?
        };
        let quads = [p.k, p.nbx, p.nbw, p.nbn, ox, os, ow, on];
        if quads.iter().any(|n| n % 4 != 0) {
            return Err(Error::argument("rows of a gate", x.describe(), "whole quads"));
        }
        let side_by_side = [x, s, w, b, c, n].iter().all(|t| t.rows_contiguous());
        let results =
            [ids, weights].iter().all(|t| t.is_contiguous() && t.elements() == ids.ne[0] * ids.ne[1]);
        if !side_by_side || !results {
            return Err(Error::argument("operand of a gate", weights.describe(), "contiguous rows"));
        }
        Ok(p)
    }

    /// Fills the fields that depend on the selection only.
    fn of_choice(graph: &Graph, choice: &Choice) -> Result<Self> {
        let ids = graph.tensor(choice.ids);
        let weights = |n: Normalised| match n.logarithms {
            Some(_) => Self::OF_LOGARITHMS,
            None => Self::OF_SCORES,
        };
        let (groups, groups_used) = choice.groups.map_or((1, 1), |groups| (groups.count, groups.used));
        Ok(GateParams {
            scale: choice.normalised.map_or(1.0, |n| n.op.scale),
            probabilities: match choice.probabilities.map(|p| p.of) {
                None => 0,
                Some(ProbabilityOf::Sigmoid) => Self::SIGMOID,
                Some(ProbabilityOf::SoftMax) => Self::SOFT_MAX,
            },
            weights: choice.normalised.map_or(0, weights),
            factor: choice.scaled.map_or(1.0, |(_, factor)| factor),
            biased: choice.bias.is_some().into(),
            groups: narrow(groups, "groups", ids)?,
            groups_used: narrow(groups_used, "groups", ids)?,
            never: choice.groups.map_or(0.0, |groups| groups.never),
            ..GateParams::default()
        })
    }

    /// Returns the tensors of a group in the order of the kernel's operands: x, s, w, b, c (s in place of a
    /// missing b or c), n, the indices, the weights.
    pub fn operands(gate: &Gate) -> [TensorId; 8] {
        let (s, choice) = (gate.norm.weight, &gate.choice);
        let b = gate.scores.bias.unwrap_or(s);
        let c = choice.bias.map_or(s, |bias| bias.bias);
        [gate.norm.x, s, gate.scores.weight, b, c, gate.norm.nodes[1], choice.ids, choice.weights()]
    }
}
