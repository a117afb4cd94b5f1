//! Mapped files that the device reads in place without a copy (VK_EXT_external_memory_host), where the CPU
//! and the device share memory.
//!
//! RADV never does: amdgpu accepts anonymous pages only (AMDGPU_GEM_USERPTR_ANONONLY), so weights are copied there.

use super::buffer::Buffer;
use super::device::Device;
use super::memory::MemoryPool;
use ash::vk;
use ggml_core::mapped::MappedBytes;
use std::sync::Arc;

const HANDLE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;

/// Creates a read-only buffer over mapped bytes and returns it with the offset at which they begin. `None` if
/// the device cannot read them in place (a device with its own memory, no extension, a driver that rejects
/// file pages, a size over a limit).
pub(crate) fn import(pool: &Arc<MemoryPool>, bytes: &MappedBytes) -> Option<(Arc<Buffer>, u64)> {
    let facts = &pool.device().facts;
    let alignment = facts.import_alignment;
    if !facts.unified() || alignment == 0 || alignment > 4096 || !bytes.is_mapped() || bytes.is_empty() {
        return None;
    }
    // The map begins at a page boundary and its last page is whole, so rounding to pages stays within it.
    let address = bytes.as_ptr().addr() as u64;
    let skip = address % alignment;
    let size = (skip + bytes.len() as u64).checked_next_multiple_of(alignment)?;
    if size > pool.largest() {
        return None;
    }
    let start = bytes.as_ptr().wrapping_sub(skip as usize);
    match bind(pool, start, size, bytes) {
        Ok(buffer) => Some((Arc::new(buffer), skip)),
        Err(code) => {
            tracing::debug!(backend = %pool.device().name, ?code, size, "mapped bytes were not imported");
            None
        }
    }
}

fn bind(
    pool: &Arc<MemoryPool>,
    start: *const u8,
    size: u64,
    owner: &MappedBytes,
) -> Result<Buffer, vk::Result> {
    let device = pool.device();
    let functions = device.host_memory.as_ref().ok_or(vk::Result::ERROR_EXTENSION_NOT_PRESENT)?;
    let mut properties = vk::MemoryHostPointerPropertiesEXT::default();
    // SAFETY: the extension is enabled; the pointer is aligned to the import alignment and the `size` bytes
    // starting at it are mapped (see `import`) as long as `owner` lives.
    let code = unsafe {
        let call = functions.fp().get_memory_host_pointer_properties_ext;
        call(functions.device(), HANDLE, start.cast(), &mut properties)
    };
    code.result()?;
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(HANDLE);
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::TRANSFER_SRC;
    let info = vk::BufferCreateInfo::default().size(size).usage(usage).push_next(&mut external);
    // SAFETY: the device is alive; the size is not 0 and within its limit.
    let buffer = unsafe { device.raw.create_buffer(&info, None) }?;
    let imported = import_memory(device, buffer, properties.memory_type_bits, start, size);
    match imported {
        Ok(memory) => {
            pool.count_import(size, true);
            Ok(Buffer::imported(pool, buffer, size, memory, owner.clone()))
        }
        Err(code) => {
            // SAFETY: the buffer was created above, and no other code has its handle.
            unsafe { device.raw.destroy_buffer(buffer, None) };
            Err(code)
        }
    }
}

fn import_memory(
    device: &Device,
    buffer: vk::Buffer,
    types: u32,
    start: *const u8,
    size: u64,
) -> Result<vk::DeviceMemory, vk::Result> {
    // SAFETY: the buffer was created from this device and is alive.
    let requirements = unsafe { device.raw.get_buffer_memory_requirements(buffer) };
    let usable = types & requirements.memory_type_bits;
    if usable == 0 || requirements.size > size {
        return Err(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE);
    }
    let mut import = vk::ImportMemoryHostPointerInfoEXT::default()
        .handle_type(HANDLE)
        .host_pointer(start.cast_mut().cast());
    let info = vk::MemoryAllocateInfo::default()
        .allocation_size(size)
        .memory_type_index(usable.trailing_zeros())
        .push_next(&mut import);
    // SAFETY: the pointer is aligned and mapped for `size` bytes, which is a multiple of the alignment; the
    // type is allowed for the pointer. Nothing writes the memory: the buffer has no transfer-destination
    // usage, and `Buffer::is_writable` prevents writes by shaders.
    let memory = unsafe { device.raw.allocate_memory(&info, None) }?;
    // SAFETY: buffer and memory were created from this device for each other, and neither is bound yet.
    match unsafe { device.raw.bind_buffer_memory(buffer, memory, 0) } {
        Ok(()) => Ok(memory),
        Err(code) => {
            // SAFETY: the memory was allocated above and is bound to nothing.
            unsafe { device.raw.free_memory(memory, None) };
            Err(code)
        }
    }
}
