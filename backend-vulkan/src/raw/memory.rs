//! Memory pool: gpu-allocator allocates blocks from the driver and divides them.

use super::device::{Device, GRACE};
use super::heaps::{Choice, Side, choices, only};
use crate::error::{broken, code_name};
use crate::options::MemoryBudget;
use ash::vk;
use ggml_core::sync::{lock, lock_until};
use ggml_core::{Deadline, Error, Missing, Phase, Result, phase};
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationError, AllocationSizes, AllocatorDebugSettings, MemoryLocation};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Returns true if the allocator's error text is about refused host memory. The allocator has its own variant
/// for one out-of-memory code and puts the others into a text, by name or in words.
fn is_host_memory(text: &str) -> bool {
    let code = vk::Result::ERROR_OUT_OF_HOST_MEMORY;
    text.contains(&format!("{code:?}")) || text.contains(&code.to_string())
}

const MIB: u64 = 1 << 20;

/// Block size shared by small requests; a larger request gets its own block of exactly its size.
const BLOCK: u64 = 16 * MIB;

/// Result of a request for memory of one type.
enum Outcome {
    Allocated(Allocation),
    /// The heap has no room for it: the driver was not called, or gave more than the budget allows.
    NoRoom,
    /// The driver refused with this code.
    Refused(vk::Result),
}

/// The pool that buffers are allocated from.
pub(crate) struct MemoryPool {
    allocator: Mutex<Allocator>,
    /// Memory types for the device's side, the best first.
    device_side: Vec<Choice>,
    /// Memory types for the host's side, the best first.
    host_side: Vec<Choice>,
    budget: MemoryBudget,
    /// Bit mask of the memory types that have a block for small requests. The allocator never frees the last
    /// one.
    shared: AtomicU32,
    allocations: AtomicU64,
    /// Bytes of the blocks.
    block_bytes: AtomicU64,
    imported: AtomicU64,
    /// Bytes of memory that is exported to other drivers, each allocation with memory of its own.
    exported: AtomicU64,
    /// The device; the last field, so that it outlives the allocator.
    device: Arc<Device>,
}

impl std::fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryPool").field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl MemoryPool {
    /// Creates a pool for a device.
    pub(crate) fn new(device: &Arc<Device>, budget: MemoryBudget) -> Result<Arc<MemoryPool>> {
        let facts = &device.facts;
        let side = |side: Side, what: &str| match choices(&facts.heaps, &facts.types, facts.unified(), side) {
            none if none.is_empty() => Err(Error::Unavailable {
                backend: device.name.clone(),
                phase: Phase::OpenDevice,
                missing: Missing::Feature,
                reason: format!("{} has no {what} memory", facts.name),
            }),
            choices => Ok(choices),
        };
        let device_side = side(Side::Device, "device-local")?;
        let host_side = side(Side::Host, "host-visible")?;
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
            budget,
            shared: AtomicU32::new(0),
            allocations: AtomicU64::new(0),
            block_bytes: AtomicU64::new(0),
            imported: AtomicU64::new(0),
            exported: AtomicU64::new(0),
            device: device.clone(),
        }))
    }

    /// Returns the number of memory blocks allocated from the driver so far.
    pub(crate) fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }

    /// Returns the bytes that are currently allocated or imported.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.own_bytes() + self.imported.load(Ordering::Relaxed)
    }

    /// Returns the bytes that are currently allocated.
    fn own_bytes(&self) -> u64 {
        self.block_bytes.load(Ordering::Relaxed) + self.exported.load(Ordering::Relaxed)
    }

    /// Returns the bytes still available to the device's side, if known.
    pub(crate) fn free(&self) -> Option<u64> {
        match self.budget {
            MemoryBudget::Bytes(_) => self.room(0),
            MemoryBudget::Ignored => None,
            MemoryBudget::Reported => {
                let heaps = || self.device_side.iter().map(|c| c.heap);
                let all =
                    || heaps().filter_map(|h| self.device.facts.heaps.get(h)).map(|h| h.bytes).sum::<u64>();
                let free = self.device.budget().map(|free| heaps().filter_map(|h| free.get(h)).sum());
                free.or_else(|| Some(all().saturating_sub(self.allocated_bytes())))
            }
        }
    }

    /// Returns the bytes that may still be allocated from the driver in a heap, if known.
    pub(super) fn room(&self, heap: usize) -> Option<u64> {
        match self.budget {
            MemoryBudget::Bytes(most) => Some(most.saturating_sub(self.own_bytes())),
            MemoryBudget::Ignored => None,
            MemoryBudget::Reported => self.device.budget()?.get(heap).copied(),
        }
    }

    /// Counts memory that was imported or released.
    pub(super) fn count_import(&self, bytes: u64, imported: bool) {
        if imported {
            self.allocations.fetch_add(1, Ordering::Relaxed);
            self.imported.fetch_add(bytes, Ordering::Relaxed);
        } else {
            self.imported.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Counts memory that was exported or released.
    pub(super) fn count_export(&self, bytes: u64, exported: bool) {
        if exported {
            self.allocations.fetch_add(1, Ordering::Relaxed);
            self.exported.fetch_add(bytes, Ordering::Relaxed);
        } else {
            self.exported.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the maximum size of a buffer in bytes.
    pub(crate) fn largest(&self) -> u64 {
        self.device.facts.max_allocation.min(self.device.facts.max_buffer) / 256 * 256
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns the memory types of the device's side among those of a bit mask, the best first. Memory for export may
    /// exclude the type that is best otherwise.
    pub(super) fn device_side_of(&self, bits: u32) -> Vec<Choice> {
        let facts = &self.device.facts;
        choices(&facts.heaps, &only(&facts.types, bits), facts.unified(), Side::Device)
    }

    /// Returns the memory types of a side, the best first.
    fn side(&self, side: Side) -> &[Choice] {
        match side {
            Side::Device => &self.device_side,
            Side::Host => &self.host_side,
        }
    }

    /// Allocates memory for a side and returns it with its type: the best one whose heap has room. The driver
    /// may block in this call.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with all heaps that were considered.
    pub(super) fn allocate(
        &self,
        requirements: vk::MemoryRequirements,
        side: Side,
        name: &str,
    ) -> Result<(Allocation, Choice)> {
        let possible = |c: &&Choice| requirements.memory_type_bits & (1 << c.index) != 0;
        let mut driver = None;
        for choice in self.side(side).iter().filter(possible) {
            match self.allocate_from(requirements, *choice, name)? {
                Outcome::Allocated(allocation) => return Ok((allocation, *choice)),
                Outcome::NoRoom => {}
                Outcome::Refused(code) => {
                    driver = Some(format!("vkAllocateMemory: {} ({})", code_name(code), code.as_raw()));
                }
            }
        }
        Err(self.exhausted(requirements.size, side, driver))
    }

    /// Allocates memory of one type.
    ///
    /// A driver may grant more memory than exists and lose the device when it is used, so the budget is
    /// checked first. A small request may fit an existing block: only after the allocation is it known
    /// whether it needed a new one.
    fn allocate_from(
        &self,
        mut requirements: vk::MemoryRequirements,
        choice: Choice,
        name: &str,
    ) -> Result<Outcome> {
        let room = self.room(choice.heap).unwrap_or(u64::MAX);
        let bit = if requirements.size > BLOCK { 0 } else { 1 << choice.index };
        let known = self.shared.load(Ordering::Relaxed) & bit != 0;
        if !known && requirements.size.max(BLOCK) > room {
            return Ok(Outcome::NoRoom);
        }
        requirements.memory_type_bits = 1 << choice.index;
        let desc = AllocationCreateDesc {
            name,
            requirements,
            location: MemoryLocation::Unknown,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        let mut allocator = lock(&self.allocator);
        let before = allocator.capacity();
        phase::call("vkAllocateMemory", "");
        let allocated = allocator.allocate(&desc);
        let grown = allocator.capacity().saturating_sub(before);
        self.block_bytes.store(allocator.capacity(), Ordering::Relaxed);
        drop(allocator);
        match allocated {
            Ok(allocation) if grown > room => {
                self.release(allocation);
                Ok(Outcome::NoRoom)
            }
            Ok(allocation) => {
                self.shared.fetch_or(bit, Ordering::Relaxed);
                self.allocations.fetch_add((grown > 0).into(), Ordering::Relaxed);
                Ok(Outcome::Allocated(allocation))
            }
            Err(AllocationError::OutOfMemory) => Ok(Outcome::Refused(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY)),
            Err(AllocationError::Internal(text) | AllocationError::FailedToMap(text))
                if is_host_memory(&text) =>
            {
                Ok(Outcome::Refused(vk::Result::ERROR_OUT_OF_HOST_MEMORY))
            }
            Err(other) => {
                Err(broken(&self.device.name, Phase::Allocate, "vkAllocateMemory", other.to_string()))
            }
        }
    }

    /// Frees memory. If another thread hangs in the allocator, the memory stays allocated.
    pub(super) fn release(&self, allocation: Allocation) {
        let Some(mut allocator) = lock_until(&self.allocator, &Deadline::new(Phase::Close, GRACE)) else {
            return self.device.abandon();
        };
        let _span = phase::enter(Phase::Close, &self.device.name);
        phase::call("vkFreeMemory", "");
        if let Err(error) = allocator.free(allocation) {
            tracing::warn!(backend = %self.device.name, %error, "memory could not be freed");
        }
        self.block_bytes.store(allocator.capacity(), Ordering::Relaxed);
    }

    /// Returns the error for memory that could not be allocated: the heaps of the side, the most free bytes
    /// in one of them, and the driver's answer if it was called.
    pub(super) fn exhausted(&self, asked: u64, side: Side, driver: Option<String>) -> Error {
        let name = |choice: &Choice| {
            let heap = self.device.facts.heaps.get(choice.heap);
            let (bytes, local) = heap.map_or((0, false), |h| (h.bytes, h.local));
            let kind = if local { "device-local" } else { "host" };
            format!("{kind} heap {} of {} MiB", choice.heap, bytes / MIB)
        };
        let mut heap = self.side(side).iter().map(name).collect::<Vec<_>>().join(", ");
        if asked > self.largest() {
            heap += &format!(" (maximum size of a buffer: {} bytes)", self.largest());
        }
        let free = self.side(side).iter().filter_map(|c| self.room(c.heap)).max();
        Error::OutOfMemory { backend: self.device.name.clone(), asked, free, heap, driver }
    }
}
