//! Formulas shared by several opcodes.
//!
//! The approximating instructions (reciprocal, square roots, exponential, logarithm, sine) are accurate to
//! about the last bit here; hardware may be off by one unit in the last place. As on hardware, the F32 ones
//! read denormals as zeros and return none.

use super::lanes::{F16, Mode};
use super::pick::pick;

/// Replaces a denormal with a zero of the same sign.
#[inline(always)]
pub(crate) fn flush(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(pick(bits & 0x7f80_0000 == 0, bits & 0x8000_0000, bits))
}

/// Makes a signalling NaN quiet; other values are unchanged.
#[inline(always)]
pub(crate) fn quiet(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(pick(bits & 0x7fff_ffff > 0x7f80_0000, bits | 0x0040_0000, bits))
}

#[inline(always)]
fn signalling(x: f32) -> bool {
    let magnitude = x.to_bits() & 0x7fff_ffff;
    (magnitude > 0x7f80_0000) & (magnitude < 0x7fc0_0000)
}

#[inline(always)]
pub(crate) fn quiet64(x: f64) -> f64 {
    f64::from_bits(if x.is_nan() { x.to_bits() | 1 << 51 } else { x.to_bits() })
}

#[inline(always)]
fn signalling64(x: f64) -> bool {
    x.is_nan() & (x.to_bits() & 1 << 51 == 0)
}

#[inline(always)]
fn signalling16(x: F16) -> bool {
    let magnitude = x.0 & 0x7fff;
    (magnitude > 0x7c00) & (magnitude < 0x7e00)
}

macro_rules! extremes {
    ($min:ident, $max:ident, $t:ty, $nan:expr, $signalling:ident, $quiet:expr, $less:expr) => {
        /// Returns the smaller value. -0 is smaller than +0; a value is preferred to a NaN.
        #[inline(always)]
        pub(crate) fn $min(mode: Mode, a: $t, b: $t) -> $t {
            let (nan, quiet, less) = ($nan, $quiet, $less);
            let number = pick(nan(a) | (!nan(b) & less(b, a)), b, a);
            let number = pick(mode.ieee() & $signalling(b), quiet(b), number);
            pick(mode.ieee() & $signalling(a), quiet(a), number)
        }

        /// Returns the larger value. +0 is larger than -0; a value is preferred to a NaN.
        #[inline(always)]
        pub(crate) fn $max(mode: Mode, a: $t, b: $t) -> $t {
            let (nan, quiet, less) = ($nan, $quiet, $less);
            let number = pick(nan(a) | (!nan(b) & !less(b, a)), b, a);
            let number = pick(mode.ieee() & $signalling(b), quiet(b), number);
            pick(mode.ieee() & $signalling(a), quiet(a), number)
        }
    };
}

extremes!(min32, max32, f32, |x: f32| x.is_nan(), signalling, quiet, |a: f32, b: f32| (a < b)
    | (a == b) & (a.to_bits() >> 31 > b.to_bits() >> 31));
extremes!(min64, max64, f64, |x: f64| x.is_nan(), signalling64, quiet64, |a: f64, b: f64| (a < b)
    | (a == b) & (a.to_bits() >> 63 > b.to_bits() >> 63));
extremes!(
    min16,
    max16,
    F16,
    |x: F16| x.0 & 0x7fff > 0x7c00,
    signalling16,
    |x: F16| F16(x.0 | 0x200),
    |a: F16, b: F16| (a.f32() < b.f32()) | (a.f32() == b.f32()) & (a.0 >> 15 > b.0 >> 15)
);

/// Returns true if one of two values is smaller, or they are the same: there is no NaN, and there are not two zeros.
#[inline(always)]
pub(crate) fn are_in_order(a: f32, b: f32) -> bool {
    (a < b) | (a > b) | (a == b) & (a.to_bits() == b.to_bits())
}

macro_rules! medians {
    ($med:ident, $min:ident, $max:ident, $t:ty, $value:expr) => {
        /// Returns the median of three, or the smallest if one is a NaN.
        #[inline(always)]
        pub(crate) fn $med(mode: Mode, a: $t, b: $t, c: $t) -> $t {
            let value = $value;
            let largest = value($max(mode, $max(mode, a, b), c));
            let [ab, ac, bc] = [$max(mode, a, b), $max(mode, a, c), $max(mode, b, c)];
            let median = pick(largest == value(a), bc, pick(largest == value(b), ac, ab));
            let nan = value(a).is_nan() | value(b).is_nan() | value(c).is_nan();
            pick(nan, $min(mode, $min(mode, a, b), c), median)
        }
    };
}

medians!(med32, min32, max32, f32, |x: f32| x);
medians!(med16, min16, max16, F16, |x: F16| x.f32());

/// Returns the class of a floating-point value as a bit mask (`v_cmp_class`): signalling NaN, quiet NaN,
/// -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf.
#[inline(always)]
pub(crate) fn class(negative: bool, exponent: u32, largest: u32, mantissa: u64, quiet: u64) -> u32 {
    let bit = match (exponent == largest, exponent == 0, mantissa == 0) {
        (true, _, false) => return if mantissa & quiet != 0 { 2 } else { 1 },
        (true, _, true) => (2, 9),
        (_, false, _) => (3, 8),
        (_, true, false) => (4, 7),
        (_, true, true) => (5, 6),
    };
    1 << if negative { bit.0 } else { bit.1 }
}

#[inline(always)]
pub(crate) fn class32(x: f32) -> u32 {
    let bits = x.to_bits();
    class(bits >> 31 != 0, bits >> 23 & 255, 255, u64::from(bits & 0x7f_ffff), 1 << 22)
}

#[inline(always)]
pub(crate) fn class64(x: f64) -> u32 {
    let bits = x.to_bits();
    class(bits >> 63 != 0, (bits >> 52 & 2047) as u32, 2047, bits & ((1 << 52) - 1), 1 << 51)
}

#[inline(always)]
pub(crate) fn class16(x: F16) -> u32 {
    class(x.0 >> 15 != 0, u32::from(x.0 >> 10 & 31), 31, u64::from(x.0 & 0x3ff), 1 << 9)
}

/// Returns x * 2^exponent, rounded once.
#[inline(always)]
pub(crate) fn ldexp64(x: f64, exponent: i32) -> f64 {
    // Two steps keep the first product exact; a third is needed if the result is far below the normal range.
    let e = exponent.clamp(-2200, 2200);
    if x == 0.0 || !x.is_finite() {
        return quiet64(x);
    }
    let (mantissa, own) = frexp64(x);
    let total = own + e;
    if total > 1024 {
        return f64::INFINITY.copysign(x);
    }
    if total >= -1021 {
        // mantissa * 2 and half the power: no step overflows.
        return mantissa * 2.0 * power(total - 1);
    }
    if total < -1100 {
        return 0f64.copysign(x);
    }
    mantissa * power(-1000) * power(total + 1000)
}

/// Returns 2^e for -1022 <= e <= 1023.
#[inline(always)]
fn power(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

#[inline(always)]
pub(crate) fn ldexp32(x: f32, exponent: i32) -> f32 {
    // Exact in F64, then rounded once.
    ldexp64(f64::from(x), exponent.clamp(-600, 600)) as f32
}

/// Splits a finite non-zero value into a mantissa of magnitude 0.5 to 1 and an exponent.
#[inline(always)]
pub(crate) fn frexp64(x: f64) -> (f64, i32) {
    let bits = x.to_bits();
    let exponent = (bits >> 52 & 2047) as i32;
    let (bits, exponent) = if exponent == 0 { ((x * 2f64.powi(64)).to_bits(), -64) } else { (bits, 0) };
    let own = (bits >> 52 & 2047) as i32;
    (f64::from_bits(bits & !(2047 << 52) | 1022 << 52), own - 1022 + exponent)
}

/// `v_frexp_mant`: returns the mantissa; 0, infinities and NaNs are unchanged.
#[inline(always)]
pub(crate) fn mantissa64(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() { quiet64(x) } else { frexp64(x).0 }
}

/// `v_frexp_exp`: returns the exponent; 0 for 0, infinities and NaNs.
#[inline(always)]
pub(crate) fn exponent64(x: f64) -> i32 {
    if x == 0.0 || !x.is_finite() { 0 } else { frexp64(x).1 }
}

/// Returns x - floor(x), below 1.
#[inline(always)]
pub(crate) fn fract64(x: f64) -> f64 {
    let fraction = x - x.floor();
    if fraction >= 1.0 { 1f64.next_down() } else { fraction }
}

#[inline(always)]
pub(crate) fn fract32(x: f32) -> f32 {
    let fraction = x - x.floor();
    if fraction >= 1.0 { 1f32.next_down() } else { fraction }
}

/// Returns the sine of 2 pi x; the argument is reduced exactly.
#[inline(always)]
pub(crate) fn sin_turns(x: f64) -> f64 {
    let x = x - x.round();
    if x.abs() == 0.5 { 0.0 } else { (x * std::f64::consts::TAU).sin() }
}

/// Returns the cosine of 2 pi x.
#[inline(always)]
pub(crate) fn cos_turns(x: f64) -> f64 {
    let x = (x - x.round()).abs();
    if x == 0.25 { 0.0 } else { (x * std::f64::consts::TAU).cos() }
}

/// Returns a * b + c in F32, rounded and flushed after each step (`v_mad_f32`, `v_mac_f32`).
#[inline(always)]
pub(crate) fn mad(a: f32, b: f32, c: f32) -> f32 {
    flush(flush(flush(a) * flush(b)) + flush(c))
}

/// Returns a * b, where 0 times anything is 0.
#[inline(always)]
pub(crate) fn mul_legacy(a: f32, b: f32) -> f32 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

/// Returns a * b + c of halves in one rounding: the product is exact in F32, the sum is rounded to odd.
#[inline(always)]
pub(crate) fn fma16(a: F16, b: F16, c: F16) -> F16 {
    let (product, c) = (a.f32() * b.f32(), c.f32());
    let sum = product + c;
    let part = sum - product;
    let error = (product - (sum - part)) + (c - part);
    let bits = sum.to_bits();
    let away = (error > 0.0) == (sum > 0.0);
    let step = pick(away, bits.wrapping_add(1), bits.wrapping_sub(1));
    // Inexact and even. Of infinities and NaNs there is no error.
    let inexact = (error != 0.0) & (bits & 1 == 0) & (bits & 0x7f80_0000 != 0x7f80_0000);
    F16::of(f32::from_bits(pick(inexact, step, bits)))
}

/// Returns the low 24 bits as a signed integer.
#[inline(always)]
pub(crate) fn i24(x: u32) -> i64 {
    i64::from((x << 8) as i32 >> 8)
}

/// Returns the low 24 bits.
#[inline(always)]
pub(crate) fn u24(x: u32) -> u64 {
    u64::from(x & 0xff_ffff)
}

/// Adds the sum of |a - b| over bytes to c; with `masked`, bytes that are 0 in `b` are skipped.
#[inline(always)]
pub(crate) fn sad_u8(a: u32, b: u32, c: u32, masked: bool) -> u32 {
    (0..4).fold(c, |sum, i| {
        let (x, y) = (a >> (8 * i) & 255, b >> (8 * i) & 255);
        if masked && y == 0 { sum } else { sum.wrapping_add(x.abs_diff(y)) }
    })
}

/// `v_perm_b32`: byte `i` of the result is the byte of (a, b) selected by selector byte `i`.
#[inline(always)]
pub(crate) fn perm(a: u32, b: u32, selector: u32) -> u32 {
    (0..4).fold(0, |result, i| {
        let s = selector >> (8 * i) & 255;
        let of_bytes = pick(s & 4 != 0, a, b) >> (8 * (s & 3)) & 255;
        // From 8 on: bits 15 and 31 of b, then of a.
        let sign = (pick(s & 2 != 0, a, b) >> (15 + 16 * (s & 1)) & 1) * 255;
        let constant = pick(s == 12, 0, 255);
        let byte = pick(s < 8, of_bytes, pick(s < 12, sign, constant));
        result | byte << (8 * i)
    })
}

/// Returns (a b + c) 2^power in one rounding: if the result is denormal, the sum is first rounded to odd,
/// which preserves the information that the second rounding needs.
#[inline(always)]
pub(crate) fn fma_scaled64(a: f64, b: f64, c: f64, power: i32) -> f64 {
    let sum = a.mul_add(b, c);
    let scaled = ldexp64(sum, power);
    if !sum.is_finite() || scaled.abs() >= f64::MIN_POSITIVE {
        return scaled;
    }
    let product = a * b;
    let rest = a.mul_add(b, -product);
    let near = product + c;
    let part = near - product;
    let error = (product - (near - part)) + (c - part);
    ldexp64(odd64(sum, (near - sum) + (error + rest)), power)
}

/// Returns (a b + c) 2^power in one rounding for F32, whose products are exact in F64.
#[inline(always)]
pub(crate) fn fma_scaled32(a: f32, b: f32, c: f32, power: i32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let part = sum - product;
    let error = (product - (sum - part)) + (c - part);
    ldexp64(if error.is_finite() { odd64(sum, error) } else { sum }, power) as f32
}

/// Rounds a sum with a known error to odd: an odd last bit marks an inexact sum.
#[inline(always)]
fn odd64(sum: f64, error: f64) -> f64 {
    let bits = sum.to_bits();
    if error == 0.0 || bits & 1 == 1 || sum == 0.0 {
        return sum;
    }
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { bits + 1 } else { bits - 1 })
}
