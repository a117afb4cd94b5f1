//! Choice of the experts that compute a token, and their weights, in the forms that models have.
//!
//! Sources: as of the mixtures themselves: Shazeer et al., "Outrageously large neural networks: the sparsely-gated
//! mixture-of-experts layer" (2017); DeepSeek-AI, "DeepSeek-V3 technical report" (2024).

use crate::op::SoftMax;
use crate::tensor::TensorId;

/// The choice of experts by their scores.
///
/// `p` are the scores or what is made of them, `c = p + bias`, perhaps of the best groups only; `ids` are the largest of
/// `c`; weights are `p` of these, or the soft-max of their scores or of their scores' logarithms; all times a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// F32 `[experts, tokens]`.
    pub scores: TensorId,
    /// Function applied to the scores of all experts.
    pub probabilities: Option<Probabilities>,
    /// Bias added to the result for the choice only.
    pub bias: Option<Biased>,
    /// Groups of experts, of which some count.
    pub groups: Option<ExpertGroups>,
    /// TOP_K: I32 `[used, tokens]`.
    pub ids: TensorId,
    /// GET_ROWS of the probabilities, or of the scores where weights are normalised.
    pub chosen: TensorId,
    /// Weights of the chosen experts whose sum is 1.
    pub normalised: Option<Normalised>,
    /// SCALE of the weights, and its factor.
    pub scaled: Option<(TensorId, f32)>,
}

/// Function that is applied to scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbabilityOf {
    /// The sigmoid of each.
    Sigmoid,
    /// The soft-max over all.
    SoftMax,
}

/// A function of the scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probabilities {
    /// The function.
    pub of: ProbabilityOf,
    /// SIGMOID or SOFT_MAX: F32 `[experts, tokens]`.
    pub node: TensorId,
}

/// A sum with a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Biased {
    /// F32 `[experts]`.
    pub bias: TensorId,
    /// ADD.
    pub node: TensorId,
}

/// The groups whose two largest candidates have the largest sums count; candidates of the others are `never`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertGroups {
    /// Number of groups. All have the same number of experts.
    pub count: usize,
    /// Number of groups that count.
    pub used: usize,
    /// Value of a candidate of the other groups: `0 * candidate + never`.
    pub never: f32,
    /// TOP_K in each group, GET_ROWS, ADD, TOP_K of groups, GET_ROWS, SCALE, SET_ROWS.
    pub nodes: [TensorId; 7],
}

/// The soft-max of scores, or of the logarithms of their sigmoids.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalised {
    /// SCALE by -1 and SOFTPLUS: together the logarithm but for its sign.
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

    /// The weights of the chosen experts: F32, `used` of each token, without gaps.
    pub fn weights(&self) -> TensorId {
        let last = self.scaled.map(|(node, _)| node).or(self.normalised.map(|n| n.node));
        last.unwrap_or(self.chosen)
    }
}
