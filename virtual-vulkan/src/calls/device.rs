//! Logical devices and their queue.

use super::api::{code, texts};
use super::physical::{OWN, Wanted};
use crate::device::{DEVICES, Device, QUEUES};
use crate::instance::Instance;
use crate::reply::Reply;
use ash::vk;
use ash::vk::Handle as _;
use std::sync::Arc;

/// Creates RADV's device with the features that RADV supports, and the virtual device around it.
///
/// # Safety
/// `info` is valid.
unsafe fn make(physical: vk::PhysicalDevice, info: &vk::DeviceCreateInfo<'_>) -> Reply<Device> {
    let instance = Instance::of(physical)?;
    let card = instance.card.shared.clone();
    card.options.faults.enter("vkCreateDevice").map_err(vk::Result::from_raw)?;
    // SAFETY: `info` is valid.
    let mut wanted = unsafe { Wanted::of(info) };
    let mut checks = card.options.checks;
    checks.ranges &= !wanted.robust();
    let (core, chain) = wanted.link();
    // SAFETY: as above.
    let names = unsafe { texts(info.pp_enabled_extension_names, info.enabled_extension_count) };
    let names: Vec<_> = names.iter().filter(|n| !OWN.contains(n)).map(|n| n.as_ptr()).collect();
    let mut asked = vk::DeviceCreateInfo::default().enabled_extension_names(&names).enabled_features(&core);
    (asked.queue_create_info_count, asked.p_queue_create_infos) =
        (info.queue_create_info_count, info.p_queue_create_infos);
    asked.p_next = chain;
    // SAFETY: the queues are the caller's (family 0, which RADV also has); the chain is stored in `wanted`.
    let radv = unsafe { instance.radv.create_device(physical, &asked, None) }?;
    Ok(Device::new(card, radv, instance.radv.fp_v1_0().get_device_proc_addr, checks))
}

pub(crate) unsafe extern "system" fn create(
    physical: vk::PhysicalDevice,
    info: *const vk::DeviceCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Device,
) -> vk::Result {
    // SAFETY: Vulkan's rules for the caller.
    code(unsafe { make(physical, &*info) }.map(|device| {
        let handle = device.radv.handle();
        let device = Arc::new(device);
        QUEUES.put(device.queue_handle(), device.clone());
        DEVICES.put(handle.as_raw(), device);
        // SAFETY: as above.
        unsafe { *out = handle };
    }))
}

pub(crate) unsafe extern "system" fn destroy(
    handle: vk::Device,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    let Some(device) = DEVICES.take(handle.as_raw()) else { return };
    QUEUES.take(device.queue_handle());
    device.queue.close();
    // SAFETY: the caller destroys it once, after everything created from it.
    unsafe { device.radv.destroy_device(None) };
}

pub(crate) unsafe extern "system" fn queue(
    handle: vk::Device,
    _family: u32,
    _index: u32,
    out: *mut vk::Queue,
) {
    let queue = Device::of(handle).map_or(0, |device| device.queue_handle());
    // SAFETY: Vulkan's rules for the caller.
    unsafe { *out = vk::Queue::from_raw(queue) };
}

pub(crate) unsafe extern "system" fn queue2(
    handle: vk::Device,
    _info: *const vk::DeviceQueueInfo2<'_>,
    out: *mut vk::Queue,
) {
    // SAFETY: Vulkan's rules for the caller; there is one queue.
    unsafe { queue(handle, 0, 0, out) };
}

pub(crate) unsafe extern "system" fn wait_idle(handle: vk::Device) -> vk::Result {
    code(Device::enter(handle, "vkDeviceWaitIdle").and_then(|device| device.queue.drain()))
}

pub(crate) unsafe extern "system" fn queue_wait_idle(handle: vk::Queue) -> vk::Result {
    code(Device::of_queue(handle).and_then(|device| device.queue.drain()))
}

/// Returns the fault of the device through VK_EXT_device_fault.
pub(crate) unsafe extern "system" fn fault_info(
    handle: vk::Device,
    counts: *mut vk::DeviceFaultCountsEXT<'_>,
    info: *mut vk::DeviceFaultInfoEXT<'_>,
) -> vk::Result {
    let fault = Device::of(handle).ok().and_then(|device| device.queue.fault());
    // SAFETY: Vulkan's rules for the caller.
    unsafe {
        (*counts).address_info_count = 0;
        (*counts).vendor_info_count = 0;
        (*counts).vendor_binary_size = 0;
        if let Some(info) = info.as_mut() {
            super::api::put_text(&mut info.description, &fault.unwrap_or_default());
        }
    }
    vk::Result::SUCCESS
}
