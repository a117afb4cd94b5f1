//! Packed halves and 16-bit integers, mixed precision, dot products.

use crate::vectors::harness::{Case, Dst, In, Out, check};
use crate::vectors::numbers::{denormal32, extreme, f, h, half_fma, signalling16, to_half};
use crate::vectors::operands::Kind;
use virtual_gpu::Target;

/// Selection of the operands' halves: `op_sel`, `op_sel_hi`, and negations.
#[derive(Clone, Copy)]
struct Choice {
    text: &'static str,
    low: [usize; 3],
    high: [usize; 3],
    negate_low: [bool; 3],
    negate_high: [bool; 3],
}

const NONE: [bool; 3] = [false; 3];

const PLAIN: Choice = Choice { text: "", low: [0; 3], high: [1; 3], negate_low: NONE, negate_high: NONE };

const SWAPPED: Choice =
    Choice { text: " op_sel:[1,0] op_sel_hi:[0,1]", low: [1, 0, 0], high: [0, 1, 1], ..PLAIN };

const SWAPPED3: Choice =
    Choice { text: " op_sel:[1,0,1] op_sel_hi:[0,0,1]", low: [1, 0, 1], high: [0, 0, 1], ..PLAIN };

const NEGATED: Choice = Choice {
    text: " neg_lo:[1,0] neg_hi:[0,1]",
    negate_low: [true, false, false],
    negate_high: [false, true, false],
    ..PLAIN
};

const NEGATED3: Choice = Choice {
    text: " neg_lo:[1,0,1] neg_hi:[0,1,1]",
    negate_low: [true, false, true],
    negate_high: [false, true, true],
    ..PLAIN
};

fn halves(i: &In<'_>, choice: Choice, high: bool) -> [u16; 3] {
    let (from, negate) =
        if high { (choice.high, choice.negate_high) } else { (choice.low, choice.negate_low) };
    std::array::from_fn(|k| {
        let bits = [i.a32(), i.b32(), i.c32()][k] >> (16 * from[k]);
        bits as u16 ^ if negate[k] { 0x8000 } else { 0 }
    })
}

/// Returns both halves of a packed result; a NaN half matches any quiet NaN.
fn packed(i: &In<'_>, choice: Choice, half: impl Fn([u16; 3]) -> Option<u16>) -> Out {
    let (low, high) = (half(halves(i, choice, false)), half(halves(i, choice, true)));
    match (low, high) {
        (Some(low), Some(high)) => {
            let is_nan = |x: u16| half::f16::from_bits(x).is_nan();
            let word = u32::from(low) | u32::from(high) << 16;
            if is_nan(low) || is_nan(high) { Dst::Halves(word).into() } else { word.into() }
        }
        _ => Dst::Any.into(),
    }
}

pub(crate) fn floats() -> Vec<Case> {
    type Two = fn(u16, u16) -> u16;
    let operations: [(&str, Two); 4] = [
        ("v_pk_add_f16", |a, b| to_half((h(a) + h(b)) as f32)),
        ("v_pk_mul_f16", |a, b| to_half((h(a) * h(b)) as f32)),
        ("v_pk_min_f16", |a, b| ends(a, b, false)),
        ("v_pk_max_f16", |a, b| ends(a, b, true)),
    ];
    let mut cases = Vec::new();
    for (name, operation) in operations {
        for choice in [PLAIN, SWAPPED, NEGATED] {
            let text = format!("{name} {{d}}, {{a}}, {{b}}{}", choice.text);
            cases.push(Case::new(text, &[Kind::F16x2; 2], move |i| {
                packed(i, choice, |[a, b, _]| Some(operation(a, b)))
            }));
        }
    }
    for choice in [PLAIN, SWAPPED3, NEGATED3] {
        let text = format!("v_pk_fma_f16 {{d}}, {{a}}, {{b}}, {{c}}{}", choice.text);
        cases.push(Case::new(text, &[Kind::F16x2; 3], move |i| {
            packed(i, choice, |[a, b, c]| Some(half_fma(a, b, c)))
        }));
    }
    cases
}

fn ends(a: u16, b: u16, largest: bool) -> u16 {
    let side = |x: u16| (h(x), signalling16(x.into()));
    to_half(extreme(side(a), side(b), largest) as f32)
}

pub(crate) fn words() -> Vec<Case> {
    type Two = fn(u16, u16) -> u16;
    let operations: [(&str, Two); 12] = [
        ("v_pk_add_u16", u16::wrapping_add),
        ("v_pk_add_i16", u16::wrapping_add),
        ("v_pk_sub_u16", u16::wrapping_sub),
        ("v_pk_sub_i16", u16::wrapping_sub),
        ("v_pk_mul_lo_u16", u16::wrapping_mul),
        ("v_pk_lshlrev_b16", |a, b| b << (a & 15)),
        ("v_pk_lshrrev_b16", |a, b| b >> (a & 15)),
        ("v_pk_ashrrev_i16", |a, b| (b as i16 >> (a & 15)) as u16),
        ("v_pk_max_i16", |a, b| (a as i16).max(b as i16) as u16),
        ("v_pk_min_i16", |a, b| (a as i16).min(b as i16) as u16),
        ("v_pk_max_u16", u16::max),
        ("v_pk_min_u16", u16::min),
    ];
    let both = |low: u16, high: u16| Out::from(u32::from(low) | u32::from(high) << 16);
    let mut cases = Vec::new();
    for (name, operation) in operations {
        for choice in [PLAIN, SWAPPED] {
            let text = format!("{name} {{d}}, {{a}}, {{b}}{}", choice.text);
            cases.push(Case::new(text, &[Kind::I16x2; 2], move |i| {
                let [low, high] = [false, true].map(|high| halves(i, choice, high));
                both(operation(low[0], low[1]), operation(high[0], high[1]))
            }));
        }
    }
    for name in ["v_pk_mad_u16", "v_pk_mad_i16"] {
        for choice in [PLAIN, SWAPPED3] {
            let text = format!("{name} {{d}}, {{a}}, {{b}}, {{c}}{}", choice.text);
            cases.push(Case::new(text, &[Kind::I16x2; 3], move |i| {
                let [low, high] = [false, true].map(|high| halves(i, choice, high));
                let one = |x: [u16; 3]| x[0].wrapping_mul(x[1]).wrapping_add(x[2]);
                both(one(low), one(high))
            }));
        }
    }
    // A broadcast constant: without `op_sel_hi`, the high half also uses the constant's low half.
    cases.push(Case::new("v_pk_add_u16 {d}, {a}, 7 op_sel_hi:[1,0]", &[Kind::I16x2], move |i| {
        both((i.a32() as u16).wrapping_add(7), ((i.a32() >> 16) as u16).wrapping_add(7))
    }));
    cases
}

/// Floats and halves in one product. gfx900 rounds twice and flushes denormals, gfx906 rounds once.
pub(crate) fn mixed() -> Vec<Case> {
    let forms: [(&str, [Option<u32>; 3]); 4] = [
        ("", [None; 3]),
        (" op_sel_hi:[1,1,1]", [Some(0); 3]),
        (" op_sel:[1,0,1] op_sel_hi:[1,0,1]", [Some(16), None, Some(16)]),
        (" op_sel:[0,1,0] op_sel_hi:[0,1,1]", [None, Some(16), Some(0)]),
    ];
    let mut cases = Vec::new();
    for (select, from) in forms {
        let values = move |i: &In<'_>| -> [f32; 3] {
            std::array::from_fn(|k| {
                let bits = [i.a32(), i.b32(), i.c32()][k];
                from[k].map_or(f(bits), |at| h(bits >> at & 0xffff) as f32)
            })
        };
        // Floats serve as random bits for halves too.
        let kinds = [Kind::F32; 3];
        for fused in [true, false] {
            let sum = move |i: &In<'_>| {
                let [a, b, c] = values(i);
                let sum = if fused { a.mul_add(b, c) } else { a * b + c };
                let tiny = [a, b, c, a * b, sum].into_iter().any(denormal32)
                    || (a * b == 0.0 && a != 0.0 && b != 0.0);
                (fused || !tiny).then_some(sum)
            };
            let (name, target) =
                if fused { ("v_fma_mix", Target::Gfx906) } else { ("v_mad_mix", Target::Gfx900) };
            let operands = format!("{{d}}, {{a}}, {{b}}, {{c}}{select}");
            cases.push(
                Case::new(format!("{name}_f32 {operands}"), &kinds, move |i| {
                    sum(i).map_or(Dst::Any, Dst::F32).into()
                })
                .only(target),
            );
            // The documents do not define if the result rounds to half once or twice, so ties of the first
            // rounding are left open.
            let half =
                move |i: &In<'_>| sum(i).filter(|s| s.is_nan() || h(to_half(*s)) == f64::from(*s) || far(*s));
            cases.push(
                Case::new(format!("{name}lo_f16 {operands}"), &kinds, move |i| {
                    half(i).map_or(Dst::Any, |s| Dst::F16Kept(to_half(s))).into()
                })
                .only(target),
            );
            cases.push(
                Case::new(format!("{name}hi_f16 {operands}"), &kinds, move |i| {
                    half(i).map_or(Dst::Any, |s| Dst::F16High(to_half(s))).into()
                })
                .only(target),
            );
        }
    }
    cases
}

/// Returns true if a float is not close to the midpoint between two halves.
fn far(x: f32) -> bool {
    let nearest = h(to_half(x));
    let gap = half::f16::EPSILON.to_f64() * nearest.abs().max(2f64.powi(-14));
    nearest.is_infinite() || ((f64::from(x) - nearest).abs() / gap - 0.5).abs() > 0.01
}

pub(crate) fn dots() -> Vec<Case> {
    let make = |name: &str, formula: fn(u32, u32, u32) -> u32| {
        let text = format!("{name} {{d}}, {{a}}, {{b}}, {{c}}");
        let kinds = [Kind::I16x2, Kind::I16x2, Kind::I32];
        Case::new(text, &kinds, move |i| formula(i.a32(), i.b32(), i.c32()).into()).only(Target::Gfx906)
    };
    vec![
        make("v_dot2_i32_i16", |a, b, c| sum(2, c, |k| signed(a, k, 16) * signed(b, k, 16))),
        make("v_dot2_u32_u16", |a, b, c| sum(2, c, |k| unsigned(a, k, 16) * unsigned(b, k, 16))),
        make("v_dot4_i32_i8", |a, b, c| sum(4, c, |k| signed(a, k, 8) * signed(b, k, 8))),
        make("v_dot4_u32_u8", |a, b, c| sum(4, c, |k| unsigned(a, k, 8) * unsigned(b, k, 8))),
        make("v_dot8_i32_i4", |a, b, c| sum(8, c, |k| signed(a, k, 4) * signed(b, k, 4))),
        make("v_dot8_u32_u4", |a, b, c| sum(8, c, |k| unsigned(a, k, 4) * unsigned(b, k, 4))),
        Case::new("v_dot2_f32_f16 {d}, {a}, {b}, {c}", &[Kind::F16x2, Kind::F16x2, Kind::Near], |i| {
            let product = |k: u32| h(i.a32() >> k & 0xffff) * h(i.b32() >> k & 0xffff);
            let (low, high, c) = (product(0), product(16), f64::from(f(i.c32())));
            let exact = low + high + c;
            if !exact.is_finite() {
                return Dst::F32(exact as f32).into();
            }
            // The order of the sums is not documented.
            Dst::Within32(exact, (low.abs() + high.abs() + c.abs()) * 2f64.powi(-22)).into()
        })
        .only(Target::Gfx906),
    ]
}

fn sum(count: u32, c: u32, product: impl Fn(u32) -> i64) -> u32 {
    ((0..count).map(product).sum::<i64>() + i64::from(c)) as u32
}

fn unsigned(x: u32, k: u32, bits: u32) -> i64 {
    i64::from(x >> (k * bits) & ((1 << bits) - 1))
}

fn signed(x: u32, k: u32, bits: u32) -> i64 {
    unsigned(x, k, bits) << (64 - bits) >> (64 - bits)
}

pub(crate) fn all() -> Vec<Case> {
    [floats(), words(), mixed(), dots()].into_iter().flatten().collect()
}

#[test]
fn packed_floats() {
    check(floats());
}

#[test]
fn packed_words() {
    check(words());
}

#[test]
fn mixed_precision() {
    check(mixed());
}

#[test]
fn dot_products() {
    check(dots());
}
