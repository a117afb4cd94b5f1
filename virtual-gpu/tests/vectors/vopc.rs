//! Comparisons of every type, into VCC and into any scalar pair, and those that also write EXEC.

use crate::vectors::harness::{Case, In, Out, check};
use crate::vectors::numbers::{d, f, h, signalling16, signalling32, signalling64};
use crate::vectors::operands::Kind;

type Ordering = Option<std::cmp::Ordering>;
type Relation = fn(Ordering) -> bool;

/// Relations of floats; `None` is unordered.
const OF_FLOATS: [(&str, Relation); 16] = [
    ("f", |_| false),
    ("lt", |o| o.is_some_and(|o| o.is_lt())),
    ("eq", |o| o.is_some_and(|o| o.is_eq())),
    ("le", |o| o.is_some_and(|o| o.is_le())),
    ("gt", |o| o.is_some_and(|o| o.is_gt())),
    ("lg", |o| o.is_some_and(|o| o.is_ne())),
    ("ge", |o| o.is_some_and(|o| o.is_ge())),
    ("o", |o| o.is_some()),
    ("u", |o| o.is_none()),
    ("nge", |o| !o.is_some_and(|o| o.is_ge())),
    ("nlg", |o| !o.is_some_and(|o| o.is_ne())),
    ("ngt", |o| !o.is_some_and(|o| o.is_gt())),
    ("nle", |o| !o.is_some_and(|o| o.is_le())),
    ("neq", |o| !o.is_some_and(|o| o.is_eq())),
    ("nlt", |o| !o.is_some_and(|o| o.is_lt())),
    ("tru", |_| true),
];

const OF_INTEGERS: [(&str, Relation); 8] = [
    ("f", |_| false),
    ("lt", |o| o.is_some_and(|o| o.is_lt())),
    ("eq", |o| o.is_some_and(|o| o.is_eq())),
    ("le", |o| o.is_some_and(|o| o.is_le())),
    ("gt", |o| o.is_some_and(|o| o.is_gt())),
    ("ne", |o| o.is_some_and(|o| o.is_ne())),
    ("ge", |o| o.is_some_and(|o| o.is_ge())),
    ("t", |_| true),
];

type Compare = fn(u64, u64) -> Ordering;

const TYPES: [(&str, Kind, Compare); 9] = [
    ("f32", Kind::F32, |a, b| f(a as u32).partial_cmp(&f(b as u32))),
    ("f64", Kind::F64, |a, b| d(a).partial_cmp(&d(b))),
    ("f16", Kind::F16, |a, b| h(a).partial_cmp(&h(b))),
    ("i16", Kind::I16, |a, b| Some((a as i16).cmp(&(b as i16)))),
    ("u16", Kind::I16, |a, b| Some((a as u16).cmp(&(b as u16)))),
    ("i32", Kind::I32, |a, b| Some((a as i32).cmp(&(b as i32)))),
    ("u32", Kind::I32, |a, b| Some((a as u32).cmp(&(b as u32)))),
    ("i64", Kind::I64, |a, b| Some((a as i64).cmp(&(b as i64)))),
    ("u64", Kind::I64, |a, b| Some(a.cmp(&b))),
];

/// Returns the four forms of a comparison: short or long, with or without writing EXEC.
fn forms(
    operation: &str,
    operands: &str,
    kinds: [Kind; 2],
    holds: impl Fn(&In<'_>) -> bool + Clone + Send + Sync + 'static,
) -> Vec<Case> {
    let mut cases = Vec::new();
    for writes_exec in [false, true] {
        let name = format!("v_cmp{}_{operation}", if writes_exec { "x" } else { "" });
        for (form, to) in [("e32", "vcc"), ("e64", "{SD}")] {
            let holds = holds.clone();
            cases.push(Case::new(format!("{name}_{form} {to}, {operands}"), &kinds, move |i| {
                let bit = holds(i);
                let out = if form == "e32" { Out::kept().vcc(bit) } else { Out::kept().mask(bit) };
                if writes_exec { out.exec_bit(bit) } else { out }
            }));
        }
    }
    cases
}

pub(crate) fn relations() -> Vec<Case> {
    let mut cases = Vec::new();
    for (suffix, kind, compare) in TYPES {
        let list: &[(&str, Relation)] = if suffix.starts_with('f') { &OF_FLOATS } else { &OF_INTEGERS };
        let operands = if suffix.ends_with("64") { "{A}, {B}" } else { "{a}, {b}" };
        for &(name, relation) in list {
            let operation = format!("{name}_{suffix}");
            cases.extend(forms(&operation, operands, [kind; 2], move |i| relation(compare(i.a(), i.b()))));
        }
    }
    cases
}

/// Returns the class bit of a value: signalling and quiet NaN, then from minus infinity to plus infinity.
fn class(x: f64, signalling: bool, denormal: bool) -> u32 {
    let rank = if x.is_infinite() {
        0
    } else if x == 0.0 {
        3
    } else if denormal {
        2
    } else {
        1
    };
    match (x.is_nan(), signalling) {
        (true, true) => 0,
        (true, false) => 1,
        _ if x.is_sign_negative() => 2 + rank,
        _ => 9 - rank,
    }
}

pub(crate) fn classes() -> Vec<Case> {
    let single = |i: &In<'_>| {
        let x = f(i.a32());
        i.b32() >> class(x.into(), signalling32(i.a32()), x.is_subnormal()) & 1 == 1
    };
    let double = |i: &In<'_>| {
        let x = d(i.a());
        i.b32() >> class(x, signalling64(i.a()), x.is_subnormal()) & 1 == 1
    };
    let half = |i: &In<'_>| {
        let x = h(i.a());
        i.b32() >> class(x, signalling16(i.a()), x != 0.0 && x.abs() < 2f64.powi(-14)) & 1 == 1
    };
    [
        forms("class_f32", "{a}, {b}", [Kind::F32, Kind::I32], single),
        forms("class_f64", "{A}, {b}", [Kind::F64, Kind::I32], double),
        forms("class_f16", "{a}, {b}", [Kind::F16, Kind::I16], half),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(crate) fn all() -> Vec<Case> {
    [relations(), classes()].into_iter().flatten().collect()
}

#[test]
fn compare() {
    check(relations());
}

#[test]
fn classify() {
    check(classes());
}
