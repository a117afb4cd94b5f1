//! Vector operations that RDNA has and GFX9 lacks. Rows marked SPECIAL move values between lanes or registers and are
//! executed separately.
//!
//! Source: AMD, ""RDNA3.5" Instruction Set Architecture" (2024).

use super::lanes::{Bit, F16, Mode, PkF};
use super::math::*;
use super::run::valu;

valu! {
    mode, lane;
    v_pipeflush () -> () { }
    v_mov_b16 (a: u16) -> u16 { a }
    v_not_b16 (a: u16) -> u16 { !a }
    v_sat_pk_u8_i16_d16 (a: u32) -> u16 {
        let limited = |x: u32| (x as u16 as i16).clamp(0, 255) as u16;
        limited(a) | limited(a >> 16) << 8
    }
    v_cvt_i32_i16 (a: i16) -> i32 { i32::from(a) }
    v_cvt_u32_u16 (a: u16) -> u32 { u32::from(a) }
    v_movreld_b32 (a: u32) -> u32 { a } [SPECIAL]
    v_movrels_b32 (a: u32) -> u32 { a } [SPECIAL]
    v_movrelsd_b32 (a: u32) -> u32 { a } [SPECIAL]
    v_movrelsd_2_b32 (a: u32) -> u32 { a } [SPECIAL]
    v_swaprel_b32 (a: u32) -> u32 { a } [SPECIAL]
    v_permlane64_b32 (a: u32) -> u32 { a } [SPECIAL]
    v_permlane16_b32 (a: u32, b: u32, c: u32) -> u32 { a } [SPECIAL]
    v_permlanex16_b32 (a: u32, b: u32, c: u32) -> u32 { a } [SPECIAL]

    v_and_b16 (a: u16, b: u16) -> u16 { a & b }
    v_or_b16 (a: u16, b: u16) -> u16 { a | b }
    v_xor_b16 (a: u16, b: u16) -> u16 { a ^ b }
    v_cvt_pk_i16_f32 (a: f32, b: f32) -> u32 { u32::from(a as i16 as u16) | u32::from(b as i16 as u16) << 16 }
    v_cvt_pk_u16_f32 (a: f32, b: f32) -> u32 { u32::from(a as u16) | u32::from(b as u16) << 16 }
    v_cndmask_b16 (a: u16, b: u16, c: Bit) -> u16 { if c.0 { b } else { a } }
    v_xor3_b32 (a: u32, b: u32, c: u32) -> u32 { a ^ b ^ c }

    v_fmac_f16 (a: F16, b: F16, d: F16) -> F16 { fma16(a, b, d) } [ACC KEEP_HIGH]
    v_fmamk_f16 (a: F16, k: F16, b: F16) -> F16 { fma16(a, k, b) } [LITERAL1 KEEP_HIGH]
    v_fmaak_f16 (a: F16, b: F16, k: F16) -> F16 { fma16(a, b, k) } [LITERAL2 KEEP_HIGH]
    v_fma_legacy_f32 (a: f32, b: f32, c: f32) -> f32 { if a == 0.0 || b == 0.0 { c } else { a.mul_add(b, c) } }
    v_fmac_legacy_f32 (a: f32, b: f32, d: f32) -> f32 { if a == 0.0 || b == 0.0 { d } else { a.mul_add(b, d) } } [ACC]
    v_mullit_f32 (a: f32, b: f32, c: f32) -> f32 {
        let lit = b > -f32::MAX && c > 0.0;
        if lit { a * b } else { -f32::MAX }
    }

    v_minmax_f32 (a: f32, b: f32, c: f32) -> f32 { max32(mode, min32(mode, a, b), c) }
    v_maxmin_f32 (a: f32, b: f32, c: f32) -> f32 { min32(mode, max32(mode, a, b), c) }
    v_minmax_f16 (a: F16, b: F16, c: F16) -> F16 { max16(mode, min16(mode, a, b), c) }
    v_maxmin_f16 (a: F16, b: F16, c: F16) -> F16 { min16(mode, max16(mode, a, b), c) }
    v_minmax_i32 (a: i32, b: i32, c: i32) -> i32 { a.min(b).max(c) }
    v_maxmin_i32 (a: i32, b: i32, c: i32) -> i32 { a.max(b).min(c) }
    v_minmax_u32 (a: u32, b: u32, c: u32) -> u32 { a.min(b).max(c) }
    v_maxmin_u32 (a: u32, b: u32, c: u32) -> u32 { a.max(b).min(c) }

    v_dot2_f32_bf16 (a: PkF, b: PkF, c: f32) -> f32 {
        let (high, low) = (bf16(a.1) * bf16(b.1), bf16(a.0) * bf16(b.0));
        low + (high + c)
    }
    v_dot2_f16_f16 (a: PkF, b: PkF, c: F16) -> F16 {
        let product = |x: F16, y: F16| f64::from(x.f32()) * f64::from(y.f32());
        F16::of64(product(a.0, b.0) + product(a.1, b.1) + f64::from(c.f32()))
    }
    v_dot2_bf16_bf16 (a: PkF, b: PkF, c: u16) -> u16 {
        let product = |x: F16, y: F16| f64::from(bf16(x)) * f64::from(bf16(y));
        to_bf16(product(a.0, b.0) + product(a.1, b.1) + f64::from(bf16(F16(c))))
    }
    v_dot4_i32_iu8 (a: u32, b: u32, c: i32) -> i32 { dot(mode, a, b, c, 8) } [SATURATES]
    v_dot8_i32_iu4 (a: u32, b: u32, c: i32) -> i32 { dot(mode, a, b, c, 4) } [SATURATES]
}

/// Returns the value of a BF16: the upper half of an F32.
#[inline(always)]
fn bf16(x: F16) -> f32 {
    f32::from_bits(u32::from(x.0) << 16)
}

/// Rounds to the nearest BF16, ties to even, in one rounding: the intermediate F32 is rounded to odd.
#[inline(always)]
pub(crate) fn to_bf16(x: f64) -> u16 {
    let nearest = x as f32;
    let (bits, error) = (nearest.to_bits(), x - f64::from(nearest));
    if nearest.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    let toward_zero = (error < 0.0) == (x > 0.0);
    let step = if toward_zero { bits.wrapping_sub(1) } else { bits.wrapping_add(1) };
    let inexact = error != 0.0 && bits & 1 == 0 && nearest.is_finite();
    let odd = if inexact { step } else { bits };
    (odd.wrapping_add(0x7fff + (odd >> 16 & 1)) >> 16) as u16
}

/// Adds the sum of products of `bits`-bit fields to an accumulator. The instruction's negation bits say which sources
/// are signed.
#[inline(always)]
fn dot(mode: Mode, a: u32, b: u32, c: i32, bits: u32) -> i32 {
    let field = |x: u32, i: u32, signed: bool| {
        let top = x << (32 - bits - i * bits);
        if signed { i64::from(top as i32 >> (32 - bits)) } else { i64::from(top >> (32 - bits)) }
    };
    let product = |i: u32| field(a, i, mode.negated & 1 != 0) * field(b, i, mode.negated & 2 != 0);
    let sum = (0..32 / bits).fold(i64::from(c), |sum, i| sum + product(i));
    if mode.clamp { sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32 } else { sum as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_f32_are_rounded_once() {
        for bits in (0..=u16::MAX).step_by(7) {
            let value = f64::from(bf16(F16(bits)));
            if value.is_finite() {
                assert_eq!(to_bf16(value), bits);
            }
        }
        // 1 + 2^-8 is a tie, which the even neighbour wins; anything above it, however little, is not.
        assert_eq!((to_bf16(1.00390625), to_bf16(1.00390625 + 1e-12)), (0x3f80, 0x3f81));
        assert_eq!((to_bf16(-1.01171875), to_bf16(1e39), to_bf16(-1e39)), (0xbf82, 0x7f80, 0xff80));
        assert!(bf16(F16(to_bf16(f64::NAN))).is_nan());
    }
}
