//! Operations that CDNA alone has: two F32 at once, accumulation registers, 8-bit floats.

use super::fp8::{self, BF8, FP8, Format};
use super::lanes::{Mode, Pk32, PkF, PkF32};
use super::math::*;
use super::run::valu;

valu! {
    mode, lane;
    v_pk_fma_f32 (a: PkF32, b: PkF32, c: PkF32) -> PkF32 { PkF32(a.0.mul_add(b.0, c.0), a.1.mul_add(b.1, c.1)) }
    v_pk_mul_f32 (a: PkF32, b: PkF32) -> PkF32 { PkF32(a.0 * b.0, a.1 * b.1) }
    v_pk_add_f32 (a: PkF32, b: PkF32) -> PkF32 { PkF32(a.0 + b.0, a.1 + b.1) }
    // The modifiers choose which words are the low ones.
    v_pk_mov_b32 (a: Pk32, b: Pk32) -> Pk32 { Pk32(a.0, b.0) }
    v_pk_fmac_f16 (a: PkF, b: PkF, d: PkF) -> PkF { PkF(fma16(a.0, b.0, d.0), fma16(a.1, b.1, d.1)) } [ACC]
    v_fmac_f64 (a: f64, b: f64, d: f64) -> f64 { a.mul_add(b, d) } [ACC]
    v_mov_b64 (a: u64) -> u64 { a }
    v_lshl_add_u64 (a: u64, b: u32, c: u64) -> u64 { (a << (b & 7)).wrapping_add(c) }
    v_accvgpr_read_b32 (a: u32) -> u32 { a } [SPECIAL]
    v_accvgpr_write_b32 (a: u32) -> u32 { a } [SPECIAL]
    v_accvgpr_mov_b32 (a: u32) -> u32 { a } [SPECIAL]
    v_cvt_f32_fp8 (a: u32) -> f32 { fp8::to_f32(a as u8, FP8) }
    v_cvt_f32_bf8 (a: u32) -> f32 { fp8::to_f32(a as u8, BF8) }
    v_cvt_pk_f32_fp8 (a: u32) -> PkF32 { two(a, FP8) }
    v_cvt_pk_f32_bf8 (a: u32) -> PkF32 { two(a, BF8) }
    v_cvt_pk_fp8_f32 (a: f32, b: f32) -> u16 { pack(mode, a, b, FP8) } [KEEP_HIGH]
    v_cvt_pk_bf8_f32 (a: f32, b: f32) -> u16 { pack(mode, a, b, BF8) } [KEEP_HIGH]
    // They write one byte, which a modifier chooses.
    v_cvt_sr_fp8_f32 (a: f32, b: u32) -> u32 { b } [SPECIAL]
    v_cvt_sr_bf8_f32 (a: f32, b: u32) -> u32 { b } [SPECIAL]
}

fn two(bits: u32, format: Format) -> PkF32 {
    PkF32(fp8::to_f32(bits as u8, format), fp8::to_f32((bits >> 8) as u8, format))
}

/// Rounds two values. FP16_OVFL in MODE makes those that are too large the largest.
fn pack(mode: Mode, a: f32, b: f32, format: Format) -> u16 {
    let saturate = mode.bits >> 23 & 1 != 0;
    u16::from(fp8::nearest(a, format, saturate)) | u16::from(fp8::nearest(b, format, saturate)) << 8
}
