//! Kernels that are text: several threads load those of a program, each once.

use super::fake::{Fake, Libraries};
use super::fake_kernels::FakeKernels;
use super::programs::{bind, read, sample, write};
use super::{SOON, options, short};
use crate::HipBackend;
use crate::driver::Driver;
use crate::driver::codes::Call;
use crate::options::HipOptions;
use ggml_core::backend::{Backend, PrepareOptions};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::{Error, Phase};
use std::sync::Arc;
use std::time::Instant;

/// Returns a driver that loads libraries, and a backend over it.
fn pair(libraries: Libraries, options: HipOptions) -> (Arc<Fake>, HipBackend) {
    let fake = Arc::new(Fake::nvidia(libraries));
    let kernels = FakeKernels { targets: vec!["sm_90"], is_text: true };
    let driver: Arc<dyn Driver> = fake.clone();
    let backend = HipBackend::open_with("hip", options, Box::new(move |_| Ok(driver)), Arc::new(kernels));
    (fake, backend.unwrap())
}

/// Prepares the sample `times` times, and checks what each program computes.
fn run(backend: &HipBackend, times: usize) {
    let s = sample();
    let bindings = bind(backend, &s);
    let plan = Plan::new(&s.graph, 256, Precision::Exact).unwrap();
    for _ in 0..times {
        let mut program = backend.prepare(&s.graph, &plan, &bindings, PrepareOptions::default()).unwrap();
        write(&mut *program, s.x, &[3.0; 64]);
        program.run().unwrap();
        assert_eq!(read(&mut *program, s.sum, 64), [7.5; 64]);
    }
}

/// Kernels of the sample.
const KERNELS: [&str; 4] = ["add", "double", "halve", "scale"];

#[test]
fn each_kernel_is_loaded_once_and_alone() {
    let (fake, backend) = pair(Libraries::Load, options());
    run(&backend, 3);
    assert_eq!(fake.libraries(), (KERNELS.map(String::from).into(), 4));
    assert_eq!((backend.stats().pipelines, fake.count(Call::LoadModule)), (4, 0));
    drop(backend);
    assert_eq!(fake.libraries().1, 0, "libraries are unloaded with the session");
}

/// The session loads the text, and learns why that fails if it does.
#[test]
fn a_text_whose_library_fails_is_loaded() {
    let (fake, backend) = pair(Libraries::Fail, options());
    run(&backend, 2);
    assert_eq!(fake.libraries(), (KERNELS.map(String::from).into(), 0), "tried once");
    assert_eq!(fake.count(Call::LoadModule), 4);
}

/// A compiler that hangs is an error of its phase, and the device stays usable.
#[test]
fn a_compiler_that_hangs_is_left() {
    let (fake, backend) = pair(Libraries::Hang, short());
    let s = sample();
    let bindings = bind(&backend, &s);
    let plan = Plan::new(&s.graph, 256, Precision::Exact).unwrap();
    let start = Instant::now();
    match backend.prepare(&s.graph, &plan, &bindings, PrepareOptions::default()).err().unwrap() {
        Error::Timeout { phase: Phase::Compile, node: Some(_), .. } => {}
        other => panic!("{other}"),
    }
    assert!(start.elapsed() < SOON);
    fake.release();
    run(&backend, 1);
    assert_eq!(fake.libraries(), (KERNELS.map(String::from).into(), 4), "none was loaded twice");
}
