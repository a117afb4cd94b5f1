//! Finds the nodes from the residual stream to the choice of experts: [`Gate`].

use super::group::{Choice, Gate};
use super::norm::norm_part;
use super::products::product;
use super::search::Search;
use crate::dtype::DType;
use crate::op::{Binary, Op};

/// Extends a choice by the product and the norm that give its scores, if no other node reads the intermediate
/// results.
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
        && !norm.nodes.contains(&graph.producer(scores.weight))
        && x.ne[2..] == [1, 1]
        && x.rows_contiguous();
    let gate = Gate { norm, scores, choice };
    (fits && search.is_closed(&gate.nodes(), &gate.results())).then_some(gate)
}
