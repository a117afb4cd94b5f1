//! What stands between the projections and attention: heads are normed, turned, and stored.

use super::norm::norm_part;
use super::search::Search;
use super::{Group, NormPart};
use crate::op::{Op, Rope};
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
    fn nodes(&self) -> impl Iterator<Item = TensorId> {
        let norm = self.norm.into_iter().flat_map(|norm| norm.nodes);
        norm.chain(self.rope.map(|rope| rope.node)).chain(self.stored.map(|stored| stored.node))
    }

    /// An operand with an element for each token.
    fn tokens(&self) -> Option<TensorId> {
        self.stored.map(|stored| stored.cells).or(self.rope.map(|rope| rope.positions))
    }

    /// What leaves the group.
    pub fn result(&self) -> TensorId {
        self.nodes().last().unwrap_or(self.x)
    }

    /// Without its norm, which then stands before.
    fn without_norm(self) -> Head {
        Head { x: self.norm.map_or(self.x, |norm| norm.nodes[1]), norm: None, ..self }
    }
}

impl Heads {
    pub(super) fn nodes(&self) -> Vec<TensorId> {
        self.heads.iter().flat_map(Head::nodes).collect()
    }
}

/// Heads before each attention.
pub(super) fn find(search: &mut Search<'_>) {
    let graph = search.graph;
    for attention in graph.computed().collect::<Vec<_>>() {
        let Some(Op::FlashAttnExt(_)) = graph.tensor(attention).op() else { continue };
        let src = graph.tensor(attention).src();
        let mut all: Vec<Head> = src[..3].iter().filter_map(|&operand| head(search, operand)).collect();
        // There may be fewer queries than keys: those after which something is wanted.
        let tokens = |head: &Head| head.tokens().map_or(0, |ids| graph.tensor(ids).ne[0]);
        let stored = all.last().map_or(0, tokens);
        all.retain(|head| tokens(head) == stored);
        let plain: Vec<Head> = all.iter().map(|&head| head.without_norm()).collect();
        let plain: Vec<Head> = plain.into_iter().filter(|head| head.nodes().next().is_some()).collect();
        for heads in [all, plain] {
            let group = Heads { heads };
            if group.nodes().len() > 1 && search.add(Group::Heads(group)) {
                break;
            }
        }
    }
}

/// How an operand of attention came about.
fn head(search: &Search<'_>, operand: TensorId) -> Option<Head> {
    let graph = search.graph;
    let (mut stored, mut rope) = (None, None);
    let mut x = graph.producer(operand);
    if let (Some(Op::SetRows(_)), &[cache, rows, cells]) = (graph.tensor(x).op(), graph.tensor(x).src()) {
        stored = Some(Stored { cache, cells, node: x });
        x = rows;
    }
    // Beyond a cache the rows of all heads are looked at as one: nothing but a new shape of the same elements.
    let inner = |node: TensorId, reader: Option<TensorId>| match reader {
        Some(reader) => {
            let (node, view) = (graph.tensor(node), graph.tensor(x));
            search.only_reader(graph.producer(x)) == Some(reader)
                && view.elements() == node.elements()
                && (view.is_contiguous() && node.is_contiguous() && view.offset == node.offset)
        }
        None => true,
    };
    let producer = graph.producer(x);
    if let Some(Op::Rope(op)) = graph.tensor(producer).op()
        && inner(producer, stored.map(|s| s.node))
    {
        let src = graph.tensor(producer).src();
        rope = Some(Turned { op: *op, positions: src[1], factors: src.get(2).copied(), node: producer });
        x = src[0];
    }
    let norm = norm_part(search, x).filter(|norm| {
        let reader = rope.map(|r| r.node);
        reader.is_some() && search.only_reader(norm.nodes[1]) == reader
    });
    let x = norm.map_or(x, |norm| norm.x);
    let head = Head { x, norm, rope, stored };
    head.nodes().next().map(|_| head)
}
