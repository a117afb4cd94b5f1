//! Operations of two or three sources with modifiers.

use super::binary::mad16;
use super::half;
use super::lanes::{F16, Quad, Vcc};
use super::math::*;
use super::pick::pick;
use super::run::valu;
use super::unary::half_toward_zero;

valu! {
    mode, lane;
    v_mad_legacy_f32 (a: f32, b: f32, c: f32) -> f32 { flush(flush(mul_legacy(flush(a), flush(b))) + flush(c)) } [FLUSH]
    v_mad_f32 (a: f32, b: f32, c: f32) -> f32 { mad(a, b, c) } [FLUSH]
    v_mad_i32_i24 (a: u32, b: u32, c: i32) -> i32 {
        let sum = i24(a) * i24(b) + i64::from(c);
        if mode.clamp { sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32 } else { sum as i32 }
    } [SATURATES]
    v_mad_u32_u24 (a: u32, b: u32, c: u32) -> u32 {
        let sum = u24(a) * u24(b) + u64::from(c);
        if mode.clamp { sum.min(u32::MAX.into()) as u32 } else { sum as u32 }
    } [SATURATES]
    v_cubeid_f32 (a: f32, b: f32, c: f32) -> f32 { cube(a, b, c).0 }
    v_cubesc_f32 (a: f32, b: f32, c: f32) -> f32 { cube(a, b, c).1 }
    v_cubetc_f32 (a: f32, b: f32, c: f32) -> f32 { cube(a, b, c).2 }
    v_cubema_f32 (a: f32, b: f32, c: f32) -> f32 { cube(a, b, c).3 }
    v_bfe_u32 (a: u32, b: u32, c: u32) -> u32 { (a >> (b & 31)) & ((1u32 << (c & 31)) - 1) }
    v_bfe_i32 (a: u32, b: u32, c: u32) -> i32 { bfe_signed(a, b & 31, c & 31) }
    v_bfi_b32 (a: u32, b: u32, c: u32) -> u32 { a & b | !a & c }
    v_fma_f32 (a: f32, b: f32, c: f32) -> f32 { a.mul_add(b, c) }
    v_fma_f64 (a: f64, b: f64, c: f64) -> f64 { a.mul_add(b, c) }
    v_lerp_u8 (a: u32, b: u32, c: u32) -> u32 {
        (0..4).fold(0, |d, i| {
            let byte = |x: u32| x >> (8 * i) & 255;
            d | (byte(a) + byte(b) + (byte(c) & 1)) >> 1 << (8 * i)
        })
    }
    v_alignbit_b32 (a: u32, b: u32, c: u32) -> u32 { ((u64::from(a) << 32 | u64::from(b)) >> (c & 31)) as u32 }
    v_alignbyte_b32 (a: u32, b: u32, c: u32) -> u32 { ((u64::from(a) << 32 | u64::from(b)) >> (8 * (c & 3))) as u32 }
    v_min3_f32 (a: f32, b: f32, c: f32) -> f32 { min32(mode, min32(mode, a, b), c) }
        => (are_in_order(a, b) & are_in_order(pick(a < b, a, b), c)) { let d = pick(a < b, a, b); pick(d < c, d, c) }
    v_min3_i32 (a: i32, b: i32, c: i32) -> i32 { a.min(b).min(c) }
    v_min3_u32 (a: u32, b: u32, c: u32) -> u32 { a.min(b).min(c) }
    v_max3_f32 (a: f32, b: f32, c: f32) -> f32 { max32(mode, max32(mode, a, b), c) }
        => (are_in_order(a, b) & are_in_order(pick(a > b, a, b), c)) { let d = pick(a > b, a, b); pick(d > c, d, c) }
    v_max3_i32 (a: i32, b: i32, c: i32) -> i32 { a.max(b).max(c) }
    v_max3_u32 (a: u32, b: u32, c: u32) -> u32 { a.max(b).max(c) }
    v_med3_f32 (a: f32, b: f32, c: f32) -> f32 { med32(mode, a, b, c) }
    v_med3_i32 (a: i32, b: i32, c: i32) -> i32 { a.max(b).min(a.min(b).max(c)) }
    v_med3_u32 (a: u32, b: u32, c: u32) -> u32 { a.max(b).min(a.min(b).max(c)) }
    v_sad_u8 (a: u32, b: u32, c: u32) -> u32 { sad_u8(a, b, c, false) }
    v_sad_hi_u8 (a: u32, b: u32, c: u32) -> u32 { (sad_u8(a, b, 0, false) << 16).wrapping_add(c) }
    v_sad_u16 (a: u32, b: u32, c: u32) -> u32 {
        (a & 0xffff).abs_diff(b & 0xffff).wrapping_add((a >> 16).abs_diff(b >> 16)).wrapping_add(c)
    }
    v_sad_u32 (a: u32, b: u32, c: u32) -> u32 { a.abs_diff(b).wrapping_add(c) }
    v_cvt_pk_u8_f32 (a: f32, b: u32, c: u32) -> u32 {
        let shift = 8 * (b & 3);
        c & !(255 << shift) | u32::from(a.round_ties_even() as u8) << shift
    }
    v_div_fixup_f32 (a: f32, b: f32, c: f32) -> f32 { fixup32(a, b, c) } => (needs_no_fixup32(a, b, c)) { of_sign(a, b, c) }
    v_div_fixup_f64 (a: f64, b: f64, c: f64) -> f64 { fixup64(a, b, c) }
    v_div_scale_f32 (a: f32, b: f32, c: f32) -> (f32, bool) { scale32(a, b, c) } => (needs_no_scale32(b, c)) { (a, false) }
    v_div_scale_f64 (a: f64, b: f64, c: f64) -> (f64, bool) { scale64(a, b, c) }
    v_div_fmas_f32 (a: f32, b: f32, c: f32, v: Vcc) -> f32 {
        let power = if exponent32(c) > 127 { 64 } else { -64 };
        if v.0 { fma_scaled32(a, b, c, power) } else { a.mul_add(b, c) }
    } => (!v.0) { a.mul_add(b, c) }
    v_div_fmas_f64 (a: f64, b: f64, c: f64, v: Vcc) -> f64 {
        let power = if exponent_field64(c) > 1023 { 128 } else { -128 };
        if v.0 { fma_scaled64(a, b, c, power) } else { a.mul_add(b, c) }
    }
    v_msad_u8 (a: u32, b: u32, c: u32) -> u32 { sad_u8(a, b, c, true) }
    v_qsad_pk_u16_u8 (a: u64, b: u32, c: u64) -> u64 { quad(a, b, c, false) }
    v_mqsad_pk_u16_u8 (a: u64, b: u32, c: u64) -> u64 { quad(a, b, c, true) }
    v_mqsad_u32_u8 (a: u64, b: u32, c: Quad) -> Quad { Quad } [SPECIAL]
    v_mad_u64_u32 (a: u32, b: u32, c: u64) -> (u64, bool) { (u64::from(a) * u64::from(b)).overflowing_add(c) }
    v_mad_i64_i32 (a: i32, b: i32, c: u64) -> (u64, bool) {
        let (sum, overflow) = (i64::from(a) * i64::from(b)).overflowing_add(c as i64);
        (sum as u64, overflow)
    }
    v_mad_legacy_f16 (a: F16, b: F16, c: F16) -> F16 { mad16(a, b, c) }
    v_mad_legacy_u16 (a: u16, b: u16, c: u16) -> u16 { a.wrapping_mul(b).wrapping_add(c) }
    v_mad_legacy_i16 (a: i16, b: i16, c: i16) -> i16 { a.wrapping_mul(b).wrapping_add(c) }
    v_perm_b32 (a: u32, b: u32, c: u32) -> u32 { perm(a, b, c) }
    v_fma_legacy_f16 (a: F16, b: F16, c: F16) -> F16 { fma16(a, b, c) }
    v_div_fixup_legacy_f16 (a: F16, b: F16, c: F16) -> F16 { fixup16(a, b, c) }
    v_cvt_pkaccum_u8_f32 (a: f32, b: u32, d: u32) -> u32 {
        let shift = 8 * (b & 3);
        d & !(255 << shift) | u32::from(a.round_ties_even() as u8) << shift
    } [ACC]
    v_mad_u32_u16 (a: u16, b: u16, c: u32) -> u32 {
        let product = u32::from(a) * u32::from(b);
        if mode.clamp { product.saturating_add(c) } else { product.wrapping_add(c) }
    } [SATURATES]
    v_mad_i32_i16 (a: i16, b: i16, c: i32) -> i32 {
        let product = i32::from(a) * i32::from(b);
        if mode.clamp { product.saturating_add(c) } else { product.wrapping_add(c) }
    } [SATURATES]
    v_xad_u32 (a: u32, b: u32, c: u32) -> u32 { (a ^ b).wrapping_add(c) }
    v_min3_f16 (a: F16, b: F16, c: F16) -> F16 { min16(mode, min16(mode, a, b), c) } [KEEP_HIGH]
    v_min3_i16 (a: i16, b: i16, c: i16) -> i16 { a.min(b).min(c) } [KEEP_HIGH]
    v_min3_u16 (a: u16, b: u16, c: u16) -> u16 { a.min(b).min(c) } [KEEP_HIGH]
    v_max3_f16 (a: F16, b: F16, c: F16) -> F16 { max16(mode, max16(mode, a, b), c) } [KEEP_HIGH]
    v_max3_i16 (a: i16, b: i16, c: i16) -> i16 { a.max(b).max(c) } [KEEP_HIGH]
    v_max3_u16 (a: u16, b: u16, c: u16) -> u16 { a.max(b).max(c) } [KEEP_HIGH]
    v_med3_f16 (a: F16, b: F16, c: F16) -> F16 { med16(mode, a, b, c) } [KEEP_HIGH]
    v_med3_i16 (a: i16, b: i16, c: i16) -> i16 { a.max(b).min(a.min(b).max(c)) } [KEEP_HIGH]
    v_med3_u16 (a: u16, b: u16, c: u16) -> u16 { a.max(b).min(a.min(b).max(c)) } [KEEP_HIGH]
    v_lshl_add_u32 (a: u32, b: u32, c: u32) -> u32 { (a << (b & 31)).wrapping_add(c) }
    v_add_lshl_u32 (a: u32, b: u32, c: u32) -> u32 { a.wrapping_add(b) << (c & 31) }
    v_add3_u32 (a: u32, b: u32, c: u32) -> u32 { a.wrapping_add(b).wrapping_add(c) }
    v_lshl_or_b32 (a: u32, b: u32, c: u32) -> u32 { a << (b & 31) | c }
    v_and_or_b32 (a: u32, b: u32, c: u32) -> u32 { a & b | c }
    v_or3_b32 (a: u32, b: u32, c: u32) -> u32 { a | b | c }
    v_mad_f16 (a: F16, b: F16, c: F16) -> F16 { mad16(a, b, c) } [KEEP_HIGH]
    v_mad_u16 (a: u16, b: u16, c: u16) -> u16 {
        let sum = u64::from(a) * u64::from(b) + u64::from(c);
        if mode.clamp { sum.min(0xffff) as u16 } else { sum as u16 }
    } [SATURATES KEEP_HIGH]
    v_mad_i16 (a: i16, b: i16, c: i16) -> i16 {
        let sum = i64::from(a) * i64::from(b) + i64::from(c);
        if mode.clamp { sum.clamp(-0x8000, 0x7fff) as i16 } else { sum as i16 }
    } [SATURATES KEEP_HIGH]
    v_fma_f16 (a: F16, b: F16, c: F16) -> F16 { fma16(a, b, c) } [KEEP_HIGH]
    v_div_fixup_f16 (a: F16, b: F16, c: F16) -> F16 { fixup16(a, b, c) } [KEEP_HIGH]
    v_add_f64 (a: f64, b: f64) -> f64 { a + b }
    v_mul_f64 (a: f64, b: f64) -> f64 { a * b }
    v_min_f64 (a: f64, b: f64) -> f64 { min64(mode, a, b) }
    v_max_f64 (a: f64, b: f64) -> f64 { max64(mode, a, b) }
    v_ldexp_f64 (a: f64, b: i32) -> f64 { ldexp64(a, b) }
    v_mul_lo_u32 (a: u32, b: u32) -> u32 { a.wrapping_mul(b) }
    v_mul_hi_u32 (a: u32, b: u32) -> u32 { ((u64::from(a) * u64::from(b)) >> 32) as u32 }
    v_mul_hi_i32 (a: i32, b: i32) -> i32 { ((i64::from(a) * i64::from(b)) >> 32) as i32 }
    v_ldexp_f32 (a: f32, b: i32) -> f32 { ldexp32(a, b) }
    v_readlane_b32 (a: u32, b: u32) -> u32 { a } [SPECIAL]
    v_writelane_b32 (a: u32, b: u32) -> u32 { a } [SPECIAL]
    v_bcnt_u32_b32 (a: u32, b: u32) -> u32 { a.count_ones().wrapping_add(b) }
    v_mbcnt_lo_u32_b32 (a: u32, b: u32) -> u32 {
        let below = if lane < 32 { (1u32 << lane) - 1 } else { u32::MAX };
        (a & below).count_ones().wrapping_add(b)
    }
    v_mbcnt_hi_u32_b32 (a: u32, b: u32) -> u32 {
        let below = if lane < 32 { 0 } else { (1u32 << (lane - 32)) - 1 };
        (a & below).count_ones().wrapping_add(b)
    }
    v_lshlrev_b64 (a: u32, b: u64) -> u64 { b << (a & 63) }
    v_lshrrev_b64 (a: u32, b: u64) -> u64 { b >> (a & 63) }
    v_ashrrev_i64 (a: u32, b: i64) -> i64 { b >> (a & 63) }
    v_trig_preop_f64 (a: f64, b: u32) -> f64 { preop(a, b) }
    v_bfm_b32 (a: u32, b: u32) -> u32 { ((1u32 << (a & 31)) - 1) << (b & 31) }
    v_cvt_pknorm_i16_f32 (a: f32, b: f32) -> u32 { norm_signed(a) | norm_signed(b) << 16 }
    v_cvt_pknorm_u16_f32 (a: f32, b: f32) -> u32 { norm_unsigned(a) | norm_unsigned(b) << 16 }
    v_cvt_pkrtz_f16_f32 (a: f32, b: f32) -> u32 { half_toward_zero(a) | half_toward_zero(b) << 16 }
    v_cvt_pk_u16_u32 (a: u32, b: u32) -> u32 { a.min(0xffff) | b.min(0xffff) << 16 }
    v_cvt_pk_i16_i32 (a: i32, b: i32) -> u32 {
        let limited = |x: i32| x.clamp(-0x8000, 0x7fff) as u32 & 0xffff;
        limited(a) | limited(b) << 16
    }
    v_cvt_pknorm_i16_f16 (a: F16, b: F16) -> u32 { norm_signed(a.f32()) | norm_signed(b.f32()) << 16 }
    v_cvt_pknorm_u16_f16 (a: F16, b: F16) -> u32 { norm_unsigned(a.f32()) | norm_unsigned(b.f32()) << 16 }
    v_add_i32 (a: i32, b: i32) -> i32 { if mode.clamp { a.saturating_add(b) } else { a.wrapping_add(b) } } [SATURATES]
    v_sub_i32 (a: i32, b: i32) -> i32 { if mode.clamp { a.saturating_sub(b) } else { a.wrapping_sub(b) } } [SATURATES]
    v_add_i16 (a: i16, b: i16) -> i16 { if mode.clamp { a.saturating_add(b) } else { a.wrapping_add(b) } } [SATURATES KEEP_HIGH]
    v_sub_i16 (a: i16, b: i16) -> i16 { if mode.clamp { a.saturating_sub(b) } else { a.wrapping_sub(b) } } [SATURATES KEEP_HIGH]
    v_pack_b32_f16 (a: F16, b: F16) -> u32 { u32::from(a.0) | u32::from(b.0) << 16 }
}

#[inline(always)]
fn bfe_signed(a: u32, offset: u32, width: u32) -> i32 {
    if width == 0 {
        return 0;
    }
    // Bits above 31 are copies of bit 31.
    let shifted = a as i32 >> offset;
    let unused = 32 - width;
    shifted << unused >> unused
}

#[inline(always)]
fn norm_signed(x: f32) -> u32 {
    u32::from((x.clamp(-1.0, 1.0) * 32767.0).round_ties_even() as i16 as u16)
}

#[inline(always)]
fn norm_unsigned(x: f32) -> u32 {
    u32::from((x.clamp(0.0, 1.0) * 65535.0).round_ties_even() as u16)
}

/// Returns face, two coordinates and twice the major axis of a direction (x, y, z) in a cube.
#[inline(always)]
fn cube(x: f32, y: f32, z: f32) -> (f32, f32, f32, f32) {
    let (ax, ay, az) = (x.abs(), y.abs(), z.abs());
    if az >= ax && az >= ay {
        if z < 0.0 { (5.0, -x, -y, 2.0 * z) } else { (4.0, x, -y, 2.0 * z) }
    } else if ay >= ax {
        if y < 0.0 { (3.0, x, -z, 2.0 * y) } else { (2.0, x, z, 2.0 * y) }
    } else if x < 0.0 {
        (1.0, z, -y, 2.0 * x)
    } else {
        (0.0, -z, -y, 2.0 * x)
    }
}

/// Returns four sums of absolute differences between the bytes of b and those of a from byte 0, 1, 2, 3.
#[inline(always)]
fn quad(a: u64, b: u32, c: u64, masked: bool) -> u64 {
    (0..4).fold(0, |d, i| {
        let sum = sad_u8((a >> (8 * i)) as u32, b, (c >> (16 * i)) as u32 & 0xffff, masked);
        d | u64::from(sum.min(0xffff)) << (16 * i)
    })
}

/// Corrects the special cases of a quotient `a` with denominator `b` and numerator `c`. `tiny`: the quotient
/// is below the smallest denormal.
#[inline(always)]
fn fixup(a: f64, b: f64, c: f64, tiny: bool) -> f64 {
    let negative = b.is_sign_negative() != c.is_sign_negative();
    let signed = |x: f64| if negative { -x } else { x };
    if c.is_nan() {
        quiet64(c)
    } else if b.is_nan() {
        quiet64(b)
    } else if b == 0.0 && c == 0.0 || b.is_infinite() && c.is_infinite() {
        f64::from_bits(0xfff8_0000_0000_0000)
    } else if b == 0.0 || c.is_infinite() {
        signed(f64::INFINITY)
    } else if b.is_infinite() || c == 0.0 || tiny {
        signed(0.0)
    } else if a.is_nan() {
        // The division's steps overflowed.
        signed(f64::INFINITY)
    } else {
        signed(a.abs())
    }
}

/// Returns true for the quotient `a` of ordinary values `b` and `c`, which is one itself. Bitwise, so that the host's compiler
/// makes no branches of it.
#[inline(always)]
fn needs_no_fixup32(a: f32, b: f32, c: f32) -> bool {
    let (exp_b, exp_c) = (exponent32(b), exponent32(c));
    let ordinary = |exponent: i32| (1..=254).contains(&exponent);
    ordinary(exp_b) & ordinary(exp_c) & (exponent32(a) < 255) & (exp_c - exp_b >= -150)
}

/// Returns a quotient with the sign that it has.
#[inline(always)]
fn of_sign(a: f32, b: f32, c: f32) -> f32 {
    f32::from_bits(a.to_bits() & !(1 << 31) | (b.to_bits() ^ c.to_bits()) & 1 << 31)
}

#[inline(always)]
fn fixup32(a: f32, b: f32, c: f32) -> f32 {
    if needs_no_fixup32(a, b, c) {
        return of_sign(a, b, c);
    }
    fixup(a.into(), b.into(), c.into(), exponent32(c) - exponent32(b) < -150) as f32
}

#[inline(always)]
fn fixup64(a: f64, b: f64, c: f64) -> f64 {
    fixup(a, b, c, exponent_field64(c) - exponent_field64(b) < -1075)
}

#[inline(always)]
fn exponent32(x: f32) -> i32 {
    (x.to_bits() >> 23 & 255) as i32
}

#[inline(always)]
fn exponent_field64(x: f64) -> i32 {
    (x.to_bits() >> 52 & 2047) as i32
}

#[inline(always)]
fn fixup16(a: F16, b: F16, c: F16) -> F16 {
    F16(half::from_f64(fixup(a.f32().into(), b.f32().into(), c.f32().into(), false)))
}

/// Inputs of a division's scaling: exponents of denominator and numerator, and if the denominator, its
/// reciprocal and the quotient are denormal.
struct Division {
    exponents: [i32; 2],
    denormal: [bool; 3],
}

/// `v_div_scale`: scales an operand by a power of two so that the division's steps neither overflow nor lose
/// digits. Also returns true if `v_div_fmas` has to undo the scaling, which it does depending on the
/// quotient's size: up if it is large, down if it is small. `a` is the operand to scale: the denominator `b`
/// or the numerator `c`.
///
/// If reciprocal and quotient are denormal, the manual scales the denominator up, which would overflow and
/// could not be undone; this function scales it down.
#[inline(always)]
fn scale(a: f64, b: f64, c: f64, of: &Division, range: i32, power: i32) -> (f64, bool) {
    let is_denominator = a.to_bits() == b.to_bits();
    let [exp_b, exp_c] = of.exponents;
    let [denominator_denormal, reciprocal_denormal, quotient_denormal] = of.denormal;
    if b == 0.0 || c == 0.0 {
        (f64::NAN, false)
    } else if exp_c - exp_b >= range {
        (if is_denominator { ldexp64(a, power) } else { a }, true)
    } else if denominator_denormal {
        (ldexp64(a, power), false)
    } else if reciprocal_denormal && quotient_denormal {
        (if is_denominator { ldexp64(a, -power) } else { a }, true)
    } else if reciprocal_denormal {
        (ldexp64(a, -power), false)
    } else if quotient_denormal {
        (if is_denominator { a } else { ldexp64(a, power) }, true)
    } else if exp_c <= if range == 96 { 23 } else { 53 } {
        (ldexp64(a, power), false)
    } else {
        (a, false)
    }
}

/// Returns true for operands of a division far from all that needs scaling, as most are.
#[inline(always)]
fn needs_no_scale32(b: f32, c: f32) -> bool {
    let (exp_b, exp_c) = (exponent32(b), exponent32(c));
    (1..=252).contains(&exp_b) & (24..=254).contains(&exp_c) & (-124..=95).contains(&(exp_c - exp_b))
}

#[inline(always)]
fn scale32(a: f32, b: f32, c: f32) -> (f32, bool) {
    // No division then.
    if needs_no_scale32(b, c) {
        return (a, false);
    }
    let (exp_b, exp_c) = (exponent32(b), exponent32(c));
    let small = |x: f32| x != 0.0 && x.abs() < f32::MIN_POSITIVE;
    let denormal = [small(b), small(1.0 / b), small(c / b)];
    let division = Division { exponents: [exp_b, exp_c], denormal };
    let (d, back) = scale(a.into(), b.into(), c.into(), &division, 96, 64);
    (d as f32, back)
}

#[inline(always)]
fn scale64(a: f64, b: f64, c: f64) -> (f64, bool) {
    let small = |x: f64| x != 0.0 && x.abs() < f64::MIN_POSITIVE;
    let denormal = [small(b), small(1.0 / b), small(c / b)];
    let division = Division { exponents: [exponent_field64(b), exponent_field64(c)], denormal };
    scale(a, b, c, &division, 768, 128)
}

/// 1201 bits of 2/pi after the binary point, most significant first.
const TWO_OVER_PI: [u64; 19] = [
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_6bab,
];

/// Returns 53 bits of 2/pi for the reduction of the large argument `a`: segment `b`.
#[inline(always)]
fn preop(a: f64, b: u32) -> f64 {
    let exponent = (a.to_bits() >> 52 & 2047) as i32;
    let mut shift = (b & 31) * 53;
    if exponent > 1077 {
        shift += (exponent - 1077) as u32;
    }
    let bits = (0..53).fold(0u64, |bits, i| {
        let at = shift + i;
        let bit = TWO_OVER_PI.get(at as usize / 64).map_or(0, |word| word >> (63 - at % 64) & 1);
        bits << 1 | bit
    });
    let scale = -53 - shift as i32 + if exponent >= 1968 { 128 } else { 0 };
    ldexp64(bits as f64, scale)
}
