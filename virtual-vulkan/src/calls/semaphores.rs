//! Semaphores and fences.

use super::api::{chained, code, list};
use crate::device::Device;
use crate::reply::Reply;
use crate::semaphores::{Fence, Semaphore};
use ash::vk;
use ash::vk::Handle as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) unsafe extern "system" fn create(
    handle: vk::Device,
    info: *const vk::SemaphoreCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Semaphore,
) -> vk::Result {
    code(Device::enter(handle, "vkCreateSemaphore").map(|device| {
        // SAFETY: Vulkan's rules for the caller.
        let kind = unsafe { chained::<vk::SemaphoreTypeCreateInfo<'_>>((*info).p_next) };
        let timeline = kind.as_ref().is_some_and(|k| k.semaphore_type == vk::SemaphoreType::TIMELINE);
        let value = AtomicU64::new(kind.map_or(0, |k| k.initial_value));
        let semaphore = device.semaphores.add(Semaphore { value, timeline });
        // SAFETY: as above.
        unsafe { *out = vk::Semaphore::from_raw(semaphore) };
    }))
}

pub(crate) unsafe extern "system" fn destroy(
    handle: vk::Device,
    semaphore: vk::Semaphore,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    if let Ok(device) = Device::of(handle) {
        device.semaphores.take(semaphore.as_raw());
    }
}

pub(crate) unsafe extern "system" fn value(
    handle: vk::Device,
    semaphore: vk::Semaphore,
    out: *mut u64,
) -> vk::Result {
    code(Device::enter(handle, "vkGetSemaphoreCounterValue").and_then(|device| {
        device.alive()?;
        let value = device.semaphore(semaphore)?.value.load(Ordering::Acquire);
        // SAFETY: Vulkan's rules for the caller.
        unsafe { *out = value };
        Ok(())
    }))
}

pub(crate) unsafe extern "system" fn wait(
    handle: vk::Device,
    info: *const vk::SemaphoreWaitInfo<'_>,
    nanoseconds: u64,
) -> vk::Result {
    code(Device::enter(handle, "vkWaitSemaphores").and_then(|device| {
        // SAFETY: Vulkan's rules for the caller.
        let (semaphores, values, any) = unsafe {
            let (count, flags) = ((*info).semaphore_count, (*info).flags);
            let any = flags.contains(vk::SemaphoreWaitFlags::ANY);
            (list((*info).p_semaphores, count), list((*info).p_values, count), any)
        };
        let all: Vec<_> = semaphores.iter().map(|&s| device.semaphore(s)).collect::<Reply<_>>()?;
        let passes = |(s, &value): (&Arc<Semaphore>, &u64)| s.value.load(Ordering::Acquire) >= value;
        device.queue.wait(nanoseconds, || match any {
            true => all.iter().zip(values).any(passes),
            false => all.iter().zip(values).all(passes),
        })
    }))
}

pub(crate) unsafe extern "system" fn signal(
    handle: vk::Device,
    info: *const vk::SemaphoreSignalInfo<'_>,
) -> vk::Result {
    code(Device::enter(handle, "vkSignalSemaphore").and_then(|device| {
        // SAFETY: Vulkan's rules for the caller.
        let (semaphore, value) = unsafe { ((*info).semaphore, (*info).value) };
        device.semaphore(semaphore)?.signal(value);
        device.queue.notify();
        Ok(())
    }))
}

pub(crate) unsafe extern "system" fn create_fence(
    handle: vk::Device,
    info: *const vk::FenceCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Fence,
) -> vk::Result {
    code(Device::enter(handle, "vkCreateFence").map(|device| {
        // SAFETY: Vulkan's rules for the caller.
        let signalled = unsafe { (*info).flags.contains(vk::FenceCreateFlags::SIGNALED) };
        let fence = device.fences.add(Fence(AtomicBool::new(signalled)));
        // SAFETY: as above.
        unsafe { *out = vk::Fence::from_raw(fence) };
    }))
}

pub(crate) unsafe extern "system" fn destroy_fence(
    handle: vk::Device,
    fence: vk::Fence,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    if let Ok(device) = Device::of(handle) {
        device.fences.take(fence.as_raw());
    }
}

pub(crate) unsafe extern "system" fn reset_fences(
    handle: vk::Device,
    count: u32,
    fences: *const vk::Fence,
) -> vk::Result {
    code(Device::enter(handle, "vkResetFences").and_then(|device| {
        // SAFETY: Vulkan's rules for the caller.
        for &fence in unsafe { list(fences, count) } {
            device.fence(fence)?.0.store(false, Ordering::Release);
        }
        Ok(())
    }))
}

pub(crate) unsafe extern "system" fn fence_status(handle: vk::Device, fence: vk::Fence) -> vk::Result {
    code(Device::enter(handle, "vkGetFenceStatus").and_then(|device| {
        let signalled = device.fence(fence)?.is_signalled();
        match signalled {
            true => Ok(()),
            false => device.alive().and(Err(vk::Result::NOT_READY)),
        }
    }))
}

pub(crate) unsafe extern "system" fn wait_fences(
    handle: vk::Device,
    count: u32,
    fences: *const vk::Fence,
    all: vk::Bool32,
    nanoseconds: u64,
) -> vk::Result {
    code(Device::enter(handle, "vkWaitForFences").and_then(|device| {
        // SAFETY: Vulkan's rules for the caller.
        let fences = unsafe { list(fences, count) };
        let fences: Vec<_> = fences.iter().map(|&f| device.fence(f)).collect::<Reply<_>>()?;
        device.queue.wait(nanoseconds, || match all != vk::FALSE {
            true => fences.iter().all(|f| f.is_signalled()),
            false => fences.iter().any(|f| f.is_signalled()),
        })
    }))
}
