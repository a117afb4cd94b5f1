//! Branches, calls, relative registers, modes, and instructions without a visible effect.

use crate::vectors::harness::{Case, Dst, In, Out, check};
use crate::vectors::scalar::{case, mixed};

fn narrow(value: u32) -> Out {
    let mut out = Out::kept();
    out.sd32 = Some(value);
    out
}

pub(crate) fn branches() -> Vec<Case> {
    type Taken = fn(&In<'_>) -> bool;
    let list: [(&str, Taken); 7] = [
        ("s_branch", |_| true),
        ("s_cbranch_scc0", |i| i.wave.scc == 0),
        ("s_cbranch_scc1", |i| i.wave.scc != 0),
        ("s_cbranch_vccz", |i| i.wave.vcc == 0),
        ("s_cbranch_vccnz", |i| i.wave.vcc != 0),
        ("s_cbranch_execz", |i| i.wave.exec == 0),
        ("s_cbranch_execnz", |i| i.wave.exec != 0),
    ];
    let make =
        |(name, taken): (&str, Taken)| {
            case(format!("{name} 1f\ns_mov_b32 {{sd}}, 77\n1:"), move |i| {
                if taken(i) { Out::kept() } else { narrow(77) }
            })
        };
    list.into_iter().map(make).collect()
}

pub(crate) fn calls() -> Vec<Case> {
    let both = |low: u32, high: u32| {
        let mut out = Out::kept();
        out.sd = Some(u64::from(high) << 32 | u64::from(low));
        out
    };
    let restore = "s_cmp_lg_u32 s26, 0";
    vec![
        // The routine writes s25, the code after the call s24.
        case(
            "s_call_b64 s[12:13], 1f\ns_mov_b32 s24, 5\ns_branch 2f\n1:\ns_mov_b32 s25, 6\ns_setpc_b64 s[12:13]\n2:",
            move |_| both(5, 6),
        ),
        case(
            "s_swappc_b64 s[14:15], s[12:13]\ns_mov_b32 s24, 7\ns_branch 2f\n1:\ns_mov_b32 s25, 8\n\
             s_setpc_b64 s[14:15]\n2:",
            move |_| both(7, 8),
        )
        .around("s_getpc_b64 s[12:13]\n3:\ns_add_u32 s12, s12, 1f-3b\ns_addc_u32 s13, s13, 0", restore),
        case("s_setpc_b64 s[12:13]\ns_mov_b32 s24, 9\n1:", |_| Out::kept())
            .around("s_getpc_b64 s[12:13]\n3:\ns_add_u32 s12, s12, 1f-3b\ns_addc_u32 s13, s13, 0", restore),
        // The two instructions are four bytes apart.
        case("s_getpc_b64 s[12:13]\ns_getpc_b64 s[14:15]\ns_sub_u32 s24, s14, s12", |_| narrow(4))
            .around("", restore),
        case(
            "s_getpc_b64 s[12:13]\ns_mov_b32 s24, 0x12345678\ns_getpc_b64 s[14:15]\ns_sub_u32 s24, s14, s12",
            |_| narrow(12),
        )
        .around("", restore),
    ]
}

/// Registers with an index computed at run time.
pub(crate) fn relative() -> Vec<Case> {
    let scalars = |i: &In<'_>| -> [u32; 4] { bytemuck::cast([i.wave.sa, i.wave.sb]) };
    let index = |case: Case| {
        case.adjusted(|wave, lanes, random| {
            mixed(wave, lanes, random);
            wave.m0 = random.below(4);
        })
    };
    let even = |case: Case| {
        case.adjusted(|wave, lanes, random| {
            mixed(wave, lanes, random);
            wave.m0 = random.below(2) * 2;
        })
    };
    let vector = |before: &str, text: &str, from: bool| {
        let case = case(text, move |i| {
            let (k, own) = ((i.wave.sa & 3) as usize, &i.lanes[i.lane]);
            let operands: [u32; 4] = bytemuck::cast([own.a, own.b]);
            if from {
                return operands[k].into();
            }
            let mut words = own.old;
            words[k] = i.a32();
            Dst::B128(words).into()
        });
        case.around(before, "s_set_gpr_idx_off\ns_mov_b32 m0, s27").adjusted(|wave, lanes, random| {
            mixed(wave, lanes, random);
            wave.sa &= !0xff;
            wave.sa |= u64::from(random.below(4));
        })
    };
    vec![
        index(case("s_movrels_b32 {sd}, {sa}", move |i| narrow(scalars(i)[i.wave.m0 as usize]))),
        even(case("s_movrels_b64 {SD}, {SA}", |i| {
            let mut out = Out::kept();
            out.sd = Some(if i.wave.m0 == 0 { i.wave.sa } else { i.wave.sb });
            out
        })),
        case("s_movreld_b32 {sd}, {sa}", |i| {
            let mut out = Out::kept();
            let (value, at) = (u64::from(i.wave.sa as u32), 32 * i.wave.m0);
            out.sd = Some(i.wave.sd & !(0xffff_ffff << at) | value << at);
            out
        })
        .adjusted(|wave, lanes, random| {
            mixed(wave, lanes, random);
            wave.m0 = random.below(2);
        }),
        even(case("s_movreld_b64 s[22:23], {SA}\ns_mov_b64 s[12:13], s[24:25]", |i| {
            let mut out = Out::kept();
            out.sd = (i.wave.m0 != 0).then_some(i.wave.sa);
            out
        })),
        vector("", "s_set_gpr_idx_on {sa}, gpr_idx(SRC0)\nv_mov_b32_e32 {d}, {a}", true),
        vector("", "s_set_gpr_idx_on {sa}, gpr_idx(DST)\nv_mov_b32_e32 {d}, {a}", false),
        vector("s_set_gpr_idx_on 0, gpr_idx(SRC0)", "s_set_gpr_idx_idx {sa}\nv_mov_b32_e32 {d}, {a}", true),
        vector(
            "s_set_gpr_idx_on {sa}, gpr_idx(DST)",
            "s_set_gpr_idx_mode gpr_idx(SRC0)\nv_mov_b32_e32 {d}, {a}",
            true,
        ),
        vector(
            "s_set_gpr_idx_on {sa}, gpr_idx(SRC0)\nv_mov_b32_e32 v40, {a}",
            "s_set_gpr_idx_off\nv_mov_b32_e32 {d}, v40",
            true,
        ),
    ]
}

/// The MODE register: denormals of the descriptor in bits 4 to 7, IEEE mode in bit 9.
pub(crate) fn modes() -> Vec<Case> {
    let set = "s_setreg_b32 hwreg(HW_REG_MODE, 4, 2), {sa}\ns_getreg_b32 {sd}, hwreg(HW_REG_MODE, 4, 4)";
    let immediate =
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 6, 2), 1\ns_getreg_b32 {sd}, hwreg(HW_REG_MODE, 4, 4)";
    vec![
        case("s_getreg_b32 {sd}, hwreg(HW_REG_MODE, 4, 4)", |_| narrow(15)),
        case("s_getreg_b32 {sd}, hwreg(HW_REG_MODE, 0, 4)", |_| narrow(0)),
        case("s_getreg_b32 {sd}, hwreg(HW_REG_MODE, 9, 1)", |_| narrow(1)),
        case("s_getreg_b32 {sd}, hwreg(HW_REG_MODE, 8, 1)", |_| narrow(1)),
        case(set, |i| narrow(12 | (i.wave.sa & 3) as u32)),
        case(immediate, |_| narrow(7)),
    ]
}

/// Special registers as operands and as results.
pub(crate) fn special_registers() -> Vec<Case> {
    let vector = |name: &str, value: fn(&In<'_>) -> u32| {
        case(format!("v_mov_b32_e32 {{d}}, {name}"), move |i| value(i).into())
    };
    let scalar = |name: &str, value: fn(&In<'_>) -> u32| {
        case(format!("s_mov_b32 {{sd}}, {name}"), move |i| narrow(value(i)))
    };
    let wide = |name: &str, value: fn(&In<'_>) -> u64| {
        case(format!("s_mov_b64 {{SD}}, {name}"), move |i| {
            let mut out = Out::kept();
            out.sd = Some(value(i));
            out
        })
    };
    vec![
        vector("{sa}", |i| i.wave.sa as u32),
        vector("vcc_lo", |i| i.wave.vcc as u32),
        vector("vcc_hi", |i| (i.wave.vcc >> 32) as u32),
        vector("exec_lo", |i| i.wave.exec as u32),
        vector("exec_hi", |i| (i.wave.exec >> 32) as u32),
        vector("m0", |i| i.wave.m0),
        vector("src_scc", |i| i.wave.scc),
        vector("src_vccz", |i| u32::from(i.wave.vcc == 0)),
        vector("src_execz", |i| u32::from(i.wave.exec == 0)),
        scalar("vcc_hi", |i| (i.wave.vcc >> 32) as u32),
        scalar("exec_lo", |i| i.wave.exec as u32),
        scalar("m0", |i| i.wave.m0),
        scalar("src_scc", |i| i.wave.scc),
        scalar("0x89abcdef", |_| 0x89ab_cdef),
        scalar("-16", |_| 0xffff_fff0),
        scalar("64", |_| 64),
        scalar("-4.0", |_| 0xc080_0000),
        wide("exec", |i| i.wave.exec),
        wide("vcc", |i| i.wave.vcc),
        wide("-1", |_| u64::MAX),
        wide("2.0", |_| 0x4000_0000_0000_0000),
        case("s_mov_b64 vcc, {SA}", |i| {
            let mut out = Out::kept();
            out.whole_vcc = Some(i.wave.sa);
            out
        }),
        case("s_mov_b32 vcc_hi, {sa}", |i| {
            let mut out = Out::kept();
            out.whole_vcc = Some(i.wave.vcc & 0xffff_ffff | i.wave.sa << 32);
            out
        }),
        case("s_mov_b64 exec, {SA}", |i| {
            let mut out = Out::kept();
            out.exec = Some(i.wave.sa);
            out
        }),
        case("s_mov_b32 exec_lo, {sa}", |i| {
            let mut out = Out::kept();
            out.exec = Some(i.wave.exec & !0xffff_ffff | i.wave.sa & 0xffff_ffff);
            out
        }),
        case("v_cmp_eq_u32_e64 exec, {sa}, {a}\ns_mov_b64 exec, {SB}", |i| {
            let mut out = Out::kept();
            out.exec = Some(i.wave.sb);
            out
        }),
    ]
}

/// Waits, hints and caches.
pub(crate) fn nothing() -> Vec<Case> {
    let list = [
        "s_nop 7",
        "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)",
        "s_sleep 1",
        "s_setprio 2",
        "s_icache_inv",
        "s_dcache_inv",
        "s_dcache_inv_vol",
        "s_dcache_wb",
        "s_dcache_wb_vol",
        "s_incperflevel 1",
        "s_decperflevel 1",
        "buffer_wbinvl1",
        "buffer_wbinvl1_vol",
        "ds_nop",
    ];
    let mut cases: Vec<Case> = list.into_iter().map(|text| case(text, |_| Out::kept())).collect();
    for clock in ["s_memtime", "s_memrealtime"] {
        // The clock is monotonic: the difference of two readings is not negative.
        let text = format!(
            "{clock} s[12:13]\ns_waitcnt lgkmcnt(0)\n{clock} s[14:15]\ns_waitcnt lgkmcnt(0)\n\
             s_sub_u32 s12, s14, s12\ns_subb_u32 s13, s15, s13\ns_lshr_b32 s24, s13, 31"
        );
        cases.push(case(text, |_| narrow(0)).around("", "s_cmp_lg_u32 s26, 0"));
    }
    cases
}

pub(crate) fn all() -> Vec<Case> {
    [branches(), calls(), relative(), modes(), special_registers(), nothing()].into_iter().flatten().collect()
}

#[test]
fn branch() {
    check(branches());
}

#[test]
fn call() {
    check(calls());
}

#[test]
fn relative_registers() {
    check(relative());
}

#[test]
fn mode_register() {
    check(modes());
}

#[test]
fn registers_of_the_wavefront() {
    check(special_registers());
}

#[test]
fn no_effect() {
    check(nothing());
}
