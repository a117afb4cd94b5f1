//! Checks that the validation layers, with synchronisation validation, report no message.
//!
//! A unit test of the crate, where a barrier can be omitted on purpose, checks that the layer reports errors.

use crate::common;

use backend_vulkan::{VulkanBackend, VulkanOptions};
use common::{Layer, open, options};
use ggml_core::Error;
use ggml_core::backend::{Backend, PrepareOptions, Slice, Usage};
use ggml_core::catalogue::{self, Outcome};
use ggml_core::mapped::MappedBytes;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;

fn validated(options: VulkanOptions) -> Option<VulkanBackend> {
    open(VulkanOptions { validation: true, ..options })
}

fn silent(backend: &VulkanBackend) {
    let messages = backend.validation_messages();
    assert!(messages.is_empty(), "{} messages:\n{}", messages.len(), messages.join("\n\n"));
}

#[test]
fn every_operation_is_silent() {
    let Some(backend) = validated(options()) else { return };
    for case in catalogue::cases() {
        // The conformance test checks the results.
        let outcome = catalogue::run(&case, &backend, Precision::Fast);
        assert!(
            matches!(outcome, Ok(Outcome::Values(_) | Outcome::Unsupported(_))),
            "{}: {outcome:?}",
            case.name
        );
    }
    silent(&backend);
}

#[test]
fn programs_of_every_kind_are_silent() {
    let pieces = VulkanOptions { submission_budget: std::time::Duration::from_nanos(1), ..options() };
    let kinds = [
        options(),
        VulkanOptions { force_staging: true, ..options() },
        VulkanOptions { force_staging: true, breadcrumbs: true, poison: true, ..options() },
        VulkanOptions { breadcrumbs: true, ..pieces },
    ];
    for kind in kinds {
        let Some(backend) = validated(kind) else { return };
        let layer = Layer::new(3);
        let bindings = layer.bind(&backend);
        let mut program = layer.program(&backend, &bindings);
        for at in 0..4 {
            layer.run(&mut *program, at);
        }
        let plan =
            Plan::debug(&layer.graph, backend.device().limits.alignment, Precision::Fast).expect("a plan");
        let stepwise = PrepareOptions::STEPWISE;
        let mut steps = backend.prepare(&layer.graph, &plan, &bindings, stepwise).expect("a program");
        layer.write(&mut *steps, 5);
        for step in 0..plan.steps.len() {
            steps.run_step(step).expect("a step");
        }
        steps.run().expect("all steps");
        layer.output(&mut *steps);
        silent(&backend);
    }
}

#[test]
fn imported_maps_are_silent() {
    let Some(backend) = validated(options()) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("weights");
    std::fs::write(&path, vec![1; 10_000]).expect("a file");
    let map = MappedBytes::map(&path).expect("a map").slice(4000..9000).expect("a part");
    if let Some(buffer) = backend.import(map).expect("no error") {
        let mut back = vec![0; 5000];
        backend.download(&buffer, 0, &mut back).expect("download");
        assert!(back.iter().all(|&b| b == 1));
    }
    silent(&backend);
}

#[test]
fn transfers_are_silent() {
    for force_staging in [false, true] {
        let Some(backend) = validated(VulkanOptions { force_staging, ..options() }) else { return };
        let a = backend.allocate(5 << 20, Usage::State).expect("memory");
        let b = backend.allocate(5 << 20, Usage::Compute).expect("memory");
        let mut data = vec![3; 5 << 20];
        backend.upload(&a, 0, &data).expect("upload");
        let slice = |buffer: &ggml_core::backend::Buffer| Slice { buffer: buffer.clone(), offset: 0 };
        backend.copy(&slice(&a), &slice(&b), data.len()).expect("copy");
        backend.download(&b, 0, &mut data).expect("download");
        assert!(data.iter().all(|&x| x == 3));
        silent(&backend);
    }
}

/// Memory for another driver: allocated, filled, handed over and taken back with everything in it.
#[test]
fn exported_memory_changes_hands() {
    let Some(backend) = validated(options()) else { return };
    let (buffer, exported) = match backend.allocate_exported(100_000, Usage::State) {
        Ok(made) => made,
        Err(Error::Unavailable { reason, .. }) => return eprintln!("skipped: {reason}"),
        Err(error) => panic!("{error}"),
    };
    assert!(exported.bytes() >= 100_000);
    let data: Vec<u8> = (0..1000u32).map(|i| (i % 251) as u8).collect();
    backend.upload(&buffer, 5000, &data).unwrap();
    let (later, _file) = backend.allocate_exported(64, Usage::Compute).unwrap();
    for _ in 0..2 {
        backend.hand_over().unwrap();
        // Made while the other driver holds the rest.
        let (new, _) = backend.allocate_exported(64, Usage::State).unwrap();
        backend.take_over().unwrap();
        backend.upload(&new, 0, &[1; 64]).unwrap();
    }
    let mut read = vec![0; 1004];
    backend.download(&buffer, 4998, &mut read).unwrap();
    assert_eq!((&read[..2], &read[2..1002], &read[1002..]), (&[0; 2][..], &data[..], &[0; 2][..]));
    let held = backend.stats().allocated_bytes;
    drop((buffer, later));
    assert!(backend.stats().allocated_bytes <= held - 100_000, "freed, though a descriptor is left");
    silent(&backend);
}
