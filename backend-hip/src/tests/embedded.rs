//! Built-in code: every launch of every operation's cases, checked against the code objects of every target.

use crate::arch::{Dot4, Matrix, Profile, Target};
use crate::code::elf::{self, KernelInfo};
use crate::code::kernels::{Embedded, KernelSet, Kernels};
use crate::code::ptx;
use crate::op::{Context, Refusal};
use crate::route::Route;
use ggml_core::catalogue::cases;
use ggml_core::precision::Precision;
use ggml_core::routes::Table;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Kernels exist and declare the arguments that are passed, and their work-groups and LDS fit; on every
/// target, for every case, under both precisions. No device is needed for that.
#[test]
fn launches_fit_the_code_objects() {
    let targets = Embedded.targets();
    if targets.is_empty() {
        eprintln!("skipped: no code object was built in");
        return;
    }
    let (mut wrong, mut launches, mut kernels_used) = (BTreeSet::new(), 0, BTreeSet::new());
    for name in targets {
        let target = Target::parse(name).unwrap();
        let profile = Profile::of(&target).unwrap_or_else(|| panic!("{name} is of no known family"));
        let kernels = Kernels::new(Arc::new(Embedded), &target);
        assert_eq!(kernels.target(), Some(name));
        for case in cases() {
            let graph = case.graph.clone().unwrap();
            for precision in [Precision::Exact, Precision::Fast] {
                for node in graph.computed() {
                    match kernels.plan(&Context { graph: &graph, node, profile: &profile, precision }) {
                        Ok(planned) => {
                            launches += planned.len();
                            kernels_used.extend(planned.iter().map(|(l, _)| (l.module, l.kernel)));
                        }
                        Err(Refusal(why)) => _ = wrong.insert(format!("{name} {}: {why}", case.name)),
                    }
                }
            }
        }
    }
    eprintln!("{launches} launches of {} kernels", kernels_used.len());
    let some: Vec<&String> = wrong.iter().take(20).collect();
    assert!(wrong.is_empty(), "{} refusals, among them {some:#?}", wrong.len());
}

/// Each route that is made of kernels changes those of some case: otherwise no check of it compares anything.
#[test]
fn every_route_is_taken_by_a_case() {
    // They change how the same kernels are started, or where their operands lie.
    let mechanisms =
        [Route::Graphs, Route::GraphBranches, Route::KernelCopies, Route::HostWeights, Route::CachedWeights];
    let has_units = |name: &&&str| {
        Target::parse(name).and_then(|t| Profile::of(&t)).is_some_and(|p| p.matrix != Matrix::None)
    };
    let targets = Embedded.targets();
    let Some(name) = targets.iter().find(has_units) else {
        return eprintln!("skipped: no code with matrix units was built in");
    };
    let target = Target::parse(name).unwrap();
    let (all, kernels) = (Profile::of(&target).unwrap(), Kernels::new(Arc::new(Embedded), &target));
    for &route in Route::ALL.iter().filter(|route| !mechanisms.contains(route)) {
        let without = match route {
            Route::MatrixProducts => Profile { matrix: Matrix::None, ..all.clone() },
            Route::MatrixAttention => Profile { attention_matrix: Matrix::None, ..all.clone() },
            other => panic!("{other:?} is neither a mechanism nor known here"),
        };
        let taken = cases().iter().any(|case| {
            let graph = case.graph.as_ref().unwrap();
            let of = |profile: &Profile| -> Vec<&str> {
                let context = Context { graph, node: case.node, profile, precision: Precision::Fast };
                kernels
                    .plan(&context)
                    .map_or_else(|_| vec![], |all| all.iter().map(|(l, _)| l.kernel).collect())
            };
            of(&all) != of(&without)
        });
        assert!(taken, "no case takes {route:?}");
    }
}

/// PTX and code objects have equal metadata for every kernel, and PTX is not less exact: operations round to
/// nearest, none flushes subnormal values, and only 2^x is the hardware's approximation.
#[test]
fn ptx_is_like_the_code_objects() {
    let targets = hip_kernels::targets();
    // A target without a dot product of bytes, or without matrix units, lacks the kernels that use them.
    let has = |name: &str| {
        let profile = Target::parse(name).and_then(|target| Profile::of(&target)).unwrap();
        (profile.dot4 != Dot4::Software, profile.matrix != Matrix::None)
    };
    let amd = targets.iter().filter(|t| t.starts_with("gfx")).max_by_key(|t| has(t));
    for target in targets.iter().filter(|t| t.starts_with("sm_")) {
        for &stem in hip_kernels::stems() {
            let text = hip_kernels::code_object(target, stem).unwrap();
            let (_, has_matrix) = has(target);
            if !has_matrix && stem.starts_with("mul_mat_half") {
                assert!(ptx::read(text).unwrap_err().contains("no kernel"), "{target} {stem}");
                continue;
            }
            let (object, spans) = ptx::read(text).unwrap_or_else(|why| panic!("{target} {stem} {why}"));
            assert_eq!(object.target.unwrap().to_string(), *target);
            for (i, kernel) in object.kernels.iter().enumerate() {
                let (alone, _) = ptx::read(&ptx::excerpt(text, &spans, i)).unwrap();
                assert_eq!(alone.kernels, std::slice::from_ref(kernel), "{target} {stem}");
            }
            for word in std::str::from_utf8(text).unwrap().split_whitespace() {
                let exact = match word.split('.').next() {
                    Some("add" | "sub" | "mul" | "fma" | "div" | "sqrt" | "rcp")
                        if word.ends_with(".f32") =>
                    {
                        word.contains(".rn") && !word.contains(".ftz")
                    }
                    // As AMD's instruction may, it treats values below 2^-126 as zero.
                    Some("ex2") => word == "ex2.approx.ftz.f32",
                    _ => !word.contains(".approx") && !word.contains(".ftz"),
                };
                assert!(exact, "{target} {stem}: {word}");
            }
            let Some(image) = amd.and_then(|amd| hip_kernels::code_object(amd, stem)) else { continue };
            let wanted = elf::read(image).unwrap().kernels;
            let on_units =
                |k: &&KernelInfo| ["_half_", "_attn_matrix_"].iter().any(|part| k.name.contains(part));
            // Only AMD's processors have products of pairs of F16.
            let by_pairs = |k: &&KernelInfo| {
                ["_attn_half_", "_attn_split_half_"].iter().any(|part| k.name.contains(part))
            };
            for kernel in wanted.iter().filter(|k| !by_pairs(k) && (has_matrix || !on_units(k))) {
                let (name, max_threads) = counterpart(kernel);
                let found = object.kernels.iter().find(|k| k.name == name);
                let found = found.unwrap_or_else(|| panic!("{target} {stem} has no {name}"));
                assert_eq!(found.arguments, kernel.arguments, "{target} {name}");
                assert_eq!(found.max_threads, max_threads, "{target} {name}");
                assert!(found.lds_bytes <= 48 << 10, "{target} {}", kernel.name);
            }
        }
    }
}

/// Returns the PTX counterpart of an AMD kernel: its name and its threads. Attention of few rows is twice as
/// wide, which suits NVIDIA's multiprocessors; attention on matrix units has four wavefronts; and matrix unit
/// tiles have other names.
fn counterpart(amd: &KernelInfo) -> (String, u32) {
    if amd.name.starts_with("mat_tile_half_") {
        return (amd.name.replace("mat_tile_half_", "mat_tile_mma_"), 256);
    }
    if amd.name.starts_with("flash_attn_matrix_") {
        return (amd.name.clone(), 128);
    }
    let wider = if amd.name.starts_with("flash_attn_split_") { 2 } else { 1 };
    (amd.name.clone(), amd.max_threads * wider)
}
