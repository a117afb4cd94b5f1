//! Scalar operations that RDNA has and GFX9 lacks: masks of 32 lanes, floats (gfx1151), hints for the processor.
//!
//! Source: AMD, ""RDNA3.5" Instruction Set Architecture" (2024).

use super::half;
use super::lanes::{F16, Mode};
use super::math::{flush, fma16, max16, max32, min16, min32, quiet};
use super::scalar::{Control, ScalarRow, flag_only, marks, plain, salu, test};
use super::scalar_file::{Outcome, Scalar, ScalarFile, State, Step};
use crate::isa::Kind;
use std::cmp::Ordering;

salu! {
    state;
    s_and_saveexec_b32 (a: u32) -> u32 { test(a & state.exec as u32) } [SAVEEXEC]
    s_or_saveexec_b32 (a: u32) -> u32 { test(a | state.exec as u32) } [SAVEEXEC]
    s_xor_saveexec_b32 (a: u32) -> u32 { test(a ^ state.exec as u32) } [SAVEEXEC]
    s_nand_saveexec_b32 (a: u32) -> u32 { test(!(a & state.exec as u32)) } [SAVEEXEC]
    s_nor_saveexec_b32 (a: u32) -> u32 { test(!(a | state.exec as u32)) } [SAVEEXEC]
    s_xnor_saveexec_b32 (a: u32) -> u32 { test(!(a ^ state.exec as u32)) } [SAVEEXEC]
    s_andn1_saveexec_b32 (a: u32) -> u32 { test(!a & state.exec as u32) } [SAVEEXEC]
    s_orn1_saveexec_b32 (a: u32) -> u32 { test(!a | state.exec as u32) } [SAVEEXEC]
    s_andn2_saveexec_b32 (a: u32) -> u32 { test(a & !state.exec as u32) } [SAVEEXEC]
    s_orn2_saveexec_b32 (a: u32) -> u32 { test(a | !state.exec as u32) } [SAVEEXEC]
    s_andn1_wrexec_b32 (a: u32) -> u32 { test(!a & state.exec as u32) } [WREXEC]
    s_andn2_wrexec_b32 (a: u32) -> u32 { test(a & !state.exec as u32) } [WREXEC]
    s_pack_hl_b32_b16 (a: u32, b: u32) -> u32 { plain(a >> 16 | b << 16) }
    s_movrelsd_2_b32 (a: u32) -> u32 { plain(()) } [SPECIAL]
    s_sendmsg_rtn_b32 () -> u32 { plain(()) } [SPECIAL]
    s_sendmsg_rtn_b64 () -> u64 { plain(()) } [SPECIAL]
    s_version () -> () { plain(()) } [SPECIAL]
    s_subvector_loop_begin () -> u32 { plain(()) } [SPECIAL]
    s_subvector_loop_end () -> u32 { plain(()) } [SPECIAL]
    s_waitcnt_vscnt (a: u32) -> () { plain(()) } [SPECIAL Wait]
    s_waitcnt_vmcnt (a: u32) -> () { plain(()) } [SPECIAL Wait]
    s_waitcnt_expcnt (a: u32) -> () { plain(()) } [SPECIAL Wait]
    s_waitcnt_lgkmcnt (a: u32) -> () { plain(()) } [SPECIAL Wait]
}

salu! {
    state;
    s_set_inst_prefetch_distance () -> () { plain(()) } [PROGRAM Nothing]
    s_clause () -> () { plain(()) } [PROGRAM Nothing]
    s_delay_alu () -> () { plain(()) } [PROGRAM Nothing]
    s_waitcnt_depctr () -> () { plain(()) } [PROGRAM Nothing]
    s_wait_idle () -> () { plain(()) } [PROGRAM Wait]
    s_wait_event () -> () { plain(()) } [PROGRAM Nothing]
    s_round_mode () -> () { plain(()) } [PROGRAM Other]
    s_denorm_mode () -> () { plain(()) } [PROGRAM Other]
    s_code_end () -> () { plain(()) } [PROGRAM Other]
    s_cbranch_cdbgsys () -> () { plain(()) } [PROGRAM Other]
    s_cbranch_cdbguser () -> () { plain(()) } [PROGRAM Other]
    s_cbranch_cdbgsys_or_user () -> () { plain(()) } [PROGRAM Other]
    s_cbranch_cdbgsys_and_user () -> () { plain(()) } [PROGRAM Other]
    s_sendmsghalt () -> () { plain(()) } [PROGRAM Other]
    s_ttracedata_imm () -> () { plain(()) } [PROGRAM Nothing]
    s_singleuse_vdst () -> () { plain(()) } [PROGRAM Nothing]
}

impl Scalar for f32 {
    const KIND: Kind = Kind::F32;
    fn of(bits: u64) -> f32 {
        f32::from_bits(bits as u32)
    }
    fn bits(self) -> u64 {
        self.to_bits().into()
    }
}

impl Scalar for F16 {
    const KIND: Kind = Kind::F16;
    fn of(bits: u64) -> F16 {
        F16(bits as u16)
    }
    fn bits(self) -> u64 {
        self.0.into()
    }
}

/// Returns what a formula gives for floats, with denormals as MODE has them.
fn float(state: State, sources: [f32; 3], formula: impl Fn(f32, f32, f32) -> f32) -> Outcome {
    let [a, b, c] = if state.mode >> 4 & 1 == 0 { sources.map(flush) } else { sources };
    let result = formula(a, b, c);
    plain(if state.mode >> 5 & 1 == 0 { flush(result) } else { result })
}

/// Returns what a formula gives for halves, with denormals as MODE has them.
fn half_float(state: State, sources: [F16; 3], formula: impl Fn(F16, F16, F16) -> F16) -> Outcome {
    let flush = |x: F16| if x.0 & 0x7c00 == 0 { F16(x.0 & 0x8000) } else { x };
    let [a, b, c] = if state.mode >> 6 & 1 == 0 { sources.map(flush) } else { sources };
    let result = formula(a, b, c);
    plain(if state.mode >> 7 & 1 == 0 { flush(result) } else { result })
}

/// Returns the floats of a comparison.
fn compared(state: State, sources: [f32; 2]) -> [f32; 2] {
    if state.mode >> 4 & 1 == 0 { sources.map(flush) } else { sources }
}

/// Returns the halves of a comparison as floats.
fn compared_halves(state: State, sources: [F16; 2]) -> [f32; 2] {
    let keep = |x: F16| x.0 & 0x7c00 != 0 || state.mode >> 6 & 1 != 0;
    sources.map(|x| if keep(x) { x.f32() } else { 0.0 })
}

fn mode(state: State) -> Mode {
    Mode { bits: state.mode, clamp: false, negated: 0 }
}

salu! {
    state;
    s_add_f32 (a: f32, b: f32) -> f32 { float(state, [a, b, 0.0], |a, b, _| a + b) }
    s_sub_f32 (a: f32, b: f32) -> f32 { float(state, [a, b, 0.0], |a, b, _| a - b) }
    s_mul_f32 (a: f32, b: f32) -> f32 { float(state, [a, b, 0.0], |a, b, _| a * b) }
    s_min_f32 (a: f32, b: f32) -> f32 { float(state, [a, b, 0.0], |a, b, _| min32(mode(state), a, b)) }
    s_max_f32 (a: f32, b: f32) -> f32 { float(state, [a, b, 0.0], |a, b, _| max32(mode(state), a, b)) }
    s_fmac_f32 (a: f32, b: f32) -> f32 {
        float(state, [a, b, f32::from_bits(state.old as u32)], |a, b, d| a.mul_add(b, d))
    }
    s_fmaak_f32 (a: f32, b: f32) -> f32 {
        float(state, [a, b, f32::from_bits(state.literal)], |a, b, k| a.mul_add(b, k))
    }
    s_fmamk_f32 (a: f32, b: f32) -> f32 {
        float(state, [a, b, f32::from_bits(state.literal)], |a, b, k| a.mul_add(k, b))
    }
    s_add_f16 (a: F16, b: F16) -> F16 { half_float(state, [a, b, F16(0)], |a, b, _| F16::of(a.f32() + b.f32())) }
    s_sub_f16 (a: F16, b: F16) -> F16 { half_float(state, [a, b, F16(0)], |a, b, _| F16::of(a.f32() - b.f32())) }
    s_mul_f16 (a: F16, b: F16) -> F16 { half_float(state, [a, b, F16(0)], |a, b, _| F16::of(a.f32() * b.f32())) }
    s_min_f16 (a: F16, b: F16) -> F16 { half_float(state, [a, b, F16(0)], |a, b, _| min16(mode(state), a, b)) }
    s_max_f16 (a: F16, b: F16) -> F16 { half_float(state, [a, b, F16(0)], |a, b, _| max16(mode(state), a, b)) }
    s_fmac_f16 (a: F16, b: F16) -> F16 { half_float(state, [a, b, F16(state.old as u16)], fma16) }
    s_cvt_pk_rtz_f16_f32 (a: f32, b: f32) -> u32 {
        let half = |x: f32| u32::from(half::from_f32_toward_zero(x));
        plain(half(a) | half(b) << 16)
    }

    s_ceil_f32 (a: f32) -> f32 { float(state, [a; 3], |a, _, _| quiet(a.ceil())) }
    s_floor_f32 (a: f32) -> f32 { float(state, [a; 3], |a, _, _| quiet(a.floor())) }
    s_trunc_f32 (a: f32) -> f32 { float(state, [a; 3], |a, _, _| quiet(a.trunc())) }
    s_rndne_f32 (a: f32) -> f32 { float(state, [a; 3], |a, _, _| quiet(a.round_ties_even())) }
    s_ceil_f16 (a: F16) -> F16 { half_float(state, [a; 3], |a, _, _| F16::of(a.f32().ceil())) }
    s_floor_f16 (a: F16) -> F16 { half_float(state, [a; 3], |a, _, _| F16::of(a.f32().floor())) }
    s_trunc_f16 (a: F16) -> F16 { half_float(state, [a; 3], |a, _, _| F16::of(a.f32().trunc())) }
    s_rndne_f16 (a: F16) -> F16 { half_float(state, [a; 3], |a, _, _| F16::of(a.f32().round_ties_even())) }
    s_cvt_f32_i32 (a: i32) -> f32 { plain(a as f32) }
    s_cvt_f32_u32 (a: u32) -> f32 { plain(a as f32) }
    s_cvt_i32_f32 (a: f32) -> i32 { plain(a as i32) }
    s_cvt_u32_f32 (a: f32) -> u32 { plain(a as u32) }
    s_cvt_f16_f32 (a: f32) -> F16 { plain(F16::of(a)) }
    s_cvt_f32_f16 (a: F16) -> f32 { plain(a.f32()) }
    s_cvt_hi_f32_f16 (a: u32) -> f32 { plain(F16((a >> 16) as u16).f32()) }
}

salu! {
    state;
    s_cmp_lt_f32 (a: f32, b: f32) -> () { compare(1, compared(state, [a, b])) }
    s_cmp_eq_f32 (a: f32, b: f32) -> () { compare(2, compared(state, [a, b])) }
    s_cmp_le_f32 (a: f32, b: f32) -> () { compare(3, compared(state, [a, b])) }
    s_cmp_gt_f32 (a: f32, b: f32) -> () { compare(4, compared(state, [a, b])) }
    s_cmp_lg_f32 (a: f32, b: f32) -> () { compare(5, compared(state, [a, b])) }
    s_cmp_ge_f32 (a: f32, b: f32) -> () { compare(6, compared(state, [a, b])) }
    s_cmp_o_f32 (a: f32, b: f32) -> () { compare(7, compared(state, [a, b])) }
    s_cmp_u_f32 (a: f32, b: f32) -> () { compare(8, compared(state, [a, b])) }
    s_cmp_nge_f32 (a: f32, b: f32) -> () { compare(9, compared(state, [a, b])) }
    s_cmp_nlg_f32 (a: f32, b: f32) -> () { compare(10, compared(state, [a, b])) }
    s_cmp_ngt_f32 (a: f32, b: f32) -> () { compare(11, compared(state, [a, b])) }
    s_cmp_nle_f32 (a: f32, b: f32) -> () { compare(12, compared(state, [a, b])) }
    s_cmp_neq_f32 (a: f32, b: f32) -> () { compare(13, compared(state, [a, b])) }
    s_cmp_nlt_f32 (a: f32, b: f32) -> () { compare(14, compared(state, [a, b])) }
    s_cmp_lt_f16 (a: F16, b: F16) -> () { compare(1, compared_halves(state, [a, b])) }
    s_cmp_eq_f16 (a: F16, b: F16) -> () { compare(2, compared_halves(state, [a, b])) }
    s_cmp_le_f16 (a: F16, b: F16) -> () { compare(3, compared_halves(state, [a, b])) }
    s_cmp_gt_f16 (a: F16, b: F16) -> () { compare(4, compared_halves(state, [a, b])) }
    s_cmp_lg_f16 (a: F16, b: F16) -> () { compare(5, compared_halves(state, [a, b])) }
    s_cmp_ge_f16 (a: F16, b: F16) -> () { compare(6, compared_halves(state, [a, b])) }
    s_cmp_o_f16 (a: F16, b: F16) -> () { compare(7, compared_halves(state, [a, b])) }
    s_cmp_u_f16 (a: F16, b: F16) -> () { compare(8, compared_halves(state, [a, b])) }
    s_cmp_nge_f16 (a: F16, b: F16) -> () { compare(9, compared_halves(state, [a, b])) }
    s_cmp_nlg_f16 (a: F16, b: F16) -> () { compare(10, compared_halves(state, [a, b])) }
    s_cmp_ngt_f16 (a: F16, b: F16) -> () { compare(11, compared_halves(state, [a, b])) }
    s_cmp_nle_f16 (a: F16, b: F16) -> () { compare(12, compared_halves(state, [a, b])) }
    s_cmp_neq_f16 (a: F16, b: F16) -> () { compare(13, compared_halves(state, [a, b])) }
    s_cmp_nlt_f16 (a: F16, b: F16) -> () { compare(14, compared_halves(state, [a, b])) }
}

/// Returns true if a relation holds: a set of less (1), equal (2), greater (4), unordered (8).
fn compare(relation: u8, [a, b]: [f32; 2]) -> Outcome {
    let found = match a.partial_cmp(&b) {
        Some(Ordering::Less) => 1,
        Some(Ordering::Equal) => 2,
        Some(Ordering::Greater) => 4,
        None => 8,
    };
    flag_only(found & relation != 0)
}
