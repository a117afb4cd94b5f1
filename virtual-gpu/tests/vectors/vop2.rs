//! Instructions with two operands, in both encodings.

use crate::vectors::harness::{Case, Dst, In, Out, check};
use crate::vectors::numbers::{
    denormal16, denormal32, extreme, f, h, half_result, scale, signalling16, signalling32, to_half,
};
use crate::vectors::operands::Kind;
use virtual_gpu::Target;

/// Returns both encodings of an instruction with two operands.
fn both(
    name: &str,
    kinds: [Kind; 2],
    formula: impl Fn(&In<'_>) -> Out + Clone + Send + Sync + 'static,
) -> [Case; 2] {
    ["e32", "e64"]
        .map(|form| Case::new(format!("{name}_{form} {{d}}, {{a}}, {{b}}"), &kinds, formula.clone()))
}

fn of_b32(name: &str, formula: impl Fn(u32, u32) -> u32 + Clone + Send + Sync + 'static) -> [Case; 2] {
    both(name, [Kind::I32; 2], move |i| formula(i.a32(), i.b32()).into())
}

fn of_f32(name: &str, formula: impl Fn(f32, f32) -> f32 + Clone + Send + Sync + 'static) -> [Case; 2] {
    both(name, [Kind::F32; 2], move |i| formula(f(i.a32()), f(i.b32())).into())
}

fn of_f16(name: &str, formula: impl Fn(f64, f64) -> f64 + Clone + Send + Sync + 'static) -> [Case; 2] {
    both(name, [Kind::F16; 2], move |i| half_result(formula(h(i.a()), h(i.b()))).into())
}

/// 16-bit operands and result; the high half of the register is cleared.
fn of_b16(name: &str, formula: impl Fn(u16, u16) -> u16 + Clone + Send + Sync + 'static) -> [Case; 2] {
    both(name, [Kind::I16; 2], move |i| u32::from(formula(i.a() as u16, i.b() as u16)).into())
}

/// Returns the low 24 bits, sign-extended, as the 24-bit multipliers read them.
pub(crate) fn signed24(x: u32) -> i64 {
    i64::from((x << 8) as i32 >> 8)
}

pub(crate) fn unsigned24(x: u32) -> u64 {
    u64::from(x & 0xff_ffff)
}

pub(crate) fn integers() -> Vec<Case> {
    [
        of_b32("v_mul_i32_i24", |a, b| (signed24(a) * signed24(b)) as u32),
        of_b32("v_mul_hi_i32_i24", |a, b| ((signed24(a) * signed24(b)) >> 32) as u32),
        of_b32("v_mul_u32_u24", |a, b| (unsigned24(a) * unsigned24(b)) as u32),
        of_b32("v_mul_hi_u32_u24", |a, b| ((unsigned24(a) * unsigned24(b)) >> 32) as u32),
        of_b32("v_min_i32", |a, b| (a as i32).min(b as i32) as u32),
        of_b32("v_max_i32", |a, b| (a as i32).max(b as i32) as u32),
        of_b32("v_min_u32", u32::min),
        of_b32("v_max_u32", u32::max),
        of_b32("v_lshrrev_b32", |a, b| b >> (a & 31)),
        of_b32("v_ashrrev_i32", |a, b| (b as i32 >> (a & 31)) as u32),
        of_b32("v_lshlrev_b32", |a, b| b << (a & 31)),
        of_b32("v_and_b32", |a, b| a & b),
        of_b32("v_or_b32", |a, b| a | b),
        of_b32("v_xor_b32", |a, b| a ^ b),
        of_b32("v_xnor_b32", |a, b| !(a ^ b)).map(|case| case.only(Target::Gfx906)),
        of_b32("v_add_u32", u32::wrapping_add),
        of_b32("v_sub_u32", u32::wrapping_sub),
        of_b32("v_subrev_u32", |a, b| b.wrapping_sub(a)),
        of_b16("v_add_u16", u16::wrapping_add),
        of_b16("v_sub_u16", u16::wrapping_sub),
        of_b16("v_subrev_u16", |a, b| b.wrapping_sub(a)),
        of_b16("v_mul_lo_u16", u16::wrapping_mul),
        of_b16("v_lshlrev_b16", |a, b| b << (a & 15)),
        of_b16("v_lshrrev_b16", |a, b| b >> (a & 15)),
        of_b16("v_ashrrev_i16", |a, b| (b as i16 >> (a & 15)) as u16),
        of_b16("v_max_u16", u16::max),
        of_b16("v_min_u16", u16::min),
        of_b16("v_max_i16", |a, b| (a as i16).max(b as i16) as u16),
        of_b16("v_min_i16", |a, b| (a as i16).min(b as i16) as u16),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns a sum or difference of three values and its carry.
fn carried(sum: i64) -> (u32, bool) {
    (sum as u32, !(0..=i64::from(u32::MAX)).contains(&sum))
}

/// Additions with carries: in VCC in the short encoding, in any scalar pair in the long one.
pub(crate) fn carries() -> Vec<Case> {
    type Sum = fn(i64, i64, i64) -> i64;
    let plain: [(&str, Sum); 3] = [
        ("v_add_co_u32", |a, b, _| a + b),
        ("v_sub_co_u32", |a, b, _| a - b),
        ("v_subrev_co_u32", |a, b, _| b - a),
    ];
    let chained: [(&str, Sum); 3] = [
        ("v_addc_co_u32", |a, b, c| a + b + c),
        ("v_subb_co_u32", |a, b, c| a - b - c),
        ("v_subbrev_co_u32", |a, b, c| b - a - c),
    ];
    let kinds = [Kind::I32; 2];
    let mut cases = Vec::new();
    for (chain, (name, sum)) in plain.map(|p| (false, p)).into_iter().chain(chained.map(|c| (true, c))) {
        let wide = |i: &In<'_>| (i64::from(i.a32()), i64::from(i.b32()));
        let (short, long) = if chain { (", vcc", ", {SB}") } else { ("", "") };
        cases.push(Case::new(format!("{name}_e32 {{d}}, vcc, {{a}}, {{b}}{short}"), &kinds, move |i| {
            let (bits, carry) = carried(sum(wide(i).0, wide(i).1, i64::from(i.vcc())));
            Out::from(bits).vcc(carry)
        }));
        cases.push(Case::new(format!("{name}_e64 {{d}}, {{SD}}, {{a}}, {{b}}{long}"), &kinds, move |i| {
            let (bits, carry) = carried(sum(wide(i).0, wide(i).1, (i.wave.sb >> i.lane & 1) as i64));
            Out::from(bits).mask(carry)
        }));
    }
    cases.push(Case::new("v_cndmask_b32_e32 {d}, {a}, {b}, vcc", &kinds, |i| {
        if i.vcc() { i.b32().into() } else { i.a32().into() }
    }));
    cases.push(Case::new("v_cndmask_b32_e64 {d}, {a}, {b}, {SB}", &kinds, |i| {
        if i.wave.sb >> i.lane & 1 == 1 { i.b32().into() } else { i.a32().into() }
    }));
    cases
}

/// `a * b + c` rounded twice, as the unfused instructions do. They flush denormals, so the result is left
/// open if one is involved.
pub(crate) fn mad32(a: f32, b: f32, c: f32) -> Dst {
    let product = a * b;
    let sum = product + c;
    let tiny = |x: f32| denormal32(x) || (x == 0.0 && a != 0.0 && b != 0.0);
    if [a, b, c, sum].into_iter().any(denormal32) || tiny(product) { Dst::Any } else { Dst::F32(sum) }
}

pub(crate) fn mad16(a: f64, b: f64, c: f64) -> Option<u16> {
    let product = half::f16::from_bits(to_half((a * b) as f32)).to_f32();
    let sum = to_half((f64::from(product) + c) as f32);
    let open = [a, b, c, h(sum), f64::from(product)].into_iter().any(denormal16);
    (!open && (product != 0.0 || a == 0.0 || b == 0.0)).then_some(sum)
}

/// Zero times anything is zero, as in DirectX 9; the sign of that zero is left open.
pub(crate) fn legacy_product(a: f32, b: f32) -> f32 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

fn either_zero(value: f32) -> Dst {
    if value == 0.0 {
        return Dst::Either(Box::new(Dst::F32(0.0)), Box::new(Dst::F32(-0.0)));
    }
    Dst::F32(value)
}

pub(crate) fn floats() -> Vec<Case> {
    let extreme32 = |largest: bool| {
        move |i: &In<'_>| {
            let side = |bits: u32| (f64::from(f(bits)), signalling32(bits));
            Out::from(extreme(side(i.a32()), side(i.b32()), largest) as f32)
        }
    };
    let extreme16 = |largest: bool| {
        move |i: &In<'_>| {
            let side = |bits: u64| (h(bits), signalling16(bits));
            Out::from(half_result(extreme(side(i.a()), side(i.b()), largest)))
        }
    };
    let fused = |i: &In<'_>| Out::from(f(i.a32()).mul_add(f(i.b32()), f(i.old())));
    [
        of_f32("v_add_f32", |a, b| a + b),
        of_f32("v_sub_f32", |a, b| a - b),
        of_f32("v_subrev_f32", |a, b| b - a),
        of_f32("v_mul_f32", |a, b| a * b),
        both("v_mul_legacy_f32", [Kind::F32; 2], |i| {
            either_zero(legacy_product(f(i.a32()), f(i.b32()))).into()
        }),
        both("v_min_f32", [Kind::F32; 2], extreme32(false)),
        both("v_max_f32", [Kind::F32; 2], extreme32(true)),
        both("v_mac_f32", [Kind::F32; 2], |i| mad32(f(i.a32()), f(i.b32()), f(i.old())).into()),
        both("v_fmac_f32", [Kind::F32; 2], fused).map(|case| case.only(Target::Gfx906)),
        of_f16("v_add_f16", |a, b| a + b),
        of_f16("v_sub_f16", |a, b| a - b),
        of_f16("v_subrev_f16", |a, b| b - a),
        of_f16("v_mul_f16", |a, b| a * b),
        both("v_min_f16", [Kind::F16; 2], extreme16(false)),
        both("v_max_f16", [Kind::F16; 2], extreme16(true)),
        both("v_mac_f16", [Kind::F16; 2], |i| {
            mad16(h(i.a()), h(i.b()), h(i.old() & 0xffff)).map_or(Dst::Any, Dst::F16Kept).into()
        }),
        both("v_ldexp_f16", [Kind::F16, Kind::Exponent], |i| {
            half_result(scale(h(i.a()), i32::from(i.b() as i16))).into()
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Literals: 0x40490fdb is pi, 0x4248 is pi as a half.
pub(crate) fn literals() -> Vec<Case> {
    let pi = f(0x4049_0fdb);
    let kinds32 = [Kind::Near, Kind::F32];
    let kinds16 = [Kind::F16; 2];
    vec![
        Case::new("v_madmk_f32 {d}, {a}, 0x40490fdb, {b}", &kinds32, move |i| {
            mad32(f(i.a32()), pi, f(i.b32())).into()
        }),
        Case::new("v_madak_f32 {d}, {a}, {b}, 0x40490fdb", &kinds32, move |i| {
            mad32(f(i.a32()), f(i.b32()), pi).into()
        }),
        Case::new("v_madmk_f16 {d}, {a}, 0x4248, {b}", &kinds16, |i| {
            mad16(h(i.a()), h(0x4248u16), h(i.b())).map_or(Dst::Any, Dst::F16Kept).into()
        }),
        Case::new("v_madak_f16 {d}, {a}, {b}, 0x4248", &kinds16, |i| {
            mad16(h(i.a()), h(i.b()), h(0x4248u16)).map_or(Dst::Any, Dst::F16Kept).into()
        }),
        Case::new("v_add_u32_e32 {d}, 0x12345678, {b}", &[Kind::I32; 2], |i| {
            i.b32().wrapping_add(0x1234_5678).into()
        }),
        Case::new("v_add_f16_e32 {d}, 0x4248, {b}", &kinds16, |i| {
            half_result(h(0x4248u16) + h(i.b())).into()
        }),
        Case::new("v_add_f64 {D}, {A}, 1.0", &[Kind::F64], |i| (f64::from_bits(i.a()) + 1.0).into()),
        Case::new("v_add_f64 {D}, {A}, -4.0", &[Kind::F64], |i| (f64::from_bits(i.a()) - 4.0).into()),
        Case::new("v_add_f64 {D}, {A}, 0.15915494309189532", &[Kind::F64], |i| {
            (f64::from_bits(i.a()) + 0.159_154_943_091_895_32).into()
        }),
    ]
}

/// Inline constants: integers from -16 to 64 and nine floats, in the operand's type.
pub(crate) fn inline_constants() -> Vec<Case> {
    let mut cases = Vec::new();
    for integer in [-16i32, -1, 0, 1, 17, 64] {
        cases.push(Case::new(format!("v_add_u32_e32 {{d}}, {integer}, {{b}}"), &[Kind::I32; 2], move |i| {
            i.b32().wrapping_add(integer as u32).into()
        }));
        cases.push(Case::new(format!("v_add_u16_e32 {{d}}, {integer}, {{b}}"), &[Kind::I16; 2], move |i| {
            u32::from((i.b() as u16).wrapping_add(integer as u16)).into()
        }));
        cases.push(Case::new(format!("v_lshrrev_b64 {{D}}, {{a}}, {integer}"), &[Kind::I32], move |i| {
            (i64::from(integer) as u64 >> (i.a() & 63)).into()
        }));
    }
    let floats = [("0.5", 0.5), ("-0.5", -0.5), ("1.0", 1.0), ("-1.0", -1.0), ("2.0", 2.0), ("-2.0", -2.0)];
    for (text, value) in floats.into_iter().chain([("4.0", 4.0), ("-4.0", -4.0)]) {
        cases.push(Case::new(format!("v_mul_f32_e32 {{d}}, {text}, {{b}}"), &[Kind::F32; 2], move |i| {
            (value as f32 * f(i.b32())).into()
        }));
        cases.push(Case::new(format!("v_mul_f16_e32 {{d}}, {text}, {{b}}"), &[Kind::F16; 2], move |i| {
            half_result(value * h(i.b())).into()
        }));
        cases.push(Case::new(format!("v_mul_f64 {{D}}, {{A}}, {text}"), &[Kind::F64], move |i| {
            (f64::from_bits(i.a()) * value).into()
        }));
        cases.push(Case::new(format!("v_and_b32_e32 {{d}}, {text}, {{b}}"), &[Kind::I32; 2], move |i| {
            ((value as f32).to_bits() & i.b32()).into()
        }));
    }
    cases.push(Case::new("v_mul_f32_e32 {d}, 0.15915494, {b}", &[Kind::F32; 2], |i| {
        (f(0x3e22_f983) * f(i.b32())).into()
    }));
    cases.push(Case::new("v_mul_f16_e32 {d}, 0.15915494, {b}", &[Kind::F16; 2], |i| {
        half_result(h(0x3118u16) * h(i.b())).into()
    }));
    cases
}

pub(crate) fn all() -> Vec<Case> {
    [integers(), carries(), floats(), literals(), inline_constants()].into_iter().flatten().collect()
}

#[test]
fn whole_numbers() {
    check(integers());
}

#[test]
fn carry() {
    check(carries());
}

#[test]
fn floating_point() {
    check(floats());
}

#[test]
fn literal_constants() {
    check(literals());
}

#[test]
fn constants_in_line() {
    check(inline_constants());
}
