//! Scalar instructions: SOP1, SOP2, SOPC, SOPK and SOPP.
//!
//! A row is `number name (sources) -> result { formula }`. A formula returns the result and, if the
//! instruction sets it, SCC. `state` holds SCC and EXEC before the instruction and the destination's old
//! value. Rows marked SPECIAL change the program counter, hardware registers or registers by index; they are
//! executed separately.

use super::Kind;

/// A scalar instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScalarRow {
    pub(crate) code: u16,
    pub(crate) name: &'static str,
    pub(crate) dst: Kind,
    pub(crate) src: [Kind; 4],
    pub(crate) special: bool,
    /// EXEC becomes the result; the destination becomes the old EXEC (`saveexec`) or also the result
    /// (`wrexec`).
    pub(crate) exec: Option<SaveExec>,
}

/// Value that `saveexec` and `wrexec` write to the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SaveExec {
    Old,
    New,
}

/// State that formulas may use in addition to their sources.
#[derive(Clone, Copy)]
pub(crate) struct State {
    pub(crate) scc: bool,
    pub(crate) exec: u64,
    /// Old value of the destination.
    pub(crate) old: u64,
}

/// A result, and SCC if it changes.
pub(crate) type Outcome = (u64, Option<bool>);

trait Scalar: Copy {
    const KIND: Kind;
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! scalar {
    ($($t:ty, $kind:ident, $via:ty;)*) => {$(
        impl Scalar for $t {
            const KIND: Kind = Kind::$kind;
            fn of(bits: u64) -> $t {
                bits as $t
            }
            fn bits(self) -> u64 {
                self as $via as u64
            }
        }
    )*};
}

scalar! {
    u32, U32, u32;
    i32, I32, u32;
    u64, U64, u64;
    i64, I64, u64;
}

impl Scalar for () {
    const KIND: Kind = Kind::None;
    fn of(_: u64) {}
    fn bits(self) -> u64 {
        0
    }
}

fn plain<T: Scalar>(x: T) -> Outcome {
    (x.bits(), None)
}

/// Sets SCC if the result is not 0.
fn test<T: Scalar>(x: T) -> Outcome {
    (x.bits(), Some(x.bits() != 0))
}

fn both<T: Scalar>(x: T, scc: bool) -> Outcome {
    (x.bits(), Some(scc))
}

fn flag_only(scc: bool) -> Outcome {
    (0, Some(scc))
}

macro_rules! salu {
    (
        $rows:ident, $execute:ident, $state:ident;
        $( $code:literal $name:ident ($($a:ident : $t:ty),*) -> $r:ty $body:block $([$($mark:ident)*])? )*
    ) => {
        /// Numbers, names and operand types.
        pub(crate) const $rows: &[ScalarRow] = &[$(
            ScalarRow {
                code: $code,
                name: stringify!($name),
                dst: <$r as Scalar>::KIND,
                src: super::lanes::kinds(&[$(<$t as Scalar>::KIND),*]),
                special: marks(&[$($(stringify!($mark)),*)?]).0,
                exec: marks(&[$($(stringify!($mark)),*)?]).1,
            }
        ),*];

        /// Computes an instruction.
        #[allow(unused_variables, unused_mut, unused_assignments, dead_code)]
        pub(crate) fn $execute(code: u16, sources: [u64; 2], $state: State) -> Outcome {
            match code {
                $($code => {
                    let mut n = 0;
                    $(
                        let $a = <$t as Scalar>::of(sources[n]);
                        n += 1;
                    )*
                    $body
                })*
                _ => (0, None),
            }
        }
    };
}

const fn marks(names: &[&str]) -> (bool, Option<SaveExec>) {
    if names.is_empty() {
        return (false, None);
    }
    match names[0].as_bytes() {
        b"SPECIAL" => (true, None),
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
    SOP2, sop2, state;
    0x00 s_add_u32 (a: u32, b: u32) -> u32 { let (d, carry) = a.overflowing_add(b); both(d, carry) }
    0x01 s_sub_u32 (a: u32, b: u32) -> u32 { let (d, borrow) = a.overflowing_sub(b); both(d, borrow) }
    0x02 s_add_i32 (a: i32, b: i32) -> i32 { let (d, overflow) = a.overflowing_add(b); both(d, overflow) }
    0x03 s_sub_i32 (a: i32, b: i32) -> i32 { let (d, overflow) = a.overflowing_sub(b); both(d, overflow) }
    0x04 s_addc_u32 (a: u32, b: u32) -> u32 {
        let d = u64::from(a) + u64::from(b) + u64::from(state.scc);
        both(d as u32, d >> 32 != 0)
    }
    0x05 s_subb_u32 (a: u32, b: u32) -> u32 {
        let taken = u64::from(b) + u64::from(state.scc);
        both(u64::from(a).wrapping_sub(taken) as u32, taken > u64::from(a))
    }
    0x06 s_min_i32 (a: i32, b: i32) -> i32 { both(a.min(b), a < b) }
    0x07 s_min_u32 (a: u32, b: u32) -> u32 { both(a.min(b), a < b) }
    0x08 s_max_i32 (a: i32, b: i32) -> i32 { both(a.max(b), a > b) }
    0x09 s_max_u32 (a: u32, b: u32) -> u32 { both(a.max(b), a > b) }
    0x0a s_cselect_b32 (a: u32, b: u32) -> u32 { plain(if state.scc { a } else { b }) }
    0x0b s_cselect_b64 (a: u64, b: u64) -> u64 { plain(if state.scc { a } else { b }) }
    0x0c s_and_b32 (a: u32, b: u32) -> u32 { test(a & b) }
    0x0d s_and_b64 (a: u64, b: u64) -> u64 { test(a & b) }
    0x0e s_or_b32 (a: u32, b: u32) -> u32 { test(a | b) }
    0x0f s_or_b64 (a: u64, b: u64) -> u64 { test(a | b) }
    0x10 s_xor_b32 (a: u32, b: u32) -> u32 { test(a ^ b) }
    0x11 s_xor_b64 (a: u64, b: u64) -> u64 { test(a ^ b) }
    0x12 s_andn2_b32 (a: u32, b: u32) -> u32 { test(a & !b) }
    0x13 s_andn2_b64 (a: u64, b: u64) -> u64 { test(a & !b) }
    0x14 s_orn2_b32 (a: u32, b: u32) -> u32 { test(a | !b) }
    0x15 s_orn2_b64 (a: u64, b: u64) -> u64 { test(a | !b) }
    0x16 s_nand_b32 (a: u32, b: u32) -> u32 { test(!(a & b)) }
    0x17 s_nand_b64 (a: u64, b: u64) -> u64 { test(!(a & b)) }
    0x18 s_nor_b32 (a: u32, b: u32) -> u32 { test(!(a | b)) }
    0x19 s_nor_b64 (a: u64, b: u64) -> u64 { test(!(a | b)) }
    0x1a s_xnor_b32 (a: u32, b: u32) -> u32 { test(!(a ^ b)) }
    0x1b s_xnor_b64 (a: u64, b: u64) -> u64 { test(!(a ^ b)) }
    0x1c s_lshl_b32 (a: u32, b: u32) -> u32 { test(a << (b & 31)) }
    0x1d s_lshl_b64 (a: u64, b: u32) -> u64 { test(a << (b & 63)) }
    0x1e s_lshr_b32 (a: u32, b: u32) -> u32 { test(a >> (b & 31)) }
    0x1f s_lshr_b64 (a: u64, b: u32) -> u64 { test(a >> (b & 63)) }
    0x20 s_ashr_i32 (a: i32, b: u32) -> i32 { test(a >> (b & 31)) }
    0x21 s_ashr_i64 (a: i64, b: u32) -> i64 { test(a >> (b & 63)) }
    0x22 s_bfm_b32 (a: u32, b: u32) -> u32 { plain(((1u32 << (a & 31)) - 1) << (b & 31)) }
    0x23 s_bfm_b64 (a: u32, b: u32) -> u64 { plain(((1u64 << (a & 63)) - 1) << (b & 63)) }
    0x24 s_mul_i32 (a: i32, b: i32) -> i32 { plain(a.wrapping_mul(b)) }
    0x25 s_bfe_u32 (a: u32, b: u32) -> u32 { test(field(a.into(), (b & 31).into(), (b >> 16 & 127).into()) as u32) }
    0x26 s_bfe_i32 (a: i32, b: u32) -> i32 { test(signed_field(a.into(), (b & 31).into(), (b >> 16 & 127).into()) as i32) }
    0x27 s_bfe_u64 (a: u64, b: u32) -> u64 { test(field(a, (b & 63).into(), (b >> 16 & 127).into())) }
    0x28 s_bfe_i64 (a: i64, b: u32) -> i64 { test(signed_field(a, (b & 63).into(), (b >> 16 & 127).into())) }
    0x29 s_cbranch_g_fork (a: u64, b: u64) -> () { plain(()) } [SPECIAL]
    0x2a s_absdiff_i32 (a: i32, b: i32) -> i32 { test(a.wrapping_sub(b).wrapping_abs()) }
    0x2c s_mul_hi_u32 (a: u32, b: u32) -> u32 { plain(((u64::from(a) * u64::from(b)) >> 32) as u32) }
    0x2d s_mul_hi_i32 (a: i32, b: i32) -> i32 { plain(((i64::from(a) * i64::from(b)) >> 32) as i32) }
    0x2e s_lshl1_add_u32 (a: u32, b: u32) -> u32 { shift_add(a, b, 1) }
    0x2f s_lshl2_add_u32 (a: u32, b: u32) -> u32 { shift_add(a, b, 2) }
    0x30 s_lshl3_add_u32 (a: u32, b: u32) -> u32 { shift_add(a, b, 3) }
    0x31 s_lshl4_add_u32 (a: u32, b: u32) -> u32 { shift_add(a, b, 4) }
    0x32 s_pack_ll_b32_b16 (a: u32, b: u32) -> u32 { plain(a & 0xffff | b << 16) }
    0x33 s_pack_lh_b32_b16 (a: u32, b: u32) -> u32 { plain(a & 0xffff | b & 0xffff_0000) }
    0x34 s_pack_hh_b32_b16 (a: u32, b: u32) -> u32 { plain(a >> 16 | b & 0xffff_0000) }
}

fn shift_add(a: u32, b: u32, shift: u32) -> Outcome {
    let sum = (u64::from(a) << shift) + u64::from(b);
    both(sum as u32, sum >> 32 != 0)
}

salu! {
    SOP1, sop1, state;
    0x00 s_mov_b32 (a: u32) -> u32 { plain(a) }
    0x01 s_mov_b64 (a: u64) -> u64 { plain(a) }
    0x02 s_cmov_b32 (a: u32) -> u32 { plain(if state.scc { a } else { state.old as u32 }) }
    0x03 s_cmov_b64 (a: u64) -> u64 { plain(if state.scc { a } else { state.old }) }
    0x04 s_not_b32 (a: u32) -> u32 { test(!a) }
    0x05 s_not_b64 (a: u64) -> u64 { test(!a) }
    0x06 s_wqm_b32 (a: u32) -> u32 { test(whole_quads(a.into(), 32) as u32) }
    0x07 s_wqm_b64 (a: u64) -> u64 { test(whole_quads(a, 64)) }
    0x08 s_brev_b32 (a: u32) -> u32 { plain(a.reverse_bits()) }
    0x09 s_brev_b64 (a: u64) -> u64 { plain(a.reverse_bits()) }
    0x0a s_bcnt0_i32_b32 (a: u32) -> u32 { test(a.count_zeros()) }
    0x0b s_bcnt0_i32_b64 (a: u64) -> u32 { test(a.count_zeros()) }
    0x0c s_bcnt1_i32_b32 (a: u32) -> u32 { test(a.count_ones()) }
    0x0d s_bcnt1_i32_b64 (a: u64) -> u32 { test(a.count_ones()) }
    0x0e s_ff0_i32_b32 (a: u32) -> u32 { plain(if a == u32::MAX { u32::MAX } else { a.trailing_ones() }) }
    0x0f s_ff0_i32_b64 (a: u64) -> u32 { plain(if a == u64::MAX { u32::MAX } else { a.trailing_ones() }) }
    0x10 s_ff1_i32_b32 (a: u32) -> u32 { plain(if a == 0 { u32::MAX } else { a.trailing_zeros() }) }
    0x11 s_ff1_i32_b64 (a: u64) -> u32 { plain(if a == 0 { u32::MAX } else { a.trailing_zeros() }) }
    0x12 s_flbit_i32_b32 (a: u32) -> u32 { plain(if a == 0 { u32::MAX } else { a.leading_zeros() }) }
    0x13 s_flbit_i32_b64 (a: u64) -> u32 { plain(if a == 0 { u32::MAX } else { a.leading_zeros() }) }
    0x14 s_flbit_i32 (a: i32) -> u32 { plain(sign_bits(a.into(), 32)) }
    0x15 s_flbit_i32_i64 (a: i64) -> u32 { plain(sign_bits(a, 64)) }
    0x16 s_sext_i32_i8 (a: u32) -> i32 { plain(i32::from(a as i8)) }
    0x17 s_sext_i32_i16 (a: u32) -> i32 { plain(i32::from(a as i16)) }
    0x18 s_bitset0_b32 (a: u32) -> u32 { plain(state.old as u32 & !(1 << (a & 31))) }
    0x19 s_bitset0_b64 (a: u32) -> u64 { plain(state.old & !(1 << (a & 63))) }
    0x1a s_bitset1_b32 (a: u32) -> u32 { plain(state.old as u32 | 1 << (a & 31)) }
    0x1b s_bitset1_b64 (a: u32) -> u64 { plain(state.old | 1 << (a & 63)) }
    0x1c s_getpc_b64 () -> u64 { plain(()) } [SPECIAL]
    0x1d s_setpc_b64 (a: u64) -> () { plain(()) } [SPECIAL]
    0x1e s_swappc_b64 (a: u64) -> u64 { plain(()) } [SPECIAL]
    0x1f s_rfe_b64 (a: u64) -> () { plain(()) } [SPECIAL]
    0x20 s_and_saveexec_b64 (a: u64) -> u64 { test(a & state.exec) } [SAVEEXEC]
    0x21 s_or_saveexec_b64 (a: u64) -> u64 { test(a | state.exec) } [SAVEEXEC]
    0x22 s_xor_saveexec_b64 (a: u64) -> u64 { test(a ^ state.exec) } [SAVEEXEC]
    0x23 s_andn2_saveexec_b64 (a: u64) -> u64 { test(a & !state.exec) } [SAVEEXEC]
    0x24 s_orn2_saveexec_b64 (a: u64) -> u64 { test(a | !state.exec) } [SAVEEXEC]
    0x25 s_nand_saveexec_b64 (a: u64) -> u64 { test(!(a & state.exec)) } [SAVEEXEC]
    0x26 s_nor_saveexec_b64 (a: u64) -> u64 { test(!(a | state.exec)) } [SAVEEXEC]
    0x27 s_xnor_saveexec_b64 (a: u64) -> u64 { test(!(a ^ state.exec)) } [SAVEEXEC]
    0x28 s_quadmask_b32 (a: u32) -> u32 { test(quads(a.into(), 32) as u32) }
    0x29 s_quadmask_b64 (a: u64) -> u64 { test(quads(a, 64)) }
    0x2a s_movrels_b32 (a: u32) -> u32 { plain(()) } [SPECIAL]
    0x2b s_movrels_b64 (a: u64) -> u64 { plain(()) } [SPECIAL]
    0x2c s_movreld_b32 (a: u32) -> u32 { plain(()) } [SPECIAL]
    0x2d s_movreld_b64 (a: u64) -> u64 { plain(()) } [SPECIAL]
    0x30 s_abs_i32 (a: i32) -> i32 { test(a.wrapping_abs()) }
    0x32 s_set_gpr_idx_idx (a: u32) -> () { plain(()) } [SPECIAL]
    0x33 s_andn1_saveexec_b64 (a: u64) -> u64 { test(!a & state.exec) } [SAVEEXEC]
    0x34 s_orn1_saveexec_b64 (a: u64) -> u64 { test(!a | state.exec) } [SAVEEXEC]
    0x35 s_andn1_wrexec_b64 (a: u64) -> u64 { test(!a & state.exec) } [WREXEC]
    0x36 s_andn2_wrexec_b64 (a: u64) -> u64 { test(a & !state.exec) } [WREXEC]
    0x37 s_bitreplicate_b64_b32 (a: u32) -> u64 {
        plain((0..32).fold(0u64, |d, i| if a >> i & 1 != 0 { d | 3 << (2 * i) } else { d }))
    }
}

salu! {
    SOPC, sopc, state;
    0x00 s_cmp_eq_i32 (a: i32, b: i32) -> () { flag_only(a == b) }
    0x01 s_cmp_lg_i32 (a: i32, b: i32) -> () { flag_only(a != b) }
    0x02 s_cmp_gt_i32 (a: i32, b: i32) -> () { flag_only(a > b) }
    0x03 s_cmp_ge_i32 (a: i32, b: i32) -> () { flag_only(a >= b) }
    0x04 s_cmp_lt_i32 (a: i32, b: i32) -> () { flag_only(a < b) }
    0x05 s_cmp_le_i32 (a: i32, b: i32) -> () { flag_only(a <= b) }
    0x06 s_cmp_eq_u32 (a: u32, b: u32) -> () { flag_only(a == b) }
    0x07 s_cmp_lg_u32 (a: u32, b: u32) -> () { flag_only(a != b) }
    0x08 s_cmp_gt_u32 (a: u32, b: u32) -> () { flag_only(a > b) }
    0x09 s_cmp_ge_u32 (a: u32, b: u32) -> () { flag_only(a >= b) }
    0x0a s_cmp_lt_u32 (a: u32, b: u32) -> () { flag_only(a < b) }
    0x0b s_cmp_le_u32 (a: u32, b: u32) -> () { flag_only(a <= b) }
    0x0c s_bitcmp0_b32 (a: u32, b: u32) -> () { flag_only(a >> (b & 31) & 1 == 0) }
    0x0d s_bitcmp1_b32 (a: u32, b: u32) -> () { flag_only(a >> (b & 31) & 1 == 1) }
    0x0e s_bitcmp0_b64 (a: u64, b: u32) -> () { flag_only(a >> (b & 63) & 1 == 0) }
    0x0f s_bitcmp1_b64 (a: u64, b: u32) -> () { flag_only(a >> (b & 63) & 1 == 1) }
    0x11 s_set_gpr_idx_on (a: u32, b: u32) -> () { plain(()) } [SPECIAL]
    0x12 s_cmp_eq_u64 (a: u64, b: u64) -> () { flag_only(a == b) }
    0x13 s_cmp_lg_u64 (a: u64, b: u64) -> () { flag_only(a != b) }
}

// The first source is the destination's old value, the second the constant, sign-extended (zero-extended for
// unsigned comparisons).
salu! {
    SOPK, sopk, state;
    0x00 s_movk_i32 (a: i32, k: i32) -> i32 { plain(k) }
    0x01 s_cmovk_i32 (a: i32, k: i32) -> i32 { plain(if state.scc { k } else { a }) }
    0x02 s_cmpk_eq_i32 (a: i32, k: i32) -> () { flag_only(a == k) }
    0x03 s_cmpk_lg_i32 (a: i32, k: i32) -> () { flag_only(a != k) }
    0x04 s_cmpk_gt_i32 (a: i32, k: i32) -> () { flag_only(a > k) }
    0x05 s_cmpk_ge_i32 (a: i32, k: i32) -> () { flag_only(a >= k) }
    0x06 s_cmpk_lt_i32 (a: i32, k: i32) -> () { flag_only(a < k) }
    0x07 s_cmpk_le_i32 (a: i32, k: i32) -> () { flag_only(a <= k) }
    0x08 s_cmpk_eq_u32 (a: u32, k: u32) -> () { flag_only(a == k & 0xffff) }
    0x09 s_cmpk_lg_u32 (a: u32, k: u32) -> () { flag_only(a != k & 0xffff) }
    0x0a s_cmpk_gt_u32 (a: u32, k: u32) -> () { flag_only(a > k & 0xffff) }
    0x0b s_cmpk_ge_u32 (a: u32, k: u32) -> () { flag_only(a >= k & 0xffff) }
    0x0c s_cmpk_lt_u32 (a: u32, k: u32) -> () { flag_only(a < k & 0xffff) }
    0x0d s_cmpk_le_u32 (a: u32, k: u32) -> () { flag_only(a <= k & 0xffff) }
    0x0e s_addk_i32 (a: i32, k: i32) -> i32 { let (d, overflow) = a.overflowing_add(k); both(d, overflow) }
    0x0f s_mulk_i32 (a: i32, k: i32) -> i32 { plain(a.wrapping_mul(k)) }
    0x11 s_getreg_b32 () -> u32 { plain(()) } [SPECIAL]
    0x12 s_setreg_b32 (a: u32) -> () { plain(()) } [SPECIAL]
    0x14 s_setreg_imm32_b32 () -> () { plain(()) } [SPECIAL]
    0x15 s_call_b64 () -> u64 { plain(()) } [SPECIAL]
}

salu! {
    SOPP, sopp, state;
    0x00 s_nop () -> () { plain(()) } [SPECIAL]
    0x01 s_endpgm () -> () { plain(()) } [SPECIAL]
    0x02 s_branch () -> () { plain(()) } [SPECIAL]
    0x03 s_wakeup () -> () { plain(()) } [SPECIAL]
    0x04 s_cbranch_scc0 () -> () { plain(()) } [SPECIAL]
    0x05 s_cbranch_scc1 () -> () { plain(()) } [SPECIAL]
    0x06 s_cbranch_vccz () -> () { plain(()) } [SPECIAL]
    0x07 s_cbranch_vccnz () -> () { plain(()) } [SPECIAL]
    0x08 s_cbranch_execz () -> () { plain(()) } [SPECIAL]
    0x09 s_cbranch_execnz () -> () { plain(()) } [SPECIAL]
    0x0a s_barrier () -> () { plain(()) } [SPECIAL]
    0x0b s_setkill () -> () { plain(()) } [SPECIAL]
    0x0c s_waitcnt () -> () { plain(()) } [SPECIAL]
    0x0d s_sethalt () -> () { plain(()) } [SPECIAL]
    0x0e s_sleep () -> () { plain(()) } [SPECIAL]
    0x0f s_setprio () -> () { plain(()) } [SPECIAL]
    0x10 s_sendmsg () -> () { plain(()) } [SPECIAL]
    0x12 s_trap () -> () { plain(()) } [SPECIAL]
    0x13 s_icache_inv () -> () { plain(()) } [SPECIAL]
    0x14 s_incperflevel () -> () { plain(()) } [SPECIAL]
    0x15 s_decperflevel () -> () { plain(()) } [SPECIAL]
    0x16 s_ttracedata () -> () { plain(()) } [SPECIAL]
    0x1b s_endpgm_saved () -> () { plain(()) } [SPECIAL]
    0x1c s_set_gpr_idx_off () -> () { plain(()) } [SPECIAL]
    0x1d s_set_gpr_idx_mode () -> () { plain(()) } [SPECIAL]
}

/// Numbers of frequent instructions of SOPP.
pub(crate) const BRANCH: u16 = 0x02;
pub(crate) const BRANCH_SCC0: u16 = 0x04;
pub(crate) const BRANCH_SCC1: u16 = 0x05;
pub(crate) const BRANCH_VCCZ: u16 = 0x06;
pub(crate) const BRANCH_VCCNZ: u16 = 0x07;
pub(crate) const BRANCH_EXECZ: u16 = 0x08;
pub(crate) const BRANCH_EXECNZ: u16 = 0x09;
pub(crate) const WAIT: u16 = 0x0c;

/// Returns the row of a number.
pub(crate) fn find(rows: &'static [ScalarRow], code: u16) -> Option<&'static ScalarRow> {
    rows.binary_search_by_key(&code, |row| row.code).ok().map(|i| &rows[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted() {
        for table in [SOP1, SOP2, SOPC, SOPK, SOPP] {
            assert!(table.windows(2).all(|w| w[0].code < w[1].code), "{}", table[0].name);
        }
    }
}
