//! What the embedded code objects need of a device, and that they are what was asked for.
//!
//! `cargo test -p hip-kernels --test resources -- --nocapture` prints every kernel of every target.

mod code_object;

use code_object::{Value, metadata};
use ggml_core::kernel::*;
use std::fmt::Write;

/// A kernel's name begins with this; pointer arguments; bytes of the parameter structure.
const ARGUMENTS: &[(&str, u64, usize)] = &[
    ("binary", 3, size_of::<BinaryParams>()),
    ("unary", 2, size_of::<UnaryParams>()),
    ("glu", 3, size_of::<GluParams>()),
    ("rms_norm_", 2, size_of::<NormParams>()),
    ("rope", 5, size_of::<RopeParams>()),
    ("soft_max_", 3, size_of::<SoftMaxParams>()),
    ("copy_", 2, size_of::<CopyParams>()),
    ("get_rows_", 3, size_of::<GetRowsParams>()),
    ("set_rows_", 3, size_of::<SetRowsParams>()),
    ("mat_", 3, size_of::<MulMatParams>()),
    ("flash_attn_combine_", 3, size_of::<FlashAttnParams>()),
    ("flash_attn_", 6, size_of::<FlashAttnParams>()),
];

/// Every embedded code object for an AMD processor: target, stem, metadata.
fn objects() -> Vec<(&'static str, &'static str, Value)> {
    let mut objects = Vec::new();
    for &target in hip_kernels::targets().iter().filter(|t| t.starts_with("gfx")) {
        for &stem in hip_kernels::stems() {
            let image = hip_kernels::code_object(target, stem).expect("a target has every family");
            assert_eq!(image.as_ptr() as usize % 4096, 0, "{target} {stem}: aligned to a page");
            objects.push((target, stem, metadata(image)));
        }
    }
    if objects.is_empty() {
        eprintln!("skipped: no code objects are embedded");
    }
    objects
}

#[test]
fn nothing_was_refused() {
    let refused: Vec<String> =
        hip_kernels::refused().iter().map(|r| format!("{}: {}", r.target, r.reason)).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn objects_are_what_was_asked_for() {
    for (target, stem, root) in objects() {
        let image = hip_kernels::code_object(target, stem).unwrap();
        assert_eq!(image[8], 3, "{target} {stem}: code object version 5");
        assert!(root.text("amdhsa.target").ends_with(&format!("--{target}")), "{target} {stem}");
    }
}

/// No kernel spills or has a stack, none needs more LDS than 32 KiB, and none takes so many registers that a SIMD
/// holds but one wavefront. Prints the table.
#[test]
fn no_kernel_spills() {
    let mut table = String::new();
    let mut wrong = Vec::new();
    for (target, _, root) in objects() {
        let processor = target.split(':').next().unwrap_or(target);
        let wave = if processor.len() == 6 { 64 } else { 32 };
        for kernel in root.list("amdhsa.kernels") {
            let name = kernel.text(".name");
            let of = |key: &str| kernel.number(key);
            let (vgprs, lds) = (of(".vgpr_count"), of(".group_segment_fixed_size"));
            let (spills, stack) =
                (of(".vgpr_spill_count") + of(".sgpr_spill_count"), of(".private_segment_fixed_size"));
            let _ = writeln!(
                table,
                "{target:8} {name:30} vgpr {vgprs:3} agpr {:3} sgpr {:3} lds {lds:5} spills {spills} stack {stack} kernarg {:3} \
                 threads {:3}",
                of(".agpr_count"),
                of(".sgpr_count"),
                of(".kernarg_segment_size"),
                of(".max_flat_workgroup_size"),
            );
            // A SIMD has 256 registers a lane on GCN and gfx908, 512 on later CDNA, 1024 or more on RDNA. One wavefront
            // on a GCN SIMD (more than 128) is left to the kernels for the longest rows of attention.
            let most = match processor {
                "gfx90a" | "gfx942" => 256,
                _ if wave == 32 => 256,
                _ if name.ends_with("_d256") => 192,
                _ => 136,
            };
            let fine = spills == 0
                && stack == 0
                && lds <= 32 << 10
                && vgprs <= most
                && of(".wavefront_size") == wave;
            if !fine || kernel.get(".uses_dynamic_stack").is_some_and(|v| matches!(v, Value::Bool(true))) {
                wrong.push(format!("{target} {name}"));
            }
        }
    }
    println!("{table}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The arguments of each kernel are its pointers, then the parameter structure of ggml-core by value, and nothing else:
/// no argument that a runtime would have to fill in.
#[test]
fn arguments_are_pointers_and_the_shared_structure() {
    for (target, _, root) in objects() {
        for kernel in root.list("amdhsa.kernels") {
            let name = kernel.text(".name");
            let (_, pointers, params) = ARGUMENTS
                .iter()
                .find(|(prefix, _, _)| name.starts_with(prefix))
                .expect("a row for each kernel");
            let found: Vec<(u64, u64, &str)> = kernel
                .list(".args")
                .iter()
                .map(|a| (a.number(".offset"), a.number(".size"), a.text(".value_kind")))
                .collect();
            let mut wanted: Vec<(u64, u64, &str)> =
                (0..*pointers).map(|i| (8 * i, 8, "global_buffer")).collect();
            wanted.push((8 * pointers, *params as u64, "by_value"));
            assert_eq!(found, wanted, "{target} {name}");
            assert_eq!(
                kernel.number(".kernarg_segment_size"),
                8 * pointers + *params as u64,
                "{target} {name}"
            );
        }
    }
}

/// Every target has the same kernels.
#[test]
fn targets_have_the_same_kernels() {
    let mut of_first: Vec<(&str, Vec<String>)> = Vec::new();
    for (target, stem, root) in objects() {
        let mut names: Vec<String> =
            root.list("amdhsa.kernels").iter().map(|k| k.text(".name").into()).collect();
        names.sort();
        assert!(!names.is_empty(), "{target} {stem} has no kernels");
        match of_first.iter().find(|(s, _)| *s == stem) {
            Some((_, first)) => assert_eq!(first, &names, "{target} {stem}"),
            None => of_first.push((stem, names)),
        }
    }
}
