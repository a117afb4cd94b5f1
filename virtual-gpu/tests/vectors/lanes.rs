//! Operands from other lanes: DPP, readlane and related instructions, swizzles and permutations. Also parts
//! of registers: SDWA.

use crate::vectors::harness::{Case, Dst, In, Out, check};
use crate::vectors::numbers::{f, h, half_result};
use crate::vectors::operands::Kind;
use crate::vectors::{vop1, vop2, vopc};

/// Returns the source lane of a DPP control; `None` if there is none.
type Source = fn(usize) -> Option<usize>;

const CONTROLS: &[(&str, Source)] = &[
    ("quad_perm:[0,1,2,3]", Some),
    ("quad_perm:[3,1,0,2]", |i| Some(i & !3 | [3, 1, 0, 2][i & 3])),
    ("quad_perm:[1,1,1,1]", |i| Some(i & !3 | 1)),
    ("row_shl:1", |i| (i & 15 < 15).then_some(i + 1)),
    ("row_shl:15", |i| (i & 15 < 1).then_some(i + 15)),
    ("row_shr:1", |i| (i & 15 >= 1).then(|| i - 1)),
    ("row_shr:7", |i| (i & 15 >= 7).then(|| i - 7)),
    ("row_ror:1", |i| Some(i & !15 | i.wrapping_sub(1) & 15)),
    ("row_ror:11", |i| Some(i & !15 | i.wrapping_sub(11) & 15)),
    ("wave_shl:1", |i| (i < 63).then_some(i + 1)),
    ("wave_rol:1", |i| Some((i + 1) & 63)),
    ("wave_shr:1", |i| (i > 0).then(|| i - 1)),
    ("wave_ror:1", |i| Some(i.wrapping_sub(1) & 63)),
    ("row_mirror", |i| Some(i ^ 15)),
    ("row_half_mirror", |i| Some(i ^ 7)),
    ("row_bcast:15", |i| (i > 15).then_some((i & !15).wrapping_sub(1))),
    ("row_bcast:31", |i| (i > 31).then_some(31)),
];

/// Returns a lane's result if its operand comes from `source`.
fn moved(i: &In<'_>, source: Option<usize>, zero_outside: bool, formula: impl Fn(u32) -> Dst) -> Dst {
    let outside = || if zero_outside { formula(0) } else { Dst::Unchanged };
    match source {
        None => outside(),
        Some(from) if i.active(from) => formula(i.lanes[from].a as u32),
        // The documents disagree on inactive source lanes: treated as no lane, or their value is used.
        Some(from) => Dst::Either(Box::new(outside()), Box::new(formula(i.lanes[from].a as u32))),
    }
}

pub(crate) fn dpp() -> Vec<Case> {
    let mut cases = Vec::new();
    for &(control, source) in CONTROLS {
        for (masks, rows, banks) in
            [("row_mask:0xf bank_mask:0xf", 15, 15), ("row_mask:0xa bank_mask:0x7", 10, 7)]
        {
            for (bound, zero) in [("", false), (" bound_ctrl:0", true)] {
                let enabled =
                    move |lane: usize| rows >> (lane / 16) & 1 == 1 && banks >> (lane / 4 % 4) & 1 == 1;
                // A broadcast leaves rows without a source; the effect of bound_ctrl there is not documented.
                let open = control.contains("bcast") && zero;
                let at = move |i: &In<'_>, formula: &dyn Fn(u32) -> Dst| -> Out {
                    if !enabled(i.lane) {
                        return Out::kept();
                    }
                    if open && source(i.lane).is_none() {
                        return Dst::Any.into();
                    }
                    moved(i, source(i.lane), zero, formula).into()
                };
                let suffix = format!("{control} {masks}{bound}");
                let operands = [Kind::I32; 2];
                cases.push(Case::new(format!("v_mov_b32_dpp {{d}}, {{a}} {suffix}"), &operands, move |i| {
                    at(i, &Dst::B32)
                }));
                cases.push(Case::new(
                    format!("v_add_u32_dpp {{d}}, {{a}}, {{b}} {suffix}"),
                    &operands,
                    move |i| at(i, &|x| Dst::B32(x.wrapping_add(i.b32()))),
                ));
            }
        }
    }
    cases.push(Case::new(
        "v_add_f32_dpp {d}, -{a}, |{b}| row_shr:1 row_mask:0xf bank_mask:0xf",
        &[Kind::F32; 2],
        |i| {
            moved(i, (i.lane & 15 >= 1).then(|| i.lane - 1), false, |x| Dst::F32(-f(x) + f(i.b32()).abs()))
                .into()
        },
    ));
    cases
}

/// Returns the part of a register that SDWA selects.
fn part(bits: u32, select: &str, signed: bool) -> u32 {
    let (at, width) = match select {
        "BYTE_0" => (0, 8),
        "BYTE_1" => (8, 8),
        "BYTE_2" => (16, 8),
        "BYTE_3" => (24, 8),
        "WORD_0" => (0, 16),
        "WORD_1" => (16, 16),
        _ => return bits,
    };
    let shifted = bits << (32 - at - width);
    if signed { (shifted as i32 >> (32 - width)) as u32 } else { shifted >> (32 - width) }
}

const SELECTIONS: [&str; 7] = ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"];

/// Inserts a result into the selected part of the old register.
fn placed(value: u32, select: &str, unused: &str, old: u32) -> u32 {
    let (at, width) = match select {
        "DWORD" => return value,
        _ if select.starts_with("BYTE") => (part(0x0302_0100, select, false) * 8, 8),
        _ => (if select == "WORD_1" { 16 } else { 0 }, 16),
    };
    let mask = ((1u64 << width) - 1) as u32;
    let field = (value & mask) << at;
    match unused {
        "UNUSED_PAD" => field,
        "UNUSED_SEXT" => (((field << (32 - at - width)) as i32) >> (32 - at - width)) as u32,
        _ => old & !(mask << at) | field,
    }
}

pub(crate) fn sdwa() -> Vec<Case> {
    let mut cases = Vec::new();
    let kinds = [Kind::I32; 2];
    for to in SELECTIONS {
        for unused in ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"] {
            let modifiers = format!("dst_sel:{to} dst_unused:{unused} src0_sel:BYTE_2 src1_sel:WORD_1");
            cases.push(Case::new(
                format!("v_add_u32_sdwa {{d}}, {{a}}, {{b}} {modifiers}"),
                &kinds,
                move |i| {
                    let sum = part(i.a32(), "BYTE_2", false).wrapping_add(part(i.b32(), "WORD_1", false));
                    placed(sum, to, unused, i.old()).into()
                },
            ));
        }
    }
    for (k, first) in SELECTIONS.into_iter().enumerate() {
        let second = SELECTIONS[(k * 3 + 2) % 7];
        let plain = format!("src0_sel:{first} src1_sel:{second}");
        let all = format!("dst_sel:DWORD dst_unused:UNUSED_PAD {plain}");
        cases.push(Case::new(format!("v_sub_u32_sdwa {{d}}, sext({{a}}), {{b}} {all}"), &kinds, move |i| {
            part(i.a32(), first, true).wrapping_sub(part(i.b32(), second, false)).into()
        }));
        cases.push(Case::new(
            format!("v_mul_i32_i24_sdwa {{d}}, {{a}}, sext({{b}}) {all}"),
            &kinds,
            move |i| {
                let product = crate::vectors::vop2::signed24(part(i.a32(), first, false))
                    * crate::vectors::vop2::signed24(part(i.b32(), second, true));
                (product as u32).into()
            },
        ));
        cases.push(Case::new(format!("v_or_b32_sdwa {{d}}, {{a}}, {{b}} {all}"), &kinds, move |i| {
            (part(i.a32(), first, false) | part(i.b32(), second, false)).into()
        }));
        cases.push(Case::new(
            format!("v_cmp_lt_i32_sdwa vcc, sext({{a}}), sext({{b}}) {plain}"),
            &kinds,
            move |i| {
                Out::kept().vcc((part(i.a32(), first, true) as i32) < part(i.b32(), second, true) as i32)
            },
        ));
        cases.push(Case::new(format!("v_cmp_gt_u32_sdwa {{SD}}, {{a}}, {{b}} {plain}"), &kinds, move |i| {
            Out::kept().mask(part(i.a32(), first, false) > part(i.b32(), second, false))
        }));
        cases.push(Case::new(
            format!(
                "v_mov_b32_sdwa {{d}}, {{a}} dst_sel:{first} dst_unused:UNUSED_PRESERVE src0_sel:{second}"
            ),
            &kinds,
            move |i| placed(part(i.a32(), second, false), first, "UNUSED_PRESERVE", i.old()).into(),
        ));
        cases.push(Case::new(
            format!("v_cvt_f32_u32_sdwa {{d}}, {{a}} dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{first}"),
            &kinds,
            move |i| (part(i.a32(), first, false) as f32).into(),
        ));
    }
    cases.extend(sdwa_floats());
    cases
}

fn sdwa_floats() -> Vec<Case> {
    let mut cases = Vec::new();
    for (first, second) in [("WORD_0", "WORD_1"), ("WORD_1", "WORD_0"), ("WORD_1", "WORD_1")] {
        let select = format!("src0_sel:{first} src1_sel:{second}");
        let word = move |bits: u32, select: &str| h(part(bits, select, false));
        cases.push(Case::new(
            format!("v_mul_f16_sdwa {{d}}, -{{a}}, |{{b}}| dst_sel:DWORD dst_unused:UNUSED_PAD {select}"),
            &[Kind::F16x2; 2],
            move |i| half_result(-word(i.a32(), first) * word(i.b32(), second).abs()).into(),
        ));
        cases.push(Case::new(
            format!("v_add_f16_sdwa {{d}}, {{a}}, {{b}} dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE {select}"),
            &[Kind::F16x2; 2],
            move |i| {
                let sum = word(i.a32(), first) + word(i.b32(), second);
                Dst::F16High(crate::vectors::numbers::to_half(sum as f32)).into()
            },
        ));
        cases.push(Case::new(
            format!("v_cvt_f32_f16_sdwa {{d}}, -{{a}} dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{first}"),
            &[Kind::F16x2],
            move |i| (-word(i.a32(), first) as f32).into(),
        ));
    }
    cases
}

/// Repeats every short instruction in the SDWA and DPP encodings with the neutral selection: the text
/// register and the lane itself.
pub(crate) fn other_encodings() -> Vec<Case> {
    let sources = [vop1::all(), vop2::integers(), vop2::floats(), vop2::carries(), vopc::all()];
    let mut cases = Vec::new();
    for case in sources.into_iter().flatten().filter(|case| case.text.contains("_e32")) {
        let name = case.mnemonic();
        let wide = ["{A}", "{B}", "{D}"].iter().any(|register| case.text.contains(register));
        let text = case.text.replace("_e32", "_sdwa");
        let lane = case.text.replace("_e32", "_dpp") + " quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf";
        if wide {
            continue;
        }
        // Comparisons have no DPP form, and multiply-accumulates no SDWA form.
        let sums = ["v_mac_f32", "v_mac_f16", "v_fmac_f32"].contains(&name.as_str());
        let to = if name.starts_with("v_cmp") { "" } else { " dst_sel:DWORD dst_unused:UNUSED_PAD" };
        let second = if case.text.contains("{b}") { " src1_sel:DWORD" } else { "" };
        if name.starts_with("v_cmp") {
            cases.push(Case { text: format!("{text}{to} src0_sel:DWORD{second}"), ..case });
        } else if sums {
            cases.push(Case { text: lane, ..case });
        } else {
            let formula = std::sync::Arc::new(case.formula);
            let shared = std::sync::Arc::clone(&formula);
            let text = format!("{text}{to} src0_sel:DWORD{second}");
            let (kinds, only) = (case.kinds.clone(), case.only);
            let twin = Case { only, ..Case::new(text, &kinds, move |i| shared(i)) };
            cases.push(twin);
            cases.push(Case { only, ..Case::new(lane, &kinds, move |i| formula(i)) });
        }
    }
    cases
}

pub(crate) fn single_lanes() -> Vec<Case> {
    let scalar = |value: u32| {
        let mut out = Out::kept();
        out.sd32 = Some(value);
        out
    };
    let written = |i: &In<'_>, lane: usize, value: u32| {
        let mut out = if i.lane == lane { Out::from(value) } else { Out::kept() };
        out.always = i.lane == lane;
        out
    };
    let kinds = [Kind::I32; 2];
    vec![
        Case::new("v_readlane_b32 {sd}, {a}, {sb}", &kinds, move |i| {
            scalar(i.lanes[(i.wave.sb & 63) as usize].a as u32)
        }),
        Case::new("v_readlane_b32 {sd}, {a}, 37", &kinds, move |i| scalar(i.lanes[37].a as u32)),
        Case::new("v_writelane_b32 {d}, 17, {sb}", &kinds, move |i| {
            written(i, (i.wave.sb & 63) as usize, 17)
        }),
        Case::new("v_writelane_b32 {d}, {sb}, {sb}", &kinds, move |i| {
            written(i, (i.wave.sb & 63) as usize, i.wave.sb as u32)
        }),
        Case::new("v_writelane_b32 {d}, {sa}, 5", &kinds, move |i| written(i, 5, i.wave.sa as u32)),
        Case::new("v_readfirstlane_b32 {sd}, {a}", &kinds, move |i| {
            let first = if i.wave.exec == 0 { 0 } else { i.wave.exec.trailing_zeros() };
            scalar(i.lanes[first as usize].a as u32)
        })
        .adjusted(|wave, _, random| {
            wave.exec = if random.below(4) == 0 { 0 } else { random.u64() << random.below(64) };
        }),
    ]
}

/// Exchanges through the LDS crossbar. An inactive source lane gives zero.
pub(crate) fn crossbar() -> Vec<Case> {
    let value = |i: &In<'_>, from: usize, bits: u64| if i.active(from) { bits as u32 } else { 0 };
    let mut cases = vec![
        Case::new("ds_bpermute_b32 {d}, {a}, {b}", &[Kind::I32; 2], move |i| {
            let from = (i.a32() >> 2 & 63) as usize;
            value(i, from, i.lanes[from].b).into()
        }),
        Case::new("ds_bpermute_b32 {d}, {a}, {b} offset:20", &[Kind::I32; 2], move |i| {
            let from = (i.a32().wrapping_add(20) >> 2 & 63) as usize;
            value(i, from, i.lanes[from].b).into()
        }),
        Case::new("ds_permute_b32 {d}, {a}, {b}", &[Kind::I32; 2], move |i| {
            let to = |lane: usize| (i.lanes[lane].a as u32 >> 2 & 63) as usize;
            let from = (0..64).find(|&lane| i.active(lane) && to(lane) == i.lane);
            from.map_or(0, |from| i.lanes[from].b as u32).into()
        })
        .adjusted(|_, lanes, random| {
            // No two lanes write to the same lane: the winner is not documented.
            let (by, add) = (u64::from(random.below(32)) * 2 + 1, u64::from(random.below(64)));
            for (i, lane) in lanes.iter_mut().enumerate() {
                lane.a = ((i as u64 * by + add) % 64) << 2;
            }
        }),
    ];
    for (and, or, xor) in [(31, 0, 1), (31, 0, 16), (0, 5, 0), (24, 3, 7), (31, 0, 31)] {
        let offset = and | or << 5 | xor << 10;
        cases.push(Case::new(
            format!("ds_swizzle_b32 {{d}}, {{a}} offset:{offset:#x}"),
            &[Kind::I32],
            move |i| {
                let from = (i.lane & 31 & and | or) ^ xor | i.lane & 32;
                value(i, from, i.lanes[from].a).into()
            },
        ));
    }
    for quad in [[0usize, 0, 0, 0], [3, 2, 1, 0], [1, 2, 3, 0]] {
        let offset = quad.iter().enumerate().fold(0x8000, |all, (k, from)| all | from << (2 * k));
        cases.push(Case::new(
            format!("ds_swizzle_b32 {{d}}, {{a}} offset:{offset:#x}"),
            &[Kind::I32],
            move |i| {
                let from = i.lane & !3 | quad[i.lane & 3];
                value(i, from, i.lanes[from].a).into()
            },
        ));
    }
    cases
}

pub(crate) fn all() -> Vec<Case> {
    [dpp(), sdwa(), other_encodings(), single_lanes(), crossbar()].into_iter().flatten().collect()
}

#[test]
fn data_parallel_primitives() {
    check(dpp());
}

#[test]
fn sub_dword_addressing() {
    check(sdwa());
}

#[test]
fn short_instructions_in_other_encodings() {
    check(other_encodings());
}

#[test]
fn one_lane() {
    check(single_lanes());
}

#[test]
fn permutations() {
    check(crossbar());
}
