//! Reference arithmetic of the formats, independent of the emulator: every formula works either on integers
//! or in a format so wide that it rounds once.

use crate::vectors::harness::Dst;
use half::f16;

pub(crate) fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

pub(crate) fn d(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// Returns the half in the low bits, exactly.
pub(crate) fn h(bits: impl Into<u64>) -> f64 {
    f64::from(f16::from_bits(bits.into() as u16).to_f32())
}

/// Rounds to the nearest half, ties to even; `x` must be exact.
pub(crate) fn to_half(x: f32) -> u16 {
    f16::from_f32(x).to_bits()
}

/// Halves added, subtracted or multiplied as floats are exact or unaffected by double rounding: a float's 24
/// bits are at least 2 * 11 + 2.
pub(crate) fn half_result(x: f64) -> Dst {
    Dst::F16(to_half(x as f32))
}

pub(crate) fn denormal32(x: f32) -> bool {
    x != 0.0 && x.abs() < f32::MIN_POSITIVE
}

pub(crate) fn denormal16(x: f64) -> bool {
    x != 0.0 && x.abs() < 2f64.powi(-14)
}

pub(crate) fn signalling32(bits: u32) -> bool {
    f(bits).is_nan() && bits & 0x0040_0000 == 0
}

pub(crate) fn signalling64(bits: u64) -> bool {
    d(bits).is_nan() && bits & 1 << 51 == 0
}

pub(crate) fn signalling16(bits: u64) -> bool {
    h(bits).is_nan() && bits & 0x200 == 0
}

/// Returns the larger or smaller of two values in IEEE mode. A quiet NaN loses against a value, a signalling
/// NaN wins; -0 is below +0.
pub(crate) fn extreme(a: (f64, bool), b: (f64, bool), largest: bool) -> f64 {
    let ((a, a_signals), (b, b_signals)) = (a, b);
    if a_signals || b_signals || (a.is_nan() && b.is_nan()) {
        return f64::NAN;
    }
    if a.is_nan() || b.is_nan() {
        return if a.is_nan() { b } else { a };
    }
    let a_above = a > b || (a == b && b.is_sign_negative());
    if a_above == largest { a } else { b }
}

/// Returns the median of three values, none of them a NaN.
pub(crate) fn median<T: PartialOrd + Copy>(mut three: [T; 3]) -> T {
    three.sort_by(|x, y| x.partial_cmp(y).unwrap_or(std::cmp::Ordering::Equal));
    three[1]
}

/// Returns `a * b + c` of halves, rounded once: computed exactly in units of 2^-48.
pub(crate) fn half_fma(a: u16, b: u16, c: u16) -> u16 {
    let wide = [a, b, c].map(h);
    if wide.iter().any(|x| !x.is_finite()) {
        return to_half((wide[0] * wide[1] + wide[2]) as f32);
    }
    let units = |x: f64, scale: i32| (x * 2f64.powi(scale)) as i128;
    let sum = units(wide[0], 24) * units(wide[1], 24) + (units(wide[2], 24) << 24);
    if sum == 0 {
        // The sign of zero follows the rules of addition.
        return to_half((wide[0] * wide[1] + wide[2]) as f32);
    }
    let magnitude = sum.unsigned_abs();
    let top = 127 - magnitude.leading_zeros() as i32 - 48;
    // Exponent of the result's last bit: ten below the top bit, but at least -24.
    let last = (top - 10).max(-24) + 48;
    let (mut kept, rest) =
        if last > 0 { (magnitude >> last, magnitude & ((1 << last) - 1)) } else { (magnitude << -last, 0) };
    let tie = if last > 0 { 1u128 << (last - 1) } else { 1 };
    if rest > tie || (rest == tie && kept & 1 == 1) {
        kept += 1;
    }
    let value = kept as f64 * 2f64.powi(last - 48);
    let value = if value > 65519.0 { f32::INFINITY } else { value as f32 };
    to_half(if sum < 0 { -value } else { value })
}

/// Rounds a float to a half toward zero.
pub(crate) fn half_towards_zero(x: f32) -> u16 {
    let nearest = f16::from_f32(x);
    if x.is_finite() && nearest.to_f32().abs() > x.abs() { nearest.to_bits() - 1 } else { nearest.to_bits() }
}

/// Splits a value into a fraction in 0.5 .. 1 and an exponent; `None` for zero, infinities and NaNs.
pub(crate) fn frexp(x: f64) -> Option<(f64, i32)> {
    if x == 0.0 || !x.is_finite() {
        return None;
    }
    let (mut m, mut e) = (x, 0);
    while m.abs() >= 1.0 {
        (m, e) = (m / 2.0, e + 1);
    }
    while m.abs() < 0.5 {
        (m, e) = (m * 2.0, e - 1);
    }
    Some((m, e))
}

/// Returns `x * 2^e`, rounded once.
pub(crate) fn scale(x: f64, e: i32) -> f64 {
    let Some((m, exponent)) = frexp(x) else { return x };
    let e = exponent.saturating_add(e);
    match e {
        1025.. => m.signum() * f64::INFINITY,
        -1021..=1024 => m * 2.0 * 2f64.powi(e - 1),
        // Powers of two are exact down to 2^-1074, and the product with the fraction rounds once.
        -1074..=-1022 => m * f64::from_bits(1 << (e + 1074)),
        _ => m.signum() * 0.0,
    }
}

/// Rounds to an integer within a byte or word; NaN gives 0.
pub(crate) fn rounded(x: f64, low: f64, high: f64) -> i32 {
    if x.is_nan() { 0 } else { x.round_ties_even().clamp(low, high) as i32 }
}
