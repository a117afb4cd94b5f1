//! Finds the best logit of each row, with the nodes that check the row: [`Best`].

use super::group::{Best, Group};
use super::search::{Search, entire_result};
use crate::dtype::DType;
use crate::op::{Op, TopK};
use crate::tensor::TensorId;

/// Adds the best of rows, with its copy if the backend accepts that.
pub(super) fn find(search: &mut Search<'_>) {
    for token in search.graph.computed().collect::<Vec<_>>() {
        let Some(best) = best(search, token) else { continue };
        let with_next = best.next.is_some() && search.add(Group::Best(best));
        if !with_next {
            search.add(Group::Best(Best { next: None, ..best }));
        }
    }
}

fn best(search: &Search<'_>, token: TensorId) -> Option<Best> {
    let graph = search.graph;
    let t = graph.tensor(token);
    let (Some(Op::TopK(TopK { k: 1, flat: false })), &[x]) = (t.op(), t.src()) else { return None };
    let of = entire_result(graph, x)?;
    let [n, rows, 1, 1] = graph.tensor(x).ne else { return None };
    // True if a tensor is the entire result of another one, viewed with these extents.
    let all = |id: TensorId, of: TensorId, ne: [usize; 4]| {
        entire_result(graph, id) == Some(of) && graph.tensor(id).ne == ne
    };
    let picks = |id: &TensorId| match (graph.tensor(*id).op(), graph.tensor(*id).src()) {
        (Some(Op::GetRows(_)), &[a, by]) => all(a, of, [1, n, rows, 1]) && all(by, token, [1, rows, 1, 1]),
        _ => false,
    };
    let squares = |id: &TensorId| match (graph.tensor(*id).op(), graph.tensor(*id).src()) {
        (Some(Op::MulMat(_)), src) => src.iter().all(|&id| all(id, of, [n, 1, rows, 1])),
        _ => false,
    };
    let copies = |id: &TensorId| {
        let t = graph.tensor(*id);
        matches!(t.op(), Some(Op::Cpy(_)))
            && entire_result(graph, t.src()[0]) == Some(token)
            && t.dtype == DType::I32
            && t.is_contiguous()
            && t.root != graph.tensor(of).root
    };
    let of_token = search.readers(token);
    Some(Best {
        logits: x,
        token,
        value: of_token.iter().copied().find(picks)?,
        squares: search.readers(of).iter().copied().find(squares)?,
        next: of_token.iter().copied().find(copies),
    })
}
