//! Runs the operation catalogue on a backend and compares with the reference.
#![allow(unreachable_pub)]

use backend_vulkan::VulkanBackend;
use ggml_core::catalogue::{self, Case, Outcome};
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the cases of the catalogue whose names contain `DIPTYCH_TEST_CASES`; all if it is unset.
pub fn cases() -> Vec<Case> {
    let part = std::env::var("DIPTYCH_TEST_CASES").unwrap_or_default();
    catalogue::cases().into_iter().filter(|case| case.name.contains(&part)).collect()
}

/// Results of the reference by case name; computed once.
pub type Wanted = HashMap<String, Vec<f32>>;

pub fn wanted(cases: &[Case]) -> Wanted {
    let reference = ReferenceBackend::default();
    let run = |case: &Case| match catalogue::run(case, &reference, Precision::Exact) {
        Ok(Outcome::Values(values)) => (case.name.clone(), values),
        other => panic!("{}: {other:?}", case.name),
    };
    cases.iter().map(run).collect()
}

/// Returns the failures of a backend in the catalogue. Cases run on as many threads as there are CPUs,
/// because compiling shaders for the first time dominates the time.
pub fn failures(backend: &VulkanBackend, cases: &[Case], wanted: &Wanted) -> Vec<String> {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            for precision in [Precision::Exact, Precision::Fast] {
                if let Some(failure) = catalogue::fault(case, backend, precision, &wanted[&case.name]) {
                    wrong.lock().expect("no thread panics").push(failure);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        (0..threads).for_each(|_| {
            scope.spawn(work);
        });
    });
    wrong.into_inner().expect("no thread panics")
}
