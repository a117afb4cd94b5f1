//! Memory that gpu-allocator asks of the driver in blocks.

use super::device::{Device, GRACE};
use super::heaps::{Choice, Side, choices};
use crate::error::{broken, code_name};
use crate::options::MemoryBudget;
use crate::sync::{lock, lock_until};
use ash::vk;
use ggml_core::{Deadline, Error, Missing, Phase, Result, phase};
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationError, AllocationSizes, AllocatorDebugSettings, MemoryLocation};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Whether that is what the allocator says of host memory that is refused: it knows one code of memory by itself and writes
/// the others into a text, by name or in words.
fn is_host_memory(text: &str) -> bool {
    let code = vk::Result::ERROR_OUT_OF_HOST_MEMORY;
    text.contains(&format!("{code:?}")) || text.contains(&code.to_string())
}

const MIB: u64 = 1 << 20;

/// Small requests share blocks of this size; a larger request is a block of its own, of exactly its size.
const BLOCK: u64 = 16 * MIB;

/// What came of a request for memory of one type.
enum Answer {
    Given(Allocation),
    /// The heap has no room for it; the driver was not asked, or gave more than there is.
    NoRoom,
    /// The driver has none, with its code.
    Refused(vk::Result),
}

/// Where buffers come from.
pub(crate) struct MemoryPool {
    allocator: Mutex<Allocator>,
    /// Memory types of the device's side, the best first.
    device_side: Vec<Choice>,
    /// Memory types of the host's side.
    host_side: Vec<Choice>,
    budget: MemoryBudget,
    /// A bit for each memory type that has a block for small requests. The allocator keeps one for ever.
    shared: AtomicU32,
    allocations: AtomicU64,
    /// Bytes of the blocks.
    held: AtomicU64,
    imported: AtomicU64,
    /// The device; the last field, so that it outlives the allocator.
    device: Arc<Device>,
}

impl std::fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryPool").field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl MemoryPool {
    /// A pool for a device.
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
            held: AtomicU64::new(0),
            imported: AtomicU64::new(0),
            device: device.clone(),
        }))
    }

    /// Memory blocks asked of the driver so far.
    pub(crate) fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }

    /// Bytes of the blocks that are held now.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed) + self.imported.load(Ordering::Relaxed)
    }

    /// Bytes that can still be had for the device's side, as far as is known.
    pub(crate) fn free(&self) -> Option<u64> {
        match self.budget {
            MemoryBudget::Bytes(_) => self.room(0),
            MemoryBudget::Ignored => None,
            MemoryBudget::Reported => {
                let heaps = || self.device_side.iter().map(|c| c.heap);
                let all =
                    || heaps().filter_map(|h| self.device.facts.heaps.get(h)).map(|h| h.bytes).sum::<u64>();
                let free = self.device.budget().map(|free| heaps().filter_map(|h| free.get(h)).sum());
                free.or_else(|| Some(all().saturating_sub(self.held())))
            }
        }
    }

    /// Bytes that the driver may still be asked for in a heap, as far as is known.
    fn room(&self, heap: usize) -> Option<u64> {
        match self.budget {
            MemoryBudget::Bytes(most) => Some(most.saturating_sub(self.held.load(Ordering::Relaxed))),
            MemoryBudget::Ignored => None,
            MemoryBudget::Reported => self.device.budget()?.get(heap).copied(),
        }
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

    /// The memory types of a side, the best first.
    fn side(&self, side: Side) -> &[Choice] {
        match side {
            Side::Device => &self.device_side,
            Side::Host => &self.host_side,
        }
    }

    /// Memory of a side, and the type that it is of: the best whose heap has room. The driver may block in here.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with all heaps that came into question.
    pub(super) fn take(
        &self,
        requirements: vk::MemoryRequirements,
        side: Side,
        name: &str,
    ) -> Result<(Allocation, Choice)> {
        let possible = |c: &&Choice| requirements.memory_type_bits & (1 << c.index) != 0;
        let mut driver = None;
        for choice in self.side(side).iter().filter(possible) {
            match self.take_from(requirements, *choice, name)? {
                Answer::Given(allocation) => return Ok((allocation, *choice)),
                Answer::NoRoom => {}
                Answer::Refused(code) => {
                    driver = Some(format!("vkAllocateMemory: {} ({})", code_name(code), code.as_raw()));
                }
            }
        }
        Err(self.exhausted(requirements.size, side, driver))
    }

    /// Memory of a type.
    ///
    /// A driver may give more than there is, and lose the device when it is used, so the budget is asked first. A small
    /// request may find its place in a block that is there: whether it takes a new one shows only afterwards.
    fn take_from(
        &self,
        mut requirements: vk::MemoryRequirements,
        choice: Choice,
        name: &str,
    ) -> Result<Answer> {
        let room = self.room(choice.heap).unwrap_or(u64::MAX);
        let bit = if requirements.size > BLOCK { 0 } else { 1 << choice.index };
        let known = self.shared.load(Ordering::Relaxed) & bit != 0;
        if !known && requirements.size.max(BLOCK) > room {
            return Ok(Answer::NoRoom);
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
        let taken = allocator.allocate(&desc);
        let grown = allocator.capacity().saturating_sub(before);
        self.held.store(allocator.capacity(), Ordering::Relaxed);
        drop(allocator);
        match taken {
            Ok(allocation) if grown > room => {
                self.give_back(allocation);
                Ok(Answer::NoRoom)
            }
            Ok(allocation) => {
                self.shared.fetch_or(bit, Ordering::Relaxed);
                self.allocations.fetch_add((grown > 0).into(), Ordering::Relaxed);
                Ok(Answer::Given(allocation))
            }
            Err(AllocationError::OutOfMemory) => Ok(Answer::Refused(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY)),
            Err(AllocationError::Internal(text) | AllocationError::FailedToMap(text))
                if is_host_memory(&text) =>
            {
                Ok(Answer::Refused(vk::Result::ERROR_OUT_OF_HOST_MEMORY))
            }
            Err(other) => {
                Err(broken(&self.device.name, Phase::Allocate, "vkAllocateMemory", other.to_string()))
            }
        }
    }

    /// Frees memory unless another thread hangs in the allocator; then it stays allocated.
    pub(super) fn give_back(&self, allocation: Allocation) {
        let Some(mut allocator) = lock_until(&self.allocator, &Deadline::new(Phase::Close, GRACE)) else {
            return self.device.abandon();
        };
        let _span = phase::enter(Phase::Close, &self.device.name);
        phase::call("vkFreeMemory", "");
        if let Err(error) = allocator.free(allocation) {
            tracing::warn!(backend = %self.device.name, %error, "memory could not be freed");
        }
        self.held.store(allocator.capacity(), Ordering::Relaxed);
    }

    /// The error of memory that could not be had: the heaps of the side, the most that is free in one of them, and what
    /// the driver answered if it was asked.
    pub(super) fn exhausted(&self, asked: u64, side: Side, driver: Option<String>) -> Error {
        let name = |choice: &Choice| {
            let heap = self.device.facts.heaps.get(choice.heap);
            let (bytes, local) = heap.map_or((0, false), |h| (h.bytes, h.local));
            let kind = if local { "device-local" } else { "host" };
            format!("{kind} heap {} of {} MiB", choice.heap, bytes / MIB)
        };
        let mut heap = self.side(side).iter().map(name).collect::<Vec<_>>().join(", ");
        if asked > self.largest() {
            heap += &format!(" (one buffer may have {} bytes)", self.largest());
        }
        let free = self.side(side).iter().filter_map(|c| self.room(c.heap)).max();
        Error::OutOfMemory { backend: self.device.name.clone(), asked, free, heap, driver }
    }
}
