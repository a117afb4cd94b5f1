//! Coverage of the vectors: every mnemonic of the processors is covered or excluded with a reason.

use crate::support::{CDNA, TARGETS, objdump};
use crate::vectors::harness::{Case, In, Out, check, check_on, object};
use crate::vectors::operands::Kind;
use crate::vectors::{
    buffers, control, division, lanes, lds, memory, modifiers, scalar, vop1, vop2, vop3, vop3p, vopc,
};
use std::collections::BTreeSet;
use virtual_gpu::Target;

const MNEMONICS: &str = include_str!("mnemonics.txt");

/// Covered by the planted errors, because they end or stop a wavefront.
const ELSEWHERE: &[&str] = &["s_barrier", "s_endpgm", "s_trap"];

/// Instructions without vectors, as name patterns (`*` matches any characters), and the reason.
const WITHOUT: &[(&str, &str)] = &[
    ("buffer_load_format*", "typed buffers belong to graphics"),
    ("buffer_store_format*", "typed buffers belong to graphics"),
    ("v_interp_*", "interpolation belongs to graphics"),
    ("v_screen_partition_4se_b32", "belongs to graphics"),
    ("v_trig_preop_f64", "only the range reduction of libraries uses it"),
    ("v_clrexcp", "exceptions are not modelled"),
    ("ds_*_src2_*", "no compiler emits it"),
    ("ds_condxchg32_rtn_b64", "not documented"),
    ("ds_append", "no compiler emits it for these targets"),
    ("ds_consume", "no compiler emits it for these targets"),
    ("s_atomic_*", "no compiler emits scalar atomics"),
    ("s_buffer_atomic_*", "no compiler emits scalar atomics"),
    ("s_store_*", "no compiler emits scalar stores"),
    ("s_buffer_store_*", "no compiler emits scalar stores"),
    ("s_scratch_*", "no compiler emits scalar scratch accesses"),
    ("s_dcache_discard*", "no compiler emits it"),
    ("s_atc_probe*", "no compiler emits it"),
    ("s_cbranch_cdbg*", "for debuggers"),
    ("s_cbranch_*fork", "no compiler emits it"),
    ("s_cbranch_join", "no compiler emits it"),
    ("s_rfe*", "for trap handlers"),
    ("s_setvskip", "no compiler emits it"),
    ("s_ttracedata", "for profilers"),
    ("s_sendmsg*", "somebody receives messages of packets alone: tests/packets/messages.rs"),
    ("s_sethalt", "for debuggers"),
    ("s_setkill", "for debuggers"),
    ("s_wakeup", "no compiler emits it"),
    ("s_endpgm_*", "for graphics and trap handlers"),
];

/// Returns true if a name matches a pattern with at most two stars.
fn fits(name: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    for part in parts {
        if part.is_empty() {
            return true;
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}

fn cases() -> Vec<Case> {
    [
        vop1::all(),
        vop2::all(),
        vop3::all(),
        vop3p::all(),
        vopc::all(),
        modifiers::all(),
        lanes::all(),
        scalar::all(),
        control::all(),
        division::all(),
        lds::all(),
        memory::all(),
        buffers::all(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the mnemonics with encodings that have vectors on GFX9.
pub(crate) fn words() -> BTreeSet<String> {
    let mut covered: BTreeSet<String> = cases().iter().flat_map(Case::words).collect();
    covered.extend(ELSEWHERE.iter().map(ToString::to_string));
    covered
}

/// Instructions of gfx906 that CDNA lacks, or does otherwise, as words of a case's text.
const NOT_ON_CDNA: &[(&str, &str)] = &[
    ("v_mul_legacy_f32_", "it has other operands"),
    ("_src2_", "gone"),
    (" tfe", "the bit chooses accumulation registers"),
    ("v_dot2_f32_f16", "it has vectors of its own"),
];
/// Instructions that gfx942 lacks, and the resource of scratch.
const NOT_ON_GFX942: &[&str] =
    &["s[80:83]", "v_mac_f32", "v_mad_f32", "v_madmk_f32", "v_madak_f32", "v_mad_legacy_f32"];

/// CDNA extends gfx906: its vectors hold there, too, but for what is gone.
#[test]
fn vectors_of_gfx906_hold_on_cdna() {
    for target in CDNA {
        let gone = |text: &str| {
            NOT_ON_CDNA.iter().any(|(word, _)| text.contains(word))
                || target == Target::Gfx942 && NOT_ON_GFX942.iter().any(|word| text.contains(word))
        };
        let mut chosen: Vec<Case> = cases().into_iter().filter(|c| !gone(&c.text)).collect();
        chosen.retain(|case| case.only != Some(Target::Gfx900));
        for case in &mut chosen {
            case.only = None;
            if target == Target::Gfx942 {
                // The names of the bits that choose caches.
                case.text = case.text.replace(" glc", " sc0").replace(" slc", " nt");
            }
        }
        assert!(chosen.len() > 1000, "{}", chosen.len());
        check_on(&[target], chosen);
    }
}

#[test]
fn every_mnemonic_is_covered_or_excused() {
    let lines = MNEMONICS.lines().filter(|line| !line.starts_with('#'));
    let known: BTreeSet<&str> = lines.flat_map(str::split_whitespace).collect();
    let cases = cases();
    let texts = cases.iter().flat_map(Case::mnemonics);
    let covered: BTreeSet<String> = texts.chain(ELSEWHERE.iter().map(ToString::to_string)).collect();
    let excused = |name: &str| WITHOUT.iter().any(|(pattern, _)| fits(name, pattern));
    let missing: Vec<&&str> = known.iter().filter(|n| !covered.contains(**n) && !excused(n)).collect();
    let unknown: Vec<&String> = covered.iter().filter(|n| !known.contains(n.as_str())).collect();
    let idle: Vec<&str> = WITHOUT
        .iter()
        .map(|w| w.0)
        .filter(|w| !known.iter().any(|n| fits(n, w) && !covered.contains(*n)))
        .collect();
    println!(
        "{} mnemonics: {} covered by {} cases, {} without vectors",
        known.len(),
        covered.len(),
        cases.len(),
        known.len() - covered.len()
    );
    for (pattern, reason) in WITHOUT {
        println!("without: {pattern}: {reason}");
    }
    assert!(missing.is_empty(), "neither covered nor excused: {missing:?}");
    assert!(unknown.is_empty(), "no such mnemonic: {unknown:?}");
    assert!(idle.is_empty(), "these patterns excuse nothing: {idle:?}");
}

/// Every instruction of the library's own kernels has vectors, in the encoding used there.
#[test]
fn embedded_kernels_use_what_is_covered() {
    let covered = words();
    let mut missing = BTreeSet::new();
    let mut used = BTreeSet::new();
    for target in TARGETS {
        for stem in hip_kernels::stems() {
            let image = hip_kernels::code_object(target.name(), stem).expect("every family is compiled");
            for word in objdump::mnemonics(image, target) {
                if !covered.contains(&word) {
                    missing.insert(format!("{word} ({stem})"));
                }
                used.insert(word);
            }
        }
    }
    println!("{} mnemonics and encodings in the embedded kernels", used.len());
    assert!(used.len() > 100, "{used:?}");
    assert!(missing.is_empty(), "without vectors: {missing:?}");
}

/// The disassembler prints every instruction of the vectors as llvm-objdump does.
#[test]
fn vectors_disassemble_as_llvm_objdump_prints_them() {
    let cases = cases();
    let (mut total, mut wrong) = (0, Vec::new());
    for target in TARGETS {
        let (count, differences) = objdump::compare(&object(&cases, target).1, target, "vectors");
        total += count;
        wrong.extend(differences);
    }
    println!("{total} instructions compared");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
}

/// The harness detects a wrong result, carry, inactive lane or scalar.
#[test]
fn wrong_expectations_fail() {
    let kinds = [Kind::I32; 2];
    let add = "v_add_co_u32_e32 {d}, vcc, {a}, {b}";
    let right = |i: &In<'_>| i.a32().overflowing_add(i.b32());
    let wrong: Vec<(&str, Case)> = vec![
        ("result", Case::new(add, &kinds, move |i| Out::from(right(i).0 ^ 1).vcc(right(i).1))),
        ("carry", Case::new(add, &kinds, move |i| Out::from(right(i).0).vcc(!right(i).1))),
        ("no carry", Case::new(add, &kinds, move |i| right(i).0.into())),
        ("kept", Case::new(add, &kinds, move |i| Out::kept().vcc(right(i).1))),
        (
            "lanes that are off",
            Case::new(add, &kinds, move |i| {
                let mut out = Out::from(right(i).0).vcc(right(i).1);
                out.always = true;
                out
            }),
        ),
        ("operand", { Case::new("v_swap_b32 {d}, {a}", &kinds, |i| i.a32().into()) }),
        (
            "scc",
            Case::new("s_and_b32 {sd}, {sa}, {sb}", &[], |i| {
                let mut out = Out::kept();
                out.sd32 = Some(i.wave.sa as u32 & i.wave.sb as u32);
                out.scc = Some(false);
                out
            }),
        ),
        ("scalar", Case::new("s_mov_b32 {sd}, {sa}", &[], |_| Out::kept())),
        ("exec", Case::new("s_mov_b64 exec, {SA}", &[], |_| Out::kept())),
        ("m0", Case::new("s_mov_b32 m0, 5", &[], |_| Out::kept())),
        (
            "memory",
            Case::new("global_load_dword {d}, v1, s[4:5] offset:16", &kinds, |i| (i.c32() ^ 0x100).into()),
        ),
    ];
    for (what, case) in wrong {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(vec![case])));
        assert!(result.is_err(), "a wrong {what} is not noticed");
    }
}
