//! Memory and buffers.

use super::api::{chained, code, list};
use crate::card::Model;
use crate::device::Device;
use crate::heaps::types;
use crate::memory::{Buffer, Memory, Users};
use crate::reply::{Reply, unknown};
use ash::vk;
use ash::vk::Handle as _;
use std::ffi::{c_int, c_void};
#[cfg(target_os = "linux")]
use std::os::fd::IntoRawFd as _;

pub(crate) unsafe extern "system" fn allocate(
    handle: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::DeviceMemory,
) -> vk::Result {
    code(Device::enter(handle, "vkAllocateMemory").and_then(|device| {
        device.alive()?;
        // SAFETY: Vulkan's rules for the caller.
        let info = unsafe { &*info };
        // SAFETY: as above.
        let export = unsafe { chained::<vk::ExportMemoryAllocateInfo<'_>>(info.p_next) };
        let fd = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        let users = match export.is_some_and(|export| export.handle_types.contains(fd)) {
            true => Users::Several,
            false => Users::One,
        };
        let (bytes, kind) = (info.allocation_size, info.memory_type_index);
        let memory = Memory::new(&device.card, &device.gpu, bytes, kind, users)?;
        // SAFETY: as above.
        unsafe { *out = vk::DeviceMemory::from_raw(device.memory.add(memory)) };
        Ok(())
    }))
}

pub(crate) unsafe extern "system" fn free(
    handle: vk::Device,
    memory: vk::DeviceMemory,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    if let Ok(device) = Device::enter(handle, "vkFreeMemory") {
        device.memory.take(memory.as_raw());
    }
}

pub(crate) unsafe extern "system" fn export(
    handle: vk::Device,
    info: *const vk::MemoryGetFdInfoKHR<'_>,
    out: *mut c_int,
) -> vk::Result {
    code(Device::enter(handle, "vkGetMemoryFdKHR").and_then(|device| {
        // SAFETY: Vulkan's rules for the caller.
        let raw = unsafe { (*info).memory.as_raw() };
        let memory = device.memory.get(raw).ok_or_else(|| unknown("VkDeviceMemory", raw))?;
        let file = memory.export()?;
        // SAFETY: as above. The caller owns the descriptor from now on.
        unsafe { *out = file.into_raw_fd() };
        Ok(())
    }))
}

pub(crate) unsafe extern "system" fn map(
    handle: vk::Device,
    memory: vk::DeviceMemory,
    offset: u64,
    _bytes: u64,
    _flags: vk::MemoryMapFlags,
    out: *mut *mut c_void,
) -> vk::Result {
    code(Device::enter(handle, "vkMapMemory").and_then(|device| {
        let found = device.memory.get(memory.as_raw()).filter(|m| offset < m.bytes);
        let host = found.and_then(|m| m.host).ok_or(vk::Result::ERROR_MEMORY_MAP_FAILED)?;
        // SAFETY: the offset is inside the memory; `out` is the caller's.
        unsafe { *out = (host + offset) as *mut c_void };
        Ok(())
    }))
}

pub(crate) unsafe extern "system" fn unmap(_handle: vk::Device, _memory: vk::DeviceMemory) {}

/// Does nothing: all mapped memory is coherent.
pub(crate) unsafe extern "system" fn flush(
    handle: vk::Device,
    _count: u32,
    _ranges: *const vk::MappedMemoryRange<'_>,
) -> vk::Result {
    code(Device::of(handle).map(|_| ()))
}

pub(crate) unsafe extern "system" fn create_buffer(
    handle: vk::Device,
    info: *const vk::BufferCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Buffer,
) -> vk::Result {
    code(Device::enter(handle, "vkCreateBuffer").map(|device| {
        // SAFETY: Vulkan's rules for the caller.
        let buffer = Buffer::new(unsafe { (*info).size });
        // SAFETY: as above.
        unsafe { *out = vk::Buffer::from_raw(device.buffers.add(buffer)) };
    }))
}

pub(crate) unsafe extern "system" fn destroy_buffer(
    handle: vk::Device,
    buffer: vk::Buffer,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    if let Ok(device) = Device::of(handle) {
        device.buffers.take(buffer.as_raw());
    }
}

fn requirements(model: Model, bytes: u64) -> vk::MemoryRequirements {
    let (alignment, types) = (256, (1 << types(model.is_integrated()).len()) - 1);
    vk::MemoryRequirements { size: bytes.next_multiple_of(16), alignment, memory_type_bits: types }
}

pub(crate) unsafe extern "system" fn buffer_requirements(
    handle: vk::Device,
    buffer: vk::Buffer,
    out: *mut vk::MemoryRequirements,
) {
    let Ok(device) = Device::of(handle) else { return };
    let bytes = device.buffer(buffer).map_or(0, |b| b.bytes);
    // SAFETY: Vulkan's rules for the caller.
    unsafe { *out = requirements(device.card.options.model, bytes) };
}

pub(crate) unsafe extern "system" fn buffer_requirements2(
    handle: vk::Device,
    info: *const vk::BufferMemoryRequirementsInfo2<'_>,
    out: *mut vk::MemoryRequirements2<'_>,
) {
    // SAFETY: Vulkan's rules for the caller.
    unsafe {
        buffer_requirements(handle, (*info).buffer, &mut (*out).memory_requirements);
        dedicated((*out).p_next);
    }
}

pub(crate) unsafe extern "system" fn device_buffer_requirements(
    handle: vk::Device,
    info: *const vk::DeviceBufferMemoryRequirements<'_>,
    out: *mut vk::MemoryRequirements2<'_>,
) {
    let Ok(device) = Device::of(handle) else { return };
    // SAFETY: Vulkan's rules for the caller.
    unsafe {
        (*out).memory_requirements = requirements(device.card.options.model, (*(*info).p_create_info).size);
        dedicated((*out).p_next);
    }
}

/// Reports that no buffer needs a dedicated allocation.
///
/// # Safety
/// `chain` is a valid chain.
unsafe fn dedicated(chain: *mut c_void) {
    // SAFETY: the caller's promise.
    if let Some(d) = unsafe { chained::<vk::MemoryDedicatedRequirements<'_>>(chain) } {
        (d.prefers_dedicated_allocation, d.requires_dedicated_allocation) = (vk::FALSE, vk::FALSE);
    }
}

fn bind_one(device: &Device, buffer: vk::Buffer, memory: vk::DeviceMemory, offset: u64) -> Reply {
    let raw = memory.as_raw();
    let memory = device.memory.get(raw).ok_or_else(|| unknown("VkDeviceMemory", raw))?;
    device.buffer(buffer)?.bind(memory, offset)
}

pub(crate) unsafe extern "system" fn bind(
    handle: vk::Device,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    offset: u64,
) -> vk::Result {
    let device = Device::enter(handle, "vkBindBufferMemory");
    code(device.and_then(|device| bind_one(&device, buffer, memory, offset)))
}

pub(crate) unsafe extern "system" fn bind2(
    handle: vk::Device,
    count: u32,
    infos: *const vk::BindBufferMemoryInfo<'_>,
) -> vk::Result {
    code(Device::enter(handle, "vkBindBufferMemory2").and_then(|device| {
        // SAFETY: Vulkan's rules for the caller.
        let infos = unsafe { list(infos, count) };
        infos.iter().try_for_each(|i| bind_one(&device, i.buffer, i.memory, i.memory_offset))
    }))
}

pub(crate) unsafe extern "system" fn buffer_address(
    handle: vk::Device,
    info: *const vk::BufferDeviceAddressInfo<'_>,
) -> u64 {
    // SAFETY: Vulkan's rules for the caller.
    let buffer = unsafe { (*info).buffer };
    let range = Device::of(handle).and_then(|d| d.buffer(buffer)).and_then(|b| b.range(0, 0));
    range.map_or(0, |(address, _)| address)
}
