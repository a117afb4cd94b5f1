//! Kernels compiled at run time, through a fake hiprtc that a C compiler builds here and that returns the
//! built-in code objects: the whole path from the search for the library to the driver's module, without
//! ROCm.
#![cfg(unix)]

use super::fake::Fake;
use super::{SHORT, SOON, options};
use crate::HipBackend;
use crate::code::kernels::Embedded;
use crate::code::rtc::Compiled;
use crate::driver::Driver;
use crate::options::{HipOptions, RtcMode};
use crate::virtual_gpu::{VirtualDriver, VirtualOptions};
use ggml_core::backend::{Backend, Bindings, PrepareOptions};
use ggml_core::catalogue::{self, Outcome};
use ggml_core::phase::Deadlines;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Error, Graph, Missing, Phase, Source};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use tempfile::TempDir;

/// Target of the code objects, which the fake device reports.
const TARGET: &str = "gfx906";

/// System with hiprtc.
struct System {
    root: TempDir,
}

impl System {
    /// Creates the system; `None` with a message if a prerequisite of the tests is missing. The library's
    /// name is its path.
    fn new(library: &str) -> Option<System> {
        if !hip_kernels::targets().contains(&TARGET) {
            eprintln!("skipped: no code object for {TARGET} was built in");
            return None;
        }
        let system = System { root: tempfile::tempdir().unwrap() };
        fs::create_dir_all(system.code()).unwrap();
        let library = system.root.path().join(library);
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/hiprtc.c");
        let output = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(format!("-DCODE=\"{}\"", system.code().display()))
            .arg(source)
            .output();
        let Ok(output) = output else {
            eprintln!("skipped: no C compiler");
            return None;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for &stem in hip_kernels::stems() {
            system.put(stem, hip_kernels::code_object(TARGET, stem).unwrap());
        }
        Some(system)
    }

    fn code(&self) -> PathBuf {
        self.root.path().join("code")
    }

    fn put(&self, stem: &str, image: &[u8]) {
        fs::write(self.code().join(format!("{stem}.co")), image).unwrap();
    }

    /// Gives the library another file name, under which the process stores its code objects.
    fn rename(&self, library: &str, name: &str) {
        let link = self.root.path().join(library);
        let real = link.with_file_name(name);
        fs::rename(&link, &real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
    }

    /// Returns the compilations since the last call.
    fn calls(&self) -> Vec<String> {
        let path = self.code().join("calls");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(path);
        text.lines().map(String::from).collect()
    }

    fn options(&self) -> HipOptions {
        HipOptions {
            system_root: self.root.path().into(),
            cache_dir: Some(self.root.path().join("cache")),
            rtc: RtcMode::Force,
            ..options()
        }
    }
}

fn open(options: HipOptions) -> Result<HipBackend, Error> {
    let driver: Arc<dyn Driver> = Arc::new(Fake::default());
    HipBackend::open_with("hip", options, Box::new(move |_| Ok(driver)), Arc::new(Embedded))
}

fn reason(error: Error, phase: Phase) -> String {
    match error {
        Error::Unavailable { missing: Missing::Feature, phase: p, reason, .. } if p == phase => reason,
        other => panic!("{other}"),
    }
}

fn version(backend: &HipBackend, name: &str) -> String {
    let versions = &backend.device().versions;
    versions.iter().find(|(n, _)| n == name).map_or(String::new(), |(_, text)| text.clone())
}

/// A compiler with another wavefront size (`HIPRTC_COMPILE_OPTIONS_APPEND`) is detected before a launch.
#[test]
fn wavefronts_of_another_size() {
    let Some(system) = System::new(LIBRARY) else { return };
    system.rename(LIBRARY, "libhiprtc.so.7.waves");
    let stem = hip_kernels::stems()[0];
    let mut image = hip_kernels::code_object(TARGET, stem).unwrap().to_vec();
    let key = b".wavefront_size";
    let at = image.windows(key.len()).position(|bytes| bytes == key).unwrap() + key.len();
    assert_eq!(std::mem::replace(&mut image[at], 32), 64);
    system.put(stem, &image);
    let why = reason(open(system.options()).unwrap_err(), Phase::Compile);
    assert!(why.contains(&format!("{stem}.hip was not compiled")), "{why}");
    assert!(why.contains("for wavefronts of 32 threads"), "{why}");
}

/// The runtime's major version is 7, so it needs the hiprtc of 7.
const LIBRARY: &str = "opt/rocm/lib/libhiprtc.so.7";

/// Code is compiled once, then reused within the process; a changed file on disk is rejected.
#[test]
fn compiled_once() {
    let Some(system) = System::new(LIBRARY) else { return };
    let backend = open(system.options()).unwrap();
    let calls = system.calls();
    let stems = hip_kernels::stems().len();
    assert_eq!(calls.len(), stems);
    let headers = hip_kernels::sources().iter().filter(|(name, _)| name.ends_with(".h")).count();
    for (call, stem) in calls.iter().zip(hip_kernels::stems()) {
        let options = hip_kernels::OPTIONS.join(" ");
        assert_eq!(*call, format!("{stem}.hip {options} --offload-arch={TARGET} headers={headers}"));
    }
    assert_eq!(version(&backend, "code objects kept"), format!("0 of {stems}"));
    assert!(version(&backend, "code objects").starts_with("gfx906 by hiprtc 9.1 of "));
    assert_eq!(version(&backend, "kernel compiler"), "", "it compiled nothing that is used");
    let files = fs::read_dir(system.root.path().join("cache")).unwrap().count();
    assert_eq!(files, stems);

    // Compiled code reaches the driver, which refuses it as unknown.
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [64, 1, 1, 1], Source::Input).unwrap();
    let y = g.scale(x, 2.0, 0.0).unwrap();
    g.output(y).unwrap();
    assert_eq!(backend.supports(&g, y), ggml_core::backend::Support::Native);
    let plan = Plan::new(&g, 256, Precision::Exact).unwrap();
    match backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default()).err().unwrap() {
        Error::Driver { call, code, phase, .. } => {
            assert_eq!((call, code, phase), ("hipModuleLoadData", 200, Phase::Compile));
        }
        other => panic!("{other}"),
    }
    let again = open(system.options()).unwrap();
    assert!(system.calls().is_empty());
    assert_eq!(version(&again, "code objects kept"), format!("{stems} of {stems}"));
}

/// The emulated device executes the compiled code.
#[cfg(feature = "virtual")]
#[test]
fn compiled_code_runs() {
    let Some(system) = System::new(LIBRARY) else { return };
    system.rename(LIBRARY, "libhiprtc.so.7.4.4");
    let backend = crate::virtual_gpu::open(TARGET, system.options()).unwrap();
    assert_eq!(system.calls().len(), hip_kernels::stems().len());
    let mut g = Graph::new();
    let x = g.leaf("x", DType::F32, [64, 1, 1, 1], Source::Input).unwrap();
    let y = g.scale(x, 2.0, 1.0).unwrap();
    g.output(y).unwrap();
    let plan = Plan::new(&g, 256, Precision::Exact).unwrap();
    let mut program = backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default()).unwrap();
    let input: Vec<f32> = (0..64).map(|i| i as f32).collect();
    program.write(x, bytemuck::cast_slice(&input)).unwrap();
    program.run().unwrap();
    let mut output = vec![0f32; 64];
    program.read(y, bytemuck::cast_slice_mut(&mut output)).unwrap();
    assert!(output.iter().zip(&input).all(|(y, x)| *y == x * 2.0 + 1.0), "{output:?}");
}

/// Code that an earlier process stored on disk is used; a file that is broken or contains another target's
/// code is not.
#[test]
fn kept_on_disk() {
    let Some(system) = System::new(LIBRARY) else { return };
    system.rename(LIBRARY, "libhiprtc.so.7.5.5");
    let options = system.options();
    let runtime = crate::code::rtc::Runtime { library: None, major: Some(7) };
    let device = crate::arch::Target::parse("gfx906:sramecc+:xnack-").unwrap();
    let job = crate::code::rtc::Job::new(&options, &runtime, &device).unwrap();
    let cache = crate::code::rtc::cache::Cache::new(options.cache_dir.clone());
    let [kept, broken, foreign, ..] = hip_kernels::stems() else { panic!("three families") };
    cache.put(&job.key(kept), hip_kernels::code_object(TARGET, kept).unwrap());
    cache.put(&job.key(broken), b"no code object");
    if let Some(image) = hip_kernels::code_object("gfx900", foreign) {
        cache.put(&job.key(foreign), image);
    }
    let backend = open(options).unwrap();
    let compiled: Vec<String> = system.calls().iter().map(|c| c.split('.').next().unwrap().into()).collect();
    let wanted: Vec<&str> = hip_kernels::stems().iter().copied().filter(|stem| stem != kept).collect();
    assert_eq!(compiled, wanted);
    assert_eq!(version(&backend, "code objects kept"), format!("1 of {}", hip_kernels::stems().len()));
    // Both were replaced.
    for stem in [broken, foreign] {
        let image = cache.get(&job.key(stem)).unwrap();
        assert!(image == hip_kernels::code_object(TARGET, stem).unwrap());
    }
}

#[test]
fn not_compiled_unless_it_has_to_be() {
    let Some(system) = System::new(LIBRARY) else { return };
    for rtc in [RtcMode::Auto, RtcMode::Off] {
        let backend = crate::virtual_gpu::open(TARGET, HipOptions { rtc, ..system.options() }).unwrap();
        assert!(system.calls().is_empty());
        assert_eq!(version(&backend, "code objects"), TARGET);
        assert_eq!(version(&backend, "code objects refused"), "");
    }
}

/// A runtime that refuses the built-in code gets code of its own compiler; the fake device refuses all code.
/// Without a compiler the device opens as well, and reports say both.
#[test]
fn compiled_if_the_runtime_refuses_the_built_in_code() {
    let Some(system) = System::new(LIBRARY) else { return };
    system.rename(LIBRARY, "libhiprtc.so.7.6.6");
    let auto = HipOptions { rtc: RtcMode::Auto, ..system.options() };
    let backend = open(auto.clone()).unwrap();
    assert_eq!(system.calls().len(), hip_kernels::stems().len());
    assert!(version(&backend, "code objects").starts_with("gfx906 by hiprtc 9.1 of "));
    assert_eq!(version(&backend, "code objects refused"), "hipErrorInvalidImage (200)");

    let backend = open(HipOptions { rtc: RtcMode::Off, ..auto.clone() }).unwrap();
    assert_eq!(version(&backend, "code objects refused"), "", "it was not asked");

    let empty = tempfile::tempdir().unwrap();
    let backend = open(HipOptions { system_root: empty.path().into(), ..auto }).unwrap();
    assert_eq!(version(&backend, "code objects"), TARGET);
    let refused = version(&backend, "code objects refused");
    assert!(refused.starts_with("hipErrorInvalidImage (200); at run time: libhiprtc was not "), "{refused}");
}

/// Releases before 7.0 have the functions in libamdhip64, whose path the driver reports.
#[test]
fn the_runtime_itself() {
    let Some(system) = System::new("lib/libamdhip64.so.6") else { return };
    let library = Some(system.root.path().join("lib/libamdhip64.so.6"));
    let runtime = crate::code::rtc::Runtime { library, major: Some(6) };
    let rtc = crate::code::rtc::Rtc::load(&system.options(), &runtime).unwrap();
    assert!(rtc.describe().contains("hiprtc 9.1 of ") && rtc.describe().ends_with("libamdhip64.so.6"));
    let none =
        crate::code::rtc::Runtime { library: Some("/nowhere/libamdhip64.so.6".into()), major: Some(6) };
    let why = crate::code::rtc::Rtc::load(&system.options(), &none).unwrap_err();
    assert!(why.contains("/nowhere/libamdhip64.so.6 itself: "), "{why}");
}

/// Each release has its own compiler, also those after the ones that are known.
#[test]
fn the_compiler_of_the_runtimes_release() {
    let library = "opt/rocm/lib/libhiprtc.so.10";
    let Some(system) = System::new(library) else { return };
    let newer = system.root.path().join(library);
    fs::copy(&newer, newer.with_file_name("libhiprtc.so.7")).unwrap();
    for major in [7, 10] {
        let runtime = crate::code::rtc::Runtime { library: None, major: Some(major) };
        let found = crate::code::rtc::Rtc::load(&system.options(), &runtime).unwrap().describe();
        assert!(found.ends_with(&format!("/libhiprtc.so.{major}")), "{major}: {found}");
    }
}

/// A compiler's error, code for another processor, and data that is no code object are errors with the phase.
#[test]
fn what_cannot_be_used() {
    let Some(system) = System::new(LIBRARY) else { return };
    let stem = hip_kernels::stems()[0];
    let fails = |part: &str| {
        let why =
            reason(open(HipOptions { cache_dir: None, ..system.options() }).unwrap_err(), Phase::Compile);
        assert!(why.contains(part) && why.contains("gfx906 by hiprtc 9.1"), "{part}: {why}");
    };
    system.rename(LIBRARY, "libhiprtc.so.7.9.9");
    fs::remove_file(system.code().join(format!("{stem}.co"))).unwrap();
    fails(&format!("{stem}.hip:7:1: error: no code for this one"));
    system.put(stem, b"no code object");
    fails("the compiled code object is no 64-bit little-endian ELF file");
    if let Some(image) = hip_kernels::code_object("gfx900", stem) {
        system.put(stem, image);
        fails("the compiled code object is for gfx900");
    }
}

#[test]
fn a_compiler_that_never_ends() {
    let Some(system) = System::new(LIBRARY) else { return };
    system.rename(LIBRARY, "libhiprtc.so.7.8.8");
    fs::write(system.code().join("hang"), "").unwrap();
    let start = Instant::now();
    let deadlines = Deadlines { prepare: SHORT, ..Deadlines::all(SOON) };
    let error = open(HipOptions { deadlines, cache_dir: None, ..system.options() }).unwrap_err();
    assert!(matches!(error, Error::Timeout { phase: Phase::Compile, after: SHORT, .. }), "{error}");
    assert!(start.elapsed() < SOON);
    fs::remove_file(system.code().join("hang")).unwrap();
}

/// Without hiprtc the error lists the built-in targets and the paths that were searched for hiprtc.
#[test]
fn no_compiler() {
    let root = tempfile::tempdir().unwrap();
    let none = HipOptions { system_root: root.path().into(), rtc: RtcMode::Force, ..options() };
    let why = reason(open(none.clone()).unwrap_err(), Phase::OpenDevice);
    assert!(why.contains("libhiprtc was not loaded: ") && why.contains("opt/rocm/lib"), "{why}");
    let driver: Arc<dyn Driver> = Arc::new(Fake::default());
    let set = super::fake_kernels::FakeKernels { targets: vec!["gfx900", "gfx1100"], ..Default::default() };
    let auto = HipOptions { rtc: RtcMode::Auto, ..none };
    let error = HipBackend::open_with("hip", auto, Box::new(move |_| Ok(driver)), Arc::new(set)).unwrap_err();
    let why = reason(error, Phase::OpenDevice);
    for part in
        ["built in: gfx900, gfx1100", "at run time: libhiprtc was not loaded", "directory of libamdhip64"]
    {
        assert!(why.contains(part), "{part}: {why}");
    }
}

/// Tests the hiprtc of this machine, if there is one (DIPTYCH_HIP_LIBRARY names a libamdhip64 that contains
/// it or has it in the same directory; no card is needed): every family compiles, its kernels declare the
/// arguments that are passed, and the emulated device computes the reference's results with them.
#[test]
fn the_hiprtc_of_this_machine() {
    let here = HipOptions::from_env().unwrap();
    let Ok(amd) = crate::provider::amd::Amd::load(&here) else {
        eprintln!("skipped: no libamdhip64");
        return;
    };
    let runtime = crate::code::rtc::Runtime::of(&amd);
    let device = crate::arch::Target::parse(TARGET).unwrap();
    let quiet = HipOptions { cache_dir: None, ..here };
    let job = match crate::code::rtc::Job::new(&quiet, &runtime, &device) {
        Ok(job) => job,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    let mut objects = BTreeMap::new();
    for &stem in hip_kernels::stems() {
        let start = Instant::now();
        let (image, _) = job.object(stem).unwrap_or_else(|why| panic!("{stem}: {why}"));
        let object = crate::code::elf::read(image).unwrap();
        eprintln!("{stem}: {} kernels, {:.1} s", object.kernels.len(), start.elapsed().as_secs_f64());
        objects.insert(stem, image);
        let Some(built) = hip_kernels::code_object(TARGET, stem) else { continue };
        for kernel in crate::code::elf::read(built).unwrap().kernels {
            let same = object.kernels.iter().find(|k| k.name == kernel.name).unwrap();
            assert_eq!(same.arguments, kernel.arguments, "{}", kernel.name);
            assert_eq!(same.max_threads, kernel.max_threads, "{}", kernel.name);
        }
    }
    let set = Compiled::new(Arc::new(Embedded), &job, objects);
    let driver = VirtualDriver::new(VirtualOptions::new(virtual_gpu::Target::Gfx906));
    let driver: Arc<dyn Driver> = Arc::new(driver);
    let backend =
        HipBackend::open_with("hip-virtual", options(), Box::new(move |_| Ok(driver)), Arc::new(set))
            .unwrap();
    let reference = ReferenceBackend::default();
    // A sample of the operations.
    for case in catalogue::cases().iter().step_by(13) {
        let Outcome::Values(right) = catalogue::run(case, &reference, Precision::Exact).unwrap() else {
            panic!("the reference refuses nothing");
        };
        assert_eq!(catalogue::fault(case, &backend, Precision::Fast, &right), None);
    }
}
