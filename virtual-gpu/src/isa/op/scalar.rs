//! Scalar instructions: SOP1, SOP2, SOPC, SOPK and SOPP.
//!
//! A row is `name (sources) -> result { formula }`. A formula returns the result and, if the
//! instruction sets it, SCC. `state` holds SCC and EXEC before the instruction and the destination's old
//! value. Rows marked SPECIAL change the program counter, hardware registers or registers by index; they are
//! executed separately.

use super::scalar_file::{Outcome, Scalar, ScalarFile, State, Step};
use crate::isa::Kind;

/// A scalar instruction.
#[derive(Clone, Copy)]
pub(crate) struct ScalarRow {
    pub(crate) name: &'static str,
    pub(crate) dst: Kind,
    pub(crate) src: [Kind; 4],
    pub(crate) special: bool,
    /// EXEC becomes the result; the destination becomes the old EXEC (`saveexec`) or also the result
    /// (`wrexec`).
    pub(crate) exec: Option<SaveExec>,
    pub(crate) control: Control,
    pub(crate) run: fn([u64; 2], State) -> Outcome,
    /// Does it with operands that are known to be in a file.
    pub(crate) step: fn(&mut ScalarFile, &Step),
}

impl std::fmt::Debug for ScalarRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl ScalarRow {
    /// Returns true if the result depends on the rounding mode.
    pub(crate) fn rounds(&self) -> bool {
        self.dst.is_float()
            && ![
                "s_min_",
                "s_max_",
                "s_ceil_",
                "s_floor_",
                "s_trunc_",
                "s_rndne_",
                "s_cvt_f32_f16",
                "s_cvt_hi_",
            ]
            .iter()
            .any(|begin| self.name.starts_with(begin))
    }
}

/// Effect of an instruction on the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// None: it computes.
    None,
    /// Branches: always, or if the named state is 0 or not.
    Branch,
    IfScc0,
    IfScc1,
    IfVcc0,
    IfVcc,
    IfExec0,
    IfExec,
    /// Waits for memory, as far as the decoder says.
    Wait,
    /// Waits for the other wavefronts of the work-group.
    Barrier,
    /// Nothing that is modelled.
    Nothing,
    /// Anything else.
    Other,
}

/// Value that `saveexec` and `wrexec` write to the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SaveExec {
    Old,
    New,
}

pub(super) fn plain<T: Scalar>(x: T) -> Outcome {
    (x.bits(), None)
}

/// Sets SCC if the result is not 0.
pub(super) fn test<T: Scalar>(x: T) -> Outcome {
    (x.bits(), Some(x.bits() != 0))
}

fn both<T: Scalar>(x: T, scc: bool) -> Outcome {
    (x.bits(), Some(scc))
}

pub(super) fn flag_only(scc: bool) -> Outcome {
    (0, Some(scc))
}

/// Defines scalar operations. A row is `name (sources) -> result { formula }`, optionally followed by a mark.
macro_rules! salu {
    (
        $state:ident;
        $( $name:ident ($($a:ident : $t:ty),*) -> $r:ty $body:block $([$mark:ident $($effect:ident)?])? )*
    ) => {$(
        pub(crate) static $name: ScalarRow = ScalarRow {
            name: stringify!($name),
            dst: <$r as Scalar>::KIND,
            src: super::lanes::kinds(&[$(<$t as Scalar>::KIND),*]),
            special: marks(&[$(stringify!($mark))?]).0,
            exec: marks(&[$(stringify!($mark))?]).1,
            control: salu!(@control $($($effect)?)?),
            run: {
                #[allow(unused_variables, unused_mut, unused_assignments)]
                fn run(sources: [u64; 2], $state: State) -> Outcome {
                    let mut n = 0;
                    $(
                        let $a = <$t as Scalar>::of(sources[n]);
                        n += 1;
                    )*
                    $body
                }
                run
            },
            step: {
                #[allow(unused_variables, unused_mut, unused_assignments)]
                fn step(file: &mut ScalarFile, step: &Step) {
                    let mut n = 0;
                    $(
                        let $a = step.sources[n].read::<$t>(file);
                        n += 1;
                    )*
                    let $state = step.state::<$r>(file);
                    let outcome: Outcome = $body;
                    match const { marks(&[$(stringify!($mark))?]).1 } {
                        None => step.finish::<$r>(file, outcome),
                        Some($crate::isa::op::scalar::SaveExec::Old) => step.finish_exec::<$r>(file, outcome, Some($state.exec)),
                        Some($crate::isa::op::scalar::SaveExec::New) => step.finish_exec::<$r>(file, outcome, None),
                    }
                }
                step
            },
        };
    )*};
    (@control) => { Control::None };
    (@control $effect:ident) => { Control::$effect };
}
pub(super) use salu;

pub(super) const fn marks(names: &[&str]) -> (bool, Option<SaveExec>) {
    if names.is_empty() {
        return (false, None);
    }
    match names[0].as_bytes() {
        b"SPECIAL" | b"PROGRAM" => (true, None),
        b"SAVEEXEC" => (false, Some(SaveExec::Old)),
        _ => (false, Some(SaveExec::New)),
    }
}

/// Returns `width` bits of `x` from `offset` on.
fn field(x: u64, offset: u64, width: u64) -> u64 {
    let shifted = if offset < 64 { x >> offset } else { 0 };
    if width >= 64 { shifted } else { shifted & ((1 << width) - 1) }
}

/// Returns `width` bits of `x` from `offset` on, sign-extended.
fn signed_field(x: i64, offset: u64, width: u64) -> i64 {
    if width == 0 {
        return 0;
    }
    let unused = 64 - width.min(64);
    (x >> offset.min(63)) << unused >> unused
}

/// Returns one bit per group of four bits: set if any of the four is.
fn quads(x: u64, bits: u32) -> u64 {
    (0..bits / 4).fold(0, |d, i| d | u64::from(x >> (4 * i) & 15 != 0) << i)
}

/// Fills each group of four bits that has a bit set.
fn whole_quads(x: u64, bits: u32) -> u64 {
    (0..bits / 4).fold(0, |d, i| if x >> (4 * i) & 15 != 0 { d | 15 << (4 * i) } else { d })
}

/// Returns the number of leading bits equal to the sign; all ones if all bits are equal.
fn sign_bits(x: i64, width: u32) -> u32 {
    let differ = (x ^ (x >> 63)) as u64;
    if differ == 0 { u32::MAX } else { differ.leading_zeros() - (64 - width) }
}

salu! {
    state;
    s_add_u32 (a: u32, b: u32) -> u32 { let (d, carry) = a.overflowing_add(b); both(d, carry) }
    s_sub_u32 (a: u32, b: u32) -> u32 { let (d, borrow) = a.overflowing_sub(b); both(d, borrow) }
    s_add_i32 (a: i32, b: i32) -> i32 { let (d, overflow) = a.overflowing_add(b); both(d, overflow) }
    s_sub_i32 (a: i32, b: i32) -> i32 { let (d, overflow) = a.overflowing_sub(b); both(d, overflow) }
    s_addc_u32 (a: u32, b: u32) -> u32 {
        let d = u64::from(a) + u64::from(b) + u64::from(state.scc);
        both(d as u32, d >> 32 != 0)
    }
    s_subb_u32 (a: u32, b: u32) -> u32 {
        let taken = u64::from(b) + u64::from(state.scc);
        both(u64::from(a).wrapping_sub(taken) as u32, taken > u64::from(a))
    }
    s_min_i32 (a: i32, b: i32) -> i32 { both(a.min(b), a < b) }
    s_min_u32 (a: u32, b: u32) -> u32 { both(a.min(b), a < b) }
    s_max_i32 (a: i32, b: i32) -> i32 { both(a.max(b), a > b) }
    s_max_u32 (a: u32, b: u32) -> u32 { both(a.max(b), a > b) }
    s_cselect_b32 (a: u32, b: u32) -> u32 { plain(if state.scc { a } else { b }) }
    s_cselect_b64 (a: u64, b: u64) -> u64 { plain(if state.scc { a } else { b }) }
    s_and_b32 (a: u32, b: u32) -> u32 { test(a & b) }
    s_and_b64 (a: u64, b: u64) -> u64 { test(a & b) }
    s_or_b32 (a: u32, b: u32) -> u32 { test(a | b) }
    s_or_b64 (a: u64, b: u64) -> u64 { test(a | b) }
    s_xor_b32 (a: u32, b: u32) -> u32 { test(a ^ b) }
    s_xor_b64 (a: u64, b: u64) -> u64 { test(a ^ b) }
    s_andn2_b32 (a: u32, b: u32) -> u32 { test(a & !b) }
    s_andn2_b64 (a: u64, b: u64) -> u64 { test(a & !b) }
    s_orn2_b32 (a: u32, b: u32) -> u32 { test(a | !b) }
    s_orn2_b64 (a: u64, b: u64) -> u64 { test(a | !b) }
    s_nand_b32 (a: u32, b: u32) -> u32 { test(!(a & b)) }
    s_nand_b64 (a: u64, b: u64) -> u64 { test(!(a & b)) }
    s_nor_b32 (a: u32, b: u32) -> u32 { test(!(a | b)) }
    s_nor_b64 (a: u64, b: u64) -> u64 { test(!(a | b)) }
    s_xnor_b32 (a: u32, b: u32) -> u32 { test(!(a ^ b)) }
    s_xnor_b64 (a: u64, b: u64) -> u64 { test(!(a ^ b)) }
    s_lshl_b32 (a: u32, b: u32) -> u32 { test(a << (b & 31)) }
    s_lshl_b64 (a: u64, b: u32) -> u64 { test(a << (b & 63)) }
    s_lshr_b32 (a: u32, b: u32) -> u32 { test(a >> (b & 31)) }
    s_lshr_b64 (a: u64, b: u32) -> u64 { test(a >> (b & 63)) }
    s_ashr_i32 (a: i32, b: u32) -> i32 { test(a >> (b & 31)) }
    s_ashr_i64 (a: i64, b: u32) -> i64 { test(a >> (b & 63)) }
    s_bfm_b32 (a: u32, b: u32) -> u32 { plain(((1u32 << (a & 31)) - 1) << (b & 31)) }
    s_bfm_b64 (a: u32, b: u32) -> u64 { plain(((1u64 << (a & 63)) - 1) << (b & 63)) }
    s_mul_i32 (a: i32, b: i32) -> i32 { plain(a.wrapping_mul(b)) }
    s_bfe_u32 (a: u32, b: u32) -> u32 { test(field(a.into(), (b & 31).into(), (b >> 16 & 127).into()) as u32) }
    s_bfe_i32 (a: i32, b: u32) -> i32 { test(signed_field(a.into(), (b & 31).into(), (b >> 16 & 127).into()) as i32) }
    s_bfe_u64 (a: u64, b: u32) -> u64 { test(field(a, (b & 63).into(), (b >> 16 & 127).into())) }
    s_bfe_i64 (a: i64, b: u32) -> i64 { test(signed_field(a, (b & 63).into(), (b >> 16 & 127).into())) }
    s_cbranch_g_fork (a: u64, b: u64) -> () { plain(()) } [SPECIAL]
    s_absdiff_i32 (a: i32, b: i32) -> i32 { test(a.wrapping_sub(b).wrapping_abs()) }
    s_mul_hi_u32 (a: u32, b: u32) -> u32 { plain(((u64::from(a) * u64::from(b)) >> 32) as u32) }
    s_mul_hi_i32 (a: i32, b: i32) -> i32 { plain(((i64::from(a) * i64::from(b)) >> 32) as i32) }
    s_lshl1_add_u32 (a: u32, b: u32) -> u32 { shift_add(a, b, 1) }
    s_lshl2_add_u32 (a: u32, b: u32) -> u32 { shift_add(a, b, 2) }
    s_lshl3_add_u32 (a: u32, b: u32) -> u32 { shift_add(a, b, 3) }
    s_lshl4_add_u32 (a: u32, b: u32) -> u32 { shift_add(a, b, 4) }
    s_pack_ll_b32_b16 (a: u32, b: u32) -> u32 { plain(a & 0xffff | b << 16) }
    s_pack_lh_b32_b16 (a: u32, b: u32) -> u32 { plain(a & 0xffff | b & 0xffff_0000) }
    s_pack_hh_b32_b16 (a: u32, b: u32) -> u32 { plain(a >> 16 | b & 0xffff_0000) }
}

fn shift_add(a: u32, b: u32, shift: u32) -> Outcome {
    let sum = (u64::from(a) << shift) + u64::from(b);
    both(sum as u32, sum >> 32 != 0)
}

salu! {
    state;
    s_mov_b32 (a: u32) -> u32 { plain(a) }
    s_mov_b64 (a: u64) -> u64 { plain(a) }
    s_cmov_b32 (a: u32) -> u32 { plain(if state.scc { a } else { state.old as u32 }) }
    s_cmov_b64 (a: u64) -> u64 { plain(if state.scc { a } else { state.old }) }
    s_not_b32 (a: u32) -> u32 { test(!a) }
    s_not_b64 (a: u64) -> u64 { test(!a) }
    s_wqm_b32 (a: u32) -> u32 { test(whole_quads(a.into(), 32) as u32) }
    s_wqm_b64 (a: u64) -> u64 { test(whole_quads(a, 64)) }
    s_brev_b32 (a: u32) -> u32 { plain(a.reverse_bits()) }
    s_brev_b64 (a: u64) -> u64 { plain(a.reverse_bits()) }
    s_bcnt0_i32_b32 (a: u32) -> u32 { test(a.count_zeros()) }
    s_bcnt0_i32_b64 (a: u64) -> u32 { test(a.count_zeros()) }
    s_bcnt1_i32_b32 (a: u32) -> u32 { test(a.count_ones()) }
    s_bcnt1_i32_b64 (a: u64) -> u32 { test(a.count_ones()) }
    s_ff0_i32_b32 (a: u32) -> u32 { plain(if a == u32::MAX { u32::MAX } else { a.trailing_ones() }) }
    s_ff0_i32_b64 (a: u64) -> u32 { plain(if a == u64::MAX { u32::MAX } else { a.trailing_ones() }) }
    s_ff1_i32_b32 (a: u32) -> u32 { plain(if a == 0 { u32::MAX } else { a.trailing_zeros() }) }
    s_ff1_i32_b64 (a: u64) -> u32 { plain(if a == 0 { u32::MAX } else { a.trailing_zeros() }) }
    s_flbit_i32_b32 (a: u32) -> u32 { plain(if a == 0 { u32::MAX } else { a.leading_zeros() }) }
    s_flbit_i32_b64 (a: u64) -> u32 { plain(if a == 0 { u32::MAX } else { a.leading_zeros() }) }
    s_flbit_i32 (a: i32) -> u32 { plain(sign_bits(a.into(), 32)) }
    s_flbit_i32_i64 (a: i64) -> u32 { plain(sign_bits(a, 64)) }
    s_sext_i32_i8 (a: u32) -> i32 { plain(i32::from(a as i8)) }
    s_sext_i32_i16 (a: u32) -> i32 { plain(i32::from(a as i16)) }
    s_bitset0_b32 (a: u32) -> u32 { plain(state.old as u32 & !(1 << (a & 31))) }
    s_bitset0_b64 (a: u32) -> u64 { plain(state.old & !(1 << (a & 63))) }
    s_bitset1_b32 (a: u32) -> u32 { plain(state.old as u32 | 1 << (a & 31)) }
    s_bitset1_b64 (a: u32) -> u64 { plain(state.old | 1 << (a & 63)) }
    s_getpc_b64 () -> u64 { plain(()) } [SPECIAL]
    s_setpc_b64 (a: u64) -> () { plain(()) } [SPECIAL]
    s_swappc_b64 (a: u64) -> u64 { plain(()) } [SPECIAL]
    s_rfe_b64 (a: u64) -> () { plain(()) } [SPECIAL]
    s_and_saveexec_b64 (a: u64) -> u64 { test(a & state.exec) } [SAVEEXEC]
    s_or_saveexec_b64 (a: u64) -> u64 { test(a | state.exec) } [SAVEEXEC]
    s_xor_saveexec_b64 (a: u64) -> u64 { test(a ^ state.exec) } [SAVEEXEC]
    s_andn2_saveexec_b64 (a: u64) -> u64 { test(a & !state.exec) } [SAVEEXEC]
    s_orn2_saveexec_b64 (a: u64) -> u64 { test(a | !state.exec) } [SAVEEXEC]
    s_nand_saveexec_b64 (a: u64) -> u64 { test(!(a & state.exec)) } [SAVEEXEC]
    s_nor_saveexec_b64 (a: u64) -> u64 { test(!(a | state.exec)) } [SAVEEXEC]
    s_xnor_saveexec_b64 (a: u64) -> u64 { test(!(a ^ state.exec)) } [SAVEEXEC]
    s_quadmask_b32 (a: u32) -> u32 { test(quads(a.into(), 32) as u32) }
    s_quadmask_b64 (a: u64) -> u64 { test(quads(a, 64)) }
    s_movrels_b32 (a: u32) -> u32 { plain(()) } [SPECIAL]
    s_movrels_b64 (a: u64) -> u64 { plain(()) } [SPECIAL]
    s_movreld_b32 (a: u32) -> u32 { plain(()) } [SPECIAL]
    s_movreld_b64 (a: u64) -> u64 { plain(()) } [SPECIAL]
    s_abs_i32 (a: i32) -> i32 { test(a.wrapping_abs()) }
    s_set_gpr_idx_idx (a: u32) -> () { plain(()) } [SPECIAL]
    s_andn1_saveexec_b64 (a: u64) -> u64 { test(!a & state.exec) } [SAVEEXEC]
    s_orn1_saveexec_b64 (a: u64) -> u64 { test(!a | state.exec) } [SAVEEXEC]
    s_andn1_wrexec_b64 (a: u64) -> u64 { test(!a & state.exec) } [WREXEC]
    s_andn2_wrexec_b64 (a: u64) -> u64 { test(a & !state.exec) } [WREXEC]
    s_bitreplicate_b64_b32 (a: u32) -> u64 {
        plain((0..32).fold(0u64, |d, i| if a >> i & 1 != 0 { d | 3 << (2 * i) } else { d }))
    }
}

salu! {
    state;
    s_cmp_eq_i32 (a: i32, b: i32) -> () { flag_only(a == b) }
    s_cmp_lg_i32 (a: i32, b: i32) -> () { flag_only(a != b) }
    s_cmp_gt_i32 (a: i32, b: i32) -> () { flag_only(a > b) }
    s_cmp_ge_i32 (a: i32, b: i32) -> () { flag_only(a >= b) }
    s_cmp_lt_i32 (a: i32, b: i32) -> () { flag_only(a < b) }
    s_cmp_le_i32 (a: i32, b: i32) -> () { flag_only(a <= b) }
    s_cmp_eq_u32 (a: u32, b: u32) -> () { flag_only(a == b) }
    s_cmp_lg_u32 (a: u32, b: u32) -> () { flag_only(a != b) }
    s_cmp_gt_u32 (a: u32, b: u32) -> () { flag_only(a > b) }
    s_cmp_ge_u32 (a: u32, b: u32) -> () { flag_only(a >= b) }
    s_cmp_lt_u32 (a: u32, b: u32) -> () { flag_only(a < b) }
    s_cmp_le_u32 (a: u32, b: u32) -> () { flag_only(a <= b) }
    s_bitcmp0_b32 (a: u32, b: u32) -> () { flag_only(a >> (b & 31) & 1 == 0) }
    s_bitcmp1_b32 (a: u32, b: u32) -> () { flag_only(a >> (b & 31) & 1 == 1) }
    s_bitcmp0_b64 (a: u64, b: u32) -> () { flag_only(a >> (b & 63) & 1 == 0) }
    s_bitcmp1_b64 (a: u64, b: u32) -> () { flag_only(a >> (b & 63) & 1 == 1) }
    s_set_gpr_idx_on (a: u32, b: u32) -> () { plain(()) } [SPECIAL]
    s_cmp_eq_u64 (a: u64, b: u64) -> () { flag_only(a == b) }
    s_cmp_lg_u64 (a: u64, b: u64) -> () { flag_only(a != b) }
}

// The first source is the destination's old value, the second the constant, sign-extended (zero-extended for
// unsigned comparisons).
salu! {
    state;
    s_movk_i32 (a: i32, k: i32) -> i32 { plain(k) }
    s_cmovk_i32 (a: i32, k: i32) -> i32 { plain(if state.scc { k } else { a }) }
    s_cmpk_eq_i32 (a: i32, k: i32) -> () { flag_only(a == k) }
    s_cmpk_lg_i32 (a: i32, k: i32) -> () { flag_only(a != k) }
    s_cmpk_gt_i32 (a: i32, k: i32) -> () { flag_only(a > k) }
    s_cmpk_ge_i32 (a: i32, k: i32) -> () { flag_only(a >= k) }
    s_cmpk_lt_i32 (a: i32, k: i32) -> () { flag_only(a < k) }
    s_cmpk_le_i32 (a: i32, k: i32) -> () { flag_only(a <= k) }
    s_cmpk_eq_u32 (a: u32, k: u32) -> () { flag_only(a == k & 0xffff) }
    s_cmpk_lg_u32 (a: u32, k: u32) -> () { flag_only(a != k & 0xffff) }
    s_cmpk_gt_u32 (a: u32, k: u32) -> () { flag_only(a > k & 0xffff) }
    s_cmpk_ge_u32 (a: u32, k: u32) -> () { flag_only(a >= k & 0xffff) }
    s_cmpk_lt_u32 (a: u32, k: u32) -> () { flag_only(a < k & 0xffff) }
    s_cmpk_le_u32 (a: u32, k: u32) -> () { flag_only(a <= k & 0xffff) }
    s_addk_i32 (a: i32, k: i32) -> i32 { let (d, overflow) = a.overflowing_add(k); both(d, overflow) }
    s_mulk_i32 (a: i32, k: i32) -> i32 { plain(a.wrapping_mul(k)) }
    s_getreg_b32 () -> u32 { plain(()) } [SPECIAL]
    s_setreg_b32 (a: u32) -> () { plain(()) } [SPECIAL]
    s_setreg_imm32_b32 () -> () { plain(()) } [SPECIAL]
    s_call_b64 () -> u64 { plain(()) } [SPECIAL]
}

salu! {
    state;
    s_nop () -> () { plain(()) } [PROGRAM Nothing]
    s_endpgm () -> () { plain(()) } [PROGRAM Other]
    s_branch () -> () { plain(()) } [PROGRAM Branch]
    s_wakeup () -> () { plain(()) } [PROGRAM Nothing]
    s_cbranch_scc0 () -> () { plain(()) } [PROGRAM IfScc0]
    s_cbranch_scc1 () -> () { plain(()) } [PROGRAM IfScc1]
    s_cbranch_vccz () -> () { plain(()) } [PROGRAM IfVcc0]
    s_cbranch_vccnz () -> () { plain(()) } [PROGRAM IfVcc]
    s_cbranch_execz () -> () { plain(()) } [PROGRAM IfExec0]
    s_cbranch_execnz () -> () { plain(()) } [PROGRAM IfExec]
    s_barrier () -> () { plain(()) } [PROGRAM Barrier]
    s_setkill () -> () { plain(()) } [PROGRAM Nothing]
    s_waitcnt () -> () { plain(()) } [PROGRAM Wait]
    s_sethalt () -> () { plain(()) } [PROGRAM Nothing]
    s_sleep () -> () { plain(()) } [PROGRAM Other]
    s_setprio () -> () { plain(()) } [PROGRAM Nothing]
    s_sendmsg () -> () { plain(()) } [PROGRAM Other]
    s_trap () -> () { plain(()) } [PROGRAM Other]
    s_icache_inv () -> () { plain(()) } [PROGRAM Nothing]
    s_incperflevel () -> () { plain(()) } [PROGRAM Nothing]
    s_decperflevel () -> () { plain(()) } [PROGRAM Nothing]
    s_ttracedata () -> () { plain(()) } [PROGRAM Nothing]
    s_endpgm_saved () -> () { plain(()) } [PROGRAM Other]
    s_set_gpr_idx_off () -> () { plain(()) } [PROGRAM Other]
    s_set_gpr_idx_mode () -> () { plain(()) } [PROGRAM Other]
}
