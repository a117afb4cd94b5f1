//! Runs the operation catalogue on a backend and compares with the reference.
#![allow(unreachable_pub)]

use backend_vulkan::VulkanBackend;
use ggml_core::catalogue::{self, Case, Judged};
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the cases of the catalogue whose names contain `DIPTYCH_TEST_CASES`; all if it is unset.
pub fn cases() -> Vec<Case> {
    let part = std::env::var("DIPTYCH_TEST_CASES").unwrap_or_default();
    catalogue::cases().into_iter().filter(|case| case.name.contains(&part)).collect()
}

/// Returns the cases with the contents of their leaves and the results of the reference.
pub fn judged(cases: Vec<Case>) -> Vec<Judged> {
    let reference = ReferenceBackend::default();
    cases
        .into_iter()
        .map(|case| Judged::new(case, &reference).expect("the reference has no failures"))
        .collect()
}

/// Returns the failures of a backend in the catalogue. Cases run on as many threads as there are CPUs,
/// because compiling shaders for the first time dominates the time.
pub fn failures(backend: &VulkanBackend, cases: &[&Judged]) -> Vec<String> {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            for precision in [Precision::Exact, Precision::Fast] {
                if let Some(failure) = case.fault(backend, precision) {
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
