//! Which experts compute a token, from the residual stream on.

use super::norm::norm_part;
use super::products::product;
use super::search::Search;
use super::{Choice, NormPart, Product};
use crate::dtype::DType;
use crate::op::{Binary, Op};
use crate::tensor::TensorId;

/// RMS_NORM with its weight, the product of that with a matrix, and the choice among the scores that this gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gate {
    /// The norm of F32 `[k, tokens]`. Its result leaves the group: the experts read it, too.
    pub norm: NormPart,
    /// The scores, F32 `[experts, tokens]`, which do not leave the group. The matrix is F32.
    pub scores: Product,
    /// The choice among them.
    pub choice: Choice,
}

impl Gate {
    pub(super) fn nodes(&self) -> Vec<TensorId> {
        let scores = [self.scores.node].into_iter().chain(self.scores.bias.map(|_| self.scores.result));
        self.norm.nodes.into_iter().chain(scores).chain(self.choice.nodes()).collect()
    }

    pub(super) fn results(&self) -> Vec<TensorId> {
        vec![self.norm.nodes[1], self.choice.ids, self.choice.weights()]
    }
}

/// What gives a choice its scores, if it is a product with a norm and nobody else reads what is in between.
pub(super) fn gate(search: &Search<'_>, choice: Choice) -> Option<Gate> {
    let graph = search.graph;
    let result = choice.scores;
    let node = match graph.tensor(result).op()? {
        Op::MulMat(_) => result,
        Op::Binary(Binary::Add) => graph.tensor(result).src()[0],
        _ => return None,
    };
    let Some(Op::MulMat(_)) = graph.tensor(node).op() else { return None };
    let (scores, input) = (product(search, node), graph.tensor(node).src()[1]);
    let norm = norm_part(search, input)?;
    let [weight, x] = [scores.weight, norm.x].map(|id| graph.tensor(id));
    let fits = scores.result == result
        && weight.dtype == DType::F32
        && weight.ne[2..] == [1, 1]
        && weight.rows_contiguous()
        && x.ne[2..] == [1, 1]
        && x.rows_contiguous();
    let gate = Gate { norm, scores, choice };
    (fits && search.is_closed(&gate.nodes(), &gate.results())).then_some(gate)
}
