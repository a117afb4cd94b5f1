//! VOP2: two sources, or three of which one is the destination, a literal or a mask.

use super::lanes::{Bit, F16, valu};
use super::math::*;

valu! {
    mode, lane;
    0x00 v_cndmask_b32 (a: u32, b: u32, c: Bit) -> u32 { if c.0 { b } else { a } }
    0x01 v_add_f32 (a: f32, b: f32) -> f32 { a + b }
    0x02 v_sub_f32 (a: f32, b: f32) -> f32 { a - b }
    0x03 v_subrev_f32 (a: f32, b: f32) -> f32 { b - a }
    0x04 v_mul_legacy_f32 (a: f32, b: f32) -> f32 { mul_legacy(a, b) }
    0x05 v_mul_f32 (a: f32, b: f32) -> f32 { a * b }
    0x06 v_mul_i32_i24 (a: u32, b: u32) -> u32 { i24(a).wrapping_mul(i24(b)) as u32 }
    0x07 v_mul_hi_i32_i24 (a: u32, b: u32) -> u32 { ((i24(a) * i24(b)) >> 32) as u32 }
    0x08 v_mul_u32_u24 (a: u32, b: u32) -> u32 { (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff) }
    0x09 v_mul_hi_u32_u24 (a: u32, b: u32) -> u32 { ((u24(a) * u24(b)) >> 32) as u32 }
    0x0a v_min_f32 (a: f32, b: f32) -> f32 { min32(mode, a, b) }
    0x0b v_max_f32 (a: f32, b: f32) -> f32 { max32(mode, a, b) }
    0x0c v_min_i32 (a: i32, b: i32) -> i32 { a.min(b) }
    0x0d v_max_i32 (a: i32, b: i32) -> i32 { a.max(b) }
    0x0e v_min_u32 (a: u32, b: u32) -> u32 { a.min(b) }
    0x0f v_max_u32 (a: u32, b: u32) -> u32 { a.max(b) }
    0x10 v_lshrrev_b32 (a: u32, b: u32) -> u32 { b >> (a & 31) }
    0x11 v_ashrrev_i32 (a: u32, b: i32) -> i32 { b >> (a & 31) }
    0x12 v_lshlrev_b32 (a: u32, b: u32) -> u32 { b << (a & 31) }
    0x13 v_and_b32 (a: u32, b: u32) -> u32 { a & b }
    0x14 v_or_b32 (a: u32, b: u32) -> u32 { a | b }
    0x15 v_xor_b32 (a: u32, b: u32) -> u32 { a ^ b }
    0x16 v_mac_f32 (a: f32, b: f32, d: f32) -> f32 { mad(a, b, d) } [ACC FLUSH]
    0x17 v_madmk_f32 (a: f32, k: f32, b: f32) -> f32 { mad(a, k, b) } [LITERAL1 FLUSH]
    0x18 v_madak_f32 (a: f32, b: f32, k: f32) -> f32 { mad(a, b, k) } [LITERAL2 FLUSH]
    0x19 v_add_co_u32 (a: u32, b: u32) -> (u32, bool) {
        if mode.clamp { (a.saturating_add(b), a.checked_add(b).is_none()) } else { a.overflowing_add(b) }
    } [SATURATES]
    0x1a v_sub_co_u32 (a: u32, b: u32) -> (u32, bool) {
        if mode.clamp { (a.saturating_sub(b), b > a) } else { a.overflowing_sub(b) }
    } [SATURATES]
    0x1b v_subrev_co_u32 (a: u32, b: u32) -> (u32, bool) {
        if mode.clamp { (b.saturating_sub(a), a > b) } else { b.overflowing_sub(a) }
    } [SATURATES]
    0x1c v_addc_co_u32 (a: u32, b: u32, c: Bit) -> (u32, bool) {
        let sum = u64::from(a) + u64::from(b) + u64::from(c.0);
        (if mode.clamp && sum >> 32 != 0 { u32::MAX } else { sum as u32 }, sum >> 32 != 0)
    } [SATURATES]
    0x1d v_subb_co_u32 (a: u32, b: u32, c: Bit) -> (u32, bool) {
        let (d, borrow) = (i64::from(a) - i64::from(b) - i64::from(c.0), u64::from(b) + u64::from(c.0) > u64::from(a));
        (if mode.clamp && borrow { 0 } else { d as u32 }, borrow)
    } [SATURATES]
    0x1e v_subbrev_co_u32 (a: u32, b: u32, c: Bit) -> (u32, bool) {
        let (d, borrow) = (i64::from(b) - i64::from(a) - i64::from(c.0), u64::from(a) + u64::from(c.0) > u64::from(b));
        (if mode.clamp && borrow { 0 } else { d as u32 }, borrow)
    } [SATURATES]
    0x1f v_add_f16 (a: F16, b: F16) -> F16 { F16::of(a.f32() + b.f32()) }
    0x20 v_sub_f16 (a: F16, b: F16) -> F16 { F16::of(a.f32() - b.f32()) }
    0x21 v_subrev_f16 (a: F16, b: F16) -> F16 { F16::of(b.f32() - a.f32()) }
    0x22 v_mul_f16 (a: F16, b: F16) -> F16 { F16::of(a.f32() * b.f32()) }
    0x23 v_mac_f16 (a: F16, b: F16, d: F16) -> F16 { mad16(a, b, d) } [ACC KEEP_HIGH]
    0x24 v_madmk_f16 (a: F16, k: F16, b: F16) -> F16 { mad16(a, k, b) } [LITERAL1 KEEP_HIGH]
    0x25 v_madak_f16 (a: F16, b: F16, k: F16) -> F16 { mad16(a, b, k) } [LITERAL2 KEEP_HIGH]
    0x26 v_add_u16 (a: u16, b: u16) -> u16 { if mode.clamp { a.saturating_add(b) } else { a.wrapping_add(b) } } [SATURATES]
    0x27 v_sub_u16 (a: u16, b: u16) -> u16 { if mode.clamp { a.saturating_sub(b) } else { a.wrapping_sub(b) } } [SATURATES]
    0x28 v_subrev_u16 (a: u16, b: u16) -> u16 { if mode.clamp { b.saturating_sub(a) } else { b.wrapping_sub(a) } } [SATURATES]
    0x29 v_mul_lo_u16 (a: u16, b: u16) -> u16 { a.wrapping_mul(b) }
    0x2a v_lshlrev_b16 (a: u16, b: u16) -> u16 { b << (a & 15) }
    0x2b v_lshrrev_b16 (a: u16, b: u16) -> u16 { b >> (a & 15) }
    0x2c v_ashrrev_i16 (a: u16, b: i16) -> i16 { b >> (a & 15) }
    0x2d v_max_f16 (a: F16, b: F16) -> F16 { max16(mode, a, b) }
    0x2e v_min_f16 (a: F16, b: F16) -> F16 { min16(mode, a, b) }
    0x2f v_max_u16 (a: u16, b: u16) -> u16 { a.max(b) }
    0x30 v_max_i16 (a: i16, b: i16) -> i16 { a.max(b) }
    0x31 v_min_u16 (a: u16, b: u16) -> u16 { a.min(b) }
    0x32 v_min_i16 (a: i16, b: i16) -> i16 { a.min(b) }
    0x33 v_ldexp_f16 (a: F16, b: i16) -> F16 { F16::of64(ldexp64(f64::from(a.f32()), i32::from(b))) }
    0x34 v_add_u32 (a: u32, b: u32) -> u32 { if mode.clamp { a.saturating_add(b) } else { a.wrapping_add(b) } } [SATURATES]
    0x35 v_sub_u32 (a: u32, b: u32) -> u32 { if mode.clamp { a.saturating_sub(b) } else { a.wrapping_sub(b) } } [SATURATES]
    0x36 v_subrev_u32 (a: u32, b: u32) -> u32 { if mode.clamp { b.saturating_sub(a) } else { b.wrapping_sub(a) } } [SATURATES]
    0x3b v_fmac_f32 (a: f32, b: f32, d: f32) -> f32 { a.mul_add(b, d) } [ACC GFX906]
    0x3d v_xnor_b32 (a: u32, b: u32) -> u32 { !(a ^ b) } [GFX906]
}

/// Returns a * b + c of halves, rounded after each step.
#[inline(always)]
pub(super) fn mad16(a: F16, b: F16, c: F16) -> F16 {
    F16::of(F16::of(a.f32() * b.f32()).f32() + c.f32())
}
