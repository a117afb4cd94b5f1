//! Operations of one source.
//!
//! A row is `name (source) -> result { formula }`. Rows marked SPECIAL are executed separately, and
//! their formulas are not used: `v_readfirstlane_b32` writes a scalar register, `v_swap_b32` writes both
//! registers, and `v_screen_partition_4se_b32` is not implemented.

use super::half;
use super::lanes::F16;
use super::math::*;
use super::run::valu;

valu! {
    mode, lane;
    v_nop () -> () { }
    v_mov_b32 (a: u32) -> u32 { a }
    v_readfirstlane_b32 (a: u32) -> u32 { a } [SPECIAL]
    v_cvt_i32_f64 (a: f64) -> i32 { a as i32 }
    v_cvt_f64_i32 (a: i32) -> f64 { f64::from(a) }
    v_cvt_f32_i32 (a: i32) -> f32 { a as f32 }
    v_cvt_f32_u32 (a: u32) -> f32 { a as f32 }
    v_cvt_u32_f32 (a: f32) -> u32 { a as u32 }
    v_cvt_i32_f32 (a: f32) -> i32 { a as i32 }
    v_cvt_f16_f32 (a: f32) -> F16 { F16::of(a) }
    v_cvt_f32_f16 (a: F16) -> f32 { a.f32() }
    v_cvt_rpi_i32_f32 (a: f32) -> i32 { (f64::from(a) + 0.5).floor() as i32 }
    v_cvt_flr_i32_f32 (a: f32) -> i32 { a.floor() as i32 }
    v_cvt_off_f32_i4 (a: u32) -> f32 { ((a << 28) as i32 >> 28) as f32 * 0.0625 }
    v_cvt_f32_f64 (a: f64) -> f32 { a as f32 }
    v_cvt_f64_f32 (a: f32) -> f64 { f64::from(a) }
    v_cvt_f32_ubyte0 (a: u32) -> f32 { (a & 255) as f32 }
    v_cvt_f32_ubyte1 (a: u32) -> f32 { (a >> 8 & 255) as f32 }
    v_cvt_f32_ubyte2 (a: u32) -> f32 { (a >> 16 & 255) as f32 }
    v_cvt_f32_ubyte3 (a: u32) -> f32 { (a >> 24) as f32 }
    v_cvt_u32_f64 (a: f64) -> u32 { a as u32 }
    v_cvt_f64_u32 (a: u32) -> f64 { f64::from(a) }
    v_trunc_f64 (a: f64) -> f64 { quiet64(a.trunc()) }
    v_ceil_f64 (a: f64) -> f64 { quiet64(a.ceil()) }
    v_rndne_f64 (a: f64) -> f64 { quiet64(a.round_ties_even()) }
    v_floor_f64 (a: f64) -> f64 { quiet64(a.floor()) }
    v_fract_f32 (a: f32) -> f32 { fract32(a) }
    v_trunc_f32 (a: f32) -> f32 { quiet(a.trunc()) }
    v_ceil_f32 (a: f32) -> f32 { quiet(a.ceil()) }
    v_rndne_f32 (a: f32) -> f32 { quiet(a.round_ties_even()) }
    v_floor_f32 (a: f32) -> f32 { quiet(a.floor()) }
    v_exp_f32 (a: f32) -> f32 { flush(f64::from(flush(a)).exp2() as f32) }
    v_log_f32 (a: f32) -> f32 { f64::from(flush(a)).log2() as f32 }
    v_rcp_f32 (a: f32) -> f32 { flush(1.0 / flush(a)) }
    v_rcp_iflag_f32 (a: f32) -> f32 { flush(1.0 / flush(a)) }
    v_rsq_f32 (a: f32) -> f32 { (1.0 / f64::from(flush(a)).sqrt()) as f32 }
    v_rcp_f64 (a: f64) -> f64 { 1.0 / a }
    v_rsq_f64 (a: f64) -> f64 { 1.0 / a.sqrt() }
    v_sqrt_f32 (a: f32) -> f32 { flush(a).sqrt() }
    v_sqrt_f64 (a: f64) -> f64 { a.sqrt() }
    v_sin_f32 (a: f32) -> f32 { sin_turns(f64::from(flush(a))) as f32 }
    v_cos_f32 (a: f32) -> f32 { cos_turns(f64::from(flush(a))) as f32 }
    v_not_b32 (a: u32) -> u32 { !a }
    v_bfrev_b32 (a: u32) -> u32 { a.reverse_bits() }
    v_ffbh_u32 (a: u32) -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } }
    v_ffbl_b32 (a: u32) -> u32 { if a == 0 { u32::MAX } else { a.trailing_zeros() } }
    v_ffbh_i32 (a: u32) -> u32 {
        let differ = a ^ (a as i32 >> 31) as u32;
        if differ == 0 { u32::MAX } else { differ.leading_zeros() }
    }
    v_frexp_exp_i32_f64 (a: f64) -> i32 { exponent64(a) }
    v_frexp_mant_f64 (a: f64) -> f64 { mantissa64(a) }
    v_fract_f64 (a: f64) -> f64 { fract64(a) }
    v_frexp_exp_i32_f32 (a: f32) -> i32 { exponent64(f64::from(a)) }
    v_frexp_mant_f32 (a: f32) -> f32 { mantissa64(f64::from(a)) as f32 }
    v_clrexcp () -> () { }
    v_screen_partition_4se_b32 (a: u32) -> u32 { a } [SPECIAL]
    v_cvt_f16_u16 (a: u16) -> F16 { F16::of(f32::from(a)) }
    v_cvt_f16_i16 (a: i16) -> F16 { F16::of(f32::from(a)) }
    v_cvt_u16_f16 (a: F16) -> u16 { a.f32() as u16 }
    v_cvt_i16_f16 (a: F16) -> i16 { a.f32() as i16 }
    v_rcp_f16 (a: F16) -> F16 { F16::of64(1.0 / f64::from(a.f32())) }
    v_sqrt_f16 (a: F16) -> F16 { F16::of64(f64::from(a.f32()).sqrt()) }
    v_rsq_f16 (a: F16) -> F16 { F16::of64(1.0 / f64::from(a.f32()).sqrt()) }
    v_log_f16 (a: F16) -> F16 { F16::of64(f64::from(a.f32()).log2()) }
    v_exp_f16 (a: F16) -> F16 { F16::of64(f64::from(a.f32()).exp2()) }
    v_frexp_mant_f16 (a: F16) -> F16 { F16::of64(mantissa64(f64::from(a.f32()))) }
    v_frexp_exp_i16_f16 (a: F16) -> i16 { exponent64(f64::from(a.f32())) as i16 }
    v_floor_f16 (a: F16) -> F16 { F16::of(a.f32().floor()) }
    v_ceil_f16 (a: F16) -> F16 { F16::of(a.f32().ceil()) }
    v_trunc_f16 (a: F16) -> F16 { F16::of(a.f32().trunc()) }
    v_rndne_f16 (a: F16) -> F16 { F16::of(a.f32().round_ties_even()) }
    v_fract_f16 (a: F16) -> F16 {
        let fraction = F16::of(a.f32() - a.f32().floor());
        if fraction.0 == 0x3c00 { F16(0x3bff) } else { fraction }
    }
    v_sin_f16 (a: F16) -> F16 { F16::of64(sin_turns(f64::from(a.f32()))) }
    v_cos_f16 (a: F16) -> F16 { F16::of64(cos_turns(f64::from(a.f32()))) }
    v_exp_legacy_f32 (a: f32) -> f32 { flush(f64::from(flush(a)).exp2() as f32) }
    v_log_legacy_f32 (a: f32) -> f32 { f64::from(flush(a)).log2() as f32 }
    v_cvt_norm_i16_f16 (a: F16) -> i16 { (a.f32().clamp(-1.0, 1.0) * 32767.0).round_ties_even() as i16 }
    v_cvt_norm_u16_f16 (a: F16) -> u16 { (a.f32().clamp(0.0, 1.0) * 65535.0).round_ties_even() as u16 }
    v_sat_pk_u8_i16 (a: u32) -> u32 {
        let limited = |x: u32| (x as u16 as i16).clamp(0, 255) as u32;
        limited(a) | limited(a >> 16) << 8
    }
    v_swap_b32 (a: u32) -> u32 { a } [SPECIAL]
}

/// Rounds to a half toward zero and returns its bits: one of the two values of `v_cvt_pkrtz_f16_f32`.
#[inline(always)]
pub(super) fn half_toward_zero(a: f32) -> u32 {
    u32::from(half::from_f32_toward_zero(a))
}
