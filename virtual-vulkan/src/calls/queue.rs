//! Submissions.

use super::api::{chained, code, list};
use super::commands::COMMANDS;
use crate::device::Device;
use crate::execute::Submission;
use crate::list::List;
use crate::reply::{Reply, unknown};
use crate::semaphores::Fence;
use ash::vk;
use ash::vk::Handle as _;
use std::sync::Arc;

/// Returns the recording of a command buffer.
fn recorded(handle: vk::CommandBuffer) -> Reply<Arc<List>> {
    let raw = handle.as_raw();
    COMMANDS.get(raw).ok_or_else(|| unknown("VkCommandBuffer", raw))?.list()
}

/// Queues submissions, followed by the fence.
fn push(device: &Arc<Device>, submissions: Vec<Submission>, fence: vk::Fence) -> Reply {
    device.alive()?;
    let fence: Option<Arc<Fence>> = (!fence.is_null()).then(|| device.fence(fence)).transpose()?;
    let stalls = device.card.options.faults.enter("vkQueueSubmit").map_err(vk::Result::from_raw)?;
    // The work must not keep the device alive: dropping the device closes the queue.
    let on = Arc::downgrade(device);
    device.queue.push(Box::new(move |queue| {
        if stalls {
            queue.hold(|| on.upgrade().is_none_or(|d| d.card.options.faults.released()));
        }
        let Some(device) = on.upgrade() else { return Ok(()) };
        for submission in &submissions {
            submission.run(&device)?;
            queue.notify();
        }
        if let Some(fence) = fence {
            fence.signal();
        }
        Ok(())
    }))
}

pub(crate) unsafe extern "system" fn submit(
    handle: vk::Queue,
    count: u32,
    infos: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    code(Device::of_queue(handle).and_then(|device| {
        // SAFETY: Vulkan's rules for the caller, here and below.
        let infos = unsafe { list(infos, count) };
        let mut all = Vec::new();
        for info in infos {
            let mut one = Submission::default();
            // SAFETY: as above.
            unsafe {
                let timeline = chained::<vk::TimelineSemaphoreSubmitInfo<'_>>(info.p_next);
                let (waits, signals): (&[u64], &[u64]) = match &timeline {
                    Some(t) => (
                        list(t.p_wait_semaphore_values, t.wait_semaphore_value_count),
                        list(t.p_signal_semaphore_values, t.signal_semaphore_value_count),
                    ),
                    None => (&[], &[]),
                };
                let value = |values: &[u64], i: usize| values.get(i).copied().unwrap_or(0);
                for (i, &s) in list(info.p_wait_semaphores, info.wait_semaphore_count).iter().enumerate() {
                    one.waits.push((device.semaphore(s)?, value(waits, i)));
                }
                for &c in list(info.p_command_buffers, info.command_buffer_count) {
                    one.lists.push(recorded(c)?);
                }
                for (i, &s) in list(info.p_signal_semaphores, info.signal_semaphore_count).iter().enumerate()
                {
                    one.signals.push((device.semaphore(s)?, value(signals, i)));
                }
            }
            all.push(one);
        }
        push(&device, all, fence)
    }))
}

pub(crate) unsafe extern "system" fn submit2(
    handle: vk::Queue,
    count: u32,
    infos: *const vk::SubmitInfo2<'_>,
    fence: vk::Fence,
) -> vk::Result {
    code(Device::of_queue(handle).and_then(|device| {
        let mut all = Vec::new();
        // SAFETY: Vulkan's rules for the caller, here and below.
        for info in unsafe { list(infos, count) } {
            let mut one = Submission::default();
            // SAFETY: as above.
            unsafe {
                for s in list(info.p_wait_semaphore_infos, info.wait_semaphore_info_count) {
                    one.waits.push((device.semaphore(s.semaphore)?, s.value));
                }
                for c in list(info.p_command_buffer_infos, info.command_buffer_info_count) {
                    one.lists.push(recorded(c.command_buffer)?);
                }
                for s in list(info.p_signal_semaphore_infos, info.signal_semaphore_info_count) {
                    one.signals.push((device.semaphore(s.semaphore)?, s.value));
                }
            }
            all.push(one);
        }
        push(&device, all, fence)
    }))
}
