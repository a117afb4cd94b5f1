//! Incidents that users had, played by an emulated device.

mod common;

use backend_hip::virtual_gpu::{Faults, Target, VirtualOptions, open_with};
use backend_hip::{HipBackend, HipOptions};
use common::{file, tiny};
use diptych::ggml::backend::{Backend, Usage};
use diptych::ggml::phase::Deadlines;
use diptych::{DType, Error, Model, SessionOptions};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A device on which the allocation after `n` small ones never returns.
fn device(n: usize, limit: Duration) -> (HipBackend, Faults) {
    let faults = Faults::default().hang_after_small_allocations(n);
    let device = VirtualOptions { faults: faults.clone(), ..VirtualOptions::new(Target::Gfx906) };
    let options = HipOptions { deadlines: Deadlines::all(limit), ..HipOptions::default() };
    (open_with(device, options).expect("the device opens"), faults)
}

/// RX 7900 XT, ROCm 7.1: 24 allocations of 7 MB are fine, then one of many of 3,584 bytes never returns. A loader that
/// allocates for each tensor learns of it in time; this library's own makes few allocations and does not meet it.
#[test]
fn many_small_allocations_hang() {
    let limit = Duration::from_millis(800);
    let (backend, faults) = device(40, limit);
    let mut held = Vec::new();
    for _ in 0..24 {
        held.push(backend.allocate(7 << 20, Usage::State).expect("large allocations work"));
    }
    let start = Instant::now();
    let error = loop {
        assert!(held.len() < 1000, "the fault never came");
        match backend.allocate(3584, Usage::Weights) {
            Ok(buffer) => held.push(buffer),
            Err(error) => break error,
        }
    };
    match &error {
        Error::Timeout { phase, after, .. } => {
            assert_eq!((phase.name(), *after), ("allocate", limit), "{error}");
        }
        other => panic!("{other}"),
    }
    assert!(start.elapsed() < Duration::from_secs(30) && held.len() >= 24 + 20, "{}", held.len());
    faults.release();

    let (backend, faults) = device(8, Duration::from_secs(60));
    let backend: Arc<dyn Backend> = Arc::new(backend);
    let model =
        Model::from_file(file(&tiny("qwen3", DType::Q8_0)), backend.clone()).expect("the model loads");
    assert!(model.file().gguf().tensors().len() > 20, "more tensors than allocations");
    assert!(backend.stats().driver_allocations <= 8, "{:?}", backend.stats());
    let mut session =
        model.session(&SessionOptions { context: Some(64), ..SessionOptions::default() }).expect("state");
    session.prefill(&[1, 2, 3, 4, 5]).expect("a prompt");
    session.decode(6).expect("a token");
    faults.release();
}
