//! Choice of experts and of their weights, in the forms that models have.
//!
//! Sources of the mixtures: Shazeer et al., "Outrageously large neural networks: the sparsely-gated
//! mixture-of-experts layer" (2017); DeepSeek-AI, "DeepSeek-V3 technical report" (2024).

use crate::op::SoftMax;
use crate::tensor::TensorId;

/// Choice of experts by their scores.
///
/// `p` are the scores or a function of them; `c = p + bias`, optionally of the best groups only; `ids` are
/// the largest of `c`; the weights are `p` at `ids`, or the soft-max of the scores there or of the logarithms
/// of their sigmoids; all times a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// F32 `[experts, tokens]`.
    pub scores: TensorId,
    /// Function of the scores of all experts.
    pub probabilities: Option<Probabilities>,
    /// Bias that is added for the choice only.
    pub bias: Option<Biased>,
    /// Groups of experts, of which only some are candidates.
    pub groups: Option<ExpertGroups>,
    /// TOP_K: I32 `[used, tokens]`.
    pub ids: TensorId,
    /// GET_ROWS of the probabilities, or of the scores if weights are normalised.
    pub chosen: TensorId,
    /// Normalisation of the chosen experts' weights to the sum 1.
    pub normalised: Option<Normalised>,
    /// SCALE of the weights, and its factor.
    pub scaled: Option<(TensorId, f32)>,
}

/// Function of the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbabilityOf {
    /// Sigmoid of each score.
    Sigmoid,
    /// Soft-max over all scores of a token.
    SoftMax,
}

/// Function of the scores, and its node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probabilities {
    /// Function.
    pub of: ProbabilityOf,
    /// SIGMOID or SOFT_MAX: F32 `[experts, tokens]`.
    pub node: TensorId,
}

/// Sum with a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Biased {
    /// F32 `[experts]`.
    pub bias: TensorId,
    /// ADD.
    pub node: TensorId,
}

/// Limitation of the choice to the groups whose two largest candidates have the largest sums. Candidates of
/// other groups become `never`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertGroups {
    /// Number of groups; all have the same number of experts.
    pub count: usize,
    /// Number of groups that are used.
    pub used: usize,
    /// Value of a candidate of another group: `0 * candidate + never`.
    pub never: f32,
    /// TOP_K in each group, GET_ROWS, ADD, TOP_K of groups, GET_ROWS, SCALE, SET_ROWS.
    pub nodes: [TensorId; 7],
}

/// Soft-max of scores, or of the logarithms of their sigmoids.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalised {
    /// SCALE by -1 and SOFTPLUS: together the negated logarithm of the sigmoid.
    pub logarithms: Option<[TensorId; 2]>,
    /// Parameters of SOFT_MAX.
    pub op: SoftMax,
    /// SOFT_MAX.
    pub node: TensorId,
}

impl Choice {
    pub(in crate::fuse) fn nodes(&self) -> Vec<TensorId> {
        let of_all = self.probabilities.map(|p| p.node).into_iter().chain(self.bias.map(|bias| bias.node));
        let groups = self.groups.iter().flat_map(|groups| groups.nodes);
        let logarithms = self.normalised.and_then(|n| n.logarithms).into_iter().flatten();
        let behind = self.normalised.map(|n| n.node).into_iter().chain(self.scaled.map(|(node, _)| node));
        of_all.chain(groups).chain([self.ids, self.chosen]).chain(logarithms).chain(behind).collect()
    }

    /// Returns the weights of the chosen experts: F32, `used` for each token, contiguous.
    pub fn weights(&self) -> TensorId {
        let last = self.scaled.map(|(node, _)| node).or(self.normalised.map(|n| n.node));
        last.unwrap_or(self.chosen)
    }
}
