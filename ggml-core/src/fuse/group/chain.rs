//! Consecutive element-wise functions.

use crate::dtype::DType;
use crate::graph::Graph;
use crate::op::{Op, Scale};
use crate::tensor::TensorId;

/// UNARY, SCALE, ADD, MUL and gated units of two operands, each applied to the result of the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Operand of the first function.
    pub x: TensorId,
    /// The nodes in order; the last leaves the group. All have the extents of `x`.
    pub nodes: Vec<TensorId>,
    /// Second operand of each ADD, MUL and gated unit, in order: F32 with the extents of `x`, or with some
    /// extents 1, along which it is repeated.
    pub others: Vec<TensorId>,
}

impl Chain {
    /// Maximum number of functions: kernels have parameters for this many.
    pub const LONGEST: usize = 4;

    /// Maximum number of operands in addition to `x`.
    pub const OTHERS: usize = 3;

    /// Maximum number of SCALEs.
    pub const SCALES: usize = 2;

    /// Creates a chain of one function, applied to its first operand.
    pub fn of_one(graph: &Graph, node: TensorId) -> Chain {
        let src = graph.tensor(node).src();
        let x = src.first().copied().unwrap_or(node);
        Chain { x, nodes: vec![node], others: src.iter().skip(1).copied().collect() }
    }

    /// Returns the result of the group.
    pub fn result(&self) -> TensorId {
        self.nodes.last().copied().unwrap_or(self.x)
    }

    /// True if the previous result `of` is the gate of `node`, a gated unit.
    pub fn is_gate(graph: &Graph, node: TensorId, of: TensorId) -> bool {
        graph.tensor(node).src().first() == Some(&of)
    }

    /// Iterates over the results before each node, in order.
    pub fn inputs(&self) -> impl Iterator<Item = TensorId> {
        [self.x].into_iter().chain(self.nodes.iter().copied())
    }

    /// Returns the chain with one more function, if that is a function of the result so far.
    pub(in crate::fuse) fn and(&self, graph: &Graph, next: TensorId) -> Option<Chain> {
        let other = other(graph, next, self.result())?;
        let mut longer = self.clone();
        longer.nodes.push(next);
        longer.others.extend(other);
        longer.is_short(graph).then_some(longer)
    }

    /// Returns the chain without its last function.
    pub(in crate::fuse) fn but_last(mut self, graph: &Graph) -> Chain {
        let last = self.nodes.pop();
        if last.is_some_and(|last| graph.tensor(last).src().len() == 2) {
            self.others.pop();
        }
        self
    }

    fn is_short(&self, graph: &Graph) -> bool {
        let scales = self.nodes.iter().filter(|&&id| matches!(graph.tensor(id).op(), Some(Op::Scale(_))));
        self.nodes.len() <= Chain::LONGEST
            && self.others.len() <= Chain::OTHERS
            && scales.count() <= Chain::SCALES
    }
}

/// Returns the second operand of an element-wise function of `x`, if it has one; the outer `None` if the node
/// is no element-wise function of `x` with its extents.
pub(in crate::fuse) fn other(graph: &Graph, node: TensorId, x: TensorId) -> Option<Option<TensorId>> {
    let (t, src) = (graph.tensor(node), graph.tensor(node).src());
    let same = |id: TensorId| graph.tensor(id).ne == t.ne && graph.tensor(id).dtype == DType::F32;
    let other = match (t.op()?, src) {
        (Op::Unary(_) | Op::Scale(Scale { .. }), &[of]) if of == x => None,
        (Op::Binary(_), &[a, b]) if a == x => Some(b),
        (Op::Binary(_), &[a, b]) if b == x && same(a) => Some(a),
        (Op::Glu(glu), &[gate, up]) if glu.clamped.is_none() => match x {
            _ if gate == x => Some(up),
            _ if up == x => Some(gate),
            _ => return None,
        },
        _ => return None,
    };
    let fits = other.is_none_or(|id| {
        let of = graph.tensor(id);
        let repeated = of.ne.iter().zip(t.ne).all(|(&n, whole)| n == whole || n == 1);
        repeated && of.dtype == DType::F32 && graph.producer(id) != graph.producer(x)
    });
    (fits && same(x) && t.root == node).then_some(other)
}
