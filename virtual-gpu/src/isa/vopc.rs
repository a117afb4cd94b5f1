//! VOPC: comparisons. The result is one bit per lane; `v_cmpx` also writes it to EXEC.

use super::lanes::{F16, Results, Source, Sources};
use super::math::{class16, class32, class64};
use super::{Kind, Row, flag};

/// Opcode bit that distinguishes `v_cmpx` from `v_cmp`.
pub(crate) const TO_EXEC: u16 = 0x10;

// The low bits of an opcode are the set of relations for which the comparison is true: less 1, equal 2,
// greater 4 and, for floats, unordered 8.

/// Numbers, names and operand types.
pub(crate) const ROWS: &[Row] = &rows();

/// Number of opcodes: 6 that classify, and per type a comparison for each set of relations, each as `v_cmp` and
/// as `v_cmpx`.
const COUNT: usize = 6 + 2 * (3 * 16 + 6 * 8);

const fn rows() -> [Row; COUNT] {
    let mut rows =
        [Row { code: 0, name: "", dst: Kind::Mask, carry_out: false, src: [Kind::None; 4], flags: 0 }; COUNT];
    let (mut count, mut code) = (0, 0);
    while code < 256 {
        if let Some((name, [a, b])) = operation(code) {
            let flags = if to_exec(code) { flag::EXEC } else { 0 };
            rows[count] = Row { code, name, src: [a, b, Kind::None, Kind::None], flags, ..rows[count] };
            count += 1;
        }
        code += 1;
    }
    assert!(count == COUNT);
    rows
}

/// Returns true for `v_cmpx`. The opcodes that classify alternate; the others differ in [`TO_EXEC`].
const fn to_exec(code: u16) -> bool {
    if code < 0x20 { code & 1 != 0 } else { code & TO_EXEC != 0 }
}

/// Lists the names of the comparisons of a type, in the order of the opcodes: `v_cmp`, then `v_cmpx`.
macro_rules! names {
    (float $type:literal) => {
        names!($type: "f" "lt" "eq" "le" "gt" "lg" "ge" "o" "u" "nge" "nlg" "ngt" "nle" "neq" "nlt" "tru")
    };
    (integer $type:literal) => { names!($type: "f" "lt" "eq" "le" "gt" "ne" "ge" "t") };
    ($type:literal: $($relation:literal)*) => {
        [
            &[$(concat!("v_cmp_", $relation, "_", $type)),*] as &[&str],
            &[$(concat!("v_cmpx_", $relation, "_", $type)),*],
        ]
    };
}

/// Returns the name and the source types of an opcode.
const fn operation(code: u16) -> Option<(&'static str, [Kind; 2])> {
    let (names, kind) = match code & !TO_EXEC {
        0x20..=0x2f => (names!(float "f16"), Kind::F16),
        0x40..=0x4f => (names!(float "f32"), Kind::F32),
        0x60..=0x6f => (names!(float "f64"), Kind::F64),
        0xa0..=0xa7 => (names!(integer "i16"), Kind::I16),
        0xa8..=0xaf => (names!(integer "u16"), Kind::U16),
        0xc0..=0xc7 => (names!(integer "i32"), Kind::I32),
        0xc8..=0xcf => (names!(integer "u32"), Kind::U32),
        0xe0..=0xe7 => (names!(integer "i64"), Kind::I64),
        0xe8..=0xef => (names!(integer "u64"), Kind::U64),
        _ => {
            return match code {
                0x10 => Some(("v_cmp_class_f32", [Kind::F32, Kind::U32])),
                0x11 => Some(("v_cmpx_class_f32", [Kind::F32, Kind::U32])),
                0x12 => Some(("v_cmp_class_f64", [Kind::F64, Kind::U32])),
                0x13 => Some(("v_cmpx_class_f64", [Kind::F64, Kind::U32])),
                0x14 => Some(("v_cmp_class_f16", [Kind::F16, Kind::U32])),
                0x15 => Some(("v_cmpx_class_f16", [Kind::F16, Kind::U32])),
                _ => None,
            };
        }
    };
    let names = names[to_exec(code) as usize];
    Some((names[(code & 15) as usize % names.len()], [kind, kind]))
}

/// Sets each lane's bit if `relation` holds: a set of less (1), equal (2), greater (4), unordered (8).
#[inline(always)]
fn compare<T: Source + PartialOrd>(relation: u16, sources: &Sources<'_>, results: &mut Results) {
    for lane in 0..results.carry.len() {
        let (a, b) = (T::get(sources, 0, lane), T::get(sources, 1, lane));
        let (less, equal, greater) = (u16::from(a < b), u16::from(a == b), u16::from(a > b));
        let found = less | equal << 1 | greater << 2;
        let found = found | u16::from(found == 0) << 3;
        results.carry[lane] = u32::from(found & relation != 0);
    }
}

#[inline(always)]
fn classify<T: Source>(sources: &Sources<'_>, results: &mut Results, class: impl Fn(T) -> u32) {
    for lane in 0..results.carry.len() {
        let wanted = u32::get(sources, 1, lane);
        results.carry[lane] = u32::from(class(T::get(sources, 0, lane)) & wanted != 0);
    }
}

/// Computes a comparison for all lanes.
#[inline(always)]
pub(crate) fn execute(code: u16, sources: &Sources<'_>, results: &mut Results) {
    match code {
        0x10 | 0x11 => classify(sources, results, class32),
        0x12 | 0x13 => classify(sources, results, class64),
        0x14 | 0x15 => classify(sources, results, class16),
        _ => match (code & !TO_EXEC, code & 15) {
            (0x20..=0x2f, relation) => compare::<F16>(relation, sources, results),
            (0x40..=0x4f, relation) => compare::<f32>(relation, sources, results),
            (0x60..=0x6f, relation) => compare::<f64>(relation, sources, results),
            (0xa0..=0xa7, relation) => compare::<i16>(relation & 7, sources, results),
            (0xa8..=0xaf, relation) => compare::<u16>(relation & 7, sources, results),
            (0xc0..=0xc7, relation) => compare::<i32>(relation & 7, sources, results),
            (0xc8..=0xcf, relation) => compare::<u32>(relation & 7, sources, results),
            (0xe0..=0xe7, relation) => compare::<i64>(relation & 7, sources, results),
            _ => compare::<u64>(code & 7, sources, results),
        },
    }
}
