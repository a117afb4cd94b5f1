//! Export of memory to the card's other driver, as a file descriptor (VK_KHR_external_memory_fd).
//!
//! Each exported buffer has memory of its own and begins with it: importers of AMD's runtime ignore the offset of a
//! buffer in its allocation.

use super::buffer::{Buffer, PADDING};
use super::heaps::{Choice, Side};
use super::memory::MemoryPool;
use crate::error::code_name;
use ash::vk;
use ggml_core::exported::ExportedMemory;
use ggml_core::{Error, Missing, Phase, Result, phase};
use std::ptr::NonNull;
use std::sync::Arc;

const HANDLE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::TRANSFER_SRC.as_raw()
        | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

/// Creates a buffer of at least `bytes` bytes of the device's memory that another driver can import. The driver may
/// block in this call: see `deadline::guarded`.
pub(crate) fn export(pool: &Arc<MemoryPool>, bytes: u64) -> Result<(Arc<Buffer>, ExportedMemory)> {
    let device = pool.device();
    device.check_alive(Phase::Allocate)?;
    if !is_exportable(pool) {
        return Err(refused(pool, "it cannot export buffers as file descriptors".into()));
    }
    let size = bytes.max(1).checked_next_multiple_of(PADDING).unwrap_or(u64::MAX);
    if size > pool.largest() {
        return Err(pool.exhausted(bytes, Side::Device, None));
    }
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(HANDLE);
    let info = vk::BufferCreateInfo::default()
        .size(size)
        .usage(USAGE)
        .sharing_mode(vk::SharingMode::EXCLUSIVE)
        .push_next(&mut external);
    // SAFETY: the device is alive and the extension enabled; the size is neither 0 nor above the limit.
    let raw = unsafe { device.raw.create_buffer(&info, None) }
        .map_err(|code| device.failed(Phase::Allocate, "vkCreateBuffer", code))?;
    let made = allocate(pool, raw).and_then(|(memory, size, choice)| {
        let mapped = bind(pool, raw, memory, size, choice).inspect_err(|_| {
            // SAFETY: the memory was allocated for this buffer and is not in use.
            unsafe { device.raw.free_memory(memory, None) };
        })?;
        Ok((memory, size, choice, mapped))
    });
    let (memory, allocated, choice, mapped) = made.inspect_err(|_| {
        // SAFETY: the buffer was created above, and no other code has its handle.
        unsafe { device.raw.destroy_buffer(raw, None) };
    })?;
    pool.count_export(allocated, true);
    // From here on the buffer owns both.
    let buffer = Arc::new(Buffer::exported(pool, (raw, size), (memory, allocated), choice, mapped));
    let exported = descriptor(pool, memory, allocated)?;
    Ok((buffer, exported))
}

fn refused(pool: &MemoryPool, reason: String) -> Error {
    let device = pool.device();
    Error::Unavailable {
        backend: device.name.clone(),
        phase: Phase::Allocate,
        missing: Missing::Feature,
        reason: format!("{} ({}): {reason}", device.facts.name, device.facts.driver),
    }
}

/// Returns true if buffers like these can be exported without memory that is dedicated to an image or a buffer.
fn is_exportable(pool: &MemoryPool) -> bool {
    let device = pool.device();
    if device.memory_fd.is_none() {
        return false;
    }
    let info = vk::PhysicalDeviceExternalBufferInfo::default().usage(USAGE).handle_type(HANDLE);
    let mut found = vk::ExternalBufferProperties::default();
    let (instance, physical) = device.parents();
    // SAFETY: the physical device belongs to the instance, which is alive and of version 1.2 at least.
    unsafe { instance.get_physical_device_external_buffer_properties(physical, &info, &mut found) };
    let features = found.external_memory_properties.external_memory_features;
    features.contains(vk::ExternalMemoryFeatureFlags::EXPORTABLE)
        && !features.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY)
}

/// Allocates memory for a buffer and returns it with its size: of the best type whose heap has room.
fn allocate(pool: &MemoryPool, raw: vk::Buffer) -> Result<(vk::DeviceMemory, u64, Choice)> {
    let device = pool.device();
    // SAFETY: the buffer was created from this device and is alive.
    let requirements = unsafe { device.raw.get_buffer_memory_requirements(raw) };
    let size = requirements.size;
    let mut driver = None;
    for choice in pool.device_side_of(requirements.memory_type_bits) {
        if pool.room(choice.heap).is_some_and(|room| size > room) {
            continue;
        }
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(HANDLE);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(choice.index as u32)
            .push_next(&mut export);
        phase::call("vkAllocateMemory", "");
        // SAFETY: the type is one of the device's, the size is not 0, and the handle type can be exported.
        match unsafe { device.raw.allocate_memory(&info, None) } {
            Ok(memory) => return Ok((memory, size, choice)),
            Err(code @ (vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY)) => {
                driver = Some(format!("vkAllocateMemory: {} ({})", code_name(code), code.as_raw()));
            }
            Err(code) => return Err(device.failed(Phase::Allocate, "vkAllocateMemory", code)),
        }
    }
    Err(pool.exhausted(size, Side::Device, driver))
}

/// Binds memory to a buffer, and maps it if the host may access it.
fn bind(
    pool: &MemoryPool,
    raw: vk::Buffer,
    memory: vk::DeviceMemory,
    size: u64,
    choice: Choice,
) -> Result<Option<NonNull<u8>>> {
    let device = pool.device();
    // SAFETY: the memory was allocated for this buffer's requirements, and nothing is bound to it.
    unsafe { device.raw.bind_buffer_memory(raw, memory, 0) }
        .map_err(|code| device.failed(Phase::Allocate, "vkBindBufferMemory", code))?;
    if !choice.is_accessible() {
        return Ok(None);
    }
    // SAFETY: the memory is host-visible, has this size and is not mapped.
    let mapped = unsafe { device.raw.map_memory(memory, 0, size, vk::MemoryMapFlags::empty()) };
    // Memory that the driver does not map is reached by copies, as that of a card without a window is.
    Ok(mapped.ok().and_then(|at| NonNull::new(at.cast())))
}

#[cfg(unix)]
fn descriptor(pool: &MemoryPool, memory: vk::DeviceMemory, bytes: u64) -> Result<ExportedMemory> {
    use std::os::fd::{FromRawFd as _, OwnedFd};
    let device = pool.device();
    let functions = device.memory_fd.as_ref().ok_or_else(|| refused(pool, "no function".into()))?;
    let info = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(HANDLE);
    phase::call("vkGetMemoryFdKHR", "");
    // SAFETY: the memory is alive and was allocated for export as this type.
    let raw = unsafe { functions.get_memory_fd(&info) }
        .map_err(|code| device.failed(Phase::Allocate, "vkGetMemoryFdKHR", code))?;
    if raw < 0 {
        return Err(refused(pool, format!("it exported memory as descriptor {raw}")));
    }
    // SAFETY: the call opened the descriptor for its caller.
    let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
    Ok(ExportedMemory::new(descriptor, bytes))
}

#[cfg(not(unix))]
fn descriptor(pool: &MemoryPool, _memory: vk::DeviceMemory, _bytes: u64) -> Result<ExportedMemory> {
    Err(refused(pool, "this system has no file descriptors".into()))
}
