//! Memory that gpu-allocator asks of the driver in blocks.

use super::device::{Device, GRACE};
use super::heaps::{Choice, HOST, device_side, host_side};
use crate::error::broken;
use crate::sync::{lock, lock_until};
use ash::vk;
use ggml_core::{Deadline, Error, Missing, Phase, Result};
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationError, AllocationSizes, AllocatorDebugSettings, MemoryLocation};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;

/// Small requests share blocks of this size; a larger request is a block of its own, of exactly its size.
const BLOCK: u64 = 16 * MIB;

/// On which side a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The device's memory; visible to the host if [`MemoryPool::direct`] says so.
    Device,
    /// Host memory that both can reach.
    Host,
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
        let host_side = host_side(&device.facts).ok_or_else(|| missing("host-visible"))?;
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

    /// The memory type of a side.
    pub(super) fn choice(&self, side: Side) -> Choice {
        if side == Side::Device { self.device_side } else { self.host_side }
    }

    /// Memory of a type. The driver may block in here.
    pub(super) fn take(
        &self,
        requirements: vk::MemoryRequirements,
        choice: Choice,
        name: &str,
    ) -> Result<Allocation> {
        let desc = AllocationCreateDesc {
            name,
            requirements,
            location: MemoryLocation::Unknown,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        let mut allocator = lock(&self.allocator);
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
    pub(super) fn give_back(&self, allocation: Allocation) {
        let Some(mut allocator) = lock_until(&self.allocator, &Deadline::new(Phase::Close, GRACE)) else {
            return self.device.abandon();
        };
        if let Err(error) = allocator.free(allocation) {
            tracing::warn!(backend = %self.device.name, %error, "memory could not be freed");
        }
        self.held.store(allocator.capacity(), Ordering::Relaxed);
    }

    /// For messages.
    pub(super) fn heap_name(&self, choice: Choice) -> String {
        let heap = self.device.facts.heaps.get(choice.heap);
        let (bytes, local) = heap.map_or((0, false), |h| (h.bytes, h.local));
        let kind = if local { "device-local" } else { "host" };
        format!("{kind} heap {} of {} MiB", choice.heap, bytes / MIB)
    }

    /// The error of memory that could not be had.
    pub(super) fn exhausted(&self, asked: u64, choice: Choice, heap: String) -> Error {
        let free = self.device.budget().and_then(|b| b.get(choice.heap).copied());
        let driver = Some("vkAllocateMemory".into());
        Error::OutOfMemory { backend: self.device.name.clone(), asked, free, heap, driver }
    }
}
