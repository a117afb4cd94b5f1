//! Modifiers of the long encoding and floating-point modes: signs, saturation, halves, rounding and
//! denormals.

use crate::vectors::harness::{Case, Dst, In, Out, check};
use crate::vectors::numbers::{d, f, h, half_fma, half_result, to_half};
use crate::vectors::operands::Kind;

const F32: [Kind; 2] = [Kind::F32; 2];

fn floats(text: &str, formula: impl Fn(f32, f32) -> f32 + Send + Sync + 'static) -> Case {
    Case::new(text, &F32, move |i| formula(f(i.a32()), f(i.b32())).into())
}

/// Clamps a float to 0 .. 1; a NaN becomes zero.
fn unit(x: f64) -> f64 {
    if x.is_nan() || x <= 0.0 { 0.0 } else { x.min(1.0) }
}

pub(crate) fn signs() -> Vec<Case> {
    vec![
        floats("v_add_f32_e64 {d}, -{a}, {b}", |a, b| -a + b),
        floats("v_add_f32_e64 {d}, {a}, |{b}|", |a, b| a + b.abs()),
        floats("v_mul_f32_e64 {d}, -|{a}|, {b}", |a, b| -a.abs() * b),
        floats("v_sub_f32_e64 {d}, |{a}|, -|{b}|", |a, b| a.abs() - -b.abs()),
        Case::new("v_cvt_i32_f32_e64 {d}, -{a}", &[Kind::F32], |i| (-f(i.a32()) as i32 as u32).into()),
        Case::new("v_floor_f32_e64 {d}, |{a}|", &[Kind::F32], |i| f(i.a32()).abs().floor().into()),
        Case::new("v_fma_f32 {d}, -{a}, |{b}|, -{c}", &[Kind::F32; 3], |i| {
            (-f(i.a32())).mul_add(f(i.b32()).abs(), -f(i.c32())).into()
        }),
        Case::new("v_fma_f64 {D}, {A}, -{B}, |{C}|", &[Kind::F64; 3], |i| {
            d(i.a()).mul_add(-d(i.b()), d(i.c()).abs()).into()
        }),
        Case::new("v_add_f64 {D}, -|{A}|, {B}", &[Kind::F64; 2], |i| (-d(i.a()).abs() + d(i.b())).into()),
        Case::new("v_mul_f16_e64 {d}, -{a}, |{b}|", &[Kind::F16; 2], |i| {
            half_result(-h(i.a()) * h(i.b()).abs()).into()
        }),
        Case::new("v_cmp_lt_f32_e64 {SD}, -{a}, |{b}|", &F32, |i| {
            Out::kept().mask(-f(i.a32()) < f(i.b32()).abs())
        }),
        Case::new("v_cmp_eq_f64_e64 {SD}, -{A}, {B}", &[Kind::F64; 2], |i| {
            Out::kept().mask(-d(i.a()) == d(i.b()))
        }),
        Case::new("v_cndmask_b32_e64 {d}, -{a}, |{b}|, {SB}", &[Kind::I32; 2], |i| {
            if i.wave.sb >> i.lane & 1 == 1 {
                (i.b32() & 0x7fff_ffff).into()
            } else {
                (i.a32() ^ 0x8000_0000).into()
            }
        }),
        Case::new("v_add_f32_e64 {d}, s20, -s20", &[Kind::F32], |i| {
            let x = f(i.wave.sa as u32);
            (x + -x).into()
        })
        .waves(32),
    ]
}

pub(crate) fn clamps() -> Vec<Case> {
    let small = |x: f64| Dst::F16(to_half(x as f32));
    vec![
        floats("v_add_f32_e64 {d}, {a}, {b} clamp", |a, b| unit(f64::from(a + b)) as f32),
        floats("v_mul_f32_e64 {d}, -{a}, {b} clamp", |a, b| unit(f64::from(-a * b)) as f32),
        Case::new("v_add_f64 {D}, {A}, {B} clamp", &[Kind::F64; 2], |i| unit(d(i.a()) + d(i.b())).into()),
        Case::new("v_add_f16_e64 {d}, {a}, {b} clamp", &[Kind::F16; 2], move |i| {
            small(unit(h(to_half((h(i.a()) + h(i.b())) as f32)))).into()
        }),
        Case::new("v_fma_f32 {d}, {a}, {b}, {c} clamp", &[Kind::F32; 3], |i| {
            (unit(f64::from(f(i.a32()).mul_add(f(i.b32()), f(i.c32())))) as f32).into()
        }),
        Case::new("v_pk_add_f16 {d}, {a}, {b} clamp", &[Kind::F16x2; 2], |i| {
            let half = |at: u32| {
                let sum = to_half((h(i.a32() >> at & 0xffff) + h(i.b32() >> at & 0xffff)) as f32);
                u32::from(to_half(unit(h(sum)) as f32)) << at
            };
            (half(0) | half(16)).into()
        }),
    ]
}

/// Saturation of integers.
pub(crate) fn saturation() -> Vec<Case> {
    type Words = fn(u32, u32) -> u32;
    let words: [(&str, Words); 4] = [
        ("v_add_u32_e64", u32::saturating_add),
        ("v_sub_u32_e64", u32::saturating_sub),
        ("v_add_i32", |a, b| (a as i32).saturating_add(b as i32) as u32),
        ("v_sub_i32", |a, b| (a as i32).saturating_sub(b as i32) as u32),
    ];
    type Halves = fn(u16, u16) -> u16;
    let halves: [(&str, Halves); 7] = [
        ("v_add_u16_e64", u16::saturating_add),
        ("v_sub_u16_e64", u16::saturating_sub),
        ("v_add_i16", |a, b| (a as i16).saturating_add(b as i16) as u16),
        ("v_sub_i16", |a, b| (a as i16).saturating_sub(b as i16) as u16),
        ("v_pk_add_u16", u16::saturating_add),
        ("v_pk_sub_u16", u16::saturating_sub),
        ("v_pk_add_i16", |a, b| (a as i16).saturating_add(b as i16) as u16),
    ];
    let mut cases = Vec::new();
    for (name, formula) in words {
        cases.push(Case::new(format!("{name} {{d}}, {{a}}, {{b}} clamp"), &[Kind::I32; 2], move |i| {
            formula(i.a32(), i.b32()).into()
        }));
    }
    for (name, formula) in halves {
        let packed = name.contains("pk");
        let kind = if packed { Kind::I16x2 } else { Kind::I16 };
        cases.push(Case::new(format!("{name} {{d}}, {{a}}, {{b}} clamp"), &[kind; 2], move |i| {
            let low = formula(i.a32() as u16, i.b32() as u16);
            let high = formula((i.a32() >> 16) as u16, (i.b32() >> 16) as u16);
            if packed { (u32::from(low) | u32::from(high) << 16).into() } else { Dst::Low16(low).into() }
        }));
    }
    cases.push(Case::new("v_pk_sub_i16 {d}, {a}, {b} clamp", &[Kind::I16x2; 2], |i| {
        let half = |at: u32| ((i.a32() >> at) as i16).saturating_sub((i.b32() >> at) as i16) as u16;
        (u32::from(half(0)) | u32::from(half(16)) << 16).into()
    }));
    cases
}

/// Output multipliers, which require flushed denormals and IEEE mode off.
pub(crate) fn multipliers() -> Vec<Case> {
    [("mul:2", 2.0f32), ("mul:4", 4.0), ("div:2", 0.5)]
        .into_iter()
        .flat_map(|(text, by)| {
            ["v_add_f32_e64", "v_mul_f32_e64"].map(|name| {
                let adds = name.contains("add");
                Case::new(format!("{name} {{d}}, {{a}}, {{b}} {text}"), &[Kind::Near; 2], move |i| {
                    let (a, b) = (f(i.a32()), f(i.b32()));
                    let value = if adds { a + b } else { a * b } * by;
                    // The sign of a zero is left open.
                    if value == 0.0 { Dst::Any.into() } else { value.into() }
                })
                .modes(|kernel| (kernel.ieee, kernel.denormals32) = (0, 0))
            })
        })
        .collect()
}

/// Halves of registers as operands and as the destination.
pub(crate) fn half_selection() -> Vec<Case> {
    let pick = |bits: u32, high: bool| (if high { bits >> 16 } else { bits }) as u16;
    let half = |i: &In<'_>, value: u16, high: bool| -> Dst {
        // A high result preserves the lower half; a low result's high half is not compared.
        if high { Dst::B32(u32::from(value) << 16 | i.old() & 0xffff) } else { Dst::Low16(value) }
    };
    let mut cases = Vec::new();
    for [a, b, c, to] in [[true, false, false, false], [false, true, true, true], [true, true, false, true]] {
        let bit = u8::from;
        let select = format!("op_sel:[{},{},{},{}]", bit(a), bit(b), bit(c), bit(to));
        let pair = format!("op_sel:[{},{},{}]", bit(a), bit(b), bit(to));
        cases.push(Case::new(
            format!("v_mad_u16 {{d}}, {{a}}, {{b}}, {{c}} {select}"),
            &[Kind::I16x2; 3],
            move |i| {
                let product = pick(i.a32(), a).wrapping_mul(pick(i.b32(), b));
                half(i, product.wrapping_add(pick(i.c32(), c)), to).into()
            },
        ));
        cases.push(Case::new(
            format!("v_min3_i16 {{d}}, {{a}}, {{b}}, {{c}} {select}"),
            &[Kind::I16x2; 3],
            move |i| {
                let values = [pick(i.a32(), a), pick(i.b32(), b), pick(i.c32(), c)].map(|x| x as i16);
                half(i, values.into_iter().fold(i16::MAX, i16::min) as u16, to).into()
            },
        ));
        cases.push(Case::new(
            format!("v_fma_f16 {{d}}, {{a}}, {{b}}, {{c}} {select}"),
            &[Kind::F16x2; 3],
            move |i| {
                let value = half_fma(pick(i.a32(), a), pick(i.b32(), b), pick(i.c32(), c));
                if h(value).is_nan() { Dst::Any } else { half(i, value, to) }.into()
            },
        ));
        cases.push(Case::new(format!("v_add_i16 {{d}}, {{a}}, {{b}} {pair}"), &[Kind::I16x2; 2], move |i| {
            half(i, pick(i.a32(), a).wrapping_add(pick(i.b32(), b)), to).into()
        }));
        cases.push(Case::new(
            format!("v_pack_b32_f16 {{d}}, {{a}}, {{b}} op_sel:[{},{},0]", bit(a), bit(b)),
            &[Kind::F16x2; 2],
            move |i| {
                let (low, high) = (pick(i.a32(), a), pick(i.b32(), b));
                let word = u32::from(low) | u32::from(high) << 16;
                if h(low).is_nan() || h(high).is_nan() { Dst::Any.into() } else { word.into() }
            },
        ));
    }
    cases
}

/// Returns `exact` rounded to a float in a directed mode; `exact` holds every bit of the sum or product.
fn directed(exact: f64, mode: u32) -> f32 {
    let nearest = exact as f32;
    let error = exact - f64::from(nearest);
    let upwards = match mode {
        1 => true,
        2 => false,
        _ => exact < 0.0,
    };
    match (error > 0.0, error < 0.0) {
        (true, _) if upwards => nearest.next_up(),
        (_, true) if !upwards => nearest.next_down(),
        _ => nearest,
    }
}

pub(crate) fn rounding() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in 1..=3 {
        let kinds = [Kind::Near; 2];
        let set = move |case: Case| case.modes(move |kernel| kernel.rounding = mode).refusable("rounding");
        // The sign of an exact zero depends on the mode; zeros are left open.
        let out = |x: f32| if x == 0.0 { Dst::Any.into() } else { Out::from(x) };
        let wide = |bits: u32| f64::from(f(bits));
        cases.push(set(Case::new("v_add_f32_e32 {d}, {a}, {b}", &kinds, move |i| {
            out(directed(wide(i.a32()) + wide(i.b32()), mode))
        })));
        cases.push(set(Case::new("v_mul_f32_e32 {d}, {a}, {b}", &kinds, move |i| {
            out(directed(wide(i.a32()) * wide(i.b32()), mode))
        })));
        cases.push(set(Case::new("v_cvt_f32_i32_e32 {d}, {a}", &[Kind::I32], move |i| {
            out(directed(f64::from(i.a32() as i32), mode))
        })));
        cases.push(set(Case::new("v_rndne_f32_e32 {d}, {a}", &[Kind::F32], move |i| {
            f(i.a32()).round_ties_even().into()
        })));
    }
    let toggled = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 3\nv_add_f32_e32 {d}, {a}, {b}";
    cases.push(
        Case::new("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 0", &[Kind::Near; 2], |i| {
            let sum = directed(f64::from(f(i.a32())) + f64::from(f(i.b32())), 3);
            if sum == 0.0 { Dst::Any.into() } else { sum.into() }
        })
        .around(toggled, "")
        .refusable("rounding"),
    );
    cases
}

/// Denormals flushed to zeros of the same sign, in sources and results.
pub(crate) fn flushing() -> Vec<Case> {
    let flush = |x: f32| if x.is_subnormal() { 0f32.copysign(x) } else { x };
    let flush64 = |x: f64| if x.is_subnormal() { 0f64.copysign(x) } else { x };
    let flush16 = |x: f64| if x.abs() < 2f64.powi(-14) { 0f64.copysign(x) } else { x };
    let single = |case: Case| case.modes(|kernel| kernel.denormals32 = 0);
    let other = |case: Case| case.modes(|kernel| kernel.denormals16 = 0);
    vec![
        single(floats("v_add_f32_e32 {d}, {a}, {b}", move |a, b| flush(flush(a) + flush(b)))),
        single(floats("v_mul_f32_e32 {d}, {a}, {b}", move |a, b| flush(flush(a) * flush(b)))),
        single(Case::new("v_fma_f32 {d}, {a}, {b}, {c}", &[Kind::F32; 3], move |i| {
            flush(flush(f(i.a32())).mul_add(flush(f(i.b32())), flush(f(i.c32())))).into()
        })),
        single(Case::new("v_mov_b32_e32 {d}, {a}", &[Kind::F32], |i| i.a32().into())),
        single(Case::new("v_cmp_eq_f32_e32 vcc, {a}, {b}", &F32, move |i| {
            Out::kept().vcc(flush(f(i.a32())) == flush(f(i.b32())))
        })),
        other(Case::new("v_add_f64 {D}, {A}, {B}", &[Kind::F64; 2], move |i| {
            flush64(flush64(d(i.a())) + flush64(d(i.b()))).into()
        })),
        other(Case::new("v_mul_f16_e32 {d}, {a}, {b}", &[Kind::F16; 2], move |i| {
            let product = flush16(h(i.a())) * flush16(h(i.b()));
            // The order of flushing and rounding for a product just below the normal range is left open.
            let edge = product.abs() < 2f64.powi(-14) && h(to_half(product as f32)).abs() == 2f64.powi(-14);
            if edge { Dst::Any } else { half_result(flush16(product)) }.into()
        })),
        other(Case::new("v_add_f32_e32 {d}, {a}, {b}", &F32, |i| (f(i.a32()) + f(i.b32())).into())),
    ]
}

pub(crate) fn all() -> Vec<Case> {
    [signs(), clamps(), saturation(), multipliers(), half_selection(), rounding(), flushing()]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
fn negation_and_magnitude() {
    check(signs());
}

#[test]
fn clamped_floats() {
    check(clamps());
}

#[test]
fn saturated_integers() {
    check(saturation());
}

#[test]
fn output_multipliers() {
    check(multipliers());
}

#[test]
fn selected_halves() {
    check(half_selection());
}

#[test]
fn rounding_modes() {
    check(rounding());
}

#[test]
fn denormals_flushed() {
    check(flushing());
}
