//! Logical devices: RADV's device for compilation, and this library's objects.

use crate::card::Shared;
use crate::descriptors::{DescriptorPool, DescriptorSet, SetLayout};
use crate::memory::{Buffer, HighMemory, Memory};
use crate::pipeline::Pipeline;
use crate::queries::QueryPool;
use crate::queue::Queue;
use crate::reply::{Reply, unknown};
use crate::semaphores::{Fence, Semaphore};
use crate::table::{Dispatchable, Table};
use ash::vk;
use ash::vk::Handle as _;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock, Mutex};
use virtual_gpu::{Checks, Gpu};

/// Devices by handle, which is RADV's handle.
pub(crate) static DEVICES: LazyLock<Table<Arc<Device>>> = LazyLock::new(Table::default);

/// The device of each queue.
pub(crate) static QUEUES: LazyLock<Table<Arc<Device>>> = LazyLock::new(Table::default);

/// A device.
pub(crate) struct Device {
    pub(crate) card: Arc<Shared>,
    pub(crate) radv: ash::Device,
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) high: HighMemory,
    pub(crate) queue: Arc<Queue>,
    queue_handle: Dispatchable,
    /// RADV's function lookup, for functions passed through.
    pub(crate) get_proc_addr: vk::PFN_vkGetDeviceProcAddr,
    /// Nanoseconds of the simulated clock.
    pub(crate) clock: AtomicU64,
    /// Number of command buffers executed.
    pub(crate) lists: AtomicU64,
    pub(crate) memory: Table<Memory>,
    pub(crate) buffers: Table<Buffer>,
    pub(crate) set_layouts: Table<SetLayout>,
    pub(crate) pipelines: Table<Pipeline>,
    pub(crate) descriptor_pools: Table<DescriptorPool>,
    pub(crate) sets: Table<DescriptorSet>,
    /// The command buffers of each pool.
    pub(crate) command_pools: Table<Mutex<Vec<u64>>>,
    pub(crate) semaphores: Table<Semaphore>,
    pub(crate) fences: Table<Fence>,
    pub(crate) query_pools: Table<QueryPool>,
}

impl Device {
    /// Returns the device of a handle, and counts the call, which may fail by injection.
    pub(crate) fn enter(handle: vk::Device, call: &'static str) -> Reply<Arc<Device>> {
        let device = Device::of(handle)?;
        device.card.options.faults.enter(call).map_err(vk::Result::from_raw)?;
        Ok(device)
    }

    /// Returns the device of a handle.
    pub(crate) fn of(handle: vk::Device) -> Reply<Arc<Device>> {
        let found = DEVICES.get(handle.as_raw()).map(|d| d.as_ref().clone());
        found.ok_or_else(|| unknown("VkDevice", handle.as_raw()))
    }

    /// Returns the device of a queue.
    pub(crate) fn of_queue(handle: vk::Queue) -> Reply<Arc<Device>> {
        let found = QUEUES.get(handle.as_raw()).map(|d| d.as_ref().clone());
        found.ok_or_else(|| unknown("VkQueue", handle.as_raw()))
    }

    /// Creates a device on top of RADV's.
    pub(crate) fn new(
        card: Arc<Shared>,
        radv: ash::Device,
        get_proc_addr: vk::PFN_vkGetDeviceProcAddr,
        checks: Checks,
    ) -> Device {
        let memory = card.options.memory + card.options.host_memory + HighMemory::BYTES;
        let (random, seed) = (card.options.random, card.options.seed);
        let options =
            virtual_gpu::Options { checks, memory, random, seed, ..virtual_gpu::Options::default() };
        let gpu = Arc::new(Gpu::new(card.options.model.target(), options));
        Device {
            high: HighMemory::new(&gpu),
            queue: Queue::new(),
            queue_handle: Dispatchable::new(),
            get_proc_addr,
            clock: AtomicU64::new(1),
            lists: AtomicU64::new(0),
            card,
            radv,
            gpu,
            memory: Table::default(),
            buffers: Table::default(),
            set_layouts: Table::default(),
            pipelines: Table::default(),
            descriptor_pools: Table::default(),
            sets: Table::default(),
            command_pools: Table::default(),
            semaphores: Table::default(),
            fences: Table::default(),
            query_pools: Table::default(),
        }
    }

    pub(crate) fn queue_handle(&self) -> u64 {
        self.queue_handle.handle()
    }

    pub(crate) fn semaphore(&self, handle: vk::Semaphore) -> Reply<Arc<Semaphore>> {
        self.semaphores.get(handle.as_raw()).ok_or_else(|| unknown("VkSemaphore", handle.as_raw()))
    }

    pub(crate) fn fence(&self, handle: vk::Fence) -> Reply<Arc<Fence>> {
        self.fences.get(handle.as_raw()).ok_or_else(|| unknown("VkFence", handle.as_raw()))
    }

    pub(crate) fn pipeline(&self, handle: vk::Pipeline) -> Reply<Arc<Pipeline>> {
        self.pipelines.get(handle.as_raw()).ok_or_else(|| unknown("VkPipeline", handle.as_raw()))
    }

    pub(crate) fn buffer(&self, handle: vk::Buffer) -> Reply<Arc<Buffer>> {
        self.buffers.get(handle.as_raw()).ok_or_else(|| unknown("VkBuffer", handle.as_raw()))
    }

    /// Returns `ERROR_DEVICE_LOST` if the device is lost.
    pub(crate) fn alive(&self) -> Reply {
        if self.queue.fault().is_some() { Err(vk::Result::ERROR_DEVICE_LOST) } else { Ok(()) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.queue.close();
    }
}
