//! Products with the experts of each token.

use super::GluPart;
use super::norm::Sum;
use crate::tensor::TensorId;

/// Product with the matrices of the chosen experts, with an optional bias.
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

/// Sum over a token's experts, each with its weight.
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
    /// One product, or two with matrices of the same type and extents.
    pub products: Vec<ExpertProduct>,
    /// GLU of two products, gate and up.
    pub glu: Option<GluPart>,
    /// Weighted sum of one product: F32 `[m, tokens]`.
    pub weighted: Option<Weighted>,
    /// Sum of the weighted sum and another tensor.
    pub residual: Option<Sum>,
}

impl Experts {
    pub(in crate::fuse) fn nodes(&self) -> Vec<TensorId> {
        let of = |p: &ExpertProduct| [Some(p.node), p.bias.map(|b| b.1[0]), p.bias.map(|b| b.1[1])];
        let products = self.products.iter().flat_map(of).flatten();
        let after = self.glu.map(|glu| glu.node).into_iter();
        let sums = self.weighted.iter().flat_map(|weighted| weighted.nodes.iter().copied());
        products.chain(after).chain(sums).chain(self.residual.map(|sum| sum.node)).collect()
    }

    /// Returns the results of the group.
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

    /// Returns the product and its weighted sum if the group consists of nothing else but a residual: the form
    /// that backends compute for many tokens, as tiles and a sum.
    pub fn plain_sum(&self) -> Option<(&ExpertProduct, &Weighted)> {
        match (&self.products[..], &self.weighted) {
            ([product], Some(weighted)) if product.bias.is_none() => Some((product, weighted)),
            _ => None,
        }
    }

    /// Returns the tensor that is added to the weighted sum.
    pub fn added(&self) -> Option<TensorId> {
        let sum = *self.weighted.as_ref()?.nodes.last()?;
        self.residual.and_then(|residual| residual.of.into_iter().find(|&id| id != sum))
    }
}
