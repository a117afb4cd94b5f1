//! Operations of two sources, or of three of which one is the destination, a literal or a mask.

use super::lanes::{Bit, F16, Mode};
use super::math::*;
use super::pick::pick;
use super::run::valu;

valu! {
    mode, lane;
    v_cndmask_b32 (a: u32, b: u32, c: Bit) -> u32 { if c.0 { b } else { a } }
    v_add_f32 (a: f32, b: f32) -> f32 { a + b }
    v_sub_f32 (a: f32, b: f32) -> f32 { a - b }
    v_subrev_f32 (a: f32, b: f32) -> f32 { b - a }
    v_mul_legacy_f32 (a: f32, b: f32) -> f32 { mul_legacy(a, b) }
    v_mul_f32 (a: f32, b: f32) -> f32 { a * b }
    v_mul_i32_i24 (a: u32, b: u32) -> u32 { i24(a).wrapping_mul(i24(b)) as u32 }
    v_mul_hi_i32_i24 (a: u32, b: u32) -> u32 { ((i24(a) * i24(b)) >> 32) as u32 }
    v_mul_u32_u24 (a: u32, b: u32) -> u32 { (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff) }
    v_mul_hi_u32_u24 (a: u32, b: u32) -> u32 { ((u24(a) * u24(b)) >> 32) as u32 }
    v_min_f32 (a: f32, b: f32) -> f32 { min32(mode, a, b) } => (are_in_order(a, b)) { pick(a < b, a, b) }
    v_max_f32 (a: f32, b: f32) -> f32 { max32(mode, a, b) } => (are_in_order(a, b)) { pick(a > b, a, b) }
    v_min_i32 (a: i32, b: i32) -> i32 { a.min(b) }
    v_max_i32 (a: i32, b: i32) -> i32 { a.max(b) }
    v_min_u32 (a: u32, b: u32) -> u32 { a.min(b) }
    v_max_u32 (a: u32, b: u32) -> u32 { a.max(b) }
    v_lshrrev_b32 (a: u32, b: u32) -> u32 { b >> (a & 31) }
    v_ashrrev_i32 (a: u32, b: i32) -> i32 { b >> (a & 31) }
    v_lshlrev_b32 (a: u32, b: u32) -> u32 { b << (a & 31) }
    v_and_b32 (a: u32, b: u32) -> u32 { a & b }
    v_or_b32 (a: u32, b: u32) -> u32 { a | b }
    v_xor_b32 (a: u32, b: u32) -> u32 { a ^ b }
    v_mac_f32 (a: f32, b: f32, d: f32) -> f32 { mad(a, b, d) } [ACC FLUSH]
    v_fmamk_f32 (a: f32, k: f32, b: f32) -> f32 { a.mul_add(k, b) } [LITERAL1]
    v_fmaak_f32 (a: f32, b: f32, k: f32) -> f32 { a.mul_add(b, k) } [LITERAL2]
    v_madmk_f32 (a: f32, k: f32, b: f32) -> f32 { mad(a, k, b) } [LITERAL1 FLUSH]
    v_madak_f32 (a: f32, b: f32, k: f32) -> f32 { mad(a, b, k) } [LITERAL2 FLUSH]
    v_add_co_u32 (a: u32, b: u32) -> (u32, bool) { add_with_carry(mode, a, b, false) } [SATURATES]
    v_sub_co_u32 (a: u32, b: u32) -> (u32, bool) { subtract_with_borrow(mode, a, b, false) } [SATURATES]
    v_subrev_co_u32 (a: u32, b: u32) -> (u32, bool) { subtract_with_borrow(mode, b, a, false) } [SATURATES]
    v_addc_co_u32 (a: u32, b: u32, c: Bit) -> (u32, bool) { add_with_carry(mode, a, b, c.0) } [SATURATES]
    v_subb_co_u32 (a: u32, b: u32, c: Bit) -> (u32, bool) { subtract_with_borrow(mode, a, b, c.0) } [SATURATES]
    v_subbrev_co_u32 (a: u32, b: u32, c: Bit) -> (u32, bool) { subtract_with_borrow(mode, b, a, c.0) } [SATURATES]
    v_add_f16 (a: F16, b: F16) -> F16 { F16::of(a.f32() + b.f32()) }
    v_sub_f16 (a: F16, b: F16) -> F16 { F16::of(a.f32() - b.f32()) }
    v_subrev_f16 (a: F16, b: F16) -> F16 { F16::of(b.f32() - a.f32()) }
    v_mul_f16 (a: F16, b: F16) -> F16 { F16::of(a.f32() * b.f32()) }
    v_mac_f16 (a: F16, b: F16, d: F16) -> F16 { mad16(a, b, d) } [ACC KEEP_HIGH]
    v_madmk_f16 (a: F16, k: F16, b: F16) -> F16 { mad16(a, k, b) } [LITERAL1 KEEP_HIGH]
    v_madak_f16 (a: F16, b: F16, k: F16) -> F16 { mad16(a, b, k) } [LITERAL2 KEEP_HIGH]
    v_add_u16 (a: u16, b: u16) -> u16 { if mode.clamp { a.saturating_add(b) } else { a.wrapping_add(b) } } [SATURATES]
    v_sub_u16 (a: u16, b: u16) -> u16 { if mode.clamp { a.saturating_sub(b) } else { a.wrapping_sub(b) } } [SATURATES]
    v_subrev_u16 (a: u16, b: u16) -> u16 { if mode.clamp { b.saturating_sub(a) } else { b.wrapping_sub(a) } } [SATURATES]
    v_mul_lo_u16 (a: u16, b: u16) -> u16 { a.wrapping_mul(b) }
    v_lshlrev_b16 (a: u16, b: u16) -> u16 { b << (a & 15) }
    v_lshrrev_b16 (a: u16, b: u16) -> u16 { b >> (a & 15) }
    v_ashrrev_i16 (a: u16, b: i16) -> i16 { b >> (a & 15) }
    v_max_f16 (a: F16, b: F16) -> F16 { max16(mode, a, b) }
    v_min_f16 (a: F16, b: F16) -> F16 { min16(mode, a, b) }
    v_max_u16 (a: u16, b: u16) -> u16 { a.max(b) }
    v_max_i16 (a: i16, b: i16) -> i16 { a.max(b) }
    v_min_u16 (a: u16, b: u16) -> u16 { a.min(b) }
    v_min_i16 (a: i16, b: i16) -> i16 { a.min(b) }
    v_ldexp_f16 (a: F16, b: i16) -> F16 { F16::of64(ldexp64(f64::from(a.f32()), i32::from(b))) }
    v_add_u32 (a: u32, b: u32) -> u32 { if mode.clamp { a.saturating_add(b) } else { a.wrapping_add(b) } } [SATURATES]
    v_sub_u32 (a: u32, b: u32) -> u32 { if mode.clamp { a.saturating_sub(b) } else { a.wrapping_sub(b) } } [SATURATES]
    v_subrev_u32 (a: u32, b: u32) -> u32 { if mode.clamp { b.saturating_sub(a) } else { b.wrapping_sub(a) } } [SATURATES]
    v_fmac_f32 (a: f32, b: f32, d: f32) -> f32 { a.mul_add(b, d) } [ACC]
    v_xnor_b32 (a: u32, b: u32) -> u32 { !(a ^ b) }
}

/// Returns the sum, limited if the instruction clamps, and its carry. Of words and without branches, so that the host's
/// compiler makes vectors of eight lanes.
#[inline(always)]
fn add_with_carry(mode: Mode, a: u32, b: u32, carry: bool) -> (u32, bool) {
    let sum = a.wrapping_add(b).wrapping_sub(ones(carry));
    // The carry is that of the highest bits.
    let carry = ((a & b | (a | b) & !sum) as i32 >> 31) as u32;
    (sum | carry & ones(mode.clamp), carry != 0)
}

/// Returns a - b - 1 or a - b, limited in the same way, and the borrow.
#[inline(always)]
fn subtract_with_borrow(mode: Mode, a: u32, b: u32, borrow: bool) -> (u32, bool) {
    let difference = a.wrapping_sub(b).wrapping_add(ones(borrow));
    let borrow = ((!a & b | (!a | b) & difference) as i32 >> 31) as u32;
    (difference & !(borrow & ones(mode.clamp)), borrow != 0)
}

/// Returns all ones or 0.
#[inline(always)]
fn ones(bit: bool) -> u32 {
    pick(bit, u32::MAX, 0)
}

/// Returns a * b + c of halves, rounded after each step.
#[inline(always)]
pub(super) fn mad16(a: F16, b: F16, c: F16) -> F16 {
    F16::of(F16::of(a.f32() * b.f32()).f32() + c.f32())
}
