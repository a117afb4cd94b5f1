//! Instructions with one operand, in both encodings.

use crate::vectors::harness::{Case, Dst, In, Out, check};
use crate::vectors::numbers::{d, denormal32, f, frexp, h, half_result, to_half};
use crate::vectors::operands::Kind;

/// Returns both encodings of an instruction with one operand; `forms` are the registers, for example `"{d},
/// {a}"`.
fn both(
    name: &str,
    forms: &str,
    kind: Kind,
    formula: impl Fn(&In<'_>) -> Out + Clone + Send + Sync + 'static,
) -> [Case; 2] {
    ["e32", "e64"].map(|form| Case::new(format!("{name}_{form} {forms}"), &[kind], formula.clone()))
}

fn to_b32(name: &str, kind: Kind, formula: impl Fn(u32) -> u32 + Clone + Send + Sync + 'static) -> [Case; 2] {
    both(name, "{d}, {a}", kind, move |i| formula(i.a32()).into())
}

fn to_f32(name: &str, kind: Kind, formula: impl Fn(u32) -> f32 + Clone + Send + Sync + 'static) -> [Case; 2] {
    both(name, "{d}, {a}", kind, move |i| formula(i.a32()).into())
}

fn of_f64(name: &str, formula: impl Fn(f64) -> f64 + Clone + Send + Sync + 'static) -> [Case; 2] {
    both(name, "{D}, {A}", Kind::F64, move |i| formula(d(i.a())).into())
}

fn of_f16(name: &str, formula: impl Fn(f64) -> f64 + Clone + Send + Sync + 'static) -> [Case; 2] {
    both(name, "{d}, {a}", Kind::F16, move |i| half_result(formula(h(i.a()))).into())
}

pub(crate) fn integers() -> Vec<Case> {
    let sign_bits = |x: u32| {
        let run = if x >> 31 == 1 { x.leading_ones() } else { x.leading_zeros() };
        if run == 32 { u32::MAX } else { run }
    };
    let byte = |x: u32, n: u32| f64::from(x >> (8 * n) & 0xff) as f32;
    [
        to_b32("v_mov_b32", Kind::I32, |x| x),
        to_b32("v_not_b32", Kind::I32, |x| !x),
        to_b32("v_bfrev_b32", Kind::I32, u32::reverse_bits),
        to_b32("v_ffbh_u32", Kind::I32, |x| if x == 0 { u32::MAX } else { x.leading_zeros() }),
        to_b32("v_ffbl_b32", Kind::I32, |x| if x == 0 { u32::MAX } else { x.trailing_zeros() }),
        to_b32("v_ffbh_i32", Kind::I32, sign_bits),
        to_f32("v_cvt_f32_i32", Kind::I32, |x| x as i32 as f32),
        to_f32("v_cvt_f32_u32", Kind::I32, |x| x as f32),
        to_f32("v_cvt_f32_ubyte0", Kind::I32, move |x| byte(x, 0)),
        to_f32("v_cvt_f32_ubyte1", Kind::I32, move |x| byte(x, 1)),
        to_f32("v_cvt_f32_ubyte2", Kind::I32, move |x| byte(x, 2)),
        to_f32("v_cvt_f32_ubyte3", Kind::I32, move |x| byte(x, 3)),
        to_f32("v_cvt_off_f32_i4", Kind::I32, |x| ((x & 15) ^ 8) as f32 / 16.0 - 0.5),
        both("v_cvt_f64_i32", "{D}, {a}", Kind::I32, |i| f64::from(i.a32() as i32).into()),
        both("v_cvt_f64_u32", "{D}, {a}", Kind::I32, |i| f64::from(i.a32()).into()),
        both("v_cvt_f16_u16", "{d}, {a}", Kind::I16, |i| half_result(f64::from(i.a() as u16)).into()),
        both("v_cvt_f16_i16", "{d}, {a}", Kind::I16, |i| half_result(f64::from(i.a() as i16)).into()),
        both("v_sat_pk_u8_i16", "{d}, {a}", Kind::I16x2, |i| {
            let byte = |x: u32| (x as u16 as i16).clamp(0, 255) as u16;
            Dst::Low16(byte(i.a32()) | byte(i.a32() >> 16) << 8).into()
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(crate) fn conversions() -> Vec<Case> {
    let half_to_i16 = |x: f64| if x.is_nan() { 0 } else { x.trunc().clamp(-32768.0, 32767.0) as i16 as u16 };
    let half_to_u16 = |x: f64| if x.is_nan() { 0 } else { x.trunc().clamp(0.0, 65535.0) as u16 };
    [
        to_b32("v_cvt_u32_f32", Kind::F32, |x| f(x) as u32),
        to_b32("v_cvt_i32_f32", Kind::F32, |x| f(x) as i32 as u32),
        to_b32("v_cvt_flr_i32_f32", Kind::F32, |x| f(x).floor() as i32 as u32),
        both("v_cvt_rpi_i32_f32", "{d}, {a}", Kind::F32, |i| {
            // The documents do not define if the sum is rounded.
            let once = (f64::from(f(i.a32())) + 0.5).floor() as i32 as u32;
            let twice = (f(i.a32()) + 0.5).floor() as i32 as u32;
            Dst::Either(Box::new(Dst::B32(once)), Box::new(Dst::B32(twice))).into()
        }),
        both("v_cvt_i32_f64", "{d}, {A}", Kind::F64, |i| (d(i.a()) as i32 as u32).into()),
        both("v_cvt_u32_f64", "{d}, {A}", Kind::F64, |i| (d(i.a()) as u32).into()),
        both("v_cvt_f32_f64", "{d}, {A}", Kind::F64, |i| (d(i.a()) as f32).into()),
        both("v_cvt_f64_f32", "{D}, {a}", Kind::F32, |i| f64::from(f(i.a32())).into()),
        both("v_cvt_f16_f32", "{d}, {a}", Kind::F32, |i| Dst::F16(to_half(f(i.a32()))).into()),
        both("v_cvt_f32_f16", "{d}, {a}", Kind::F16, |i| (h(i.a()) as f32).into()),
        both("v_cvt_u16_f16", "{d}, {a}", Kind::F16, move |i| Dst::Low16(half_to_u16(h(i.a()))).into()),
        both("v_cvt_i16_f16", "{d}, {a}", Kind::F16, move |i| Dst::Low16(half_to_i16(h(i.a()))).into()),
        both("v_cvt_norm_i16_f16", "{d}, {a}", Kind::F16, |i| normalised(h(i.a()), 32767.0, -32767.0)),
        both("v_cvt_norm_u16_f16", "{d}, {a}", Kind::F16, |i| normalised(h(i.a()), 65535.0, 0.0)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Converts -1 .. 1 to a normalised 16-bit integer; the rounding of ties is not documented.
fn normalised(x: f64, largest: f64, smallest: f64) -> Out {
    let product = if x.is_nan() { 0.0 } else { (x * largest).clamp(smallest, largest) };
    let word = |x: f64| Box::new(Dst::Low16(x as i32 as u16));
    if (product - product.trunc()).abs() == 0.5 {
        return Dst::Either(word(product.ceil()), word(product.floor())).into();
    }
    Dst::Low16(product.round() as i32 as u16).into()
}

pub(crate) fn parts() -> Vec<Case> {
    // The largest values below one.
    let (top32, top64, top16) = (f(0x3f7f_ffff), d(0x3fef_ffff_ffff_ffff), h(0x3bffu16));
    let fraction = |x: f64, top: f64| if x.is_infinite() { f64::NAN } else { (x - x.floor()).min(top) };
    let open = |x: f64, out: Out| if x.is_finite() { out } else { Dst::Any.into() };
    let exponent = |x: f64| frexp(x).map_or(0, |(_, e)| e);
    let mantissa = |x: f64| frexp(x).map_or(x, |(m, _)| m);
    [
        to_f32("v_trunc_f32", Kind::F32, |x| f(x).trunc()),
        to_f32("v_ceil_f32", Kind::F32, |x| f(x).ceil()),
        to_f32("v_floor_f32", Kind::F32, |x| f(x).floor()),
        to_f32("v_rndne_f32", Kind::F32, |x| f(x).round_ties_even()),
        of_f64("v_trunc_f64", f64::trunc),
        of_f64("v_ceil_f64", f64::ceil),
        of_f64("v_floor_f64", f64::floor),
        of_f64("v_rndne_f64", f64::round_ties_even),
        of_f16("v_trunc_f16", f64::trunc),
        of_f16("v_ceil_f16", f64::ceil),
        of_f16("v_floor_f16", f64::floor),
        of_f16("v_rndne_f16", f64::round_ties_even),
        both("v_fract_f32", "{d}, {a}", Kind::F32, move |i| {
            let x = f(i.a32());
            open(x.into(), (x - x.floor()).min(top32).into())
        }),
        both("v_fract_f64", "{D}, {A}", Kind::F64, move |i| open(d(i.a()), fraction(d(i.a()), top64).into())),
        both("v_fract_f16", "{d}, {a}", Kind::F16, move |i| {
            let x = h(i.a());
            open(x, Dst::F16(to_half((x - x.floor()) as f32).min(to_half(top16 as f32))).into())
        }),
        both("v_frexp_exp_i32_f32", "{d}, {a}", Kind::F32, move |i| {
            (exponent(f64::from(f(i.a32()))) as u32).into()
        }),
        both("v_frexp_exp_i32_f64", "{d}, {A}", Kind::F64, move |i| (exponent(d(i.a())) as u32).into()),
        both("v_frexp_exp_i16_f16", "{d}, {a}", Kind::F16, move |i| {
            Dst::Low16(exponent(h(i.a())) as u16).into()
        }),
        to_f32("v_frexp_mant_f32", Kind::F32, move |x| mantissa(f64::from(f(x))) as f32),
        of_f64("v_frexp_mant_f64", mantissa),
        of_f16("v_frexp_mant_f16", mantissa),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Approximating instructions: within the documented error of the exact value. Denormal operands and results
/// are left open because these units flush them.
pub(crate) fn approximations() -> Vec<Case> {
    type Exact = fn(f64) -> f64;
    let singles: [(&str, Exact); 9] = [
        ("v_rcp_f32", |x| 1.0 / x),
        ("v_rcp_iflag_f32", |x| 1.0 / x),
        ("v_rsq_f32", |x| 1.0 / x.sqrt()),
        ("v_sqrt_f32", f64::sqrt),
        ("v_exp_f32", f64::exp2),
        ("v_exp_legacy_f32", f64::exp2),
        ("v_log_f32", f64::log2),
        ("v_log_legacy_f32", f64::log2),
        ("v_sin_f32", |x| sine_cosine(x).0),
    ];
    let halves: [(&str, Exact); 6] = [
        ("v_rcp_f16", |x| 1.0 / x),
        ("v_rsq_f16", |x| 1.0 / x.sqrt()),
        ("v_sqrt_f16", f64::sqrt),
        ("v_exp_f16", f64::exp2),
        ("v_log_f16", f64::log2),
        ("v_sin_f16", |x| sine_cosine(x).0),
    ];
    let doubles: [(&str, Exact); 3] =
        [("v_rcp_f64", |x| 1.0 / x), ("v_rsq_f64", |x| 1.0 / x.sqrt()), ("v_sqrt_f64", f64::sqrt)];
    let mut cases = Vec::new();
    for (name, exact) in singles.into_iter().chain([("v_cos_f32", (|x| sine_cosine(x).1) as Exact)]) {
        let wave = name.contains("sin") || name.contains("cos");
        let kind = if wave { Kind::Angle } else { Kind::F32 };
        cases.extend(both(name, "{d}, {a}", kind, move |i| {
            let x = f(i.a32());
            let y = exact(x.into());
            // The legacy rules for infinities and zeros are not documented.
            let legacy = name.contains("legacy") && (!y.is_normal() || !x.is_finite());
            if denormal32(x) || legacy {
                return Dst::Any.into();
            }
            let dst = if wave { Dst::Within32(y, 2f64.powi(-18)) } else { Dst::Near32(y, 1.0) };
            // A logarithm near zero has an argument near one: its error is absolute.
            let loose = Dst::Within32(y, if name.contains("log") { 2f64.powi(-23) } else { 0.0 });
            Dst::Either(Box::new(dst), Box::new(loose)).into()
        }));
    }
    for (name, exact) in halves.into_iter().chain([("v_cos_f16", (|x| sine_cosine(x).1) as Exact)]) {
        let wave = name.contains("sin") || name.contains("cos");
        cases.extend(both(name, "{d}, {a}", Kind::F16, move |i| {
            let x = h(i.a());
            if wave && (!x.is_finite() || x.abs() > 256.0) {
                return Dst::Any.into();
            }
            let y = exact(x);
            let loose = Dst::Within16(y, if wave || name.contains("log") { 2f64.powi(-10) } else { 0.0 });
            Dst::Either(Box::new(Dst::Near16(y, 1.0)), Box::new(loose)).into()
        }));
    }
    for (name, exact) in doubles {
        cases.extend(both(name, "{D}, {A}", Kind::F64, move |i| {
            let x = d(i.a());
            let denormal = x.is_subnormal() || exact(x).is_subnormal();
            if denormal { Dst::Any.into() } else { Dst::Near64(exact(x), 2f64.powi(-22)).into() }
        }));
    }
    cases
}

/// Returns sine and cosine of an angle in turns, reduced exactly first.
fn sine_cosine(x: f64) -> (f64, f64) {
    let reduced = (x - x.round()) * std::f64::consts::TAU;
    (reduced.sin(), reduced.cos())
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = integers();
    cases.extend(conversions());
    cases.extend(parts());
    cases.extend(approximations());
    cases.push(Case::new("v_nop", &[], |_| Out::kept()));
    cases.push(Case::new("v_swap_b32 {d}, {a}", &[Kind::I32], |i| {
        let mut out: Out = i.a32().into();
        out.a = Some(i.old());
        out
    }));
    cases
}

#[test]
fn move_and_bits() {
    check(integers());
}

#[test]
fn convert() {
    check(conversions());
}

#[test]
fn take_apart() {
    check(parts());
}

#[test]
fn approximate() {
    check(approximations());
}

#[test]
fn swap() {
    check(all().into_iter().filter(|c| c.mnemonic() == "v_swap_b32" || c.mnemonic() == "v_nop").collect());
}
