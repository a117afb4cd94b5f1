//! Instructions for divisions and for cube maps.

use crate::vectors::harness::{Case, Dst, In, Out, check};
use crate::vectors::numbers::{d, f, h};
use crate::vectors::operands::Kind;

/// Returns the result of a division's last step for quotient, denominator and numerator; `None` if the
/// quotient underflows, because that value is not documented. It underflows if the difference of exponents is
/// below `far`.
fn fixed(quotient: f64, denominator: f64, numerator: f64, far: f64) -> Option<f64> {
    let sign = if denominator.is_sign_negative() == numerator.is_sign_negative() { 1.0 } else { -1.0 };
    if denominator.is_nan() || numerator.is_nan() {
        return Some(f64::NAN);
    }
    let both_zero = denominator == 0.0 && numerator == 0.0;
    if both_zero || (denominator.is_infinite() && numerator.is_infinite()) {
        return Some(f64::NAN);
    }
    if denominator == 0.0 || numerator.is_infinite() {
        return Some(sign * f64::INFINITY);
    }
    if denominator.is_infinite() || numerator == 0.0 {
        return Some(sign * 0.0);
    }
    if numerator.abs().log2() - denominator.abs().log2() <= far {
        return None;
    }
    // A quotient that overflowed in an earlier step is a NaN.
    Some(sign * if quotient.is_nan() { f64::INFINITY } else { quotient.abs() })
}

pub(crate) fn fixups() -> Vec<Case> {
    let half = |i: &In<'_>| {
        fixed(h(i.a()), h(i.b()), h(i.c()), -20.0)
            .map_or(Dst::Any, |x| Dst::F16Low(half::f16::from_f64(x).to_bits()))
            .into()
    };
    let three = "{d}, {a}, {b}, {c}";
    vec![
        Case::new(format!("v_div_fixup_f32 {three}"), &[Kind::F32; 3], |i| {
            let [a, b, c] = [i.a32(), i.b32(), i.c32()].map(|x| f64::from(f(x)));
            fixed(a, b, c, -148.0).map_or(Dst::Any, |x| Dst::F32(x as f32)).into()
        }),
        Case::new("v_div_fixup_f64 {D}, {A}, {B}, {C}", &[Kind::F64; 3], |i| {
            fixed(d(i.a()), d(i.b()), d(i.c()), -1070.0).map_or(Dst::Any, Dst::F64).into()
        }),
        Case::new(format!("v_div_fixup_f16 {three}"), &[Kind::F16; 3], half),
        Case::new(format!("v_div_fixup_legacy_f16 {three}"), &[Kind::F16; 3], half),
    ]
}

/// Scaling does not change values near one. Its effect at the ends of the range is tested by the divisions of
/// the HIP programs, whose results are exact.
pub(crate) fn steps() -> Vec<Case> {
    vec![
        Case::new("v_div_scale_f32 {d}, vcc, {a}, {a}, {b}", &[Kind::Near; 2], |i| {
            Out::from(Dst::F32(f(i.a32()))).vcc(false)
        }),
        Case::new("v_div_scale_f32 {d}, {SD}, {b}, {a}, {b}", &[Kind::Near; 2], |i| {
            Out::from(Dst::F32(f(i.b32()))).mask(false)
        }),
        Case::new("v_div_scale_f64 {D}, vcc, {A}, {A}, {B}", &[Kind::F64; 2], |i| {
            Out::from(i.a()).vcc(false)
        })
        .adjusted(near_one),
        Case::new("v_div_scale_f64 {D}, {SD}, {B}, {A}, {B}", &[Kind::F64; 2], |i| {
            Out::from(i.b()).mask(false)
        })
        .adjusted(near_one),
        // The factor with VCC set is not well documented; the divisions test it.
        Case::new("v_div_fmas_f32 {d}, {a}, {b}, {c}", &[Kind::F32; 3], |i| {
            let sum = f(i.a32()).mul_add(f(i.b32()), f(i.c32()));
            if i.vcc() { Dst::Any.into() } else { sum.into() }
        }),
        Case::new("v_div_fmas_f64 {D}, {A}, {B}, {C}", &[Kind::F64; 3], |i| {
            let sum = d(i.a()).mul_add(d(i.b()), d(i.c()));
            if i.vcc() { Dst::Any.into() } else { sum.into() }
        }),
    ]
}

fn near_one(
    _: &mut crate::vectors::harness::WaveIn,
    lanes: &mut [crate::vectors::harness::LaneIn],
    _: &mut crate::support::Random,
) {
    for lane in lanes {
        for bits in [&mut lane.a, &mut lane.b] {
            *bits = (*bits & 0x800f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000;
        }
    }
}

/// Faces of a cube: the axis of the largest magnitude, z before y before x.
pub(crate) fn cubes() -> Vec<Case> {
    type Formula = fn(usize, [f32; 3]) -> f32;
    let list: [(&str, Formula); 4] = [
        ("v_cubeid_f32", |axis, v| (2 * axis) as f32 + if v[axis] < 0.0 { 1.0 } else { 0.0 }),
        ("v_cubema_f32", |axis, v| 2.0 * v[axis]),
        ("v_cubesc_f32", |axis, [x, _, z]| match axis {
            2 => x * z.signum(),
            1 => x,
            _ => -z * x.signum(),
        }),
        ("v_cubetc_f32", |axis, [_, y, z]| if axis == 1 { z * y.signum() } else { -y }),
    ];
    let make = |(name, formula): (&str, Formula)| {
        Case::new(format!("{name} {{d}}, {{a}}, {{b}}, {{c}}"), &[Kind::Near; 3], move |i| {
            let v = [i.a32(), i.b32(), i.c32()].map(f);
            let [x, y, z] = v.map(f32::abs);
            let axis = if z >= y && z >= x {
                2
            } else if y >= x {
                1
            } else {
                0
            };
            formula(axis, v).into()
        })
    };
    list.into_iter().map(make).collect()
}

pub(crate) fn all() -> Vec<Case> {
    [fixups(), steps(), cubes()].into_iter().flatten().collect()
}

#[test]
fn fix_up() {
    check(fixups());
}

#[test]
fn scale_and_multiply() {
    check(steps());
}

#[test]
fn cube_maps() {
    check(cubes());
}
