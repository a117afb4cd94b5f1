//! Buffers with their memory.

use super::device::Device;
use super::heaps::{Choice, Side};
use super::memory::MemoryPool;
use ash::vk;
use ash::vk::MemoryPropertyFlags as Flags;
use ggml_core::mapped::MappedBytes;
use ggml_core::sync::lock;
use ggml_core::{Deadline, Error, Phase, Result};
use gpu_allocator::vulkan::Allocation;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Buffer lengths are multiples of this, so that the last word of a window can be read whole.
pub(super) const PADDING: u64 = 16;

/// Address of mapped memory.
#[derive(Clone, Copy, Debug)]
struct HostPointer(NonNull<u8>);

// SAFETY: the pointer is an address that stays valid and mapped as long as its buffer exists; all accesses
// through it hold the buffer's `host` lock.
unsafe impl Send for HostPointer {}
// SAFETY: as above.
unsafe impl Sync for HostPointer {}

/// The memory that a buffer is bound to.
enum Backing {
    /// Part of the pool.
    Pool(Allocation),
    /// Host memory: the driver's handle, and the owner of the map.
    Imported(vk::DeviceMemory, MappedBytes),
    /// Memory that another driver of the card uses too, and its size.
    Exported(vk::DeviceMemory, u64),
}

/// A buffer with its memory.
pub(crate) struct Buffer {
    /// The buffer.
    pub(super) raw: vk::Buffer,
    /// Length in bytes, a multiple of 16.
    bytes: u64,
    backing: Option<Backing>,
    mapped: Option<HostPointer>,
    cached: bool,
    /// Held during every host access to the mapped memory.
    host: Mutex<()>,
    last_use: AtomicU64,
    pool: Arc<MemoryPool>,
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("bytes", &self.bytes).field("mapped", &self.mapped.is_some()).finish()
    }
}

impl Buffer {
    /// Creates a buffer of at least `bytes` bytes. The driver may block in this call: see
    /// `deadline::guarded`.
    pub(crate) fn new(pool: &Arc<MemoryPool>, bytes: u64, side: Side, name: &str) -> Result<Arc<Buffer>> {
        let device = pool.device();
        device.check_alive(Phase::Allocate)?;
        let size = bytes.max(1).checked_next_multiple_of(PADDING).unwrap_or(u64::MAX);
        if size > pool.largest() {
            return Err(pool.exhausted(bytes, side, None));
        }
        let raw = create(device, size)?;
        match bind(pool, raw, size, side, name) {
            Ok((allocation, mapped, choice)) => Ok(Arc::new(Buffer {
                raw,
                bytes: size,
                backing: Some(Backing::Pool(allocation)),
                mapped,
                cached: choice.flags.contains(Flags::HOST_CACHED),
                host: Mutex::new(()),
                last_use: AtomicU64::new(0),
                pool: pool.clone(),
            })),
            Err(error) => {
                // SAFETY: the buffer was created above, has no memory, and no other code has its handle.
                unsafe { device.raw.destroy_buffer(raw, None) };
                Err(error)
            }
        }
    }

    /// Returns the length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Creates a buffer in host memory that the device reads in place.
    pub(super) fn imported(
        pool: &Arc<MemoryPool>,
        raw: vk::Buffer,
        bytes: u64,
        memory: vk::DeviceMemory,
        owner: MappedBytes,
    ) -> Buffer {
        Buffer {
            raw,
            bytes,
            backing: Some(Backing::Imported(memory, owner)),
            mapped: None,
            cached: false,
            host: Mutex::new(()),
            last_use: AtomicU64::new(0),
            pool: pool.clone(),
        }
    }

    /// Creates a buffer in memory that is exported, mapped at `mapped` if the host may access it.
    pub(super) fn exported(
        pool: &Arc<MemoryPool>,
        (raw, bytes): (vk::Buffer, u64),
        (memory, size): (vk::DeviceMemory, u64),
        choice: Choice,
        mapped: Option<NonNull<u8>>,
    ) -> Buffer {
        Buffer {
            raw,
            bytes,
            backing: Some(Backing::Exported(memory, size)),
            mapped: mapped.map(HostPointer),
            cached: choice.flags.contains(Flags::HOST_CACHED),
            host: Mutex::new(()),
            last_use: AtomicU64::new(0),
            pool: pool.clone(),
        }
    }

    /// Returns true if the buffer may be written; false for an imported memory map.
    pub(crate) fn is_writable(&self) -> bool {
        !matches!(self.backing, Some(Backing::Imported(..)))
    }

    /// Returns true if the host can write the buffer.
    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }

    /// Returns true if the host can read the buffer at memory speed.
    pub(crate) fn reads_fast(&self) -> bool {
        self.mapped.is_some() && self.cached
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        self.pool.device()
    }

    /// Records the timeline value of a submission that uses the buffer.
    pub(crate) fn used(&self, value: u64) {
        self.last_use.fetch_max(value, Ordering::AcqRel);
    }

    /// Waits until the device has finished all submissions that use this buffer.
    pub(crate) fn wait(&self, deadline: &Deadline) -> Result<()> {
        self.device().wait(self.last_use.load(Ordering::Acquire), deadline)
    }

    /// Returns an error if a range is outside the buffer.
    pub(super) fn check(&self, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => {
                let found = format!("{len} bytes at offset {offset}");
                Err(Error::argument("buffer range", found, format!("a range within {} bytes", self.bytes)))
            }
        }
    }

    /// Returns the address of a range of mapped memory.
    fn address(&self, offset: u64, len: u64) -> Result<NonNull<u8>> {
        self.check(offset, len)?;
        let mapped = self
            .mapped
            .ok_or_else(|| Error::argument("buffer", "memory of the device", "memory that the host sees"))?;
        let offset =
            usize::try_from(offset).map_err(|_| Error::argument("buffer offset", offset, "an address"))?;
        // SAFETY: the offset is within the buffer (checked above), whose memory is mapped starting at this
        // address.
        Ok(unsafe { mapped.0.add(offset) })
    }

    /// Writes mapped memory. The caller has waited for the device ([`Buffer::wait`]).
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let to = self.address(offset, data.len() as u64)?;
        let _guard = lock(&self.host);
        // SAFETY: `to` is valid for `data.len()` bytes; the mapping belongs to the driver and overlaps no
        // Rust object; the lock excludes other host accesses.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to.as_ptr(), data.len()) };
        Ok(())
    }

    /// Reads mapped memory. The caller has waited for the device.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let from = self.address(offset, out.len() as u64)?;
        let _guard = lock(&self.host);
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Fills the whole mapped memory with one byte. The caller has waited for the device.
    pub(crate) fn fill(&self, byte: u8) -> Result<()> {
        let to = self.address(0, self.bytes)?;
        let len = usize::try_from(self.bytes)
            .map_err(|_| Error::argument("bytes of a buffer", self.bytes, "an address"))?;
        let _guard = lock(&self.host);
        // SAFETY: as in `write`, for the whole buffer.
        unsafe { std::ptr::write_bytes(to.as_ptr(), byte, len) };
        Ok(())
    }
}

fn create(device: &Device, size: u64) -> Result<vk::Buffer> {
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER
        | vk::BufferUsageFlags::TRANSFER_SRC
        | vk::BufferUsageFlags::TRANSFER_DST;
    let info =
        vk::BufferCreateInfo::default().size(size).usage(usage).sharing_mode(vk::SharingMode::EXCLUSIVE);
    // SAFETY: the device is alive; the size is neither 0 nor larger than the device's limit (checked by the
    // caller).
    unsafe { device.raw.create_buffer(&info, None) }
        .map_err(|code| device.failed(Phase::Allocate, "vkCreateBuffer", code))
}

/// Allocates memory for a buffer and binds it. Returns the memory, its address if it is mapped, and its
/// memory type.
fn bind(
    pool: &MemoryPool,
    raw: vk::Buffer,
    size: u64,
    side: Side,
    name: &str,
) -> Result<(Allocation, Option<HostPointer>, Choice)> {
    // SAFETY: the buffer was created from this device and is alive.
    let requirements = unsafe { pool.device().raw.get_buffer_memory_requirements(raw) };
    if requirements.size > pool.device().facts.max_allocation {
        return Err(pool.exhausted(requirements.size, side, None));
    }
    let (allocation, choice) = pool.allocate(requirements, side, name)?;
    let bound =
        // SAFETY: the memory was allocated for this buffer's requirements from this device, and nothing else
        // is bound to this part of it.
        unsafe { pool.device().raw.bind_buffer_memory(raw, allocation.memory(), allocation.offset()) };
    if let Err(code) = bound {
        pool.release(allocation);
        return Err(pool.device().failed(Phase::Allocate, "vkBindBufferMemory", code));
    }
    let usable = choice.is_accessible() && allocation.size() >= size;
    let mapped = allocation.mapped_ptr().filter(|_| usable).map(|p| HostPointer(p.cast()));
    Ok((allocation, mapped, choice))
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: commands and descriptor sets that refer to the buffer hold an `Arc` of it, and commands are
        // dropped only when the device has finished with them: nothing uses the buffer any more.
        unsafe { self.device().raw.destroy_buffer(self.raw, None) };
        match self.backing.take() {
            Some(Backing::Pool(allocation)) => self.pool.release(allocation),
            Some(Backing::Imported(memory, map)) => {
                // SAFETY: the buffer that was bound to the memory has been destroyed above.
                unsafe { self.device().raw.free_memory(memory, None) };
                self.pool.count_import(self.bytes, false);
                drop(map);
            }
            Some(Backing::Exported(memory, size)) => {
                // SAFETY: as above; freeing ends the mapping too. The importer's reference keeps the memory.
                unsafe { self.device().raw.free_memory(memory, None) };
                self.pool.count_export(size, false);
            }
            None => {}
        }
    }
}
