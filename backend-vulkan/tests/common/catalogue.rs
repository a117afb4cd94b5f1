//! The operation catalogue on a backend against the reference.
#![allow(unreachable_pub)]

use backend_vulkan::VulkanBackend;
use ggml_core::catalogue::{self, Case, Outcome};
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The catalogue, or those of its cases whose names contain what `DIPTYCH_TEST_CASES` says.
pub fn cases() -> Vec<Case> {
    let part = std::env::var("DIPTYCH_TEST_CASES").unwrap_or_default();
    catalogue::cases().into_iter().filter(|case| case.name.contains(&part)).collect()
}

/// Wanted values of a case under the reference; computed once.
pub type Wanted = HashMap<String, Vec<f32>>;

pub fn wanted(cases: &[Case]) -> Wanted {
    let reference = ReferenceBackend::default();
    let run = |case: &Case| match catalogue::run(case, &reference, Precision::Exact) {
        Ok(Outcome::Values(values)) => (case.name.clone(), values),
        other => panic!("{}: {other:?}", case.name),
    };
    cases.iter().map(run).collect()
}

/// The ways in which a backend fails the catalogue. Cases run on as many threads as there are processors: most of the
/// time goes into compiling shaders for the first time.
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
