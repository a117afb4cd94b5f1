//! Buffers, in memory that gpu-allocator asks of the driver in blocks.

use super::device::Device;
use super::import::Imported;
use super::physical::{Facts, MemoryType};
use crate::deadline::broken;
use ash::vk;
use ash::vk::MemoryPropertyFlags as Flags;
use ggml_core::Deadline;
use ggml_core::{Error, Missing, Phase, Result};
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationError, AllocationSizes, AllocatorDebugSettings, MemoryLocation};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Small requests share blocks of this size; a larger request is a block of its own, of exactly its size.
const BLOCK: u64 = 16 * MIB;

/// The end of a buffer is a multiple of this, so that the last word of a window can be read whole.
const PADDING: u64 = 16;

/// On which side a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The device's memory; visible to the host if [`MemoryPool::direct`] says so.
    Device,
    /// Host memory that both can reach.
    Host,
}

/// A memory type that was chosen for a side.
#[derive(Clone, Copy, Debug)]
struct Choice {
    index: usize,
    flags: Flags,
    heap: usize,
}

/// Where buffers come from.
pub(crate) struct MemoryPool {
    allocator: Mutex<Allocator>,
    device_side: Choice,
    host_side: Choice,
    allocations: AtomicU64,
    held: AtomicU64,
    imported: AtomicU64,
    /// The device; the last field, so that it outlives the allocator.
    device: Arc<Device>,
}

impl std::fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryPool").field("direct", &self.direct()).finish_non_exhaustive()
    }
}

/// The type that has all of `required`, as much as possible of `preferred`, and little else.
fn choose(types: &[MemoryType], required: Flags, preferred: Flags) -> Option<Choice> {
    let unwanted = Flags::PROTECTED | Flags::LAZILY_ALLOCATED | Flags::DEVICE_UNCACHED_AMD;
    types
        .iter()
        .enumerate()
        .filter(|(_, (flags, _))| flags.contains(required) && !flags.intersects(unwanted))
        .max_by_key(|(index, (flags, _))| {
            let liked = (*flags & preferred).as_raw().count_ones() as i64;
            let extra = (*flags & !(required | preferred)).as_raw().count_ones() as i64;
            // Of equals the first: drivers list the better type first.
            (16 * liked - extra, -(*index as i64))
        })
        .map(|(index, &(flags, heap))| Choice { index, flags, heap })
}

const HOST: Flags = Flags::from_raw(Flags::HOST_VISIBLE.as_raw() | Flags::HOST_COHERENT.as_raw());

/// The type for the device's side: one that the host can write where such a type reaches the largest local heap.
fn device_side(facts: &Facts) -> Option<Choice> {
    let largest = facts.heaps.iter().filter(|h| h.local).map(|h| h.bytes).max()?;
    let preferred = if facts.unified() { Flags::HOST_CACHED } else { Flags::empty() };
    let direct = choose(&facts.types, Flags::DEVICE_LOCAL | HOST, preferred)
        .filter(|c| facts.heaps.get(c.heap).is_some_and(|h| h.bytes == largest));
    direct.or_else(|| choose(&facts.types, Flags::DEVICE_LOCAL, Flags::empty()))
}

impl MemoryPool {
    /// A pool for a device.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<MemoryPool>> {
        let missing = |what: &str| Error::Unavailable {
            backend: device.name.clone(),
            phase: Phase::OpenDevice,
            missing: Missing::Feature,
            reason: format!("{} has no {what} memory", device.facts.name),
        };
        let device_side = device_side(&device.facts).ok_or_else(|| missing("device-local"))?;
        let host_side =
            choose(&device.facts.types, HOST, Flags::HOST_CACHED).ok_or_else(|| missing("host-visible"))?;
        let (instance, physical_device) = device.parents();
        let mut debug_settings = AllocatorDebugSettings::default();
        debug_settings.log_leaks_on_shutdown = false;
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance,
            device: device.raw.clone(),
            physical_device,
            debug_settings,
            buffer_device_address: false,
            allocation_sizes: AllocationSizes::new(BLOCK, BLOCK),
        });
        let allocator = allocator.map_err(|e| {
            broken(&device.name, Phase::OpenDevice, "gpu_allocator::Allocator::new", e.to_string())
        })?;
        Ok(Arc::new(MemoryPool {
            allocator: Mutex::new(allocator),
            device_side,
            host_side,
            allocations: AtomicU64::new(0),
            held: AtomicU64::new(0),
            imported: AtomicU64::new(0),
            device: device.clone(),
        }))
    }

    /// Whether the host can reach memory on the device's side.
    pub(crate) fn direct(&self) -> bool {
        self.device_side.flags.contains(HOST)
    }

    /// Memory blocks asked of the driver so far.
    pub(crate) fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }

    /// Bytes of the blocks that are held now.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed) + self.imported.load(Ordering::Relaxed)
    }

    /// Bytes that can still be allocated where device memory comes from, if the driver says.
    pub(crate) fn free(&self) -> Option<u64> {
        self.device.budget().and_then(|heaps| heaps.get(self.device_side.heap).copied())
    }

    /// Counts memory that was imported, or given back.
    pub(super) fn count_import(&self, bytes: u64, taken: bool) {
        if taken {
            self.allocations.fetch_add(1, Ordering::Relaxed);
            self.imported.fetch_add(bytes, Ordering::Relaxed);
        } else {
            self.imported.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Largest buffer in bytes.
    pub(crate) fn largest(&self) -> u64 {
        self.device.facts.max_allocation.min(self.device.facts.max_buffer) / 256 * 256
    }

    /// The device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// A buffer of at least `bytes` bytes. The driver may block in here: see `deadline::guarded`.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: u64, side: Side, name: &str) -> Result<Arc<Buffer>> {
        self.device.alive(Phase::Allocate)?;
        let choice = if side == Side::Device { self.device_side } else { self.host_side };
        let size = bytes.max(1).checked_next_multiple_of(PADDING).unwrap_or(u64::MAX);
        if size > self.largest() {
            let limit = format!("{} (one buffer may have {} bytes)", self.heap_name(choice), self.largest());
            return Err(self.exhausted(bytes, choice, limit));
        }
        let raw = self.create_buffer(size)?;
        match self.bind(raw, size, choice, name) {
            Ok((allocation, mapped)) => Ok(Arc::new(Buffer {
                raw,
                bytes: size,
                backing: Some(Backing::Pool(allocation)),
                mapped,
                cached: choice.flags.contains(Flags::HOST_CACHED),
                host: Mutex::new(()),
                last_use: AtomicU64::new(0),
                pool: self.clone(),
            })),
            Err(error) => {
                // SAFETY: the buffer was made above, has no memory and is known to nobody else.
                unsafe { self.device.raw.destroy_buffer(raw, None) };
                Err(error)
            }
        }
    }

    fn create_buffer(&self, size: u64) -> Result<vk::Buffer> {
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let info =
            vk::BufferCreateInfo::default().size(size).usage(usage).sharing_mode(vk::SharingMode::EXCLUSIVE);
        // SAFETY: the device is alive; the size is neither 0 nor larger than the device's limit (checked by the caller).
        unsafe { self.device.raw.create_buffer(&info, None) }
            .map_err(|code| self.device.failed(Phase::Allocate, "vkCreateBuffer", code))
    }

    fn bind(
        &self,
        raw: vk::Buffer,
        size: u64,
        choice: Choice,
        name: &str,
    ) -> Result<(Allocation, Option<HostPointer>)> {
        // SAFETY: the buffer was made from this device and is alive.
        let mut requirements = unsafe { self.device.raw.get_buffer_memory_requirements(raw) };
        requirements.memory_type_bits &= 1 << choice.index;
        if requirements.size > self.device.facts.max_allocation {
            return Err(self.exhausted(requirements.size, choice, self.heap_name(choice)));
        }
        let allocation = self.take(requirements, choice, name)?;
        // SAFETY: the memory was allocated for this buffer's requirements from this device, and nothing else is bound
        // to this part of it.
        let bound =
            unsafe { self.device.raw.bind_buffer_memory(raw, allocation.memory(), allocation.offset()) };
        if let Err(code) = bound {
            self.give_back(allocation);
            return Err(self.device.failed(Phase::Allocate, "vkBindBufferMemory", code));
        }
        let mapped =
            allocation.mapped_ptr().filter(|_| allocation.size() >= size).map(|p| HostPointer(p.cast()));
        Ok((allocation, mapped))
    }

    fn take(&self, requirements: vk::MemoryRequirements, choice: Choice, name: &str) -> Result<Allocation> {
        let desc = AllocationCreateDesc {
            name,
            requirements,
            location: MemoryLocation::Unknown,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        let mut allocator = self.allocator.lock().unwrap_or_else(PoisonError::into_inner);
        let before = allocator.capacity();
        let taken = allocator.allocate(&desc);
        let after = allocator.capacity();
        drop(allocator);
        self.held.store(after, Ordering::Relaxed);
        if after > before {
            self.allocations.fetch_add(1, Ordering::Relaxed);
        }
        taken.map_err(|error| match error {
            AllocationError::OutOfMemory => self.exhausted(requirements.size, choice, self.heap_name(choice)),
            other => broken(&self.device.name, Phase::Allocate, "vkAllocateMemory", other.to_string()),
        })
    }

    /// Frees memory unless another thread hangs in the allocator; then it stays allocated.
    fn give_back(&self, allocation: Allocation) {
        let start = Instant::now();
        loop {
            match self.allocator.try_lock() {
                Ok(mut allocator) => {
                    if let Err(error) = allocator.free(allocation) {
                        tracing::warn!(backend = %self.device.name, %error, "memory could not be freed");
                    }
                    self.held.store(allocator.capacity(), Ordering::Relaxed);
                    return;
                }
                Err(std::sync::TryLockError::Poisoned(_)) => return,
                Err(std::sync::TryLockError::WouldBlock) if start.elapsed() > super::device::GRACE => {
                    return self.device.abandon();
                }
                Err(std::sync::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    fn heap_name(&self, choice: Choice) -> String {
        let heap = self.device.facts.heaps.get(choice.heap);
        let (bytes, local) = heap.map_or((0, false), |h| (h.bytes, h.local));
        let kind = if local { "device-local" } else { "host" };
        format!("{kind} heap {} of {} MiB", choice.heap, bytes / MIB)
    }

    fn exhausted(&self, asked: u64, choice: Choice, heap: String) -> Error {
        let free = self.device.budget().and_then(|b| b.get(choice.heap).copied());
        let driver = Some("vkAllocateMemory".into());
        Error::OutOfMemory { backend: self.device.name.clone(), asked, free, heap, driver }
    }
}

/// The address of mapped memory.
#[derive(Clone, Copy, Debug)]
struct HostPointer(NonNull<u8>);

// SAFETY: the pointer is an address that stays valid and mapped as long as its buffer; all accesses through it hold the
// buffer's `host` lock.
unsafe impl Send for HostPointer {}
// SAFETY: as above.
unsafe impl Sync for HostPointer {}

/// What memory a buffer lies in.
pub(super) enum Backing {
    /// Part of the pool.
    Pool(Allocation),
    /// The host's.
    Imported(Imported),
}

/// A buffer with its memory.
pub(crate) struct Buffer {
    /// The buffer.
    pub(super) raw: vk::Buffer,
    /// Its length, a multiple of 16.
    bytes: u64,
    backing: Option<Backing>,
    mapped: Option<HostPointer>,
    cached: bool,
    /// Held by whoever touches the mapped memory.
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
    /// Length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A buffer in memory of the host that the device reads in place.
    pub(super) fn imported(
        pool: &Arc<MemoryPool>,
        raw: vk::Buffer,
        bytes: u64,
        imported: Imported,
    ) -> Buffer {
        Buffer {
            raw,
            bytes,
            backing: Some(Backing::Imported(imported)),
            mapped: None,
            cached: false,
            host: Mutex::new(()),
            last_use: AtomicU64::new(0),
            pool: pool.clone(),
        }
    }

    /// Whether it may be written: not if it is a memory map of somebody else's.
    pub(crate) fn is_writable(&self) -> bool {
        !matches!(self.backing, Some(Backing::Imported(_)))
    }

    /// Whether the host can write it.
    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }

    /// Whether the host can read it at the speed of memory.
    pub(crate) fn reads_fast(&self) -> bool {
        self.mapped.is_some() && self.cached
    }

    /// The device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        self.pool.device()
    }

    /// Remembers a submission that uses the buffer.
    pub(crate) fn used(&self, value: u64) {
        self.last_use.fetch_max(value, Ordering::AcqRel);
    }

    /// Waits until the device is done with what was submitted on this buffer.
    pub(crate) fn wait(&self, deadline: &Deadline) -> Result<()> {
        self.device().wait(self.last_use.load(Ordering::Acquire), deadline)
    }

    /// The error of a range that does not lie in the buffer.
    pub(super) fn check(&self, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => {
                let why =
                    format!("{len} bytes at offset {offset} are outside a buffer of {} bytes", self.bytes);
                Err(Error::argument_said("buffer range", why))
            }
        }
    }

    /// The address of a range of mapped memory.
    fn address(&self, offset: u64, len: u64) -> Result<NonNull<u8>> {
        self.check(offset, len)?;
        let mapped =
            self.mapped.ok_or_else(|| Error::argument_said("buffer", "is not visible to the host"))?;
        let offset =
            usize::try_from(offset).map_err(|_| Error::argument_said("buffer offset", "is too large"))?;
        // SAFETY: offset lies in the buffer (checked above), whose memory is mapped from this address on.
        Ok(unsafe { mapped.0.add(offset) })
    }

    /// Writes mapped memory. The caller has waited for the device ([`Buffer::wait`]).
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let to = self.address(offset, data.len() as u64)?;
        let _guard = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `to` is valid for `data.len()` bytes; the mapping is the driver's and overlaps no Rust object; the
        // lock keeps other host accesses out.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to.as_ptr(), data.len()) };
        Ok(())
    }

    /// Reads mapped memory. The caller has waited for the device.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let from = self.address(offset, out.len() as u64)?;
        let _guard = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Fills mapped memory with one byte. The caller has waited for the device.
    pub(crate) fn fill(&self, byte: u8) -> Result<()> {
        let to = self.address(0, self.bytes)?;
        let len = usize::try_from(self.bytes).map_err(|_| Error::argument_said("buffer", "is too large"))?;
        let _guard = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `write`, for the whole buffer.
        unsafe { std::ptr::write_bytes(to.as_ptr(), byte, len) };
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: commands and descriptor sets that name the buffer hold an `Arc` of it, and commands are dropped only
        // when the device is done with them: nothing uses the buffer any more.
        unsafe { self.pool.device.raw.destroy_buffer(self.raw, None) };
        match self.backing.take() {
            Some(Backing::Pool(allocation)) => self.pool.give_back(allocation),
            Some(Backing::Imported(imported)) => imported.free(&self.pool),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ash::vk::MemoryPropertyFlags as F;

    /// The types of RADV on a card without and with resizable BAR, in its order.
    #[test]
    fn types_are_chosen_by_their_flags() {
        let types = [
            (F::DEVICE_LOCAL, 0),
            (HOST, 1),
            (F::DEVICE_LOCAL | HOST, 2),
            (HOST | F::HOST_CACHED, 1),
            (F::DEVICE_LOCAL | HOST | F::DEVICE_COHERENT_AMD | F::DEVICE_UNCACHED_AMD, 2),
        ];
        assert_eq!(choose(&types, F::DEVICE_LOCAL, F::empty()).unwrap().index, 0);
        assert_eq!(choose(&types, F::DEVICE_LOCAL | HOST, F::empty()).unwrap().index, 2);
        assert_eq!(choose(&types, HOST, F::HOST_CACHED).unwrap().index, 3);
        assert_eq!(choose(&types, HOST, F::empty()).unwrap().index, 1);
        assert!(choose(&types[..1], HOST, F::empty()).is_none());
    }
}
