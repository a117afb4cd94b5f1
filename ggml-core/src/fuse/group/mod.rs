//! The kinds of groups and their members.

use crate::graph::Graph;
use crate::op::{Glu, Op};
use crate::tensor::TensorId;

mod best;
pub(super) mod chain;
mod choice;
mod experts;
mod gate;
mod heads;
mod norm;
mod products;
mod recurrent;
mod router;

pub use best::Best;
pub use chain::Chain;
pub use choice::{Biased, Choice, ExpertGroups, Normalised, Probabilities, ProbabilityOf};
pub use experts::{ExpertProduct, Experts, Weighted};
pub use gate::Gate;
pub use heads::{Head, Heads, Rotated, Stored};
pub use norm::{Gated, Norm, NormPart, Scaled, Sum};
pub use products::{Product, Products};
pub use recurrent::{Conv, Delta, DeltaGates};
pub use router::Router;

/// Nodes that are computed together.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Group {
    /// One node.
    Node(TensorId),
    /// Products of one input.
    Products(Products),
    /// Nodes between the projections and attention.
    Heads(Heads),
    /// Products with the experts of each token.
    Experts(Experts),
    /// Choice of experts.
    Router(Router),
    /// Choice of experts, with the norm and the product that give the scores.
    Gate(Gate),
    /// Norm with its sums.
    Norm(Norm),
    /// Norm times a constant.
    Scaled(Scaled),
    /// Consecutive element-wise functions.
    Chain(Chain),
    /// Short convolution.
    Conv(Conv),
    /// Delta net.
    Delta(Delta),
    /// Best element of each row.
    Best(Best),
}

/// GLU of two results of a group, or of the halves of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GluPart {
    /// The operation.
    pub op: Glu,
    /// Its node.
    pub node: TensorId,
}

impl Group {
    /// Returns the name of the kind; for a single node the name of its operation.
    pub fn name(&self, graph: &Graph) -> &'static str {
        match self {
            Group::Node(id) => graph.tensor(*id).op().map_or("LEAF", Op::name),
            Group::Products(_) => "products",
            Group::Heads(_) => "heads",
            Group::Experts(_) => "experts",
            Group::Router(_) => "router",
            Group::Gate(_) => "gate",
            Group::Norm(_) => "norm",
            Group::Scaled(_) => "scaled",
            Group::Chain(_) => "chain",
            Group::Conv(_) => "conv",
            Group::Delta(_) => "delta",
            Group::Best(_) => "best",
        }
    }

    /// Returns the members, in the order of the graph.
    pub fn nodes(&self) -> Vec<TensorId> {
        let mut nodes = match self {
            Group::Node(id) => vec![*id],
            Group::Products(g) => g.nodes(),
            Group::Heads(g) => g.nodes(),
            Group::Experts(g) => g.nodes(),
            Group::Router(g) => g.nodes(),
            Group::Gate(g) => g.nodes(),
            Group::Norm(g) => g.nodes(),
            Group::Scaled(g) => g.nodes.to_vec(),
            Group::Chain(g) => g.nodes.clone(),
            Group::Conv(g) => g.nodes(),
            Group::Delta(g) => g.nodes(),
            Group::Best(g) => g.nodes(),
        };
        nodes.sort_unstable();
        nodes
    }

    /// Returns the members whose results leave the group, in the order of the graph.
    pub fn results(&self) -> Vec<TensorId> {
        let mut results = match self {
            Group::Node(id) => vec![*id],
            Group::Products(g) => g.results(),
            Group::Heads(g) => g.heads.iter().map(Head::result).collect(),
            Group::Experts(g) => g.results(),
            Group::Router(g) => vec![g.ids, g.weights],
            Group::Gate(g) => g.results(),
            Group::Norm(g) => g.results(),
            Group::Scaled(g) => vec![g.nodes[1]],
            Group::Chain(g) => vec![g.result()],
            Group::Conv(g) => g.results(),
            Group::Delta(g) => g.results(),
            Group::Best(g) => g.nodes(),
        };
        results.sort_unstable();
        results
    }

    /// Returns the last member, which names the group.
    pub fn last(&self) -> TensorId {
        self.nodes().last().copied().unwrap_or(TensorId(u32::MAX))
    }

    /// Returns the tensors that members read and no member computes, each once; views are not replaced by
    /// their roots.
    pub fn operands(&self, graph: &Graph) -> Vec<TensorId> {
        let nodes = self.nodes();
        let mut operands: Vec<TensorId> = Vec::new();
        for &operand in nodes.iter().flat_map(|&node| graph.tensor(node).src()) {
            if !nodes.contains(&graph.producer(operand)) && !operands.contains(&operand) {
                operands.push(operand);
            }
        }
        operands
    }
}
