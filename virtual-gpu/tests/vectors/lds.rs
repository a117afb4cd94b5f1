//! LDS: loads, stores and atomics of all widths. A lane's sixteen bytes are its operand `c`.

use crate::vectors::harness::{Case, Dst, In, Out, check};
use crate::vectors::numbers::{d, f};
use crate::vectors::operands::Kind;

const WIDE: [Kind; 3] = [Kind::I64; 3];

/// Each lane has 64 bytes; the first sixteen are initialised.
const SET_UP: &str = "v_lshlrev_b32_e32 v40, 6, v0\nds_write_b128 v40, v[20:23]\ns_waitcnt lgkmcnt(0)";

/// Dwords 256 bytes apart, and quadwords 512 bytes apart, as the strided forms require.
const STRIDED: &str = "v_lshlrev_b32_e32 v40, 2, v0\nds_write_b32 v40, v20\nds_write_b32 v40, v21 offset:256\n\
                       ds_write_b32 v40, v22 offset:512\nds_write_b32 v40, v23 offset:768\ns_waitcnt lgkmcnt(0)";
const STRIDED_WIDE: &str = "v_lshlrev_b32_e32 v40, 3, v0\nds_write_b64 v40, v[20:21]\n\
                            ds_write_b64 v40, v[22:23] offset:512\ns_waitcnt lgkmcnt(0)";

const READ_BACK: &str = "s_waitcnt lgkmcnt(0)\nds_read_b128 {DD}, v40\ns_waitcnt lgkmcnt(0)";

fn case(
    text: &str,
    before: &str,
    after: &str,
    formula: impl Fn(&In<'_>) -> Out + Send + Sync + 'static,
) -> Case {
    Case::new(text, &WIDE, formula).around(before, after).modes(|kernel| kernel.lds = 8192)
}

fn load(text: &str, formula: impl Fn(&In<'_>) -> Out + Send + Sync + 'static) -> Case {
    case(text, SET_UP, "s_waitcnt lgkmcnt(0)", formula)
}

fn store(text: &str, formula: impl Fn(&In<'_>) -> [u32; 4] + Send + Sync + 'static) -> Case {
    case(text, SET_UP, READ_BACK, move |i| Dst::B128(formula(i)).into())
}

pub(crate) fn loads() -> Vec<Case> {
    let word = |i: &In<'_>, k: usize| i.quad()[k];
    let old = |i: &In<'_>, k: usize| i.lanes[i.lane].old[k];
    let rest = move |i: &In<'_>, words: &[u32]| -> Out {
        Dst::B128(std::array::from_fn(|k| words.get(k).copied().unwrap_or(old(i, k)))).into()
    };
    let two = |low: u32, high: u32| Out::from(u64::from(high) << 32 | u64::from(low));
    vec![
        load("ds_read_u8 {d}, v40 offset:5", move |i| (word(i, 1) >> 8 & 0xff).into()),
        load("ds_read_i8 {d}, v40 offset:5", move |i| ((word(i, 1) >> 8) as i8 as u32).into()),
        load("ds_read_u16 {d}, v40 offset:6", move |i| (word(i, 1) >> 16).into()),
        load("ds_read_i16 {d}, v40 offset:6", move |i| ((word(i, 1) as i32 >> 16) as u32).into()),
        load("ds_read_b32 {d}, v40 offset:8", move |i| word(i, 2).into()),
        load("ds_read_b64 {D}, v40 offset:8", move |i| two(word(i, 2), word(i, 3))),
        load("ds_read_b96 v[24:26], v40", move |i| rest(i, &i.quad()[..3])),
        load("ds_read_b128 {DD}, v40", move |i| rest(i, &i.quad())),
        load("ds_read2_b32 {D}, v40 offset0:3 offset1:1", move |i| two(word(i, 3), word(i, 1))),
        load("ds_read2_b64 {DD}, v40 offset0:1 offset1:0", move |i| {
            rest(i, &[word(i, 2), word(i, 3), word(i, 0), word(i, 1)])
        }),
        load("ds_read_u8_d16 {d}, v40 offset:5", move |i| {
            (i.old() & 0xffff_0000 | word(i, 1) >> 8 & 0xff).into()
        }),
        load("ds_read_u8_d16_hi {d}, v40 offset:5", move |i| {
            (i.old() & 0xffff | (word(i, 1) >> 8 & 0xff) << 16).into()
        }),
        load("ds_read_i8_d16 {d}, v40 offset:5", move |i| {
            (i.old() & 0xffff_0000 | u32::from((word(i, 1) >> 8) as i8 as u16)).into()
        }),
        load("ds_read_i8_d16_hi {d}, v40 offset:5", move |i| {
            (i.old() & 0xffff | u32::from((word(i, 1) >> 8) as i8 as u16) << 16).into()
        }),
        load("ds_read_u16_d16 {d}, v40 offset:6", move |i| (i.old() & 0xffff_0000 | word(i, 1) >> 16).into()),
        load("ds_read_u16_d16_hi {d}, v40 offset:6", move |i| {
            (i.old() & 0xffff | word(i, 1) & 0xffff_0000).into()
        }),
        case("ds_read2st64_b32 {D}, v40 offset0:3 offset1:1", STRIDED, "s_waitcnt lgkmcnt(0)", move |i| {
            two(word(i, 3), word(i, 1))
        }),
        case(
            "ds_read2st64_b64 {DD}, v40 offset0:1 offset1:0",
            STRIDED_WIDE,
            "s_waitcnt lgkmcnt(0)",
            move |i| rest(i, &[word(i, 2), word(i, 3), word(i, 0), word(i, 1)]),
        ),
    ]
}

/// Replaces some of sixteen bytes.
fn patched(mut words: [u32; 4], at: usize, bytes: &[u8]) -> [u32; 4] {
    bytemuck::bytes_of_mut(&mut words)[at..at + bytes.len()].copy_from_slice(bytes);
    words
}

pub(crate) fn stores() -> Vec<Case> {
    let strided = "s_waitcnt lgkmcnt(0)\nds_read_b32 v24, v40\nds_read_b32 v25, v40 offset:256\n\
                   ds_read_b32 v26, v40 offset:512\nds_read_b32 v27, v40 offset:768\ns_waitcnt lgkmcnt(0)";
    let strided_wide = "s_waitcnt lgkmcnt(0)\nds_read_b64 v[24:25], v40\nds_read_b64 v[26:27], v40 offset:512\n\
                        s_waitcnt lgkmcnt(0)";
    let operands = |i: &In<'_>| -> [u8; 16] { bytemuck::cast([i.a(), i.b()]) };
    vec![
        store("ds_write_b8 v40, {a} offset:5", move |i| patched(i.quad(), 5, &operands(i)[..1])),
        store("ds_write_b16 v40, {a} offset:6", move |i| patched(i.quad(), 6, &operands(i)[..2])),
        store("ds_write_b8_d16_hi v40, {a} offset:5", move |i| patched(i.quad(), 5, &operands(i)[2..3])),
        store("ds_write_b16_d16_hi v40, {a} offset:6", move |i| patched(i.quad(), 6, &operands(i)[2..4])),
        store("ds_write_b32 v40, {a} offset:8", move |i| patched(i.quad(), 8, &operands(i)[..4])),
        store("ds_write_b64 v40, {A} offset:8", move |i| patched(i.quad(), 8, &operands(i)[..8])),
        store("ds_write_b96 v40, v[16:18]", move |i| patched(i.quad(), 0, &operands(i)[..12])),
        store("ds_write_b128 v40, v[16:19]", move |i| patched(i.quad(), 0, &operands(i))),
        store("ds_write2_b32 v40, {a}, {b} offset0:3 offset1:1", move |i| {
            patched(patched(i.quad(), 12, &operands(i)[..4]), 4, &operands(i)[8..12])
        }),
        store("ds_write2_b64 v40, {A}, {B} offset0:1 offset1:0", move |i| {
            patched(patched(i.quad(), 8, &operands(i)[..8]), 0, &operands(i)[8..])
        }),
        case("ds_write2st64_b32 v40, {a}, {b} offset0:3 offset1:1", STRIDED, strided, move |i| {
            Dst::B128(patched(patched(i.quad(), 12, &operands(i)[..4]), 4, &operands(i)[8..12])).into()
        }),
        case("ds_write2st64_b64 v40, {A}, {B} offset0:1 offset1:0", STRIDED_WIDE, strided_wide, move |i| {
            Dst::B128(patched(patched(i.quad(), 8, &operands(i)[..8]), 0, &operands(i)[8..])).into()
        }),
    ]
}

/// Returns the new memory value of an atomic from the old value and both operands.
type Narrow = fn(u32, u32, u32) -> u32;
type Wide = fn(u64, u64, u64) -> u64;

const NARROW: [(&str, Narrow); 18] = [
    ("add_u32", |m, a, _| m.wrapping_add(a)),
    ("sub_u32", |m, a, _| m.wrapping_sub(a)),
    ("rsub_u32", |m, a, _| a.wrapping_sub(m)),
    ("inc_u32", |m, a, _| if m >= a { 0 } else { m + 1 }),
    ("dec_u32", |m, a, _| if m == 0 || m > a { a } else { m - 1 }),
    ("min_i32", |m, a, _| (m as i32).min(a as i32) as u32),
    ("max_i32", |m, a, _| (m as i32).max(a as i32) as u32),
    ("min_u32", |m, a, _| m.min(a)),
    ("max_u32", |m, a, _| m.max(a)),
    ("and_b32", |m, a, _| m & a),
    ("or_b32", |m, a, _| m | a),
    ("xor_b32", |m, a, _| m ^ a),
    ("mskor_b32", |m, a, b| m & !a | b),
    ("cmpst_b32", |m, a, b| if m == a { b } else { m }),
    ("cmpst_f32", |m, a, b| if f(m) == f(a) { b } else { m }),
    ("add_f32", |m, a, _| (f(m) + f(a)).to_bits()),
    ("min_f32", |m, a, _| f(m).min(f(a)).to_bits()),
    ("max_f32", |m, a, _| f(m).max(f(a)).to_bits()),
];

const WIDE_ATOMICS: [(&str, Wide); 17] = [
    ("add_u64", |m, a, _| m.wrapping_add(a)),
    ("sub_u64", |m, a, _| m.wrapping_sub(a)),
    ("rsub_u64", |m, a, _| a.wrapping_sub(m)),
    ("inc_u64", |m, a, _| if m >= a { 0 } else { m + 1 }),
    ("dec_u64", |m, a, _| if m == 0 || m > a { a } else { m - 1 }),
    ("min_i64", |m, a, _| (m as i64).min(a as i64) as u64),
    ("max_i64", |m, a, _| (m as i64).max(a as i64) as u64),
    ("min_u64", |m, a, _| m.min(a)),
    ("max_u64", |m, a, _| m.max(a)),
    ("and_b64", |m, a, _| m & a),
    ("or_b64", |m, a, _| m | a),
    ("xor_b64", |m, a, _| m ^ a),
    ("mskor_b64", |m, a, b| m & !a | b),
    ("cmpst_b64", |m, a, b| if m == a { b } else { m }),
    ("cmpst_f64", |m, a, b| if d(m) == d(a) { b } else { m }),
    ("min_f64", |m, a, _| d(m).min(d(a)).to_bits()),
    ("max_f64", |m, a, _| d(m).max(d(a)).to_bits()),
];

/// Returns the name of the returning form: `add_rtn_u32` for `add_u32`.
fn returning(name: &str) -> String {
    let (operation, kind) = name.rsplit_once('_').unwrap_or((name, ""));
    format!("{operation}_rtn_{kind}")
}

pub(crate) fn atomics() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, formula) in NARROW {
        let changed = move |i: &In<'_>| formula(i.c32(), i.a32(), i.b32());
        let float = name.ends_with("f32");
        let data = if name.starts_with("mskor") || name.starts_with("cmpst") { "{a}, {b}" } else { "{a}" };
        add(&mut cases, name, data, "{d}", if float { Kind::Near } else { Kind::I32 }, move |i| {
            (patched(i.quad(), 0, &changed(i).to_le_bytes()), i.c32().into())
        });
    }
    for (name, formula) in WIDE_ATOMICS {
        let changed = move |i: &In<'_>| formula(i.c(), i.a(), i.b());
        let data = if name.starts_with("mskor") || name.starts_with("cmpst") { "{A}, {B}" } else { "{A}" };
        add(&mut cases, name, data, "{D}", Kind::I64, move |i| {
            let (m, a) = (d(i.c()), d(i.a()));
            // Minimum and maximum of NaNs and of two zeros are left open.
            if name.ends_with("f64") && !name.starts_with("cmpst") && (m.is_nan() || a.is_nan() || m == a) {
                return (i.quad(), Dst::Any.into());
            }
            (patched(i.quad(), 0, &changed(i).to_le_bytes()), i.c().into())
        });
    }
    cases.extend(exchanges());
    cases
}

/// Adds an atomic with and without a returned value.
fn add(
    cases: &mut Vec<Case>,
    name: &str,
    data: &str,
    register: &str,
    kind: Kind,
    formula: impl Fn(&In<'_>) -> ([u32; 4], Out) + Copy + Send + Sync + 'static,
) {
    let compares = name.starts_with("cmpst");
    let finish = move |mut case: Case| {
        case.kinds = vec![kind; 3];
        // Make every other comparison succeed.
        if compares {
            case.adjusted(|_, lanes, _| lanes.iter_mut().step_by(2).for_each(|l| l.a = l.c[0]))
        } else {
            case
        }
    };
    let silent = case(&format!("ds_{name} v40, {data}"), SET_UP, READ_BACK, move |i| {
        let (memory, out) = formula(i);
        if matches!(out.dst, Dst::Any) { out } else { Dst::B128(memory).into() }
    });
    cases.push(finish(silent));
    let text = format!("ds_{} {register}, v40, {data}", returning(name));
    cases.push(finish(case(&text, SET_UP, "s_waitcnt lgkmcnt(0)", move |i| formula(i).1)));
    // The returning form also changes memory; its result goes to other registers.
    let elsewhere = register.replace("{d}", "v44").replace("{D}", "v[44:45]");
    let text = format!("ds_{} {elsewhere}, v40, {data}", returning(name));
    cases.push(finish(case(&text, SET_UP, READ_BACK, move |i| {
        let (memory, out) = formula(i);
        if matches!(out.dst, Dst::Any) { out } else { Dst::B128(memory).into() }
    })));
}

fn exchanges() -> Vec<Case> {
    let two = |low: u32, high: u32| Out::from(u64::from(high) << 32 | u64::from(low));
    let bytes = |i: &In<'_>| -> [u8; 16] { bytemuck::cast([i.a(), i.b()]) };
    let quad = |i: &In<'_>| i.quad();
    vec![
        load("ds_wrxchg_rtn_b32 {d}, v40, {a} offset:4", move |i| quad(i)[1].into()),
        store("ds_wrxchg_rtn_b32 v44, v40, {a} offset:4", move |i| patched(quad(i), 4, &bytes(i)[..4])),
        load("ds_wrxchg_rtn_b64 {D}, v40, {A} offset:8", move |i| two(quad(i)[2], quad(i)[3])),
        store("ds_wrxchg_rtn_b64 v[44:45], v40, {A} offset:8", move |i| patched(quad(i), 8, &bytes(i)[..8])),
        load("ds_wrxchg2_rtn_b32 {D}, v40, {a}, {b} offset0:3 offset1:1", move |i| {
            two(quad(i)[3], quad(i)[1])
        }),
        store("ds_wrxchg2_rtn_b32 v[44:45], v40, {a}, {b} offset0:3 offset1:1", move |i| {
            patched(patched(quad(i), 12, &bytes(i)[..4]), 4, &bytes(i)[8..12])
        }),
        load("ds_wrxchg2_rtn_b64 {DD}, v40, {A}, {B} offset0:1 offset1:0", move |i| {
            let q = quad(i);
            Dst::B128([q[2], q[3], q[0], q[1]]).into()
        }),
        case(
            "ds_wrxchg2st64_rtn_b32 {D}, v40, {a}, {b} offset0:3 offset1:1",
            STRIDED,
            "s_waitcnt lgkmcnt(0)",
            move |i| two(quad(i)[3], quad(i)[1]),
        ),
        case(
            "ds_wrxchg2st64_rtn_b64 {DD}, v40, {A}, {B} offset0:1 offset1:0",
            STRIDED_WIDE,
            "s_waitcnt lgkmcnt(0)",
            move |i| {
                let q = quad(i);
                Dst::B128([q[2], q[3], q[0], q[1]]).into()
            },
        ),
        store("ds_wrap_rtn_b32 v44, v40, {a}, {b}", move |i| {
            let (m, a, b) = (i.c32(), i.a32(), i.b32());
            let value = if m >= a { m - a } else { m.wrapping_add(b) };
            patched(quad(i), 0, &value.to_le_bytes())
        }),
    ]
}

pub(crate) fn all() -> Vec<Case> {
    [loads(), stores(), atomics()].into_iter().flatten().collect()
}

#[test]
fn load_from_lds() {
    check(loads());
}

#[test]
fn store_to_lds() {
    check(stores());
}

#[test]
fn read_modify_write() {
    check(atomics());
}
