//! Cases of the best logit.

use super::{Parts, UNIT, case};
use crate::catalogue::{Case, Fill};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::TensorId;

/// All cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // At most one quad of elements; odd rows next to even ones; a prime; several quads for each invocation;
    // parts that end within the quad of a work-group.
    for (n, rows) in [
        (1, 1),
        (3, 2),
        (4, 1),
        (203, 1),
        (1031, 3),
        (2100, 2),
        (16_033, 1),
        (32_000, 1),
        (70_001, 1),
        (140_000, 1),
    ] {
        all(&mut cases, &format!("n={n}, rows={rows}"), [n, rows], Fill::Uniform(-9.0, 9.0));
    }
    let n = 1500;
    let numbers = |lost: Vec<(usize, f32)>| UNIT.but(lost.into_iter().map(|(i, x)| (i..i + 1, x)));
    let lost =
        vec![(7, f32::NAN), (n + 1499, f32::INFINITY), (2 * n, f32::NEG_INFINITY), (2 * n + 900, f32::NAN)];
    all(&mut cases, "elements that are none", [n, 3], numbers(lost));
    let infinite = vec![(800, f32::INFINITY), (801, f32::NAN), (1300, f32::INFINITY)];
    all(&mut cases, "infinities in several parts", [n, 1], numbers(infinite));
    all(&mut cases, "no numbers", [n, 2], Fill::Values(vec![f32::NAN]));
    all(
        &mut cases,
        "none but the lowest",
        [701, 1],
        Fill::Values(vec![f32::NAN, f32::NEG_INFINITY, f32::NAN]),
    );
    // The first of equal elements is not the first element, and later parts contain equal elements too.
    let mut equal = vec![-3.0; 611];
    equal[600..605].copy_from_slice(&[2.5; 5]);
    all(&mut cases, "equal elements", [5000, 2], Fill::Values(equal));
    all(&mut cases, "zeros", [900, 1], Fill::Values(vec![-1.0, -0.0, 0.0, -2.0]));
    cases
}

/// Adds cases that compare the index, the element and the sum; also with a copy of the index.
fn all(cases: &mut Vec<Case>, what: &str, ne: [usize; 2], fill: Fill) {
    for (which, name) in ["index", "element", "sum", "copy", "copied"].into_iter().enumerate() {
        let copied = which > 2;
        cases.push(case("best", format!("{name}, {what}"), |p| {
            let logits = p.leaf("logits", DType::F32, &ne, fill.clone())?;
            let [index, element, sum] = best(p, logits)?;
            if !copied {
                return Ok([index, element, sum][which]);
            }
            let next = p.c.state(p.g, "next", DType::I32, [ne[1], 1, 1, 1], Fill::Values(vec![5.0]))?;
            let copy = p.g.cpy(index, next)?;
            Ok(if name == "copy" { copy } else { index })
        }));
    }
}

/// Builds the nodes as models do.
fn best(p: &mut Parts<'_>, logits: TensorId) -> Result<[TensorId; 3]> {
    let [n, rows, ..] = p.g.tensor(logits).ne;
    let index = p.g.top_k(logits, 1)?;
    let single = p.g.reshape(logits, [1, n, rows, 1])?;
    let element = p.g.get_rows(single, index)?;
    let row = p.g.reshape(logits, [n, 1, rows, 1])?;
    Ok([index, element, p.g.mul_mat(row, row)?])
}
