//! Allocation and transfers.

use super::fake::{Fake, Fault};
use super::fake_kernels::FakeKernels;
use super::{open, options, pair};
use crate::HipBackend;
use crate::driver::codes::Call;
use crate::driver::{Coherence, Driver};
use crate::options::HipOptions;
use ggml_core::Error;
use ggml_core::backend::{Backend, Slice, Usage};
use ggml_core::sync::lock;
use std::sync::Arc;

#[test]
fn one_allocation_is_one_allocation() {
    let (fake, backend) = pair(options());
    let before = backend.stats();
    assert_eq!(before.driver_allocations, 1, "the ring");
    for usage in [Usage::Weights, Usage::Compute, Usage::State, Usage::Staging] {
        let calls = fake.count(Call::Allocate) + fake.count(Call::AllocateHost);
        let buffer = backend.allocate(12345, usage).unwrap();
        assert_eq!(fake.count(Call::Allocate) + fake.count(Call::AllocateHost), calls + 1);
        assert_eq!(buffer.bytes(), 12345);
    }
    assert_eq!(backend.stats().driver_allocations, before.driver_allocations + 4);
    // A transfer allocates nothing.
    let buffer = backend.allocate(100_000, Usage::Weights).unwrap();
    let allocations = backend.stats().driver_allocations;
    backend.upload(&buffer, 0, &vec![1; 100_000]).unwrap();
    backend.download(&buffer, 0, &mut vec![0; 100_000]).unwrap();
    assert_eq!(backend.stats().driver_allocations, allocations);
    assert_eq!(backend.stats().uploaded_bytes, 100_000);
    let held = backend.stats().allocated_bytes;
    drop(buffer);
    // The next call runs after the free.
    let _next = backend.allocate(1, Usage::Weights).unwrap();
    assert_eq!(backend.stats().allocated_bytes, held - 100_000 + 1);
}

/// Sizes around a slot of the ring (4,096 bytes) and around the whole ring, at odd offsets.
#[test]
fn bytes_come_back() {
    let (_, backend) = pair(options());
    let buffer = backend.allocate(100_000, Usage::Compute).unwrap();
    for (offset, size) in
        [(0, 0), (7, 1), (0, 4095), (1, 4096), (3, 4097), (11, 16384), (13, 16385), (1, 99_999)]
    {
        let data: Vec<u8> = (0..size).map(|i| (i * 7 + i / 251 + offset) as u8).collect();
        backend.upload(&buffer, offset, &data).unwrap();
        let mut back = vec![0; size];
        backend.download(&buffer, offset, &mut back).unwrap();
        assert!(back == data, "{size} bytes at {offset}");
    }
    for (offset, size) in [(100_000, 1), (usize::MAX, 2), (0, 100_001)] {
        assert!(matches!(
            backend.upload(&buffer, offset, &vec![0; size]),
            Err(Error::InvalidArgument { .. })
        ));
        assert!(backend.download(&buffer, offset, &mut vec![0; size]).is_err());
    }
}

#[test]
fn state_is_zero_and_other_memory_is_not() {
    let (_, backend) = pair(options());
    for (usage, byte) in [(Usage::State, 0), (Usage::Weights, 0xff), (Usage::Compute, 0xff)] {
        let buffer = backend.allocate(5000, usage).unwrap();
        let mut bytes = vec![1; 5000];
        backend.download(&buffer, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&b| b == byte), "{usage:?}");
    }
}

#[test]
fn copies_between_buffers() {
    let (_, backend) = pair(options());
    let (a, b) =
        (backend.allocate(1000, Usage::Weights).unwrap(), backend.allocate(1000, Usage::Staging).unwrap());
    let data: Vec<u8> = (0..100).collect();
    backend.upload(&a, 10, &data).unwrap();
    let slice = |buffer: &ggml_core::backend::Buffer, offset| Slice { buffer: buffer.clone(), offset };
    backend.copy(&slice(&a, 10), &slice(&b, 500), 100).unwrap();
    backend.copy(&slice(&b, 500), &slice(&a, 200), 100).unwrap();
    let mut back = vec![0; 100];
    backend.download(&a, 200, &mut back).unwrap();
    assert_eq!(back, data);
    assert!(backend.copy(&slice(&a, 0), &slice(&a, 50), 100).is_err(), "overlap");
    assert!(backend.copy(&slice(&a, 950), &slice(&b, 0), 100).is_err(), "outside");
}

#[test]
fn buffers_of_another_backend_are_refused() {
    let (fake, backend) = pair(options());
    let other = open(&fake, options()).unwrap();
    let buffer = other.allocate(100, Usage::Weights).unwrap();
    let error = backend.upload(&buffer, 0, &[1]).unwrap_err();
    assert!(error.to_string().contains("another backend"), "{error}");
}

#[test]
fn out_of_memory_says_how_much_there_is() {
    let (fake, backend) = pair(options());
    let _half = backend.allocate(1 << 29, Usage::Weights).unwrap();
    let error = backend.allocate((1 << 29) + 1, Usage::Weights).unwrap_err();
    match error {
        Error::OutOfMemory { asked, free, .. } => assert_eq!((asked, free), ((1 << 29) + 1, Some(1 << 29))),
        other => panic!("{other}"),
    }
    // More than any memory: the driver is not called.
    let calls = fake.count(Call::Allocate);
    assert!(matches!(backend.allocate(usize::MAX, Usage::Weights), Err(Error::OutOfMemory { .. })));
    assert_eq!(fake.count(Call::Allocate), calls);
    // Allocations work again after a failure.
    fake.fault(Call::AllocateHost, 0, Fault::Fail(2));
    assert!(matches!(backend.allocate(10, Usage::Staging), Err(Error::OutOfMemory { .. })));
    backend.allocate(10, Usage::Staging).unwrap();
}

/// Uploads from several threads share the ring.
#[test]
fn transfers_of_several_threads() {
    let (_, backend) = pair(options());
    std::thread::scope(|scope| {
        for t in 0..4u8 {
            let backend = &backend;
            scope.spawn(move || {
                let buffer = backend.allocate(30_000, Usage::Weights).unwrap();
                for round in 0..10 {
                    let data = vec![t * 16 + round; 30_000];
                    backend.upload(&buffer, 0, &data).unwrap();
                    let mut back = vec![0; 30_000];
                    backend.download(&buffer, 0, &mut back).unwrap();
                    assert!(back == data);
                }
            });
        }
    });
}

/// Weights of an integrated device lie in host memory; its caches keep them only if the route is used.
#[test]
fn weights_in_host_memory_are_cached_after_a_verdict() {
    for (text, expected) in [
        ("verified", Coherence::Always),
        ("verified,+hip.cached-weights", Coherence::AtLaunches),
        ("verified,+hip.cached-weights,-hip.host-weights", Coherence::Always),
    ] {
        let fake = Arc::new(Fake::default());
        lock(&fake.properties).integrated = true;
        let driver: Arc<dyn Driver> = fake.clone();
        let options = HipOptions { routes: Some(text.parse().unwrap()), ..options() };
        let kernels = FakeKernels { targets: Vec::new(), ..FakeKernels::default() };
        let backend =
            HipBackend::open_with("hip", options, Box::new(move |_| Ok(driver)), Arc::new(kernels)).unwrap();
        let buffer = backend.allocate(1000, Usage::Weights).unwrap();
        assert_eq!(fake.last_host_memory(), Some(expected), "{text}");
        backend.upload(&buffer, 0, &[7; 1000]).unwrap();
        // Whatever holds other things is coherent.
        drop(backend.allocate(1000, Usage::Staging).unwrap());
        assert_eq!(fake.last_host_memory(), Some(Coherence::Always), "{text}");
    }
}
