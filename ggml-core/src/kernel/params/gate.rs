//! The choice of experts with what gives the scores.

use super::outer;
use crate::error::{Error, Result};
use crate::fuse::{Choice, Gate, Normalised, ProbabilityOf};
use crate::graph::Graph;
use crate::kernel::{extents, narrow};
use crate::tensor::TensorId;
use bytemuck::{Pod, Zeroable};

/// A [`Gate`]: `n = rms_norm(x) * s`, `scores = w n + b`, the indices of the experts that are chosen by these, and their
/// weights.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct GateParams {
    /// Elements of a row of x.
    pub k: u32,
    /// Rows of w.
    pub experts: u32,
    /// Rows of x.
    pub tokens: u32,
    /// Experts that are chosen for each.
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
    /// 1 if there is a b.
    pub bias: u32,
    /// Added to the mean square.
    pub eps: f32,
    /// Soft-max of the weights: factor of the scores.
    pub scale: f32,
    /// What is made of the scores: [`GateParams::SIGMOID`], [`GateParams::SOFT_MAX`], or 0: they are their own.
    pub probabilities: u32,
    /// What weights are: [`GateParams::OF_SCORES`], [`GateParams::OF_LOGARITHMS`], or 0: the probabilities themselves.
    pub weights: u32,
    /// Factor of the weights.
    pub factor: f32,
    /// 1 if there is a c, which is added to the probabilities for the choice only.
    pub biased: u32,
    /// Offset of c.
    pub offc: u32,
    /// Groups of experts.
    pub groups: u32,
    /// How many of them count.
    pub groups_used: u32,
    /// What a candidate of the others becomes, unless it is no finite number.
    pub never: f32,
}

impl GateParams {
    /// The sigmoid of each score.
    pub const SIGMOID: u32 = 1;
    /// The soft-max of all scores.
    pub const SOFT_MAX: u32 = 2;
    /// The soft-max of the chosen scores.
    pub const OF_SCORES: u32 = 1;
    /// The soft-max of `scale * ln(1 + exp(-score))` of the chosen ones.
    pub const OF_LOGARITHMS: u32 = 2;

    /// Whether experts are chosen by their scores as they are, and weights are the soft-max of these.
    pub fn is_plain(&self) -> bool {
        let GateParams { probabilities, weights, factor, biased, groups, .. } = *self;
        (probabilities, weights, factor, biased, groups) == (0, Self::OF_SCORES, 1.0, 0, 1)
    }

    /// From a group. `off` says what remains of a tensor's offset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for rows that are no whole quads at multiples of four elements, and for operands whose
    /// elements do not lie side by side.
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

    /// What a choice says.
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

    /// The tensors of a group in the order of its kernels' operands: x, s, w, b, c (s for those that there are not), n, the
    /// indices, the weights.
    pub fn operands(gate: &Gate) -> [TensorId; 8] {
        let (s, choice) = (gate.norm.weight, &gate.choice);
        let b = gate.scores.bias.unwrap_or(s);
        let c = choice.bias.map_or(s, |bias| bias.bias);
        [gate.norm.x, s, gate.scores.weight, b, c, gate.norm.nodes[1], choice.ids, choice.weights()]
    }
}
