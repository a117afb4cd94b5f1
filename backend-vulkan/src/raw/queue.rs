//! Submission and waiting: one queue, one timeline.
//!
//! Every submission signals the next value of the timeline. Submissions of one queue start in order, and every recorded
//! command buffer begins with a barrier against all commands before it, so a value that is reached means that
//! everything submitted up to it is complete.

use super::commands::Commands;
use super::device::Device;
use ash::vk;
use ggml_core::Deadline;
use ggml_core::{Error, Phase, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A queue and its timeline.
pub(crate) struct Queue {
    raw: vk::Queue,
    /// The family, for command pools.
    pub(super) family: u32,
    timeline: vk::Semaphore,
    /// The last value that was submitted; the lock also guards the queue.
    submitted: Mutex<u64>,
    /// The last value that was seen to be reached.
    reached: AtomicU64,
}

impl Queue {
    pub(super) fn new(device: &ash::Device, family: u32) -> Result<Queue, vk::Result> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device is alive and was created with timeline semaphores and one queue of this family.
        let (timeline, raw) =
            unsafe { (device.create_semaphore(&info, None)?, device.get_device_queue(family, 0)) };
        Ok(Queue { raw, family, timeline, submitted: Mutex::new(0), reached: AtomicU64::new(0) })
    }

    /// Gives the timeline back. The caller has waited for everything that signals it.
    pub(super) fn destroy(self, device: &ash::Device) {
        // SAFETY: the semaphore was made from this device and has no pending use (the caller's duty).
        unsafe { device.destroy_semaphore(self.timeline, None) };
    }
}

impl Device {
    fn queue(&self, phase: Phase) -> Result<&Queue> {
        self.queue.as_ref().ok_or_else(|| {
            crate::deadline::broken(
                &self.name,
                phase,
                "vkQueueSubmit",
                "the device was opened to compile only".into(),
            )
        })
    }

    /// The family of the queue.
    pub(super) fn family(&self, phase: Phase) -> Result<u32> {
        Ok(self.queue(phase)?.family)
    }

    /// Submits commands; the timeline value that is reached when they are complete.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the commands are still running from an earlier submission.
    pub(crate) fn submit(&self, commands: &mut Commands, phase: Phase) -> Result<u64> {
        self.alive(phase)?;
        let queue = self.queue(phase)?;
        if commands.is_released() || !self.is_reached(commands.last_use()) {
            return Err(Error::argument_said("commands", "are still running, or were released"));
        }
        let mut submitted = queue.submitted.lock().unwrap_or_else(PoisonError::into_inner);
        let value = *submitted + 1;
        let (buffers, signals, values) = ([commands.raw()], [queue.timeline], [value]);
        let mut timeline = vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let info = vk::SubmitInfo::default()
            .command_buffers(&buffers)
            .signal_semaphores(&signals)
            .push_next(&mut timeline);
        // SAFETY: the commands were made from this device, are executable (a `Commands` exists only after its recording
        // ended) and not pending (checked above; `&mut` keeps others out), and hold what they name; the queue is locked; `value` is larger than
        // any submitted before. They wait before they are dropped.
        unsafe { self.raw.queue_submit(queue.raw, &[info], vk::Fence::null()) }
            .map_err(|code| self.failed(phase, "vkQueueSubmit", code))?;
        *submitted = value;
        drop(submitted);
        commands.used(value);
        Ok(value)
    }

    /// The last value that was submitted.
    pub(crate) fn submitted(&self) -> u64 {
        self.queue.as_ref().map_or(0, |q| *q.submitted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The value that the timeline has reached. On a lost device: the last that was seen.
    pub(crate) fn reached(&self) -> u64 {
        let Some(queue) = &self.queue else { return 0 };
        // SAFETY: the timeline was made from this device and is alive.
        match unsafe { self.raw.get_semaphore_counter_value(queue.timeline) } {
            // A driver may give any value once the device is lost.
            Ok(value) if !self.is_lost() && value <= self.submitted() => {
                queue.reached.fetch_max(value, Ordering::AcqRel).max(value)
            }
            _ => queue.reached.load(Ordering::Acquire),
        }
    }

    /// Whether the timeline has reached a value.
    pub(crate) fn is_reached(&self, value: u64) -> bool {
        let seen = self.queue.as_ref().map_or(0, |q| q.reached.load(Ordering::Acquire));
        value <= seen || value <= self.reached()
    }

    /// Waits until the timeline reaches a value.
    ///
    /// # Errors
    /// [`Error::Timeout`] without a node when the deadline passes; [`Error::DeviceLost`].
    pub(crate) fn wait(&self, value: u64, deadline: &Deadline) -> Result<()> {
        let queue = self.queue(deadline.phase())?;
        if value <= queue.reached.load(Ordering::Acquire) {
            return Ok(());
        }
        self.alive(deadline.phase())?;
        match self.wait_raw(queue, value, deadline.remaining()) {
            Ok(()) => Ok(()),
            Err(vk::Result::TIMEOUT) => Err(deadline.missed(&self.name, None)),
            Err(code) => Err(self.failed(deadline.phase(), "vkWaitSemaphores", code)),
        }
    }

    /// Waits for everything that was submitted; whether it is complete.
    pub(crate) fn drain(&self, limit: Duration) -> bool {
        let Some(queue) = &self.queue else { return true };
        self.wait_raw(queue, self.submitted(), limit).is_ok()
    }

    fn wait_raw(&self, queue: &Queue, value: u64, limit: Duration) -> Result<(), vk::Result> {
        let (semaphores, values) = ([queue.timeline], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // Never the largest number, which drivers take for "no limit".
        let nanoseconds = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX >> 2);
        // SAFETY: the timeline was made from this device and is alive.
        unsafe { self.raw.wait_semaphores(&info, nanoseconds) }?;
        queue.reached.fetch_max(value, Ordering::AcqRel);
        Ok(())
    }

    /// Whether the device is done with what was last used at `value`, after waiting for it no longer than
    /// [`GRACE`](super::device::GRACE). `false` means: leak it. A lost device is done with everything.
    pub(super) fn done_with(&self, value: u64) -> bool {
        let Some(queue) = &self.queue else { return true };
        if self.is_lost() || self.is_reached(value) {
            return true;
        }
        let grace = if self.is_abandoned() { Duration::ZERO } else { super::device::GRACE };
        let done = self.wait_raw(queue, value, grace).is_ok() || self.is_lost();
        if !done {
            self.abandon();
        }
        done
    }
}
