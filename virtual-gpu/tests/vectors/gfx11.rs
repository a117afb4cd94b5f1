//! The vectors of GFX9 on GFX11, in wavefronts of 32 lanes, as far as it has the instructions: a case is rewritten in its
//! syntax, and what differs in its effect is known here.

use crate::support::{AsmKernel, asm, compile};
use crate::vectors::expected::{Dst, Out};
use crate::vectors::harness::{Case, MACROS_32, run_on};
use crate::vectors::{division, lds, memory, modifiers, scalar, vop1, vop2, vop3, vop3p, vopc};
use virtual_gpu::{Checks, Options, Target};

/// Names of GFX9 and of GFX11; the assembler knows the others under both.
const NAMES: &[(&str, &str)] = &[
    ("v_add_u32", "v_add_nc_u32"),
    ("v_sub_u32", "v_sub_nc_u32"),
    ("v_subrev_u32", "v_subrev_nc_u32"),
    ("v_add_u16", "v_add_nc_u16"),
    ("v_sub_u16", "v_sub_nc_u16"),
    ("v_add_i16", "v_add_nc_i16"),
    ("v_sub_i16", "v_sub_nc_i16"),
    ("v_add_i32", "v_add_nc_i32"),
    ("v_sub_i32", "v_sub_nc_i32"),
    ("v_addc_co_u32", "v_add_co_ci_u32"),
    ("v_subb_co_u32", "v_sub_co_ci_u32"),
    ("v_subbrev_co_u32", "v_subrev_co_ci_u32"),
    ("v_cvt_rpi_i32_f32", "v_cvt_nearest_i32_f32"),
    ("v_cvt_flr_i32_f32", "v_cvt_floor_i32_f32"),
    ("v_ffbh_u32", "v_clz_i32_u32"),
    ("v_ffbl_b32", "v_ctz_i32_b32"),
    ("v_ffbh_i32", "v_cls_i32"),
    ("v_mul_legacy_f32", "v_mul_dx9_zero_f32"),
    ("v_cvt_pkrtz_f16_f32", "v_cvt_pk_rtz_f16_f32"),
    ("v_cvt_pknorm_i16_f32", "v_cvt_pk_norm_i16_f32"),
    ("v_cvt_pknorm_u16_f32", "v_cvt_pk_norm_u16_f32"),
    ("v_cvt_pknorm_i16_f16", "v_cvt_pk_norm_i16_f16"),
    ("v_cvt_pknorm_u16_f16", "v_cvt_pk_norm_u16_f16"),
];

/// Instructions that are executed here and differ, by the beginning of their texts, and why.
const DIFFERENT: &[(&str, &str)] = &[("v_pk_", "constants of packed operands have 32 bits")];

/// Rewrites a line.
fn line(text: &str) -> String {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (base, suffix) = match word.rsplit_once('_') {
        Some((base, "e32" | "e64")) => (base, &word[base.len()..]),
        _ => (word, ""),
    };
    let name = NAMES.iter().find(|(old, _)| *old == base).map_or(base, |(_, new)| new);
    let name = name.replace("v_cmp_tru_", "v_cmp_t_").replace("v_cmpx_tru_", "v_cmpx_t_");
    if !name.starts_with("v_") {
        return format!("{name}{suffix} {rest}");
    }
    // Masks have one register.
    let mut rest =
        rest.replace("vcc", "vcc_lo").replace("vcc_lo_lo", "vcc_lo").replace("vcc_lo_hi", "vcc_hi");
    let is_comparison = name.starts_with("v_cmp");
    let has_mask =
        name.contains("_co_") || ["v_cndmask_b32", "v_mad_u64_u32", "v_mad_i64_i32"].contains(&&*name);
    if is_comparison || has_mask || name.starts_with("v_div_scale") {
        rest = rest.replace("{SD}", "{sd}");
    }
    if has_mask && !name.starts_with("v_mad_") {
        rest = rest.replace("{SB}", "{sb}");
    }
    if name.starts_with("v_cmpx_") {
        // It writes EXEC alone.
        rest = rest.split_once(", ").map_or(rest.clone(), |(_, sources)| sources.to_owned());
    }
    format!("{name}{suffix} {rest}")
}

/// Returns true if an instruction writes half of a register.
fn is_half(name: &str) -> bool {
    let is_type = |t: &str| ["f16", "u16", "i16", "b16"].contains(&t);
    let others = ["v_pk_", "v_pack_", "v_cvt_pk", "v_cmp", "v_mad_u32_", "v_mad_i32_", "v_dot", "v_sad"];
    if !name.starts_with("v_") || name.contains("_mix") || others.iter().any(|begin| name.starts_with(begin))
    {
        return false;
    }
    let parts: Vec<&str> = name.split('_').collect();
    match parts[..] {
        [_, "cvt", "norm", result, _] | [_, "cvt", result, _] => is_type(result),
        [_, "frexp", "exp", result, _] => is_type(result),
        // Two bytes.
        [_, "sat", "pk", ..] => true,
        _ => parts.last().is_some_and(|last| is_type(last)),
    }
}

/// Returns what a result is where the other half of the register is kept.
fn kept(dst: Dst, old: u32) -> Dst {
    match dst {
        Dst::B32(bits) => Dst::B32(bits & 0xffff | old & 0xffff_0000),
        Dst::F16(bits) => Dst::F16Kept(bits),
        Dst::Either(one, other) => Dst::Either(Box::new(kept(*one, old)), Box::new(kept(*other, old))),
        other => other,
    }
}

/// Returns a case in the syntax and with the effects of GFX11.
fn rewritten(case: Case) -> Case {
    let text: Vec<String> = case.text.lines().map(line).collect();
    let name = case.mnemonic();
    let upper = case.text.split_once("op_sel:[").and_then(|(_, rest)| rest.split_once(']'));
    // An upper half as the result says what it keeps itself.
    let upper = upper.is_some_and(|(list, _)| list.ends_with('1'));
    let (half, to_exec) = (is_half(&name) && !upper, name.starts_with("v_cmpx"));
    let formula = case.formula;
    let changed = move |i: &crate::vectors::harness::In<'_>| -> Out {
        let mut out = formula(i);
        if half {
            out.dst = kept(out.dst, i.old());
        }
        if to_exec {
            (out.vcc, out.mask) = (None, None);
        }
        out
    };
    Case { text: text.join("\n"), formula: Box::new(changed), ..case }
}

/// Returns the numbers of the kernels that the assembler refuses.
fn refused(text: &str, target: Target) -> Vec<usize> {
    let starts: Vec<(usize, usize)> = text
        .lines()
        .enumerate()
        .filter_map(|(at, line)| Some((at + 1, line.strip_prefix('k')?.strip_suffix(':')?.parse().ok()?)))
        .collect();
    let mut all: Vec<usize> = compile::errors(target, text)
        .into_iter()
        .filter_map(|at| starts.iter().rev().find(|(start, _)| *start <= at).map(|(_, kernel)| *kernel))
        .collect();
    all.dedup();
    all
}

/// Returns the assembly file of kernels for cases.
pub(crate) fn file(cases: &[Case], target: Target) -> String {
    let kernel = |(i, case): (usize, &Case)| AsmKernel {
        name: format!("k{i}"),
        body: case.body(),
        ..case.kernel.clone()
    };
    let kernels: Vec<AsmKernel> = cases.iter().enumerate().map(kernel).collect();
    asm::file_for(target, MACROS_32, &kernels)
}

#[test]
fn vectors_of_gfx9() {
    let target = Target::Gfx1100;
    let all = [
        vop1::all(),
        vop2::all(),
        vop3::all(),
        vop3p::all(),
        vopc::all(),
        division::all(),
        scalar::all(),
        modifiers::all(),
        lds::all(),
        memory::all(),
    ];
    let usable = |case: &Case| {
        let different = DIFFERENT.iter().any(|(begin, _)| case.text.starts_with(begin));
        case.kernel.scratch == 0 && case.only.is_none_or(|only| only == Target::Gfx906) && !different
    };
    let cases = all.into_iter().flatten().filter(usable).map(rewritten);
    let mut cases: Vec<Case> = cases.collect();
    let (count, wrong) = (cases.len(), refused(&file(&cases, target), target));
    let mut n = 0;
    cases.retain(|_| {
        n += 1;
        !wrong.contains(&(n - 1))
    });
    println!("{} of {count} cases are instructions of {}", cases.len(), target.name());
    let options = Options::default();
    let options = Options { checks: Checks { ranges: false, ..options.checks }, ..options };
    let object = compile::assemble(target, &file(&cases, target));
    let complaints = run_on(target, &object, options, &cases.iter().collect::<Vec<_>>());
    let shown = complaints[..complaints.len().min(40)].join("\n");
    assert!(complaints.is_empty(), "{} of {} cases:\n{shown}", complaints.len(), cases.len());
    assert!(cases.len() > 700, "{} cases", cases.len());
}
