//! Tests of the best logit.

use super::{Builder, Source, TensorId, sound_steps, steps};
use crate::catalogue::groups::cases;

/// Returns TOP_K of `x`, its element, and the squares of the row.
fn best(b: &mut Builder, x: TensorId) -> [TensorId; 3] {
    let [n, rows, ..] = b.g.tensor(x).ne;
    let token = b.g.top_k(x, 1).unwrap();
    let single = b.g.reshape(x, [1, n, rows, 1]).unwrap();
    let value = b.g.get_rows(single, token).unwrap();
    let row = b.g.reshape(x, [n, 1, rows, 1]).unwrap();
    let squares = b.g.mul_mat(row, row).unwrap();
    [token, value, squares]
}

#[test]
fn the_best_is_one_step() {
    let cases = cases().into_iter().filter(|case| case.group == Some("best"));
    for case in cases {
        assert_eq!(steps(&case.graph.unwrap(), |_| true), [("best", 0)], "{}", case.name);
    }
}

/// A chain of decode steps: the token is in the tensor from which the next step reads it.
#[test]
fn the_copy_waits_for_readers() {
    let mut b = Builder::new();
    let tokens = b.leaf("tokens", &[1], Source::State);
    let table = b.weight("table", &[32, 9]);
    let x = b.g.get_rows(table, tokens).unwrap();
    let n = b.norm(x, "norm");
    let logits = b.linear(n, "output", 9, false);
    let results = best(&mut b, logits);
    let next = b.g.cpy(results[0], tokens).unwrap();
    results.into_iter().chain([next]).for_each(|id| b.g.output(id).unwrap());
    assert_eq!(sound_steps(&b), [("GET_ROWS", 0), ("products", 1), ("best", 2)]);
}

/// If the old token is read after the new one is known, the copy is a step of its own.
#[test]
fn a_copy_that_has_to_wait_is_apart() {
    let mut b = Builder::new();
    let tokens = b.leaf("tokens", &[1], Source::State);
    let logits = b.leaf("logits", &[9, 1], Source::Input);
    let [token, value, squares] = best(&mut b, logits);
    let table = b.g.reshape(value, [1, 1, 1, 1]).unwrap();
    let late = b.g.get_rows(table, tokens).unwrap();
    let next = b.g.cpy(token, tokens).unwrap();
    [token, squares, late, next].into_iter().for_each(|id| b.g.output(id).unwrap());
    assert_eq!(steps(&b.g, |_| true), [("best", 0), ("GET_ROWS", 1), ("CPY", 2)]);
}

#[test]
fn near_misses_are_apart() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Miss {
        Nothing,
        Two,
        Flat,
        ElementOfOthers,
        SquaresOfOthers,
        HalfOfOthers,
        PartOfRow,
    }
    use Miss::*;
    for miss in [Nothing, Two, Flat, ElementOfOthers, SquaresOfOthers, HalfOfOthers, PartOfRow] {
        let mut b = Builder::new();
        let x = b.leaf("x", &[12, 2], Source::Input);
        let other = b.leaf("other", &[12, 2], Source::Input);
        let token = match miss {
            Two => b.g.top_k(x, 2).unwrap(),
            Flat => b.g.top_k_flat(x, 1).unwrap(),
            _ => b.g.top_k(x, 1).unwrap(),
        };
        let of = |is_other: bool| if is_other { other } else { x };
        let ids = if miss == Flat { b.g.reshape(token, [2, 1, 1, 1]).unwrap() } else { token };
        let ne = if miss == Flat { [1, 24, 1, 1] } else { [1, 12, 2, 1] };
        let single = b.g.reshape(of(miss == ElementOfOthers), ne).unwrap();
        let value = b.g.get_rows(single, ids).unwrap();
        let row = b.g.reshape(of(miss == SquaresOfOthers), [12, 1, 2, 1]).unwrap();
        let half = b.g.reshape(of(matches!(miss, SquaresOfOthers | HalfOfOthers)), [12, 1, 2, 1]).unwrap();
        let part = |b: &mut Builder, id| b.g.view(id, [6, 1, 2, 1], [4, 48, 48, 96], 0).unwrap();
        let [row, half] =
            if miss == PartOfRow { [row, half].map(|id| part(&mut b, id)) } else { [row, half] };
        let squares = b.g.mul_mat(row, half).unwrap();
        [token, value, squares].into_iter().for_each(|id| b.g.output(id).unwrap());
        let found = sound_steps(&b);
        assert_eq!(found.iter().any(|(step, _)| *step == "best"), miss == Nothing, "{miss:?}: {found:?}");
    }
}
