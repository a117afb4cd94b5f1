//! Memory of the card and of the host, and buffers in it.

use crate::api::{Reply, chained, code, list, unknown};
use crate::card::Shared;
use crate::device::Device;
use crate::physical::{HEAPS, TYPES};
use crate::table::lock;
use ash::vk;
use ash::vk::Handle as _;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use virtual_gpu::Gpu;

/// An allocation.
pub(crate) struct Memory {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// The address for the host, where it can reach it.
    host: Option<*mut c_void>,
    heap: usize,
    card: Arc<Shared>,
    gpu: Arc<Gpu>,
}

// SAFETY: the pointer is only handed out; what is done with it is the caller's, as Vulkan has it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(device: &Device, bytes: u64, kind: u32) -> Reply<Memory> {
        let &(flags, heap) = TYPES.get(kind as usize).ok_or(vk::Result::ERROR_UNKNOWN)?;
        let none = |local: bool| match local {
            true => vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
            false => vk::Result::ERROR_OUT_OF_HOST_MEMORY,
        };
        let size = usize::try_from(bytes).map_err(|_| none(heap == 0))?;
        device.card.reserve(heap as usize, bytes).map_err(|()| none(heap == 0))?;
        let visible = flags.contains(vk::MemoryPropertyFlags::HOST_VISIBLE);
        let made = match visible {
            true => device.gpu.allocate_host(size).map(|at| (at.as_ptr() as u64, Some(at.as_ptr().cast()))),
            false => device.gpu.allocate(size).map(|address| (address, None)),
        };
        let (address, host) = made.map_err(|_| {
            device.card.release(heap as usize, bytes);
            none(heap == 0)
        })?;
        let (card, gpu) = (device.card.clone(), device.gpu.clone());
        Ok(Memory { address, bytes, host, heap: heap as usize, card, gpu })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.card.release(self.heap, self.bytes);
        // It was allocated and is freed once; there is nobody to tell.
        let _ = self.gpu.free(self.address);
    }
}

/// Bytes in use of each heap.
#[derive(Debug, Default)]
pub(crate) struct Used([AtomicU64; HEAPS]);

impl Used {
    pub(crate) fn get(&self) -> [u64; HEAPS] {
        std::array::from_fn(|i| self.0[i].load(Ordering::Relaxed))
    }

    /// Takes bytes of a heap that has so many.
    pub(crate) fn take(&self, heap: usize, bytes: u64, limit: u64) -> Result<(), ()> {
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= limit);
        self.0[heap].fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map(|_| ()).map_err(|_| ())
    }

    pub(crate) fn give(&self, heap: usize, bytes: u64) {
        self.0[heap].fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A buffer.
pub(crate) struct Buffer {
    pub(crate) bytes: u64,
    /// The first byte's address, and the memory that it is in.
    bound: OnceLock<(u64, Arc<Memory>)>,
}

impl Buffer {
    /// Address of a range, if the buffer has memory and the range lies in it. `WHOLE_SIZE` is the rest.
    pub(crate) fn range(&self, offset: u64, bytes: u64) -> Reply<(u64, u64)> {
        let bytes = if bytes == vk::WHOLE_SIZE { self.bytes.saturating_sub(offset) } else { bytes };
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        match self.bound.get() {
            Some((address, _)) if inside => Ok((address + offset, bytes)),
            _ => Err(unknown("range of a buffer", offset)),
        }
    }
}

/// Memory with addresses whose upper half shaders know: descriptor sets, push constants, sizes of grids.
pub(crate) struct HighMemory {
    gpu: Arc<Gpu>,
    next: Mutex<u64>,
}

/// A block of it, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct HighBlock {
    gpu: Arc<Gpu>,
    pub(crate) address: u64,
}

impl HighMemory {
    /// What RADV puts before the lower half of an address.
    const UPPER: u64 = 0xffff_8000 << 32;
    /// Bytes that there can be.
    pub(crate) const BYTES: u64 = 1 << 30;
    /// Addresses between two blocks.
    const GAP: u64 = 1 << 12;

    pub(crate) fn new(gpu: &Arc<Gpu>) -> HighMemory {
        HighMemory { gpu: gpu.clone(), next: Mutex::new(Self::GAP) }
    }

    /// Memory, filled with zeros.
    pub(crate) fn allocate(&self, bytes: u64) -> Reply<HighBlock> {
        let exhausted = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
        let mut next = lock(&self.next);
        let size = bytes.max(4).next_multiple_of(Self::GAP);
        // When all addresses have been given, begin again: what was given first is long free, or the call fails.
        if *next + size + Self::GAP > 1 << 32 {
            *next = Self::GAP;
        }
        let address = Self::UPPER | *next;
        self.gpu.allocate_at(address, size as usize).map_err(|_| exhausted)?;
        *next += size + Self::GAP;
        Ok(HighBlock { gpu: self.gpu.clone(), address })
    }
}

impl Drop for HighBlock {
    fn drop(&mut self) {
        let _ = self.gpu.free(self.address);
    }
}

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
        let memory = Memory::new(&device, info.allocation_size, info.memory_type_index)?;
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
        // SAFETY: the offset lies in the memory; `out` is the caller's.
        unsafe { *out = host.cast::<u8>().add(offset as usize).cast() };
        Ok(())
    }))
}

pub(crate) unsafe extern "system" fn unmap(_handle: vk::Device, _memory: vk::DeviceMemory) {}

/// All memory that is mapped is coherent.
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
        let buffer = Buffer { bytes: unsafe { (*info).size }, bound: OnceLock::new() };
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

fn requirements(bytes: u64) -> vk::MemoryRequirements {
    let (alignment, types) = (256, (1 << TYPES.len()) - 1);
    vk::MemoryRequirements { size: bytes.next_multiple_of(16), alignment, memory_type_bits: types }
}

pub(crate) unsafe extern "system" fn buffer_requirements(
    handle: vk::Device,
    buffer: vk::Buffer,
    out: *mut vk::MemoryRequirements,
) {
    let bytes = Device::of(handle).and_then(|d| d.buffer(buffer)).map_or(0, |b| b.bytes);
    // SAFETY: Vulkan's rules for the caller.
    unsafe { *out = requirements(bytes) };
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
    _handle: vk::Device,
    info: *const vk::DeviceBufferMemoryRequirements<'_>,
    out: *mut vk::MemoryRequirements2<'_>,
) {
    // SAFETY: Vulkan's rules for the caller.
    unsafe {
        (*out).memory_requirements = requirements((*(*info).p_create_info).size);
        dedicated((*out).p_next);
    }
}

/// No buffer needs memory of its own.
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
    let (buffer, raw) = (device.buffer(buffer)?, memory.as_raw());
    let memory = device.memory.get(raw).ok_or_else(|| unknown("VkDeviceMemory", raw))?;
    let inside = offset.checked_add(buffer.bytes).is_some_and(|end| end <= memory.bytes);
    if !inside {
        return Err(unknown("range of memory", offset));
    }
    let bound = (memory.address + offset, memory);
    buffer.bound.set(bound).map_err(|_| unknown("unbound buffer", raw))
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
