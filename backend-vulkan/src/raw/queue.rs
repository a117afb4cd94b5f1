//! A queue and its timeline.
//!
//! Every submission signals the next value of the timeline. Submissions of one queue start in order, and
//! every recorded command buffer begins with a barrier against all commands before it. So once a value is
//! reached, everything submitted up to it is complete.
//!
//! Only submissions acquire the queue's lock, which a driver may hold for any length of time. Polling the
//! timeline or waiting for it reads atomics.

use ash::vk;
use ggml_core::sync::lock_until;
use ggml_core::{Deadline, phase};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A queue and its timeline.
pub(crate) struct Queue {
    raw: Mutex<vk::Queue>,
    /// Queue family, for command pools.
    pub(super) family: u32,
    timeline: vk::Semaphore,
    /// Last value passed to the driver, perhaps in a submission still in progress.
    begun: AtomicU64,
    /// Last value whose submission succeeded.
    submitted: AtomicU64,
    /// Last value observed to be reached.
    reached: AtomicU64,
    /// Test hook called in the middle of a submission.
    #[cfg(test)]
    pub(super) interlude: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

impl Queue {
    pub(super) fn new(device: &ash::Device, family: u32) -> Result<Queue, vk::Result> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        let (timeline, raw) =
            // SAFETY: the device is alive and was created with timeline semaphores and one queue of this
            // family.
            unsafe { (device.create_semaphore(&info, None)?, device.get_device_queue(family, 0)) };
        Ok(Queue {
            raw: Mutex::new(raw),
            family,
            timeline,
            begun: AtomicU64::new(0),
            submitted: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            #[cfg(test)]
            interlude: Mutex::default(),
        })
    }

    /// Destroys the timeline. The caller has waited for everything that signals it.
    pub(super) fn destroy(self, device: &ash::Device) {
        // SAFETY: the semaphore was created from this device and has no pending use (the caller's duty).
        unsafe { device.destroy_semaphore(self.timeline, None) };
    }

    /// Submits command buffers and returns the timeline value that is reached when they are complete. Returns
    /// TIMEOUT if other submissions hold the queue until the deadline.
    ///
    /// # Safety
    /// The command buffers are distinct, of this device, executable and not pending, and the objects they
    /// refer to stay alive until the value is reached.
    pub(super) unsafe fn submit(
        &self,
        device: &ash::Device,
        commands: &[vk::CommandBuffer],
        deadline: &Deadline,
    ) -> Result<u64, vk::Result> {
        let queue = lock_until(&self.raw, deadline).ok_or(vk::Result::TIMEOUT)?;
        let value = self.submitted.load(Ordering::Acquire) + 1;
        self.begun.store(value, Ordering::Release);
        #[cfg(test)]
        if let Some(interlude) = &mut *ggml_core::sync::lock(&self.interlude) {
            interlude();
        }
        let (signals, values) = ([self.timeline], [value]);
        let mut timeline = vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let info = vk::SubmitInfo::default()
            .command_buffers(commands)
            .signal_semaphores(&signals)
            .push_next(&mut timeline);
        phase::call("vkQueueSubmit", "");
        // SAFETY: the commands may be submitted (the caller's duty); the queue is locked; `value` is larger
        // than any submitted before.
        unsafe { device.queue_submit(*queue, &[info], vk::Fence::null()) }?;
        self.submitted.store(value, Ordering::Release);
        Ok(value)
    }

    /// Returns the last submitted value.
    pub(super) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Returns the last value observed to be reached.
    pub(super) fn last_reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// Polls the timeline's value. Returns the last observed value if the call fails or the value is
    /// impossible. (A driver may return any value once the device is lost.)
    pub(super) fn poll(&self, device: &ash::Device) -> u64 {
        // SAFETY: the timeline was created from this device and is alive.
        match unsafe { device.get_semaphore_counter_value(self.timeline) } {
            Ok(value) if value <= self.begun.load(Ordering::Acquire) => {
                self.reached.fetch_max(value, Ordering::AcqRel).max(value)
            }
            _ => self.last_reached(),
        }
    }

    /// Waits until the timeline reaches a value; returns TIMEOUT when the limit has passed.
    pub(super) fn wait(&self, device: &ash::Device, value: u64, limit: Duration) -> Result<(), vk::Result> {
        let (semaphores, values) = ([self.timeline], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // Never the maximum value, which drivers treat as "no limit".
        let nanoseconds = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX >> 2);
        phase::call("vkWaitSemaphores", "");
        // SAFETY: the timeline was created from this device and is alive.
        unsafe { device.wait_semaphores(&info, nanoseconds) }?;
        self.reached.fetch_max(value, Ordering::AcqRel);
        Ok(())
    }
}
