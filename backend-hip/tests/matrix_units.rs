//! The kernels for the matrix units of CDNA, executed on emulated devices that have them: products and attention of
//! prompts agree with the reference, and it is matrix instructions that computed them.

use backend_hip::options::MatrixUnits;
use backend_hip::{HipBackend, HipOptions, virtual_gpu};
use ggml_core::Error;
use ggml_core::backend::Backend;
use ggml_core::catalogue::{self, Case, Judged};
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use std::collections::BTreeMap;

/// Emulated processors with matrix units.
const TARGETS: [&str; 2] = ["gfx90a", "gfx942"];

/// Opens an emulated device; `None` if its code was not built in.
fn open(target: &str, matrix_units: MatrixUnits) -> Option<HipBackend> {
    let options = HipOptions { matrix_units, ..HipOptions::default() };
    match virtual_gpu::open(target, options) {
        Err(Error::Unavailable { reason, .. }) if !hip_kernels::targets().contains(&target) => {
            eprintln!("{target} skipped: {reason}");
            None
        }
        opened => Some(opened.expect("an emulated device")),
    }
}

/// Returns the matrix instructions of all launches so far, by kernel.
fn matrix_instructions(backend: &HipBackend) -> BTreeMap<String, u64> {
    let counts = backend.counts().expect("an emulated device counts").into_iter();
    let matrix = |counts: Vec<(&'static str, u64)>| {
        counts.iter().find(|(name, _)| *name == "matrix").map_or(0, |c| c.1)
    };
    counts.map(|kernel| (kernel.kernel, matrix(kernel.counts))).filter(|(_, count)| *count > 0).collect()
}

/// Products of matrices, with and without experts, and attention.
fn cases() -> Vec<Case> {
    let chosen = |case: &Case| ["MUL_MAT", "FLASH_ATTN_EXT"].iter().any(|name| case.name.starts_with(name));
    catalogue::cases().into_iter().filter(chosen).collect()
}

#[test]
fn products_and_attention_on_matrix_units() {
    let reference = ReferenceBackend::default();
    let devices = TARGETS.map(|target| (target, open(target, MatrixUnits::On)));
    let cases = cases();
    let mut run = TARGETS.map(|_| 0);
    for (n, case) in cases.iter().enumerate() {
        let judged = Judged::new(case.clone(), &reference).expect(&case.name);
        for (i, (target, backend)) in devices.iter().enumerate() {
            // The kernels of both are the same sources: a part of the cases is enough for the second.
            let Some(backend) = backend.as_ref().filter(|_| i == 0 || n % 3 == 0) else { continue };
            assert_eq!(judged.fault(backend, Precision::Fast), None, "{target}");
            run[i] += 1;
        }
    }
    for ((target, backend), run) in devices.iter().zip(run) {
        let Some(backend) = backend else { continue };
        assert!(run > 50, "{target}: {run}");
        let used = matrix_instructions(backend);
        println!("{target}: {used:#?}");
        for begin in ["mat_tile_half", "mat_tile_id_half", "flash_attn_matrix"] {
            assert!(used.keys().any(|name| name.starts_with(begin)), "{target}: no {begin} of {used:?}");
        }
    }
}

/// Without them, or where rounding is not allowed, no matrix instruction is executed.
#[test]
fn no_matrix_units() {
    let reference = ReferenceBackend::default();
    let devices: Vec<(&str, Precision, HipBackend)> = TARGETS
        .into_iter()
        .flat_map(|target| {
            [(target, MatrixUnits::Off, Precision::Fast), (target, MatrixUnits::On, Precision::Exact)]
        })
        .filter_map(|(target, units, precision)| Some((target, precision, open(target, units)?)))
        .collect();
    for case in cases().iter().step_by(7) {
        let judged = Judged::new(case.clone(), &reference).expect(&case.name);
        for (target, precision, backend) in &devices {
            assert_eq!(judged.fault(backend, *precision), None, "{target}");
        }
    }
    for (target, _, backend) in &devices {
        assert_eq!(matrix_instructions(backend), BTreeMap::new(), "{target}");
    }
}
