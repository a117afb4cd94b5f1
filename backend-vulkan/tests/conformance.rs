//! Runs the operation catalogue on every Vulkan device of the machine, under every architecture class that it
//! can execute.
//!
//! On a machine without Vulkan the tests are skipped with a message. Any other failure to open a device
//! fails. No case may be refused or fail.

use crate::agreement;

use agreement::{failures, judged};
use backend_vulkan::arch::ArchClass;
use backend_vulkan::profile::Profile;
use backend_vulkan::{VulkanBackend, VulkanOptions, enumerate};
use ggml_core::Error;
use ggml_core::backend::Backend;
use ggml_core::catalogue::{self, Case, Judged};
use ggml_core::precision::Precision;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

fn devices() -> Vec<usize> {
    match enumerate(&VulkanOptions::default()) {
        Ok(all) => all.iter().filter(|d| d.unusable.is_none()).map(|d| d.index).collect(),
        Err(Error::Unavailable { reason, .. }) => {
            eprintln!("skipped: {reason}");
            Vec::new()
        }
        Err(error) => panic!("{error}"),
    }
}

fn open(device: usize, arch: Option<ArchClass>) -> VulkanBackend {
    let options =
        VulkanOptions { device: Some(device), arch, pipeline_cache_dir: None, ..VulkanOptions::default() };
    VulkanBackend::open(options).expect("the device opens")
}

/// Returns backends of a device, one for each distinct profile: its own class first, then the forced ones.
/// NVIDIA's class is not forced, because its kernels are unrolled so far that a software driver compiles them
/// for many minutes; NVIDIA devices test them.
fn backends(device: usize) -> Vec<VulkanBackend> {
    let forced = ArchClass::ALL.into_iter().filter(|class| *class != ArchClass::Nvidia);
    let forced = std::iter::once(None).chain(forced.map(Some));
    let mut all: Vec<VulkanBackend> = Vec::new();
    for arch in forced {
        let backend = open(device, arch);
        // Classes with the same tuning run the same kernels.
        let same = |other: &VulkanBackend| kernels(other.profile()) == kernels(backend.profile());
        if !all.iter().any(same) {
            all.push(backend);
        }
    }
    all
}

/// Returns the part of a profile that selects kernels: everything but the class's name.
fn kernels(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    profile.caps.arch = ArchClass::Other;
    profile
}

/// Checks that the groups of the catalogue are computed as one step, except products, which may be tiles if
/// they have several columns. Products that are no tiles have their own test.
#[test]
fn groups_are_one_step() {
    let cases = catalogue::cases();
    let joined: Vec<&Case> =
        cases.iter().filter(|case| case.group.is_some_and(|group| group != "products")).collect();
    assert!(joined.len() > 40);
    for backend in devices().into_iter().flat_map(backends) {
        let apart = |case: &&Case| catalogue::ungrouped(case, &backend, Precision::Exact);
        let apart: Vec<String> = joined.iter().filter_map(apart).collect();
        assert!(apart.is_empty(), "{}:\n{}", backend.device().arch, apart.join("\n"));
    }
}

/// One type of each block layout, and plain types.
const TYPES: [&str; 5] = ["F32", "F16", "Q8_0", "Q4_0", "Q4_K"];

/// Returns true if a forced class runs a case. A software device compiles a pipeline for seconds, so weights
/// of all types and fused products are tested only with the device's own class; a virtual card executes all
/// of them for the class AMD_GCN. The forced classes run only unfused products of some types.
fn is_usual(case: &Case) -> bool {
    let (operation, operands) = case.name.split_once('(').unwrap_or((&case.name, ""));
    let product = ["MUL_MAT", "MUL_MAT_ID"].contains(&operation);
    let fused = case.group.is_some_and(|group| ["products", "experts"].contains(&group));
    !fused && (!product || TYPES.iter().any(|name| operands.starts_with(name)))
}

/// Returns the work for a device: its own class in two halves, then the forced classes. Every second forced
/// class runs its cases in reverse order, so that pipelines common to two classes are compiled by one and
/// found in the driver's cache by the other.
fn work(device: usize, all: &[Judged]) -> Vec<(VulkanBackend, Vec<&Judged>)> {
    let all: Vec<&Judged> = all.iter().collect();
    let (first, second) = all.split_at(all.len() / 2);
    let mut classes = backends(device).into_iter();
    let own = classes.next().into_iter().map(|own| (own, first.to_vec()));
    let mut work: Vec<(VulkanBackend, Vec<&Judged>)> = own.collect();
    work.push((open(device, None), second.to_vec()));
    for (i, class) in classes.enumerate() {
        let mut cases: Vec<&Judged> = all.iter().copied().filter(|judged| is_usual(&judged.case)).collect();
        if i % 2 == 1 {
            cases.reverse();
        }
        work.push((class, cases));
    }
    work
}

/// Returns the failures of a class and prints a summary.
fn failures_of((backend, cases): &(VulkanBackend, Vec<&Judged>)) -> Vec<String> {
    let start = Instant::now();
    let found = failures(backend, cases);
    let info = backend.device();
    println!(
        "{} {} as {}: {} cases, {} failures, {:.1} s, {:?}",
        info.backend,
        info.name,
        info.arch,
        2 * cases.len(),
        found.len(),
        start.elapsed().as_secs_f64(),
        backend.stats()
    );
    found
}

/// Runs the classes in parallel, as many as there are CPUs: a software device compiles a shader when it first
/// runs, in the single thread of its queue, and that dominates the time.
#[test]
fn catalogue_agrees_with_the_reference() {
    let all = judged(agreement::cases());
    let work: Vec<_> = devices().into_iter().flat_map(|device| work(device, &all)).collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                while let Some(part) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = failures_of(part);
                    wrong.lock().expect("no thread panics").extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no thread panics");
    assert!(wrong.is_empty(), "{} failures:\n{}", wrong.len(), wrong.join("\n"));
}
