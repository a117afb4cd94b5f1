//! Operations between the projections and attention: heads are normed, rotated (RoPE) and stored.

use super::norm::NormPart;
use crate::op::Rope;
use crate::tensor::TensorId;

/// ROPE of heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turned {
    /// The operation.
    pub op: Rope,
    /// I32 `[tokens]`.
    pub positions: TensorId,
    /// Divisors of the frequencies.
    pub factors: Option<TensorId>,
    /// The node.
    pub node: TensorId,
}

/// Rows that are written into a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stored {
    /// The cache `[d * heads, cells]`.
    pub cache: TensorId,
    /// I32 `[tokens]`: the cells.
    pub cells: TensorId,
    /// SET_ROWS.
    pub node: TensorId,
}

/// q, k or v: what is done to it, one thing after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Head {
    /// F32 `[d, heads, tokens]`, or whole rows `[d * heads, tokens]` if they are only stored. Strided, with contiguous
    /// heads.
    pub x: TensorId,
    /// Norm of each head.
    pub norm: Option<NormPart>,
    /// Positions.
    pub rope: Option<Turned>,
    /// Storing, as whole rows.
    pub stored: Option<Stored>,
}

/// q, k and v of a layer, those of them to which anything is done. All have as many tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Heads {
    /// In this order.
    pub heads: Vec<Head>,
}

impl Head {
    pub(in crate::fuse) fn nodes(&self) -> impl Iterator<Item = TensorId> {
        let norm = self.norm.into_iter().flat_map(|norm| norm.nodes);
        norm.chain(self.rope.map(|rope| rope.node)).chain(self.stored.map(|stored| stored.node))
    }

    /// An operand with an element for each token.
    pub(in crate::fuse) fn tokens(&self) -> Option<TensorId> {
        self.stored.map(|stored| stored.cells).or(self.rope.map(|rope| rope.positions))
    }

    /// Returns the result of the group.
    pub fn result(&self) -> TensorId {
        self.nodes().last().unwrap_or(self.x)
    }

    /// Without its norm, which then stands before.
    pub(in crate::fuse) fn without_norm(self) -> Head {
        Head { x: self.norm.map_or(self.x, |norm| norm.nodes[1]), norm: None, ..self }
    }
}

impl Heads {
    pub(in crate::fuse) fn nodes(&self) -> Vec<TensorId> {
        self.heads.iter().flat_map(Head::nodes).collect()
    }
}
