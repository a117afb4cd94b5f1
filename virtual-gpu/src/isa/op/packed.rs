//! Two 16-bit values per register, dot products, mixed precision.

use super::lanes::{F16, Mix, Mode, Pk, PkF};
use super::math::*;
use super::run::valu;

/// Applies `f` to both halves.
#[inline(always)]
fn each(a: Pk, b: Pk, f: impl Fn(u16, u16) -> u16) -> Pk {
    Pk(f(a.0, b.0), f(a.1, b.1))
}

#[inline(always)]
fn each_float(a: PkF, b: PkF, f: impl Fn(F16, F16) -> F16) -> PkF {
    PkF(f(a.0, b.0), f(a.1, b.1))
}

/// Clamps to 16 bits, signed or unsigned, if the clamp bit is set.
#[inline(always)]
fn limited(mode: Mode, x: i64, low: i64, high: i64) -> u16 {
    if mode.clamp { x.clamp(low, high) as u16 } else { x as u16 }
}

#[inline(always)]
fn signed(mode: Mode, x: i64) -> u16 {
    limited(mode, x, -0x8000, 0x7fff)
}

#[inline(always)]
fn unsigned(mode: Mode, x: i64) -> u16 {
    limited(mode, x, 0, 0xffff)
}

#[inline(always)]
fn s(x: u16) -> i64 {
    i64::from(x as i16)
}

#[inline(always)]
fn u(x: u16) -> i64 {
    i64::from(x)
}

/// Adds the sum of products of `bits`-bit fields to an accumulator. Only the clamp bit needs more than 32 bits of it,
/// which take several times as long.
#[inline(always)]
fn dot_signed(mode: Mode, a: u32, b: u32, c: i32, bits: u32) -> i32 {
    let field = |x: u32, i: u32| (x << (32 - bits - i * bits)) as i32 >> (32 - bits);
    let product = |i: u32| field(a, i).wrapping_mul(field(b, i));
    if mode.clamp {
        let sum = (0..32 / bits).fold(i64::from(c), |sum, i| sum + i64::from(product(i)));
        return sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    }
    (0..32 / bits).fold(c, |sum, i| sum.wrapping_add(product(i)))
}

#[inline(always)]
fn dot_unsigned(mode: Mode, a: u32, b: u32, c: u32, bits: u32) -> u32 {
    let field = |x: u32, i: u32| x << (32 - bits - i * bits) >> (32 - bits);
    let product = |i: u32| field(a, i).wrapping_mul(field(b, i));
    if mode.clamp {
        let sum = (0..32 / bits).fold(u64::from(c), |sum, i| sum + u64::from(product(i)));
        return sum.min(u32::MAX.into()) as u32;
    }
    (0..32 / bits).fold(c, |sum, i| sum.wrapping_add(product(i)))
}

/// Returns c plus the products of halves, denormals of operands and results as zeros.
#[inline(always)]
fn dot_flushing(a: PkF, b: PkF, c: f32) -> f32 {
    let value = |x: F16| flush(if x.0 & 0x7c00 == 0 { F16(x.0 & 0x8000).f32() } else { x.f32() });
    let (high, low) = (value(a.1) * value(b.1), value(a.0) * value(b.0));
    flush(low + (high + flush(c)))
}

valu! {
    mode, lane;
    v_pk_mad_i16 (a: Pk, b: Pk, c: Pk) -> Pk {
        Pk(signed(mode, s(a.0) * s(b.0) + s(c.0)), signed(mode, s(a.1) * s(b.1) + s(c.1)))
    } [SATURATES]
    v_pk_mul_lo_u16 (a: Pk, b: Pk) -> Pk { each(a, b, u16::wrapping_mul) }
    v_pk_add_i16 (a: Pk, b: Pk) -> Pk { each(a, b, |x, y| signed(mode, s(x) + s(y))) } [SATURATES]
    v_pk_sub_i16 (a: Pk, b: Pk) -> Pk { each(a, b, |x, y| signed(mode, s(x) - s(y))) } [SATURATES]
    v_pk_lshlrev_b16 (a: Pk, b: Pk) -> Pk { each(a, b, |x, y| y << (x & 15)) }
    v_pk_lshrrev_b16 (a: Pk, b: Pk) -> Pk { each(a, b, |x, y| y >> (x & 15)) }
    v_pk_ashrrev_i16 (a: Pk, b: Pk) -> Pk { each(a, b, |x, y| (y as i16 >> (x & 15)) as u16) }
    v_pk_max_i16 (a: Pk, b: Pk) -> Pk { each(a, b, |x, y| (x as i16).max(y as i16) as u16) }
    v_pk_min_i16 (a: Pk, b: Pk) -> Pk { each(a, b, |x, y| (x as i16).min(y as i16) as u16) }
    v_pk_mad_u16 (a: Pk, b: Pk, c: Pk) -> Pk {
        Pk(unsigned(mode, u(a.0) * u(b.0) + u(c.0)), unsigned(mode, u(a.1) * u(b.1) + u(c.1)))
    } [SATURATES]
    v_pk_add_u16 (a: Pk, b: Pk) -> Pk { each(a, b, |x, y| unsigned(mode, u(x) + u(y))) } [SATURATES]
    v_pk_sub_u16 (a: Pk, b: Pk) -> Pk { each(a, b, |x, y| unsigned(mode, u(x) - u(y))) } [SATURATES]
    v_pk_max_u16 (a: Pk, b: Pk) -> Pk { each(a, b, u16::max) }
    v_pk_min_u16 (a: Pk, b: Pk) -> Pk { each(a, b, u16::min) }
    v_pk_fma_f16 (a: PkF, b: PkF, c: PkF) -> PkF { PkF(fma16(a.0, b.0, c.0), fma16(a.1, b.1, c.1)) }
    v_pk_add_f16 (a: PkF, b: PkF) -> PkF { each_float(a, b, |x, y| F16::of(x.f32() + y.f32())) }
    v_pk_mul_f16 (a: PkF, b: PkF) -> PkF { each_float(a, b, |x, y| F16::of(x.f32() * y.f32())) }
    v_pk_min_f16 (a: PkF, b: PkF) -> PkF { each_float(a, b, |x, y| min16(mode, x, y)) }
    v_pk_max_f16 (a: PkF, b: PkF) -> PkF { each_float(a, b, |x, y| max16(mode, x, y)) }
    v_fma_mix_f32 (a: Mix, b: Mix, c: Mix) -> f32 { a.0.mul_add(b.0, c.0) }
    v_fma_mixlo_f16 (a: Mix, b: Mix, c: Mix) -> F16 { F16::of(a.0.mul_add(b.0, c.0)) } [KEEP_HIGH]
    v_fma_mixhi_f16 (a: Mix, b: Mix, c: Mix) -> F16 { F16::of(a.0.mul_add(b.0, c.0)) } [KEEP_LOW]
    v_dot2_f32_f16 (a: PkF, b: PkF, c: f32) -> f32 {
        let (high, low) = (a.1.f32() * b.1.f32(), a.0.f32() * b.0.f32());
        low + (high + c)
    }
    // gfx90a replaces denormals with zeros in dot products of halves.
    v_dot2_f32_f16_flushing (a: PkF, b: PkF, c: f32) -> f32 { dot_flushing(a, b, c) }
    v_dot2c_f32_f16 (a: PkF, b: PkF, d: f32) -> f32 {
        let (high, low) = (a.1.f32() * b.1.f32(), a.0.f32() * b.0.f32());
        low + (high + d)
    } [ACC]
    v_dot2c_f32_f16_flushing (a: PkF, b: PkF, d: f32) -> f32 { dot_flushing(a, b, d) } [ACC]
    v_dot2c_i32_i16 (a: u32, b: u32, d: i32) -> i32 { dot_signed(mode, a, b, d, 16) } [ACC SATURATES]
    v_dot4c_i32_i8 (a: u32, b: u32, d: i32) -> i32 { dot_signed(mode, a, b, d, 8) } [ACC SATURATES]
    v_dot8c_i32_i4 (a: u32, b: u32, d: i32) -> i32 { dot_signed(mode, a, b, d, 4) } [ACC SATURATES]
    v_dot2_i32_i16 (a: u32, b: u32, c: i32) -> i32 { dot_signed(mode, a, b, c, 16) } [SATURATES]
    v_dot2_u32_u16 (a: u32, b: u32, c: u32) -> u32 { dot_unsigned(mode, a, b, c, 16) } [SATURATES]
    v_dot4_i32_i8 (a: u32, b: u32, c: i32) -> i32 { dot_signed(mode, a, b, c, 8) } [SATURATES]
    v_dot4_u32_u8 (a: u32, b: u32, c: u32) -> u32 { dot_unsigned(mode, a, b, c, 8) } [SATURATES]
    v_dot8_i32_i4 (a: u32, b: u32, c: i32) -> i32 { dot_signed(mode, a, b, c, 4) } [SATURATES]
    v_dot8_u32_u4 (a: u32, b: u32, c: u32) -> u32 { dot_unsigned(mode, a, b, c, 4) } [SATURATES]
    v_mad_mix_f32 (a: Mix, b: Mix, c: Mix) -> f32 { mad(a.0, b.0, c.0) } [FLUSH]
    v_mad_mixlo_f16 (a: Mix, b: Mix, c: Mix) -> F16 { F16::of(mad(a.0, b.0, c.0)) } [KEEP_HIGH FLUSH]
    v_mad_mixhi_f16 (a: Mix, b: Mix, c: Mix) -> F16 { F16::of(mad(a.0, b.0, c.0)) } [KEEP_LOW FLUSH]
}
