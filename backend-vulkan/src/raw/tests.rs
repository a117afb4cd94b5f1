//! Tests of the owned types together, on a device with the validation layer.

use super::buffer::Buffer;
use super::commands::{CommandPool, Scope};
use super::device::{Device, Purpose};
use super::heaps::Side;
use super::instance::Instance;
use super::memory::MemoryPool;
use super::physical::Facts;
use super::provider::Provider;
use crate::options::MemoryBudget;
use ash::vk;
use ggml_core::sync::lock;
use ggml_core::{Deadline, Error, Phase, Result};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Returns the best device, with the validation layer; `None` with a message if there is no device.
fn device() -> Option<Arc<Device>> {
    let open = || {
        let instance = Instance::new(Provider::Loader, true)?;
        let all = instance.physical_devices()?.into_iter().map(|p| (p, Facts::of(&instance, p)));
        let best = all.min_by_key(|(_, facts)| facts.kind);
        best.map(|(physical, facts)| {
            Device::open(&instance, physical, facts, "vulkan".into(), Purpose::Compute)
        })
        .transpose()
    };
    match open() {
        Ok(device) => device,
        Err(Error::Unavailable { reason, .. }) => {
            eprintln!("skipped: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn memory(device: &Arc<Device>) -> Arc<MemoryPool> {
    MemoryPool::new(device, MemoryBudget::Reported).unwrap()
}

fn deadline() -> Deadline {
    Deadline::new(Phase::Compute, Duration::from_secs(60))
}

fn fill_twice(device: &Arc<Device>, barrier: bool) -> Vec<String> {
    let buffer = Buffer::new(&memory(device), 64, Side::Host, "test").unwrap();
    let pool = CommandPool::new(device, Phase::Prepare).unwrap();
    let mut recorder = pool.record(Phase::Prepare).unwrap();
    recorder.fill(&buffer, 0, 64, 1).unwrap();
    if barrier {
        recorder.barrier(Scope::Transfer, Scope::Transfer);
    }
    recorder.fill(&buffer, 0, 64, 2).unwrap();
    let mut commands = recorder.finish().unwrap();
    let value = commands.submit(&deadline()).unwrap();
    device.wait(value, &deadline()).unwrap();
    let mut word = [0; 4];
    buffer.read(0, &mut word).unwrap();
    assert!(word == [2, 0, 0, 0] || !barrier);
    device.instance().messages().map(|m| m.list()).unwrap_or_default()
}

/// Checks that the layer reports errors; the other tests require that it reports none.
#[test]
fn a_missing_barrier_is_reported() {
    let Some(device) = device() else { return };
    assert_eq!(fill_twice(&device, true), Vec::<String>::new());
    let messages = fill_twice(&device, false);
    assert!(messages.iter().any(|m| m.contains("SYNC-HAZARD-WRITE-AFTER-WRITE")), "{messages:?}");
}

#[test]
fn ranges_are_checked_before_the_driver_sees_them() {
    let Some(device) = device() else { return };
    let buffer = Buffer::new(&memory(&device), 64, Side::Host, "test").unwrap();
    let pool = CommandPool::new(&device, Phase::Prepare).unwrap();
    let mut recorder = pool.record(Phase::Prepare).unwrap();
    assert!(recorder.fill(&buffer, 0, 68, 1).is_err());
    assert!(recorder.fill(&buffer, 2, 8, 1).is_err());
    assert!(recorder.fill(&buffer, u64::MAX, 4, 1).is_err());
    assert!(recorder.copy((&buffer, 0), (&buffer, 8), 16).is_err());
    assert!(recorder.copy((&buffer, 0), (&buffer, 32), 33).is_err());
    assert!(buffer.write(60, &[0; 5]).is_err() && buffer.read(u64::MAX, &mut [0; 2]).is_err());
    drop(recorder.finish().unwrap());
    assert_eq!(device.instance().messages().unwrap().list(), Vec::<String>::new());
}

#[test]
fn a_lost_device_answers_at_once_and_is_freed() {
    let Some(device) = device() else { return };
    let pool = CommandPool::new(&device, Phase::Prepare).unwrap();
    let mut commands = pool.record(Phase::Prepare).unwrap().finish().unwrap();
    let error = device.failed(Phase::Compute, "vkQueueSubmit", vk::Result::ERROR_DEVICE_LOST);
    assert!(matches!(error, Error::DeviceLost { phase: Phase::Compute, .. }));
    let lost = |result: Result<u64>| matches!(result, Err(Error::DeviceLost { .. }));
    assert!(lost(commands.submit(&deadline())));
    assert!(lost(device.wait(1, &deadline()).map(|()| 0)));
    assert!(Buffer::new(&memory(&device), 64, Side::Host, "test").is_err());
}

#[test]
fn commands_that_run_are_not_recorded_or_submitted_again() {
    let Some(device) = device() else { return };
    let pool = CommandPool::new(&device, Phase::Prepare).unwrap();
    let mut commands = pool.record(Phase::Prepare).unwrap().finish().unwrap();
    // Mark them as submitted and unfinished.
    commands.used(1);
    assert!(matches!(commands.submit(&deadline()), Err(Error::InvalidArgument { .. })));
    commands.used(0);
    let value = commands.submit(&deadline()).unwrap();
    device.wait(value, &deadline()).unwrap();
    commands.release();
    assert!(commands.submit(&deadline()).is_err(), "released");
    assert!(pool.reuse(commands, Phase::Prepare).is_ok());
}

/// Checks that an abandoned recording leaves its command buffer to the next one.
#[test]
fn recordings_that_fail_leave_nothing_behind() {
    let Some(device) = device() else { return };
    let buffer = Buffer::new(&memory(&device), 64, Side::Host, "test").unwrap();
    let pool = CommandPool::new(&device, Phase::Prepare).unwrap();
    let mut finished = pool.record(Phase::Prepare).unwrap().finish().unwrap();
    for _ in 0..3 {
        let mut recorder = pool.reuse(finished, Phase::Prepare).unwrap();
        assert!(recorder.copy((&buffer, 0), (&buffer, 8), 16).is_err());
        drop(recorder);
        finished = pool.record(Phase::Prepare).unwrap().finish().unwrap();
    }
    finished.submit(&deadline()).unwrap();
    drop(finished);
    assert_eq!(pool.created(), 1);
    assert_eq!(device.instance().messages().unwrap().list(), Vec::<String>::new());
}

/// Checks that polling, dropping and freeing continue while another thread's submission does not return, and
/// that a second submission fails at its deadline.
#[test]
fn nothing_waits_for_a_submission_that_hangs() {
    let Some(device) = device() else { return };
    let pool = CommandPool::new(&device, Phase::Prepare).unwrap();
    let record = || pool.record(Phase::Prepare).unwrap().finish().unwrap();
    let (mut done, mut stuck, mut late) = (record(), record(), record());
    let first = done.submit(&deadline()).unwrap();
    device.wait(first, &deadline()).unwrap();
    let (entered, has_entered) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    *lock(&device.queue(Phase::Compute).unwrap().interlude) = Some(Box::new(move || {
        let _ = entered.send(());
        // Block until the other end is dropped.
        let _ = may_go_on.recv();
    }));
    let submitting = std::thread::spawn(move || stuck.submit(&deadline()).map(|value| (value, stuck)));
    has_entered.recv().unwrap();
    let (answer, answered) = mpsc::channel();
    let (polled, free) = (device.clone(), memory(&device));
    let polling = std::thread::spawn(move || {
        let reached = (polled.is_reached(first), polled.is_reached(first + 1), polled.reached());
        drop(done);
        drop(Buffer::new(&free, 64, Side::Device, "test").unwrap());
        let soon = Deadline::new(Phase::Compute, Duration::from_millis(5));
        let missed = matches!(late.submit(&soon), Err(Error::Timeout { phase: Phase::Compute, .. }));
        answer.send((reached, missed)).unwrap();
    });
    let found = answered.recv_timeout(Duration::from_secs(30));
    drop(go_on);
    let (second, stuck) = submitting.join().unwrap().unwrap();
    polling.join().unwrap();
    assert_eq!(found, Ok(((true, false, first), true)));
    device.wait(second, &deadline()).unwrap();
    assert!(second == first + 1 && device.is_reached(second));
    drop(stuck);
}
