//! Coverage of the vectors of CDNA: every mnemonic that gfx906 lacks is covered, or excused with a reason.

use crate::support::{CDNA, objdump};
use crate::vectors::harness::Case;
use crate::vectors::{cdna, coverage, matrix};
use std::collections::BTreeSet;
use virtual_gpu::Target;

const MNEMONICS: &str = include_str!("mnemonics_cdna.txt");

/// Instructions without vectors, and the reason.
const WITHOUT: &[(&str, &str)] = &[
    ("buffer_atomic_add_f32", "as that of global memory"),
    ("buffer_atomic_add_f64", "as that of global memory"),
    ("buffer_atomic_max_f64", "as that of global memory"),
    ("buffer_atomic_min_f64", "as that of global memory"),
    ("buffer_atomic_pk_add_f16", "as that of global memory"),
    ("flat_atomic_add_f32", "as that of global memory"),
    ("flat_atomic_pk_add_bf16", "as that of global memory"),
    ("flat_atomic_pk_add_f16", "as that of global memory"),
    ("scratch_load_lds_dword", "no compiler emits it"),
    ("scratch_load_lds_sbyte", "no compiler emits it"),
    ("scratch_load_lds_sshort", "no compiler emits it"),
    ("scratch_load_lds_ubyte", "no compiler emits it"),
    ("scratch_load_lds_ushort", "no compiler emits it"),
];

/// Returns the mnemonics of a target that gfx906 lacks.
fn known(target: Target) -> BTreeSet<&'static str> {
    let begin = format!("# {}\n", target.name());
    let list = MNEMONICS.split_once(&begin).map_or("", |(_, rest)| rest);
    list.split('#').next().unwrap_or_default().split_whitespace().collect()
}

#[test]
fn every_mnemonic_of_cdna_is_covered_or_excused() {
    let excused: BTreeSet<&str> = WITHOUT.iter().map(|(name, _)| *name).collect();
    let mut idle = excused.clone();
    for target in CDNA {
        let known = known(target);
        assert!(known.len() > 40, "{known:?}");
        let mut covered: BTreeSet<String> = cdna::all(target).iter().flat_map(Case::mnemonics).collect();
        covered.extend(matrix::names(target).map(str::to_owned));
        let is_missing = |name: &&&str| !covered.contains(**name) && !excused.contains(**name);
        let missing: Vec<&&str> = known.iter().filter(is_missing).collect();
        assert!(missing.is_empty(), "{}: neither covered nor excused: {missing:?}", target.name());
        idle.retain(|name| !known.contains(name) || covered.contains(*name));
    }
    assert!(idle.is_empty(), "these excuse nothing: {idle:?}");
}

/// Every instruction of the library's own kernels for CDNA has vectors, in the encoding used there.
#[test]
fn embedded_kernels_for_cdna_use_what_is_covered() {
    for target in CDNA.into_iter().filter(|target| hip_kernels::targets().contains(&target.name())) {
        let mut covered = coverage::words();
        covered.extend(cdna::all(target).iter().flat_map(Case::words));
        covered.extend(matrix::names(target).map(str::to_owned));
        let mut missing = BTreeSet::new();
        for stem in hip_kernels::stems() {
            let image = hip_kernels::code_object(target.name(), stem).expect("every family is compiled");
            let words = objdump::mnemonics(image, target).into_iter();
            missing
                .extend(words.filter(|word| !covered.contains(word)).map(|word| format!("{word} ({stem})")));
        }
        assert!(missing.is_empty(), "{}: without vectors: {missing:?}", target.name());
    }
}
