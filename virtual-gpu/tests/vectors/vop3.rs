//! Instructions with the long encoding only.

use crate::vectors::harness::{Case, Dst, In, Out, check};
use crate::vectors::numbers::{
    d, extreme, f, h, half_fma, half_towards_zero, median, rounded, scale, signalling16, signalling32,
    signalling64,
};
use crate::vectors::operands::Kind;
use crate::vectors::vop2::{legacy_product, mad16, mad32, signed24, unsigned24};

fn three(name: &str, kinds: [Kind; 3], formula: impl Fn(&In<'_>) -> Out + Send + Sync + 'static) -> Case {
    Case::new(format!("{name} {{d}}, {{a}}, {{b}}, {{c}}"), &kinds, formula)
}

fn of_b32(name: &str, formula: impl Fn(u32, u32, u32) -> u32 + Send + Sync + 'static) -> Case {
    three(name, [Kind::I32; 3], move |i| formula(i.a32(), i.b32(), i.c32()).into())
}

fn two(name: &str, formula: impl Fn(u32, u32) -> u32 + Send + Sync + 'static) -> Case {
    Case::new(format!("{name} {{d}}, {{a}}, {{b}}"), &[Kind::I32; 2], move |i| {
        formula(i.a32(), i.b32()).into()
    })
}

fn bytes(x: u32) -> [i64; 4] {
    x.to_le_bytes().map(i64::from)
}

/// Returns the sum of absolute differences of four bytes; if masked, only of those where `b` is not zero.
fn sad(a: u32, b: u32, masked: bool) -> u32 {
    let pairs = bytes(a).into_iter().zip(bytes(b));
    pairs.filter(|&(_, b)| !masked || b != 0).map(|(a, b)| (a - b).unsigned_abs() as u32).sum()
}

pub(crate) fn integers() -> Vec<Case> {
    let sorted = |a: u32, b: u32, c: u32| median([a, b, c]);
    let signed = |a: u32, b: u32, c: u32| median([a as i32, b as i32, c as i32]) as u32;
    let field = |width: u32| (1u32 << (width & 31)) - 1;
    vec![
        of_b32("v_mad_i32_i24", |a, b, c| ((signed24(a) * signed24(b)) as u32).wrapping_add(c)),
        of_b32("v_mad_u32_u24", |a, b, c| ((unsigned24(a) * unsigned24(b)) as u32).wrapping_add(c)),
        of_b32("v_bfe_u32", move |a, b, c| (a >> (b & 31)) & field(c)),
        of_b32("v_bfe_i32", |a, b, c| {
            let width = c & 31;
            let (kept, offset) = (i64::from(a as i32) >> (b & 31), 64 - width);
            if width == 0 { 0 } else { (kept << offset >> offset) as u32 }
        }),
        of_b32("v_bfi_b32", |a, b, c| (a & b) | (!a & c)),
        of_b32("v_lerp_u8", |a, b, c| {
            let average = |k: usize| (bytes(a)[k] + bytes(b)[k] + (bytes(c)[k] & 1)) / 2;
            u32::from_le_bytes([0, 1, 2, 3].map(|k| average(k) as u8))
        }),
        of_b32("v_alignbit_b32", |a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> (c & 31)) as u32),
        three("v_alignbyte_b32", [Kind::I32; 3], |i| {
            let shifted = (u64::from(i.a32()) << 32 | u64::from(i.b32())) >> (8 * (i.c32() & 3));
            // The documents disagree on the number of shift bits used.
            if i.c32() & 0x1f > 3 { Dst::Any.into() } else { (shifted as u32).into() }
        }),
        of_b32("v_min3_i32", |a, b, c| (a as i32).min(b as i32).min(c as i32) as u32),
        of_b32("v_min3_u32", |a, b, c| a.min(b).min(c)),
        of_b32("v_max3_i32", |a, b, c| (a as i32).max(b as i32).max(c as i32) as u32),
        of_b32("v_max3_u32", |a, b, c| a.max(b).max(c)),
        of_b32("v_med3_i32", signed),
        of_b32("v_med3_u32", sorted),
        of_b32("v_sad_u8", |a, b, c| sad(a, b, false).wrapping_add(c)),
        of_b32("v_sad_hi_u8", |a, b, c| (sad(a, b, false) << 16).wrapping_add(c)),
        of_b32("v_sad_u16", |a, b, c| {
            let word = |k: u32| (a >> k & 0xffff).abs_diff(b >> k & 0xffff);
            (word(0) + word(16)).wrapping_add(c)
        }),
        of_b32("v_sad_u32", |a, b, c| a.abs_diff(b).wrapping_add(c)),
        of_b32("v_msad_u8", |a, b, c| sad(a, b, true).wrapping_add(c)),
        of_b32("v_xad_u32", |a, b, c| (a ^ b).wrapping_add(c)),
        of_b32("v_lshl_add_u32", |a, b, c| (a << (b & 31)).wrapping_add(c)),
        of_b32("v_add_lshl_u32", |a, b, c| a.wrapping_add(b) << (c & 31)),
        of_b32("v_add3_u32", |a, b, c| a.wrapping_add(b).wrapping_add(c)),
        of_b32("v_lshl_or_b32", |a, b, c| (a << (b & 31)) | c),
        of_b32("v_and_or_b32", |a, b, c| (a & b) | c),
        of_b32("v_or3_b32", |a, b, c| a | b | c),
        of_b32("v_perm_b32", permute),
        two("v_mul_lo_u32", u32::wrapping_mul),
        two("v_mul_hi_u32", |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        two("v_mul_hi_i32", |a, b| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32),
        two("v_add_i32", u32::wrapping_add),
        two("v_sub_i32", u32::wrapping_sub),
        two("v_bcnt_u32_b32", |a, b| a.count_ones().wrapping_add(b)),
        two("v_bfm_b32", move |a, b| field(a) << (b & 31)),
        two("v_cvt_pk_u16_u32", |a, b| a.min(0xffff) | b.min(0xffff) << 16),
        two("v_cvt_pk_i16_i32", |a, b| {
            let word = |x: u32| (x as i32).clamp(-32768, 32767) as u32 & 0xffff;
            word(a) | word(b) << 16
        }),
        Case::new("v_mbcnt_lo_u32_b32 {d}, {a}, {b}", &[Kind::I32; 2], |i| {
            let below = ((1u64 << i.lane) - 1) as u32;
            (i.a32() & below).count_ones().wrapping_add(i.b32()).into()
        }),
        Case::new("v_mbcnt_hi_u32_b32 {d}, {a}, {b}", &[Kind::I32; 2], |i| {
            let below = (((1u64 << i.lane) - 1) >> 32) as u32;
            (i.a32() & below).count_ones().wrapping_add(i.b32()).into()
        }),
    ]
}

/// Selects bytes of `{a, b}` by those of `c`: 8 to 11 repeat a sign, 12 is zero, larger values are all ones.
fn permute(a: u32, b: u32, c: u32) -> u32 {
    let pool = (u64::from(a) << 32 | u64::from(b)).to_le_bytes();
    let sign = |byte: u8| if byte & 0x80 != 0 { 0xff } else { 0 };
    u32::from_le_bytes(c.to_le_bytes().map(|select| match select {
        0..=7 => pool[usize::from(select)],
        8..=11 => sign(pool[usize::from(select - 8) * 2 + 1]),
        12 => 0,
        _ => 0xff,
    }))
}

pub(crate) fn wide_integers() -> Vec<Case> {
    let kinds = [Kind::I32, Kind::I32, Kind::I64];
    let four =
        |i: &In<'_>, masked: bool| [0, 1, 2, 3].map(|k| sad((i.a() >> (8 * k)) as u32, i.b32(), masked));
    // The documents do not define if overflowing sums wrap or saturate, so they are left open.
    let packed = move |i: &In<'_>, masked: bool| -> Out {
        let sums = four(i, masked);
        let word = |k: usize| ((i.c() >> (16 * k)) as u16).checked_add(sums[k] as u16);
        let all = (0..4).try_fold(0u64, |all, k| Some(all | u64::from(word(k)?) << (16 * k)));
        all.map_or(Dst::Any, Dst::B64).into()
    };
    let shift = |name: &str, formula: fn(u64, u32) -> u64| {
        Case::new(format!("{name} {{D}}, {{a}}, {{B}}"), &[Kind::Shift, Kind::I64], move |i| {
            formula(i.b(), i.a32() & 63).into()
        })
    };
    vec![
        Case::new("v_mad_u64_u32 {D}, {SD}, {a}, {b}, {C}", &kinds, |i| {
            let (sum, carry) = (u64::from(i.a32()) * u64::from(i.b32())).overflowing_add(i.c());
            Out::from(sum).mask(carry)
        }),
        // The carry of a signed sum is not documented: it goes to unused registers.
        Case::new("v_mad_i64_i32 {D}, s[12:13], {a}, {b}, {C}", &kinds, |i| {
            let product = i64::from(i.a32() as i32) * i64::from(i.b32() as i32);
            (product as u64).wrapping_add(i.c()).into()
        }),
        shift("v_lshlrev_b64", |x, by| x << by),
        shift("v_lshrrev_b64", |x, by| x >> by),
        shift("v_ashrrev_i64", |x, by| (x as i64 >> by) as u64),
        Case::new("v_qsad_pk_u16_u8 {D}, {A}, {b}, {C}", &[Kind::I64, Kind::I32, Kind::I64], move |i| {
            packed(i, false)
        }),
        Case::new("v_mqsad_pk_u16_u8 {D}, {A}, {b}, {C}", &[Kind::I64, Kind::I32, Kind::I64], move |i| {
            packed(i, true)
        }),
        Case::new("v_mqsad_u32_u8 {DD}, {A}, {b}, {CC}", &[Kind::I64, Kind::I32, Kind::I64], move |i| {
            let sums = four(i, true);
            let words = [0, 1, 2, 3].map(|k| sums[k].checked_add(i.quad()[k]));
            if words.contains(&None) { Dst::Any } else { Dst::B128(words.map(Option::unwrap_or_default)) }
                .into()
        }),
    ]
}

pub(crate) fn small_integers() -> Vec<Case> {
    let kinds = [Kind::I16; 3];
    // The documents leave the high half of these results open.
    let low = |name: &str, formula: fn(u16, u16, u16) -> u16| {
        three(name, kinds, move |i| Dst::Low16(formula(i.a() as u16, i.b() as u16, i.c() as u16)).into())
    };
    let mixed = [Kind::I16, Kind::I16, Kind::I32];
    vec![
        low("v_mad_u16", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        low("v_mad_i16", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        low("v_mad_legacy_u16", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        low("v_mad_legacy_i16", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        low("v_min3_u16", |a, b, c| a.min(b).min(c)),
        low("v_max3_u16", |a, b, c| a.max(b).max(c)),
        low("v_med3_u16", |a, b, c| median([a, b, c])),
        low("v_min3_i16", |a, b, c| (a as i16).min(b as i16).min(c as i16) as u16),
        low("v_max3_i16", |a, b, c| (a as i16).max(b as i16).max(c as i16) as u16),
        low("v_med3_i16", |a, b, c| median([a as i16, b as i16, c as i16]) as u16),
        Case::new("v_add_i16 {d}, {a}, {b}", &kinds[..2], |i| {
            Dst::Low16((i.a() as u16).wrapping_add(i.b() as u16)).into()
        }),
        Case::new("v_sub_i16 {d}, {a}, {b}", &kinds[..2], |i| {
            Dst::Low16((i.a() as u16).wrapping_sub(i.b() as u16)).into()
        }),
        three("v_mad_u32_u16", mixed, |i| {
            (u32::from(i.a() as u16) * u32::from(i.b() as u16)).wrapping_add(i.c32()).into()
        }),
        three("v_mad_i32_i16", mixed, |i| {
            let product = i32::from(i.a() as i16) * i32::from(i.b() as i16);
            (product as u32).wrapping_add(i.c32()).into()
        }),
    ]
}

/// Returns minimum, maximum or median of three; a median with signalling NaNs is left open.
fn of_three(values: [(f64, bool); 3], which: &str) -> Option<f64> {
    if values.iter().any(|v| v.1) {
        return None;
    }
    let fold = |largest: bool| {
        let first = (extreme(values[0], values[1], largest), false);
        extreme(first, values[2], largest)
    };
    match which {
        "min3" => Some(fold(false)),
        "max3" => Some(fold(true)),
        _ if values.iter().any(|v| v.0.is_nan()) => Some(fold(false)),
        _ => Some(median(values.map(|v| v.0))).filter(|m| *m != 0.0),
    }
}

pub(crate) fn floats() -> Vec<Case> {
    let kinds = [Kind::F32; 3];
    let mut cases = vec![
        three("v_fma_f32", kinds, |i| f(i.a32()).mul_add(f(i.b32()), f(i.c32())).into()),
        three("v_mad_f32", kinds, |i| mad32(f(i.a32()), f(i.b32()), f(i.c32())).into()),
        three("v_mad_legacy_f32", kinds, |i| {
            let (a, b, c) = (f(i.a32()), f(i.b32()), f(i.c32()));
            if a != 0.0 && b != 0.0 {
                return mad32(a, b, c).into();
            }
            let sum = legacy_product(a, b) + c;
            if sum == 0.0 || sum.is_subnormal() { Dst::Any.into() } else { sum.into() }
        }),
        three("v_cvt_pk_u8_f32", [Kind::F32, Kind::I32, Kind::I32], |i| {
            let (value, at) = (rounded(f64::from(f(i.a32())), 0.0, 255.0) as u32, 8 * (i.b32() & 3));
            (i.c32() & !(0xff << at) | value << at).into()
        }),
        Case::new("v_cvt_pkaccum_u8_f32 {d}, {a}, {b}", &[Kind::F32, Kind::I32], |i| {
            let (value, at) = (rounded(f64::from(f(i.a32())), 0.0, 255.0) as u32, 8 * (i.b32() & 3));
            (i.old() & !(0xff << at) | value << at).into()
        }),
        Case::new("v_ldexp_f32 {d}, {a}, {b}", &[Kind::F32, Kind::Exponent], |i| {
            (scale(f(i.a32()).into(), i.b32() as i32) as f32).into()
        }),
        Case::new("v_cvt_pkrtz_f16_f32 {d}, {a}, {b}", &kinds[..2], |i| {
            let one = |bits: u32| half_towards_zero(f(bits));
            pair(one(i.a32()), one(i.b32()), f(i.a32()).is_nan() || f(i.b32()).is_nan())
        }),
        Case::new("v_pack_b32_f16 {d}, {a}, {b}", &[Kind::F16; 2], |i| {
            pair(i.a() as u16, i.b() as u16, h(i.a()).is_nan() || h(i.b()).is_nan())
        }),
    ];
    for which in ["min3", "max3", "med3"] {
        cases.push(three(&format!("v_{which}_f32"), kinds, move |i| {
            let values = [i.a32(), i.b32(), i.c32()].map(|x| (f64::from(f(x)), signalling32(x)));
            of_three(values, which).map_or(Dst::Any, |x| Dst::F32(x as f32)).into()
        }));
        cases.push(three(&format!("v_{which}_f16"), [Kind::F16; 3], move |i| {
            let values = [i.a(), i.b(), i.c()].map(|x| (h(x), signalling16(x)));
            let bits = of_three(values, which).map(|x| half::f16::from_f32(x as f32).to_bits());
            bits.map_or(Dst::Any, Dst::F16Low).into()
        }));
    }
    cases.extend(norms());
    cases
}

fn pair(low: u16, high: u16, open: bool) -> Out {
    if open { Dst::Any.into() } else { (u32::from(low) | u32::from(high) << 16).into() }
}

/// Pairs of values in -1 .. 1 as 16-bit integers. The rounding of ties is not documented, so ties are left
/// open.
fn norms() -> Vec<Case> {
    let word = |x: f64, signed: bool| {
        let scaled = if signed { x.clamp(-1.0, 1.0) * 32767.0 } else { x.clamp(0.0, 1.0) * 65535.0 };
        let scaled = if x.is_nan() { 0.0 } else { scaled };
        ((scaled - scaled.trunc()).abs() != 0.5).then_some(scaled.round() as i32 as u16)
    };
    let make = move |name: &str, kind: Kind, signed: bool| {
        Case::new(format!("{name} {{d}}, {{a}}, {{b}}"), &[kind; 2], move |i| {
            let value = |bits: u64| if kind == Kind::F16 { h(bits) } else { f64::from(f(bits as u32)) };
            match (word(value(i.a()), signed), word(value(i.b()), signed)) {
                (Some(low), Some(high)) => pair(low, high, false),
                _ => Dst::Any.into(),
            }
        })
    };
    vec![
        make("v_cvt_pknorm_i16_f32", Kind::F32, true),
        make("v_cvt_pknorm_u16_f32", Kind::F32, false),
        make("v_cvt_pknorm_i16_f16", Kind::F16, true),
        make("v_cvt_pknorm_u16_f16", Kind::F16, false),
    ]
}

pub(crate) fn halves() -> Vec<Case> {
    let kinds = [Kind::F16; 3];
    vec![
        three("v_fma_f16", kinds, |i| Dst::F16Low(half_fma(i.a() as u16, i.b() as u16, i.c() as u16)).into()),
        three("v_fma_legacy_f16", kinds, |i| {
            Dst::F16Low(half_fma(i.a() as u16, i.b() as u16, i.c() as u16)).into()
        }),
        three("v_mad_f16", kinds, |i| {
            mad16(h(i.a()), h(i.b()), h(i.c())).map_or(Dst::Any, Dst::F16Low).into()
        }),
        three("v_mad_legacy_f16", kinds, |i| {
            mad16(h(i.a()), h(i.b()), h(i.c())).map_or(Dst::Any, Dst::F16Low).into()
        }),
    ]
}

pub(crate) fn doubles() -> Vec<Case> {
    let make = |name: &str, formula: fn(f64, f64) -> f64| {
        Case::new(format!("{name} {{D}}, {{A}}, {{B}}"), &[Kind::F64; 2], move |i| {
            formula(d(i.a()), d(i.b())).into()
        })
    };
    let ends = |name: &str, largest: bool| {
        Case::new(format!("{name} {{D}}, {{A}}, {{B}}"), &[Kind::F64; 2], move |i| {
            let side = |bits: u64| (d(bits), signalling64(bits));
            extreme(side(i.a()), side(i.b()), largest).into()
        })
    };
    vec![
        make("v_add_f64", |a, b| a + b),
        make("v_mul_f64", |a, b| a * b),
        ends("v_min_f64", false),
        ends("v_max_f64", true),
        Case::new("v_fma_f64 {D}, {A}, {B}, {C}", &[Kind::F64; 3], |i| {
            d(i.a()).mul_add(d(i.b()), d(i.c())).into()
        }),
        Case::new("v_ldexp_f64 {D}, {A}, {b}", &[Kind::F64, Kind::Exponent], |i| {
            scale(d(i.a()), i.b32() as i32).into()
        }),
    ]
}

pub(crate) fn all() -> Vec<Case> {
    [integers(), wide_integers(), small_integers(), floats(), halves(), doubles()]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
fn whole_numbers() {
    check(integers());
}

#[test]
fn wide_numbers() {
    check(wide_integers());
}

#[test]
fn small_numbers() {
    check(small_integers());
}

#[test]
fn floating_point() {
    check(floats());
}

#[test]
fn half_precision() {
    check(halves());
}

#[test]
fn double_precision() {
    check(doubles());
}
