//! Cases of the choice of experts.

use super::{Parts, UNIT, case};
use crate::catalogue::{Case, Fill};
use crate::dtype::DType;
use crate::error::Result;
use crate::fuse::ProbabilityOf::{self, Sigmoid};
use crate::op::{Activation, SoftMax};
use crate::tensor::TensorId;

/// All cases.
pub(super) fn cases() -> Vec<Case> {
    [routers(), gates(), forms(), special()].concat()
}

/// Builds a router; the scores are the operand of TOP_K and of GET_ROWS.
fn route(p: &mut Parts<'_>, experts: usize, used: usize, tokens: usize) -> Result<[TensorId; 2]> {
    // If all experts are used: one score is NaN, one has no weight.
    let lost = [(2..3, f32::NAN), (experts + 1..experts + 2, f32::NEG_INFINITY)];
    let lost = lost.into_iter().filter(|_| used == experts);
    let scores = p.leaf("scores", DType::F32, &[experts, tokens], Fill::Uniform(-4.0, 4.0).but(lost))?;
    PLAIN.choose(p, scores, None, used)
}

/// Form of the choice of experts by their scores, and of their weights, as in models.
#[derive(Clone, Copy)]
struct Form {
    probabilities: Option<ProbabilityOf>,
    /// Groups of experts, and the number of groups that are used.
    groups: Option<[usize; 2]>,
    normalised: bool,
    scale: f32,
}

const PLAIN: Form = Form { probabilities: None, groups: None, normalised: true, scale: 1.0 };

impl Form {
    /// Builds the indices and the weights. `bias`: F32 `[experts]`, added for the choice only.
    fn choose(
        self,
        p: &mut Parts<'_>,
        scores: TensorId,
        bias: Option<TensorId>,
        used: usize,
    ) -> Result<[TensorId; 2]> {
        let [experts, tokens, ..] = p.g.tensor(scores).ne;
        let soft_max = SoftMax { scale: 1.0, max_bias: 0.0 };
        let probabilities = match self.probabilities {
            None => scores,
            Some(Sigmoid) => p.g.unary(Activation::Sigmoid, scores)?,
            Some(ProbabilityOf::SoftMax) => p.g.soft_max(soft_max, scores, None)?,
        };
        let mut candidates = probabilities;
        if let Some(bias) = bias {
            candidates = p.g.add(candidates, bias)?;
        }
        if let Some(groups) = self.groups {
            candidates = of_best_groups(p, candidates, groups)?;
        }
        let ids = p.g.top_k(candidates, used)?;
        let of = if self.normalised { scores } else { probabilities };
        let rows = p.g.reshape(of, [1, experts, tokens, 1])?;
        let mut weights = p.g.get_rows(rows, ids)?;
        if self.normalised {
            weights = p.g.reshape(weights, [used, tokens, 1, 1])?;
            let mut scale = 1.0;
            if self.probabilities == Some(Sigmoid) {
                let negative = p.g.scale(weights, -1.0, 0.0)?;
                (weights, scale) = (p.g.unary(Activation::Softplus, negative)?, -1.0);
            }
            weights = p.g.soft_max(SoftMax { scale, max_bias: 0.0 }, weights, None)?;
        }
        if self.scale != 1.0 {
            weights = p.g.scale(weights, self.scale, 0.0)?;
        }
        Ok([ids, weights])
    }
}

/// Builds the candidates of the groups whose two best have the largest sums.
fn of_best_groups(p: &mut Parts<'_>, candidates: TensorId, [count, used]: [usize; 2]) -> Result<TensorId> {
    let [experts, tokens, ..] = p.g.tensor(candidates).ne;
    let grouped = p.g.reshape(candidates, [experts / count, count, tokens, 1])?;
    let best = p.g.top_k_flat(grouped, 2)?;
    let best = p.g.reshape(best, [2 * count, tokens, 1, 1])?;
    let column = p.g.reshape(candidates, [1, experts, tokens, 1])?;
    let best = p.g.get_rows(column, best)?;
    let strides = [8, 8 * count, 8 * count * tokens, 8 * count * tokens];
    let [first, second] = [0, 4].map(|at| p.g.view(best, [count, tokens, 1, 1], strides, at));
    let sums = p.g.add(first?, second?)?;
    let used = p.g.top_k(sums, used)?;
    let kept = p.g.get_rows(grouped, used)?;
    let none = p.g.scale(grouped, 0.0, -1e30)?;
    let masked = p.g.set_rows(none, kept, used)?;
    p.g.reshape(masked, [experts, tokens, 1, 1])
}

fn routers() -> Vec<Case> {
    let mut cases = Vec::new();
    for (experts, used, tokens) in [(8, 2, 1), (128, 8, 5), (500, 10, 1), (1100, 3, 2), (9, 9, 3)] {
        for (which, name) in ["ids", "weights"].into_iter().enumerate() {
            let what = format!("{name}, experts={experts}, used={used}, tokens={tokens}");
            cases.push(case("router", what, |p| Ok(route(p, experts, used, tokens)?[which])));
        }
    }
    cases
}

/// Cases that compare the norm, the indices and the weights.
fn gates() -> Vec<Case> {
    let mut cases = Vec::new();
    for (k, experts, used, tokens, bias) in
        [(256, 8, 2, 1, false), (2052, 128, 8, 2, true), (96, 300, 5, 1, false)]
    {
        for (which, name) in ["norm", "ids", "weights"].into_iter().enumerate() {
            let with = if bias { ", bias" } else { "" };
            let what = format!("{name}, k={k}, experts={experts}, used={used}, tokens={tokens}{with}");
            cases.push(case("gate", what, |p| {
                let x = p.plain("x", &[k, tokens])?;
                let n = p.norm(x, "norm")?;
                let scores = p.product(n, "gate", DType::F32, experts, bias)?;
                let [ids, weights] = PLAIN.choose(p, scores, None, used)?;
                Ok([n, ids, weights][which])
            }));
        }
    }
    cases
}

/// Cases of gates of all forms: the indices, the weights.
fn forms() -> Vec<Case> {
    let mut cases = Vec::new();
    let sigmoid = Form { probabilities: Some(Sigmoid), ..PLAIN };
    let soft_max = Form { probabilities: Some(ProbabilityOf::SoftMax), ..PLAIN };
    let own = |form: Form| Form { normalised: false, ..form };
    let of = |form: Form, groups: [usize; 2], scale: f32| Form { groups: Some(groups), scale, ..form };
    // Description; form; true for a bias of the choice; elements of a row, experts, used experts, tokens.
    for (words, form, bias, [k, experts, used, tokens]) in [
        ("sigmoid", own(sigmoid), false, [64, 16, 1, 3]),
        ("sigmoid, normalised, bias", sigmoid, true, [96, 300, 8, 2]),
        ("sigmoid, normalised, no bias, scale", Form { scale: 1.8, ..sigmoid }, false, [128, 12, 4, 1]),
        ("sigmoid, normalised, bias, 4 of 8 groups, scale", of(sigmoid, [8, 4], 2.5), true, [256, 48, 6, 4]),
        ("sigmoid, bias, 1 of 9 groups", of(own(sigmoid), [9, 1], 1.0), true, [64, 333, 5, 2]),
        ("soft-max of all, scale", Form { scale: 16.0, ..own(soft_max) }, false, [64, 66, 6, 3]),
        ("soft-max of all, 2 of 3 groups", of(own(soft_max), [3, 2], 1.0), false, [64, 21, 5, 2]),
        ("soft-max of all, normalised, bias", soft_max, true, [64, 40, 4, 1]),
        ("scale", Form { scale: 0.5, ..PLAIN }, false, [64, 10, 3, 2]),
    ] {
        for (which, name) in ["ids", "weights"].into_iter().enumerate() {
            let what = format!("{name}, {words}, k={k}, experts={experts}, used={used}, tokens={tokens}");
            cases.push(case("gate", what, |p| {
                // Scores in a range in which a sigmoid and a soft-max distinguish them.
                let x = p.plain("x", &[k, tokens])?;
                let n = p.norm(x, "norm")?;
                let most = 5.0 / (k as f32).sqrt();
                let weight = p.leaf("gate", DType::F32, &[k, experts], Fill::Uniform(-most, most))?;
                let scores = p.g.mul_mat(weight, n)?;
                let bias = if bias { Some(p.plain("bias", &[experts])?) } else { None };
                Ok(form.choose(p, scores, bias, used)?[which])
            }));
        }
    }
    cases
}

/// Cases with scores and candidates that are NaN or infinite: by themselves in their groups, with others, and
/// all of one group. All experts are chosen. The indices, the weights.
fn special() -> Vec<Case> {
    let mut cases = Vec::new();
    let (k, experts) = (64, 24);
    for (words, probabilities, groups, normalised) in [
        ("sigmoid", Sigmoid, None, false),
        ("sigmoid, normalised, 3 of 6 groups", Sigmoid, Some([6, 3]), true),
        ("soft-max of all, 3 of 6 groups", ProbabilityOf::SoftMax, Some([6, 3]), false),
    ] {
        let form = Form { probabilities: Some(probabilities), groups, normalised, ..PLAIN };
        for (which, name) in ["ids", "weights"].into_iter().enumerate() {
            cases.push(case("gate", format!("{name}, {words}, special numbers"), |p| {
                let x = p.plain("x", &[k, 2])?;
                let n = p.norm(x, "norm")?;
                let weight = p.leaf("gate", DType::F32, &[k, experts], Fill::Uniform(-0.5, 0.5))?;
                let scores = p.g.mul_mat(weight, n)?;
                let lost = [(1..2, f32::NAN), (7..8, f32::NEG_INFINITY)];
                let lost = lost.into_iter().filter(|_| probabilities == Sigmoid);
                let of_scores = p.leaf("of scores", DType::F32, &[experts], UNIT.but(lost))?;
                let scores = p.g.add(scores, of_scores)?;
                let lost = [
                    (4..7, f32::NAN),
                    (9..10, f32::INFINITY),
                    (12..14, f32::NEG_INFINITY),
                    (17..18, f32::INFINITY),
                    (18..19, f32::NEG_INFINITY),
                    (21..22, -2e38),
                ];
                let bias = p.leaf("bias", DType::F32, &[experts], UNIT.but(lost))?;
                Ok(form.choose(p, scores, Some(bias), experts)?[which])
            }));
        }
    }
    cases
}
