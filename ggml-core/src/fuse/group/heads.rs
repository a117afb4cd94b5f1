//! Nodes between the projections and attention: norm, ROPE and storing of heads.

use super::norm::NormPart;
use crate::graph::Graph;
use crate::op::Rope;
use crate::tensor::TensorId;

/// ROPE of heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotated {
    /// The operation.
    pub op: Rope,
    /// I32 `[tokens]`.
    pub positions: TensorId,
    /// Divisors of the frequencies.
    pub factors: Option<TensorId>,
    /// The node.
    pub node: TensorId,
}

/// Storing of rows in a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stored {
    /// The cache `[d * heads, cells]`.
    pub cache: TensorId,
    /// Cells: I32 `[tokens]`.
    pub cells: TensorId,
    /// SET_ROWS.
    pub node: TensorId,
}

/// Processing of q, k or v, in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Head {
    /// Heads: F32 `[d, heads, tokens]`, or rows of all heads `[d * heads, tokens]` if they are only stored.
    /// May be strided, but heads are contiguous.
    pub x: TensorId,
    /// Norm of each head.
    pub norm: Option<NormPart>,
    /// ROPE of each head.
    pub rope: Option<Rotated>,
    /// Storing in a cache, as rows of all heads.
    pub stored: Option<Stored>,
}

/// Processed operands of an attention: some of q, k and v. All have the same number of tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Heads {
    /// Heads, in the order q, k, v.
    pub heads: Vec<Head>,
}

impl Head {
    pub(in crate::fuse) fn nodes(&self) -> impl Iterator<Item = TensorId> {
        let norm = self.norm.into_iter().flat_map(|norm| norm.nodes);
        norm.chain(self.rope.map(|rope| rope.node)).chain(self.stored.map(|stored| stored.node))
    }

    /// Returns an operand with an element for each token.
    pub(in crate::fuse) fn tokens(&self) -> Option<TensorId> {
        self.stored.map(|stored| stored.cells).or(self.rope.map(|rope| rope.positions))
    }

    /// Returns the result of the group for this head.
    pub fn result(&self) -> TensorId {
        self.nodes().last().unwrap_or(self.x)
    }

    /// Returns the head without its norm, which is then computed before the group.
    pub(in crate::fuse) fn without_norm(self) -> Head {
        Head { x: self.norm.map_or(self.x, |norm| norm.nodes[1]), norm: None, ..self }
    }
}

impl Heads {
    /// True if no head reads what another member computes, and none writes into the storage of another.
    pub(in crate::fuse) fn are_independent(&self, graph: &Graph) -> bool {
        let nodes = self.nodes();
        let operands = |head: &Head| {
            let norm = head.norm.map(|norm| norm.weight);
            let rope = head.rope.map(|rope| [Some(rope.positions), rope.factors]);
            let stored = head.stored.map(|stored| [stored.cache, stored.cells]);
            let optional = [norm].into_iter().chain(rope.into_iter().flatten()).flatten();
            optional.chain(stored.into_iter().flatten()).chain([head.x]).collect::<Vec<_>>()
        };
        let mut outside = self.heads.iter().flat_map(operands).map(|id| graph.producer(id));
        let roots: Vec<TensorId> =
            self.heads.iter().filter_map(|head| head.stored).map(|s| graph.tensor(s.cache).root).collect();
        let apart = roots.iter().enumerate().all(|(i, root)| !roots[..i].contains(root));
        apart && outside.all(|id| !nodes.contains(&id))
    }

    pub(in crate::fuse) fn nodes(&self) -> Vec<TensorId> {
        self.heads.iter().flat_map(Head::nodes).collect()
    }
}
