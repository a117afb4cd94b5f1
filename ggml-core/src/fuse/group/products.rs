//! Products of one input, with the nodes before and after them.

use super::GluPart;
use super::norm::{NormPart, Sum};
use crate::graph::Graph;
use crate::tensor::TensorId;

/// Matrix, its product with the input, and an optional bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// `[k, m]`.
    pub weight: TensorId,
    /// MUL_MAT.
    pub node: TensorId,
    /// F32 `[m]`.
    pub bias: Option<TensorId>,
    /// `node`, or the sum with the bias: F32 `[m, n]`.
    pub result: TensorId,
}

/// Products of one input with up to three matrices.
#[derive(Clone, Debug, PartialEq)]
pub struct Products {
    /// Norm before the products, if the input is RMS_NORM times a weight that stays in the group: `input` is
    /// then not stored, and `norm.x` is read. Several groups may compute the same norm.
    pub norm: Option<NormPart>,
    /// F32 `[k, n]`.
    pub input: TensorId,
    /// One to three products. Their matrices have one type and the same `k`.
    pub products: Vec<Product>,
    /// GLU of two products, gate and up with the same `m`, or of one that has both as the halves of its rows.
    pub glu: Option<GluPart>,
    /// Sum of the only product and another tensor.
    pub residual: Option<Sum>,
}

impl Products {
    pub(in crate::fuse) fn nodes(&self) -> Vec<TensorId> {
        let norm = self.norm.into_iter().flat_map(|norm| norm.nodes);
        let of = |p: &Product| [Some(p.node), (p.result != p.node).then_some(p.result)];
        let products = self.products.iter().flat_map(of).flatten();
        let after = self.glu.map(|glu| glu.node).into_iter().chain(self.residual.map(|sum| sum.node));
        norm.chain(products).chain(after).collect()
    }

    pub(in crate::fuse) fn results(&self) -> Vec<TensorId> {
        match (self.glu, self.residual) {
            (Some(glu), _) => vec![glu.node],
            (None, Some(sum)) => vec![sum.node],
            (None, None) => self.products.iter().map(|product| product.result).collect(),
        }
    }

    /// Returns the tensor that is added to the only product.
    pub fn added(&self) -> Option<TensorId> {
        let product = self.products.first()?.result;
        self.residual.and_then(|sum| sum.of.into_iter().find(|&id| id != product))
    }

    /// True if the group has several nodes and none of its matrices is a result of one of them.
    pub(in crate::fuse) fn joins(&self, graph: &Graph) -> bool {
        let nodes = self.nodes();
        let inside = |product: &Product| nodes.contains(&graph.producer(product.weight));
        nodes.len() > 1 && !self.products.iter().any(inside)
    }
}
