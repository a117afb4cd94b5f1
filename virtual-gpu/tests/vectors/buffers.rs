//! Buffers that end inside an access: words beyond the end load as zero and are not stored.

use crate::vectors::harness::{Case, Dst, In, Out, check};
use crate::vectors::memory::{WIDE, with};

/// The lane in whose sixteen bytes the buffer ends: earlier lanes are entirely inside, this lane has two
/// words inside, later lanes none.
const LAST: usize = 20;

/// The resource: up to the middle of the last lane's part, after the parts of the previous work-groups.
const ENDING: &str = "s_mov_b32 s12, s4\ns_mov_b32 s13, s5\ns_add_u32 s14, s10, 0x518\ns_mov_b32 s15, 0x00027fac\n\
                      s_mov_b32 s48, 12\ns_cmp_lg_u32 s26, 0";

/// Returns the number of a lane's leading words inside the buffer.
fn inside(lane: usize) -> usize {
    match lane {
        _ if lane < LAST => 4,
        LAST => 2,
        _ => 0,
    }
}

/// Returns addressing modes that reach a lane's sixteen bytes, each with the code that sets up the resource.
fn addressings() -> Vec<(&'static str, String)> {
    // With a stride but no index, records are still bytes.
    let strided = ENDING.replace("s_mov_b32 s13, s5", "s_or_b32 s13, s5, 0x00400000");
    vec![
        ("v1, s[12:15], 0 offen offset:16", ENDING.to_owned()),
        ("v1, s[12:15], s48 offen offset:4", ENDING.to_owned()),
        ("v1, s[12:15], 16 offen glc slc", ENDING.to_owned()),
        ("v1, s[12:15], 0 offen offset:16", strided),
    ]
}

const SIZES: [(&str, &str, &str); 4] = [
    ("dword", "{d}", "v16"),
    ("dwordx2", "{D}", "v[16:17]"),
    ("dwordx3", "v[24:26]", "v[16:18]"),
    ("dwordx4", "{DD}", "v[16:19]"),
];

/// Register content after a partial-word load, given its old content.
type Loaded = fn(u32, u32) -> u32;

pub(crate) fn loads() -> Vec<Case> {
    let mut cases = Vec::new();
    for (address, before) in addressings() {
        for (count, (name, register, _)) in SIZES.into_iter().enumerate() {
            let case = Case::new(format!("buffer_load_{name} {register}, {address}"), &WIDE, move |i| {
                let (quad, old, inside) = (i.quad(), i.lanes[i.lane].old, inside(i.lane));
                let word = |k| {
                    if k > count {
                        old[k]
                    } else if k < inside {
                        quad[k]
                    } else {
                        0
                    }
                };
                Dst::B128(std::array::from_fn(word)).into()
            });
            cases.push(case.around(&before, "s_waitcnt 0"));
        }
    }
    // The third word, which the last lane does not have.
    let narrow: [(&str, Loaded); 4] = [
        ("ubyte", |x, _| x & 0xff),
        ("sshort", |x, _| x as i16 as u32),
        ("short_d16", |x, old| old & 0xffff_0000 | x & 0xffff),
        ("short_d16_hi", |x, old| old & 0xffff | x << 16),
    ];
    for (name, loaded) in narrow {
        let text = format!("buffer_load_{name} {{d}}, v1, s[12:15], 0 offen offset:24");
        let case = Case::new(text, &WIDE, move |i| {
            loaded(if inside(i.lane) > 2 { i.quad()[2] } else { 0 }, i.old()).into()
        });
        cases.push(case.around(ENDING, "s_waitcnt 0"));
    }
    cases
}

const READ_BACK: &str = "s_waitcnt 0\nglobal_load_dwordx4 {DD}, v1, s[4:5] offset:16\ns_waitcnt 0";

pub(crate) fn stores() -> Vec<Case> {
    let mut cases = Vec::new();
    for (address, before) in addressings() {
        for (count, (name, _, register)) in SIZES.into_iter().enumerate() {
            let case = Case::new(format!("buffer_store_{name} {register}, {address}"), &WIDE, move |i| {
                let words = inside(i.lane).min(count + 1) as u32;
                let value = u128::from(i.b()) << 64 | u128::from(i.a());
                if words == 0 { with(i, 0, 16, i.c128()) } else { with(i, 0, 4 * words, value) }
            });
            cases.push(case.around(&before, READ_BACK));
        }
    }
    cases
}

/// An atomic operation is performed entirely or not at all; in the latter case it returns zero.
pub(crate) fn atomics() -> Vec<Case> {
    let changed = |i: &In<'_>, from: usize, words: usize| {
        if inside(i.lane) < from + words {
            return with(i, 0, 16, i.c128());
        }
        let bits = 32 * words as u32;
        let (old, low) = ((i.c128() >> (32 * from)) as u64, u64::MAX >> (64 - bits));
        with(i, 4 * from as u32, 4 * words as u32, (old.wrapping_add(i.a()) & low).into())
    };
    let address = "v1, s[12:15], 0 offen";
    let plain =
        Case::new(format!("buffer_atomic_add v16, {address} offset:20"), &WIDE, move |i| changed(i, 1, 1));
    let wide = Case::new(format!("buffer_atomic_add_x2 v[16:17], {address} offset:16"), &WIDE, move |i| {
        changed(i, 0, 2)
    });
    // The last lane has only the first of these two words.
    let cut = ENDING.replace("0x518", "0x514");
    let across = Case::new(format!("buffer_atomic_add_x2 v[16:17], {address} offset:16"), &WIDE, move |i| {
        if i.lane == LAST { with(i, 0, 16, i.c128()) } else { changed(i, 0, 2) }
    });
    let returning = Case::new(
        format!("buffer_atomic_add v48, {address} offset:24 glc\ns_waitcnt 0\nv_mov_b32_e32 {{d}}, v48"),
        &WIDE,
        |i| (if inside(i.lane) > 2 { i.quad()[2] } else { 0 }).into(),
    );
    vec![
        plain.around(ENDING, READ_BACK),
        wide.around(ENDING, READ_BACK),
        across.around(&cut, READ_BACK),
        returning.around(&format!("{ENDING}\nv_mov_b32_e32 v48, v16"), ""),
    ]
}

/// Records of 64 bytes: a record is inside entirely or not at all.
pub(crate) fn records() -> Vec<Case> {
    let before = "s_mov_b32 s12, s4\ns_or_b32 s13, s5, 0x00400000\ns_lshl_b32 s14, s2, 6\ns_add_u32 s14, s14, 20\n\
                  s_mov_b32 s15, 0x00027fac\nv_lshrrev_b32_e32 v40, 6, v1\ns_cmp_lg_u32 s26, 0";
    let text = "buffer_load_dwordx4 {DD}, v40, s[12:15], 0 idxen offset:16";
    let case = Case::new(text, &WIDE, |i| Dst::B128(if i.lane < LAST { i.quad() } else { [0; 4] }).into());
    vec![case.around(before, "s_waitcnt 0")]
}

/// Scalar loads from a wavefront's record that is partly inside the buffer, counted in bytes and in records
/// of eight bytes.
pub(crate) fn scalar_loads() -> Vec<Case> {
    let words = |i: &In<'_>| {
        let w = i.wave;
        [w.vcc, w.exec, w.sa, w.sb].map(|x| [x as u32, (x >> 32) as u32])
    };
    let resource = |high: u32, records: u32| {
        format!(
            "s_add_u32 s12, s8, s11\ns_addc_u32 s13, s9, 0\ns_or_b32 s13, s13, {high:#x}\ns_mov_b32 s14, {records}\n\
             s_mov_b32 s15, 0x00027fac"
        )
    };
    let mut cases = Vec::new();
    // Resource bits, number of bytes or records, and the number of words inside.
    for (high, records, inside) in [(0, 20, 5), (0x0008_0000, 3, 6)] {
        // The lowest two bits of an offset are ignored.
        for (offset, before, first) in [("0x0", "", 0), ("0xe", "", 3), ("s48", "s_mov_b32 s48, 9\n", 2)] {
            for (name, count) in [("dwordx2", 2), ("dwordx4", 4), ("dwordx8", 8)] {
                let text = format!("s_buffer_load_{name} s[48:{}], s[12:15], {offset}", 47 + count);
                let case = Case::new(text, &[], move |i| {
                    let all = words(i);
                    let all = all.as_flattened();
                    let word = |k: usize| if first + k < inside { u64::from(all[first + k]) } else { 0 };
                    let mut out = Out::kept();
                    out.sd = Some(
                        (0..count)
                            .fold(0, |sum: u64, k| (sum << 5).wrapping_add(word(k)) & u64::from(u32::MAX)),
                    );
                    out
                });
                let mut after = "s_waitcnt lgkmcnt(0)\ns_mov_b64 s[24:25], 0".to_owned();
                for k in 0..count {
                    after += &format!("\ns_lshl_b32 s24, s24, 5\ns_add_u32 s24, s24, s{}", 48 + k);
                }
                after += "\ns_cmp_lg_u32 s26, 0";
                cases.push(case.around(&format!("{}\n{before}", resource(high, records)), &after));
            }
        }
    }
    cases
}

pub(crate) fn all() -> Vec<Case> {
    [loads(), stores(), atomics(), records(), scalar_loads()].into_iter().flatten().collect()
}

#[test]
fn load() {
    check(loads());
}

#[test]
fn store() {
    check(stores());
}

#[test]
fn read_modify_write() {
    check(atomics());
}

#[test]
fn structures() {
    check(records());
}

#[test]
fn scalar_load() {
    check(scalar_loads());
}
