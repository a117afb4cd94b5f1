//! Loads, stores and atomics on global memory (three addressing modes), LDS and scratch, and scalar loads.
//!
//! A lane's memory is its operand `c`: sixteen bytes. For global memory they are part of the input; for LDS
//! they are written first.

use crate::vectors::harness::{Case, Dst, In, Out, check};
use crate::vectors::operands::Kind;

pub(crate) const WIDE: [Kind; 3] = [Kind::I64; 3];

/// A path to the sixteen bytes: setup code, prefix, address and suffix.
#[derive(Clone, Copy)]
struct Path {
    before: &'static str,
    prefix: &'static str,
    address: &'static str,
    suffix: &'static str,
    /// Offset of the sixteen bytes.
    base: u32,
    /// Scratch bytes per work-item.
    scratch: u32,
}

const GLOBAL: Path =
    Path { before: "", prefix: "global", address: "v1, {} s[4:5]", suffix: "", base: 16, scratch: 0 };

const GLOBAL_WIDE: Path = Path {
    before: "v_add_co_u32_e64 v40, s[12:13], s4, v1\nv_mov_b32_e32 v41, s5\n\
             v_addc_co_u32_e64 v41, s[12:13], 0, v41, s[12:13]",
    prefix: "global",
    address: "v[40:41], {} off",
    suffix: "",
    base: 16,
    scratch: 0,
};

const FLAT: Path = Path { prefix: "flat", address: "v[40:41]{}", ..GLOBAL_WIDE };

const BUFFER: Path = Path {
    before: "s_mov_b32 s12, s4\ns_mov_b32 s13, s5\ns_mov_b32 s14, -1\ns_mov_b32 s15, 0x00027000",
    prefix: "buffer",
    address: "v1, s[12:15], 0",
    suffix: " offen",
    base: 16,
    scratch: 0,
};

/// Scratch through its own instructions, and through a swizzled buffer in which every lane has its own part.
/// Both access the same memory: one writes it and the other reads it.
const SCRATCH: Path = Path {
    before: "v_mov_b32_e32 v40, 4\nscratch_store_dwordx4 v40, v[20:23], off offset:8\ns_waitcnt 0",
    prefix: "scratch",
    address: "v40, {} off",
    suffix: "",
    base: 8,
    scratch: 64,
};

const SCRATCH_BUFFER: Path =
    Path { prefix: "buffer", address: "v40, s[80:83], s84", suffix: " offen", ..SCRATCH };

const PLACES: [Path; 6] = [GLOBAL, GLOBAL_WIDE, FLAT, BUFFER, SCRATCH, SCRATCH_BUFFER];

const PATHS: [Path; 4] = [GLOBAL, GLOBAL_WIDE, FLAT, BUFFER];

impl Path {
    /// Returns a load or an atomic: `to` is the loaded register, `data` the data written to memory.
    fn instruction(&self, operation: &str, to: Option<&str>, data: Option<&str>, offset: u32) -> String {
        let Path { prefix, address, suffix, base, .. } = self;
        let offset = format!("{suffix} offset:{}", base + offset);
        if *prefix == "buffer" {
            let register = data.or(to).unwrap_or_default();
            return format!("{prefix}_{operation} {register}, {address}{offset}");
        }
        let to = to.map_or(String::new(), |to| format!("{to}, "));
        // Stores have their data between the parts of the address.
        let data = match (data, *prefix) {
            (Some(data), "flat") => format!(", {data}"),
            (Some(data), _) => format!("{data},"),
            (None, _) => String::new(),
        };
        format!("{prefix}_{operation} {to}{}{offset}", address.replace("{}", &data))
    }

    fn around(&self, case: Case, after: &str) -> Case {
        let scratch = self.scratch;
        case.around(self.before, after).modes(move |kernel| kernel.scratch = scratch)
    }

    fn read_back(&self) -> String {
        format!("s_waitcnt 0\n{}\ns_waitcnt 0", self.instruction("load_dwordx4", Some("{DD}"), None, 0))
    }
}

/// Returns `bytes` bytes of a lane's memory at an offset.
fn at(i: &In<'_>, offset: u32, bytes: u32) -> u64 {
    let words = i.lanes[i.lane].c;
    let all = u128::from(words[1]) << 64 | u128::from(words[0]);
    (all >> (8 * offset)) as u64 & (u64::MAX >> (64 - 8 * bytes))
}

/// Returns a lane's memory with some bytes replaced.
pub(crate) fn with(i: &In<'_>, offset: u32, bytes: u32, value: u128) -> Out {
    let words = i.lanes[i.lane].c;
    let all = u128::from(words[1]) << 64 | u128::from(words[0]);
    let mask = (u128::MAX >> (128 - 8 * bytes)) << (8 * offset);
    Dst::B128(bytemuck::cast(all & !mask | (value << (8 * offset)) & mask)).into()
}

/// Returns a register's content after a narrow load.
type Loaded = fn(u64, u32) -> u64;

const NARROW_LOADS: [(&str, u32, Loaded); 10] = [
    ("ubyte", 1, |x, _| x),
    ("sbyte", 1, |x, _| u64::from(x as i8 as u32)),
    ("ushort", 2, |x, _| x),
    ("sshort", 2, |x, _| u64::from(x as i16 as u32)),
    ("ubyte_d16", 1, |x, old| u64::from(old & 0xffff_0000) | x),
    ("ubyte_d16_hi", 1, |x, old| u64::from(old & 0xffff) | x << 16),
    ("sbyte_d16", 1, |x, old| u64::from(old & 0xffff_0000 | u32::from(x as i8 as u16))),
    ("sbyte_d16_hi", 1, |x, old| u64::from(old & 0xffff | u32::from(x as i8 as u16) << 16)),
    ("short_d16", 2, |x, old| u64::from(old & 0xffff_0000) | x),
    ("short_d16_hi", 2, |x, old| u64::from(old & 0xffff) | x << 16),
];

/// Fewer than four dwords in the result: the remaining registers are unchanged.
fn dwords(i: &In<'_>, count: usize) -> Out {
    let (quad, old) = (i.quad(), i.lanes[i.lane].old);
    Dst::B128(std::array::from_fn(|k| if k < count { quad[k] } else { old[k] })).into()
}

pub(crate) fn loads() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in PLACES {
        for (name, bytes, loaded) in NARROW_LOADS {
            for offset in [0, 5] {
                let offset = if bytes == 2 { offset & !1 } else { offset };
                let text = path.instruction(&format!("load_{name}"), Some("{d}"), None, offset);
                let case =
                    Case::new(text, &WIDE, move |i| (loaded(at(i, offset, bytes), i.old()) as u32).into());
                cases.push(path.around(case, "s_waitcnt 0"));
            }
        }
        for (count, (name, register)) in
            [("dword", "{d}"), ("dwordx2", "{D}"), ("dwordx3", "v[24:26]"), ("dwordx4", "{DD}")]
                .iter()
                .enumerate()
        {
            let text = path.instruction(&format!("load_{name}"), Some(register), None, 0);
            let case = Case::new(text, &WIDE, move |i| dwords(i, count + 1));
            cases.push(path.around(case, "s_waitcnt 0"));
        }
    }
    cases
}

pub(crate) fn stores() -> Vec<Case> {
    let mut cases = Vec::new();
    let narrow: [(&str, u32, u32); 4] =
        [("byte", 1, 0), ("short", 2, 0), ("byte_d16_hi", 1, 16), ("short_d16_hi", 2, 16)];
    for path in PLACES {
        for (name, bytes, shift) in narrow {
            let text = path.instruction(&format!("store_{name}"), None, Some("{a}"), 6);
            let case = Case::new(text, &WIDE, move |i| with(i, 6, bytes, u128::from(i.a32() >> shift)));
            cases.push(path.around(case, &path.read_back()));
        }
        let wide =
            [("dword", "v16"), ("dwordx2", "v[16:17]"), ("dwordx3", "v[16:18]"), ("dwordx4", "v[16:19]")];
        for (count, (name, register)) in wide.iter().enumerate() {
            let text = path.instruction(&format!("store_{name}"), None, Some(register), 0);
            let case = Case::new(text, &WIDE, move |i| {
                with(i, 0, 4 * (count as u32 + 1), u128::from(i.b()) << 64 | u128::from(i.a()))
            });
            cases.push(path.around(case, &path.read_back()));
        }
    }
    cases
}

/// Returns the new memory value of an atomic from the old value, the data and the width in bits.
type Atomic = fn(u64, u64, u32) -> u64;

fn signed(x: u64, bits: u32) -> i64 {
    (x << (64 - bits)) as i64 >> (64 - bits)
}

const ATOMICS: [(&str, Atomic); 12] = [
    ("swap", |_, data, _| data),
    ("add", |old, data, _| old.wrapping_add(data)),
    ("sub", |old, data, _| old.wrapping_sub(data)),
    ("smin", |old, data, bits| if signed(data, bits) < signed(old, bits) { data } else { old }),
    ("umin", |old, data, _| old.min(data)),
    ("smax", |old, data, bits| if signed(data, bits) > signed(old, bits) { data } else { old }),
    ("umax", |old, data, _| old.max(data)),
    ("and", |old, data, _| old & data),
    ("or", |old, data, _| old | data),
    ("xor", |old, data, _| old ^ data),
    ("inc", |old, data, _| if old >= data { 0 } else { old + 1 }),
    ("dec", |old, data, _| if old == 0 || old > data { data } else { old - 1 }),
];

pub(crate) fn atomics() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in PATHS {
        for bytes in [4, 8] {
            let suffix = if bytes == 4 { "" } else { "_x2" };
            let low = u64::MAX >> (64 - 8 * bytes);
            let swap_data = if bytes == 4 { "v[16:17]" } else { "v[16:19]" };
            let data = if bytes == 4 { "v16" } else { "v[16:17]" };
            for (name, atomic) in ATOMICS {
                let changed = move |i: &In<'_>| atomic(at(i, 0, bytes), i.a() & low, 8 * bytes) & low;
                pair(&mut cases, path, &format!("atomic_{name}{suffix}"), data, bytes, changed);
            }
            // The new value comes first, then the expected one.
            let exchanged = move |i: &In<'_>| {
                let (new, compared) = if bytes == 4 { (i.a() & low, i.a() >> 32) } else { (i.a(), i.b()) };
                let old = at(i, 0, bytes);
                if old == compared { new } else { old }
            };
            pair(&mut cases, path, &format!("atomic_cmpswap{suffix}"), swap_data, bytes, exchanged);
        }
    }
    cases
}

/// Adds an atomic with and without a returned value.
fn pair(
    cases: &mut Vec<Case>,
    path: Path,
    operation: &str,
    data: &str,
    bytes: u32,
    changed: impl Fn(&In<'_>) -> u64 + Copy + Send + Sync + 'static,
) {
    let compares = operation.contains("cmpswap");
    let adjust = move |case: Case| {
        // Make every other comparison succeed.
        if !compares {
            return case;
        }
        case.adjusted(if bytes == 4 {
            |_, lanes, _| {
                lanes.iter_mut().step_by(2).for_each(|l| l.a = l.a & 0xffff_ffff | l.c[0] << 32);
            }
        } else {
            |_, lanes, _| lanes.iter_mut().step_by(2).for_each(|l| l.b = l.c[0])
        })
    };
    let silent = path.instruction(operation, None, Some(data), 0);
    let case = Case::new(silent, &WIDE, move |i| with(i, 0, bytes, u128::from(changed(i))));
    cases.push(adjust(case.around(path.before, &path.read_back())));

    let register = if bytes == 4 { "{d}" } else { "{D}" };
    let mut returning = path.instruction(operation, Some(register), Some(data), 0) + " glc";
    let (mut before, mut after) = (path.before.to_owned(), "s_waitcnt 0".to_owned());
    if path.prefix == "buffer" {
        // A buffer atomic uses the same register for data and result, so the result is copied.
        let copies = |to: u32, from: u32| {
            (0..4).map(|k| format!("\nv_mov_b32_e32 v{}, v{}", to + k, from + k)).collect::<String>()
        };
        before += &copies(48, 16);
        let moved =
            data.replace("v16", "v48").replace("16:", "48:").replace(":17", ":49").replace(":19", ":51");
        returning = path.instruction(operation, None, Some(&moved), 0) + " glc";
        after += if bytes == 4 {
            "\nv_mov_b32_e32 v24, v48"
        } else {
            "\nv_mov_b32_e32 v24, v48\nv_mov_b32_e32 v25, v49"
        };
    }
    let case = Case::new(returning, &WIDE, move |i| {
        let old = at(i, 0, bytes);
        if bytes == 4 { (old as u32).into() } else { old.into() }
    });
    cases.push(adjust(case.around(&before, &after)));
}

/// Scalar loads: a wavefront's record of 64 bytes, of which the test initialises the first 56.
pub(crate) fn scalar_loads() -> Vec<Case> {
    let record = |i: &In<'_>| -> [u64; 8] {
        let w = i.wave;
        [w.vcc, w.exec, w.sa, w.sb, w.sd, u64::from(w.m0) << 32 | u64::from(w.scc), w.sc, w.spare]
    };
    let scalar = |value: u64| {
        let mut out = Out::kept();
        out.sd = Some(value);
        out
    };
    let before =
        "s_add_u32 s12, s8, s11\ns_addc_u32 s13, s9, 0\ns_mov_b32 s14, 64\ns_mov_b32 s15, 0x00027000";
    let restore = "s_cmp_lg_u32 s26, 0";
    let mut cases = Vec::new();
    for (load, base) in [("s_load", "s[12:13]"), ("s_buffer_load", "s[12:15]")] {
        for k in 0..8u32 {
            let text = format!("{load}_dwordx2 {{SD}}, {base}, {:#x}", 8 * k);
            let case = Case::new(text, &[], move |i| scalar(record(i)[k as usize]));
            cases.push(case.around(before, &format!("s_waitcnt lgkmcnt(0)\n{restore}")));
        }
        let text = format!("{load}_dword {{sd}}, {base}, 0x1c");
        let case = Case::new(text, &[], move |i| scalar(i.wave.sd & !0xffff_ffff | record(i)[3] >> 32));
        cases.push(case.around(before, &format!("s_waitcnt lgkmcnt(0)\n{restore}")));
        for (name, count) in [("dwordx4", 2usize), ("dwordx8", 4), ("dwordx16", 8)] {
            let last = 47 + 2 * count;
            let from = if count == 8 { 0 } else { 16 };
            let mut after = "s_waitcnt lgkmcnt(0)\ns_mov_b64 s[24:25], 0".to_owned();
            for k in 0..count {
                after += &format!("\ns_xor_b64 s[24:25], s[24:25], s[{}:{}]", 48 + 2 * k, 49 + 2 * k);
                after += "\ns_lshl_b64 s[12:13], s[24:25], 1\ns_lshr_b64 s[14:15], s[24:25], 63";
                after += "\ns_or_b64 s[24:25], s[12:13], s[14:15]";
            }
            let text = format!("{load}_{name} s[48:{last}], {base}, {from:#x}");
            let case = Case::new(text, &[], move |i| {
                let words = &record(i)[from / 8..from / 8 + count];
                scalar(words.iter().fold(0u64, |all, w| (all ^ w).rotate_left(1)))
            });
            cases.push(case.around(before, &format!("{after}\n{restore}")));
        }
        // An offset in a register.
        let text = format!("{load}_dwordx2 {{SD}}, {base}, s48");
        let case = Case::new(text, &[], move |i| scalar(record(i)[3]));
        cases.push(
            case.around(&format!("{before}\ns_mov_b32 s48, 24"), &format!("s_waitcnt lgkmcnt(0)\n{restore}")),
        );
    }
    cases
}

/// Addressing modes: offsets of both signs, buffers of structures, offsets in scalar registers.
pub(crate) fn addressing() -> Vec<Case> {
    let plain = |text: &str, before: &str, word: usize| {
        Case::new(text, &WIDE, move |i| i.quad()[word].into()).around(before, "s_waitcnt 0")
    };
    // A buffer of 64-byte records, one per lane.
    let records = "s_mov_b32 s12, s4\ns_or_b32 s13, s5, 0x00400000\ns_mov_b32 s14, -1\ns_mov_b32 s15, 0x00027000\n\
                   v_lshrrev_b32_e32 v40, 6, v1\nv_mov_b32_e32 v41, 4\ns_mov_b32 s48, 12\ns_cmp_lg_u32 s26, 0";
    let linear = "s_mov_b32 s12, s4\ns_mov_b32 s13, s5\ns_mov_b32 s14, -1\ns_mov_b32 s15, 0x00027000\n\
                  v_add_u32_e32 v40, 4, v1\ns_mov_b32 s48, 12";
    vec![
        plain("global_load_dword {d}, v40, s[4:5] offset:-48", "v_add_u32_e32 v40, 64, v1", 0),
        plain("global_load_dword {d}, v40, s[4:5] offset:-4096", "v_add_u32_e32 v40, 0x1014, v1", 1),
        plain(
            "global_load_dword {d}, v[40:41], off offset:4095",
            &format!(
                "{}\nv_mov_b32_e32 v42, 0xfffff019\nv_add_co_u32_e64 v40, s[12:13], v40, v42\n\
                 v_addc_co_u32_e64 v41, s[12:13], v41, -1, s[12:13]",
                GLOBAL_WIDE.before
            ),
            2,
        ),
        plain("buffer_load_dword {d}, v40, s[12:15], 0 idxen offset:20", records, 1),
        plain("buffer_load_dword {d}, v[40:41], s[12:15], 0 idxen offen offset:20", records, 2),
        plain("buffer_load_dword {d}, v40, s[12:15], s48 idxen offset:16", records, 3),
        plain("buffer_load_dword {d}, v40, s[12:15], s48 offen offset:4", linear, 1),
        plain("buffer_load_dword {d}, v40, s[12:15], s48 offen offset:8", linear, 2),
        Case::new("buffer_load_dwordx2 {D}, off, s[12:15], 0 offset:16", &WIDE, |i| i.c().into())
            .around(
                "v_readfirstlane_b32 s48, v1\ns_add_u32 s12, s4, s48\ns_addc_u32 s13, s5, 0\ns_mov_b32 s14, -1\n\
                 s_mov_b32 s15, 0x00027000\ns_cmp_lg_u32 s26, 0",
                "s_waitcnt 0",
            )
            .adjusted(|wave, lanes, _| {
                // The first active lane reads for all.
                let first = if wave.exec == 0 { 0 } else { wave.exec.trailing_zeros() as usize };
                let c = lanes[first].c;
                lanes.iter_mut().for_each(|lane| lane.c = c);
            }),
    ]
}

pub(crate) fn all() -> Vec<Case> {
    [loads(), stores(), atomics(), scalar_loads(), addressing()].into_iter().flatten().collect()
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
fn scalar_load() {
    check(scalar_loads());
}

#[test]
fn addresses() {
    check(addressing());
}
