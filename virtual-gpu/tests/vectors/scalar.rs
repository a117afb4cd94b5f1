//! Scalar instructions: one pair of operands per wavefront.

use crate::support::Random;
use crate::vectors::harness::{Case, In, LaneIn, Out, WaveIn, check};
use crate::vectors::operands::Kind;

/// Replaces half of the scalars with special values of their type.
pub(crate) fn mixed(wave: &mut WaveIn, _: &mut [LaneIn], random: &mut Random) {
    let (narrow, wide) = (Kind::I32.special(), Kind::I64.special());
    let mut pick = |value: &mut u64| {
        let noise = random.u64();
        *value = match random.below(4) {
            0 => noise,
            1 => wide[random.below(wide.len() as u32) as usize],
            _ => narrow[random.below(narrow.len() as u32) as usize] | (noise << 32),
        };
    };
    for value in [&mut wave.sa, &mut wave.sb, &mut wave.sd, &mut wave.exec, &mut wave.vcc] {
        pick(value);
    }
    if random.below(4) == 0 {
        wave.sb = wave.sa;
    }
    for mask in [&mut wave.exec, &mut wave.vcc] {
        if random.below(5) == 0 {
            *mask = 0;
        }
    }
}

pub(crate) fn case(
    text: impl Into<String>,
    formula: impl Fn(&In<'_>) -> Out + Send + Sync + 'static,
) -> Case {
    Case::new(text, &[], formula).waves(200).adjusted(mixed)
}

fn with_scc(mut out: Out, scc: Option<bool>) -> Out {
    out.scc = scc;
    out
}

fn narrow(value: u32) -> Out {
    let mut out = Out::kept();
    out.sd32 = Some(value);
    out
}

fn wide(value: u64) -> Out {
    let mut out = Out::kept();
    out.sd = Some(value);
    out
}

type Narrow = fn(u32, u32, bool) -> (u32, Option<bool>);
type Wide = fn(u64, u64, bool) -> (u64, Option<bool>);

fn nonzero(x: u32) -> (u32, Option<bool>) {
    (x, Some(x != 0))
}

fn nonzero64(x: u64) -> (u64, Option<bool>) {
    (x, Some(x != 0))
}

fn of_32(name: &str, formula: Narrow) -> Case {
    case(format!("{name} {{sd}}, {{sa}}, {{sb}}"), move |i| {
        let (value, scc) = formula(i.wave.sa as u32, i.wave.sb as u32, i.wave.scc != 0);
        with_scc(narrow(value), scc)
    })
}

fn of_64(name: &str, formula: Wide) -> Case {
    let second = if name.contains("sh") || name.contains("bfe") { "{sb}" } else { "{SB}" };
    case(format!("{name} {{SD}}, {{SA}}, {second}"), move |i| {
        let (value, scc) = formula(i.wave.sa, i.wave.sb, i.wave.scc != 0);
        with_scc(wide(value), scc)
    })
}

fn overflow(wide: i64) -> Option<bool> {
    Some(i32::try_from(wide).is_err())
}

pub(crate) fn arithmetic() -> Vec<Case> {
    let mut cases = vec![
        of_32("s_add_u32", |a, b, _| (a.wrapping_add(b), Some(a.checked_add(b).is_none()))),
        of_32("s_sub_u32", |a, b, _| (a.wrapping_sub(b), Some(b > a))),
        of_32("s_add_i32", |a, b, _| {
            (a.wrapping_add(b), overflow(i64::from(a as i32) + i64::from(b as i32)))
        }),
        of_32("s_sub_i32", |a, b, _| {
            (a.wrapping_sub(b), overflow(i64::from(a as i32) - i64::from(b as i32)))
        }),
        of_32("s_addc_u32", |a, b, c| {
            let sum = u64::from(a) + u64::from(b) + u64::from(c);
            (sum as u32, Some(sum >> 32 != 0))
        }),
        of_32("s_subb_u32", |a, b, c| {
            let difference = i64::from(a) - i64::from(b) - i64::from(c);
            (difference as u32, Some(difference < 0))
        }),
        of_32("s_min_i32", |a, b, _| ((a as i32).min(b as i32) as u32, Some((a as i32) < b as i32))),
        of_32("s_min_u32", |a, b, _| (a.min(b), Some(a < b))),
        of_32("s_max_i32", |a, b, _| ((a as i32).max(b as i32) as u32, Some(a as i32 > b as i32))),
        of_32("s_max_u32", |a, b, _| (a.max(b), Some(a > b))),
        of_32("s_cselect_b32", |a, b, c| (if c { a } else { b }, None)),
        of_64("s_cselect_b64", |a, b, c| (if c { a } else { b }, None)),
        of_32("s_mul_i32", |a, b, _| (a.wrapping_mul(b), None)),
        of_32("s_mul_hi_u32", |a, b, _| (((u64::from(a) * u64::from(b)) >> 32) as u32, None)),
        of_32("s_mul_hi_i32", |a, b, _| (((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32, None)),
        of_32("s_absdiff_i32", |a, b, _| nonzero((a.wrapping_sub(b) as i32).wrapping_abs() as u32)),
        of_32("s_pack_ll_b32_b16", |a, b, _| (a & 0xffff | b << 16, None)),
        of_32("s_pack_lh_b32_b16", |a, b, _| (a & 0xffff | b & 0xffff_0000, None)),
        of_32("s_pack_hh_b32_b16", |a, b, _| (a >> 16 | b & 0xffff_0000, None)),
    ];
    for (n, name) in
        ["s_lshl1_add_u32", "s_lshl2_add_u32", "s_lshl3_add_u32", "s_lshl4_add_u32"].iter().enumerate()
    {
        let shifted = case(format!("{name} {{sd}}, {{sa}}, {{sb}}"), move |i| {
            let sum = (u64::from(i.wave.sa as u32) << (n + 1)) + u64::from(i.wave.sb as u32);
            with_scc(narrow(sum as u32), Some(sum >> 32 != 0))
        });
        // The documents do not define if bits lost by the shift affect SCC, so none are lost.
        cases.push(shifted.adjusted(|wave, lanes, random| {
            mixed(wave, lanes, random);
            wave.sa &= 0x0fff_ffff;
        }));
    }
    cases
}

pub(crate) fn logic() -> Vec<Case> {
    let fields = |wave: &mut WaveIn, lanes: &mut [LaneIn], random: &mut Random| {
        mixed(wave, lanes, random);
        let width = random.below(33);
        wave.sb = u64::from(random.below(32) | width << 16);
    };
    let fields64 = |wave: &mut WaveIn, lanes: &mut [LaneIn], random: &mut Random| {
        mixed(wave, lanes, random);
        let width = random.below(65);
        wave.sb = u64::from(random.below(64) | width << 16);
    };
    vec![
        of_32("s_and_b32", |a, b, _| nonzero(a & b)),
        of_64("s_and_b64", |a, b, _| nonzero64(a & b)),
        of_32("s_or_b32", |a, b, _| nonzero(a | b)),
        of_64("s_or_b64", |a, b, _| nonzero64(a | b)),
        of_32("s_xor_b32", |a, b, _| nonzero(a ^ b)),
        of_64("s_xor_b64", |a, b, _| nonzero64(a ^ b)),
        of_32("s_andn2_b32", |a, b, _| nonzero(a & !b)),
        of_64("s_andn2_b64", |a, b, _| nonzero64(a & !b)),
        of_32("s_orn2_b32", |a, b, _| nonzero(a | !b)),
        of_64("s_orn2_b64", |a, b, _| nonzero64(a | !b)),
        of_32("s_nand_b32", |a, b, _| nonzero(!(a & b))),
        of_64("s_nand_b64", |a, b, _| nonzero64(!(a & b))),
        of_32("s_nor_b32", |a, b, _| nonzero(!(a | b))),
        of_64("s_nor_b64", |a, b, _| nonzero64(!(a | b))),
        of_32("s_xnor_b32", |a, b, _| nonzero(!(a ^ b))),
        of_64("s_xnor_b64", |a, b, _| nonzero64(!(a ^ b))),
        of_32("s_lshl_b32", |a, b, _| nonzero(a << (b & 31))),
        of_64("s_lshl_b64", |a, b, _| nonzero64(a << (b & 63))),
        of_32("s_lshr_b32", |a, b, _| nonzero(a >> (b & 31))),
        of_64("s_lshr_b64", |a, b, _| nonzero64(a >> (b & 63))),
        of_32("s_ashr_i32", |a, b, _| nonzero((a as i32 >> (b & 31)) as u32)),
        of_64("s_ashr_i64", |a, b, _| nonzero64((a as i64 >> (b & 63)) as u64)),
        of_32("s_bfm_b32", |a, b, _| (((1u32 << (a & 31)) - 1) << (b & 31), None)),
        case("s_bfm_b64 {SD}, {sa}, {sb}", |i| wide(((1u64 << (i.wave.sa & 63)) - 1) << (i.wave.sb & 63))),
        of_32("s_bfe_u32", |a, b, _| nonzero((u64::from(a >> (b & 31)) & ((1 << (b >> 16)) - 1)) as u32))
            .adjusted(fields),
        of_32("s_bfe_i32", |a, b, _| nonzero(extract(i64::from(a as i32) >> (b & 31), b >> 16) as u32))
            .adjusted(fields),
        of_64("s_bfe_u64", |a, b, _| nonzero64((u128::from(a >> (b & 63)) & ((1 << (b >> 16)) - 1)) as u64))
            .adjusted(fields64),
        of_64("s_bfe_i64", |a, b, _| nonzero64(extract(a as i64 >> (b & 63), (b >> 16) as u32) as u64))
            .adjusted(fields64),
    ]
}

/// Returns the low `width` bits, sign-extended.
fn extract(x: i64, width: u32) -> i64 {
    if width == 0 { 0 } else { x << (64 - width) >> (64 - width) }
}

fn one(name: &str, formula: Narrow) -> Case {
    case(format!("{name} {{sd}}, {{sa}}"), move |i| {
        let (value, scc) = formula(i.wave.sa as u32, i.wave.sd as u32, i.wave.scc != 0);
        with_scc(narrow(value), scc)
    })
}

fn one64(name: &str, formula: Wide) -> Case {
    case(format!("{name} {{SD}}, {{SA}}"), move |i| {
        let (value, scc) = formula(i.wave.sa, i.wave.sd, i.wave.scc != 0);
        with_scc(wide(value), scc)
    })
}

/// Takes 64 bits and returns 32.
fn count(name: &str, formula: fn(u64) -> (u32, Option<bool>)) -> Case {
    case(format!("{name} {{sd}}, {{SA}}"), move |i| {
        let (value, scc) = formula(i.wave.sa);
        with_scc(narrow(value), scc)
    })
}

fn or_none(position: u32, width: u32) -> (u32, Option<bool>) {
    (if position >= width { u32::MAX } else { position }, None)
}

/// Returns one bit per group of four bits: set if any of the four is.
fn quads(x: u64) -> u64 {
    (0..16).fold(0, |all, k| all | u64::from(x >> (4 * k) & 15 != 0) << k)
}

pub(crate) fn unary() -> Vec<Case> {
    vec![
        one("s_mov_b32", |a, _, _| (a, None)),
        one64("s_mov_b64", |a, _, _| (a, None)),
        one("s_cmov_b32", |a, old, c| (if c { a } else { old }, None)),
        one64("s_cmov_b64", |a, old, c| (if c { a } else { old }, None)),
        one("s_not_b32", |a, _, _| nonzero(!a)),
        one64("s_not_b64", |a, _, _| nonzero64(!a)),
        one("s_wqm_b32", |a, _, _| nonzero(quads_filled(a.into()) as u32)),
        one64("s_wqm_b64", |a, _, _| nonzero64(quads_filled(a))),
        one("s_brev_b32", |a, _, _| (a.reverse_bits(), None)),
        one64("s_brev_b64", |a, _, _| (a.reverse_bits(), None)),
        one("s_bcnt0_i32_b32", |a, _, _| nonzero(a.count_zeros())),
        count("s_bcnt0_i32_b64", |a| nonzero(a.count_zeros())),
        one("s_bcnt1_i32_b32", |a, _, _| nonzero(a.count_ones())),
        count("s_bcnt1_i32_b64", |a| nonzero(a.count_ones())),
        one("s_ff0_i32_b32", |a, _, _| or_none(a.trailing_ones(), 32)),
        count("s_ff0_i32_b64", |a| or_none(a.trailing_ones(), 64)),
        one("s_ff1_i32_b32", |a, _, _| or_none(a.trailing_zeros(), 32)),
        count("s_ff1_i32_b64", |a| or_none(a.trailing_zeros(), 64)),
        one("s_flbit_i32_b32", |a, _, _| or_none(a.leading_zeros(), 32)),
        count("s_flbit_i32_b64", |a| or_none(a.leading_zeros(), 64)),
        one("s_flbit_i32", |a, _, _| or_none((a ^ (a as i32 >> 31) as u32).leading_zeros(), 32)),
        count("s_flbit_i32_i64", |a| or_none((a ^ (a as i64 >> 63) as u64).leading_zeros(), 64)),
        one("s_sext_i32_i8", |a, _, _| (a as i8 as u32, None)),
        one("s_sext_i32_i16", |a, _, _| (a as i16 as u32, None)),
        one("s_bitset0_b32", |a, old, _| (old & !(1 << (a & 31)), None)),
        one("s_bitset1_b32", |a, old, _| (old | 1 << (a & 31), None)),
        case("s_bitset0_b64 {SD}, {sa}", |i| wide(i.wave.sd & !(1 << (i.wave.sa & 63)))),
        case("s_bitset1_b64 {SD}, {sa}", |i| wide(i.wave.sd | 1 << (i.wave.sa & 63))),
        one("s_quadmask_b32", |a, _, _| nonzero(quads(a.into()) as u32)),
        one64("s_quadmask_b64", |a, _, _| nonzero64(quads(a))),
        one("s_abs_i32", |a, _, _| nonzero((a as i32).wrapping_abs() as u32)),
        case("s_bitreplicate_b64_b32 {SD}, {sa}", |i| {
            wide((0..64).fold(0, |all, k| all | (i.wave.sa >> (k / 2) & 1) << k))
        }),
    ]
}

/// Fills each group of four bits that has a bit set.
fn quads_filled(x: u64) -> u64 {
    (0..64).fold(0, |all, k| all | (quads(x) >> (k / 4) & 1) << k)
}

/// Instructions that change EXEC: its new value, and if the result is the old or the new one.
pub(crate) fn masks() -> Vec<Case> {
    type Mask = fn(u64, u64) -> u64;
    let list: [(&str, Mask); 12] = [
        ("s_and_saveexec_b64", |s, e| s & e),
        ("s_or_saveexec_b64", |s, e| s | e),
        ("s_xor_saveexec_b64", |s, e| s ^ e),
        ("s_andn2_saveexec_b64", |s, e| s & !e),
        ("s_orn2_saveexec_b64", |s, e| s | !e),
        ("s_nand_saveexec_b64", |s, e| !(s & e)),
        ("s_nor_saveexec_b64", |s, e| !(s | e)),
        ("s_xnor_saveexec_b64", |s, e| !(s ^ e)),
        ("s_andn1_saveexec_b64", |s, e| !s & e),
        ("s_orn1_saveexec_b64", |s, e| !s | e),
        ("s_andn1_wrexec_b64", |s, e| !s & e),
        ("s_andn2_wrexec_b64", |s, e| s & !e),
    ];
    let make = |(name, mask): (&str, Mask)| {
        let saves = name.contains("save");
        case(format!("{name} {{SD}}, {{SA}}"), move |i| {
            let new = mask(i.wave.sa, i.wave.exec);
            let mut out = wide(if saves { i.wave.exec } else { new });
            (out.exec, out.scc) = (Some(new), Some(new != 0));
            out
        })
    };
    list.into_iter().map(make).collect()
}

pub(crate) fn comparisons() -> Vec<Case> {
    type Holds = fn(u64, u64) -> bool;
    let list: [(&str, Holds); 18] = [
        ("s_cmp_eq_i32", |a, b| a as i32 == b as i32),
        ("s_cmp_lg_i32", |a, b| a as i32 != b as i32),
        ("s_cmp_gt_i32", |a, b| a as i32 > b as i32),
        ("s_cmp_ge_i32", |a, b| a as i32 >= b as i32),
        ("s_cmp_lt_i32", |a, b| (a as i32) < b as i32),
        ("s_cmp_le_i32", |a, b| a as i32 <= b as i32),
        ("s_cmp_eq_u32", |a, b| a as u32 == b as u32),
        ("s_cmp_lg_u32", |a, b| a as u32 != b as u32),
        ("s_cmp_gt_u32", |a, b| a as u32 > b as u32),
        ("s_cmp_ge_u32", |a, b| a as u32 >= b as u32),
        ("s_cmp_lt_u32", |a, b| (a as u32) < b as u32),
        ("s_cmp_le_u32", |a, b| a as u32 <= b as u32),
        ("s_cmp_eq_u64", |a, b| a == b),
        ("s_cmp_lg_u64", |a, b| a != b),
        ("s_bitcmp0_b32", |a, b| a >> (b & 31) & 1 == 0),
        ("s_bitcmp1_b32", |a, b| a >> (b & 31) & 1 == 1),
        ("s_bitcmp0_b64", |a, b| a >> (b & 63) & 1 == 0),
        ("s_bitcmp1_b64", |a, b| a >> (b & 63) & 1 == 1),
    ];
    let make = |(name, holds): (&str, Holds)| {
        let operands = match name {
            _ if name.ends_with("u64") => "{SA}, {SB}",
            _ if name.ends_with("b64") => "{SA}, {sb}",
            _ => "{sa}, {sb}",
        };
        case(format!("{name} {operands}"), move |i| with_scc(Out::kept(), Some(holds(i.wave.sa, i.wave.sb))))
    };
    list.into_iter().map(make).collect()
}

/// 16-bit constants in the instruction.
pub(crate) fn immediates() -> Vec<Case> {
    let mut cases = Vec::new();
    for constant in [0u16, 1, 0x7fff, 0x8000, 0xffff, 0x1234] {
        let signed = i64::from(constant as i16);
        cases.push(case(format!("s_movk_i32 {{sd}}, {constant:#x}"), move |_| narrow(signed as u32)));
        cases.push(case(format!("s_cmovk_i32 {{sd}}, {constant:#x}"), move |i| {
            narrow(if i.wave.scc != 0 { signed as u32 } else { i.wave.sd as u32 })
        }));
        cases.push(case(format!("s_addk_i32 {{sd}}, {constant:#x}"), move |i| {
            let sum = i64::from(i.wave.sd as i32) + signed;
            with_scc(narrow(sum as u32), overflow(sum))
        }));
        cases.push(case(format!("s_mulk_i32 {{sd}}, {constant:#x}"), move |i| {
            narrow((i.wave.sd as u32).wrapping_mul(signed as u32))
        }));
        type Holds = fn(i64, i64) -> bool;
        let relations: [(&str, Holds); 6] = [
            ("eq", |a, b| a == b),
            ("lg", |a, b| a != b),
            ("gt", |a, b| a > b),
            ("ge", |a, b| a >= b),
            ("lt", |a, b| a < b),
            ("le", |a, b| a <= b),
        ];
        for (name, holds) in relations {
            cases.push(case(format!("s_cmpk_{name}_i32 {{sa}}, {constant:#x}"), move |i| {
                with_scc(Out::kept(), Some(holds(i64::from(i.wave.sa as i32), signed)))
            }));
            cases.push(case(format!("s_cmpk_{name}_u32 {{sa}}, {constant:#x}"), move |i| {
                with_scc(Out::kept(), Some(holds(i64::from(i.wave.sa as u32), i64::from(constant))))
            }));
        }
    }
    cases.push(case("s_add_u32 {sd}, {sa}, 0x89abcdef", |i| {
        let (sum, carry) = (i.wave.sa as u32).overflowing_add(0x89ab_cdef);
        with_scc(narrow(sum), Some(carry))
    }));
    cases.push(case("s_and_b64 {SD}, {SA}, -8", |i| {
        let value = i.wave.sa & !7;
        with_scc(wide(value), Some(value != 0))
    }));
    // The literal of a 64-bit operation is sign-extended.
    cases.push(case("s_or_b64 {SD}, {SA}, 0x12345678", |i| {
        with_scc(wide(i.wave.sa | 0x1234_5678), Some(true))
    }));
    cases
}

pub(crate) fn all() -> Vec<Case> {
    [arithmetic(), logic(), unary(), masks(), comparisons(), immediates()].into_iter().flatten().collect()
}

#[test]
fn two_operands() {
    check(arithmetic());
}

#[test]
fn bits() {
    check(logic());
}

#[test]
fn one_operand() {
    check(unary());
}

#[test]
fn exec_masks() {
    check(masks());
}

#[test]
fn compare() {
    check(comparisons());
}

#[test]
fn constants() {
    check(immediates());
}
