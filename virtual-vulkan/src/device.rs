//! Logical devices: RADV's for what it compiles, and everything that this library holds for one.

use crate::api::{Reply, code, unknown};
use crate::card::Shared;
use crate::commands::CommandPool;
use crate::descriptors::{DescriptorPool, DescriptorSet, SetLayout};
use crate::instance::{Instance, texts};
use crate::memory::{Buffer, HighMemory, Memory};
use crate::physical::{OWN, Wanted};
use crate::pipeline::Pipeline;
use crate::queries::QueryPool;
use crate::queue::Queue;
use crate::semaphores::{Fence, Semaphore};
use crate::table::{Dispatchable, Table};
use ash::vk;
use ash::vk::Handle as _;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};
use virtual_gpu::Gpu;

/// Devices by handle, which is RADV's.
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
    /// RADV's, for functions that are its own.
    pub(crate) get_proc_addr: vk::PFN_vkGetDeviceProcAddr,
    /// Nanoseconds of the made-up clock.
    pub(crate) clock: AtomicU64,
    /// Command buffers that ran.
    pub(crate) lists: AtomicU64,
    pub(crate) memory: Table<Memory>,
    pub(crate) buffers: Table<Buffer>,
    pub(crate) set_layouts: Table<SetLayout>,
    pub(crate) pipelines: Table<Pipeline>,
    pub(crate) descriptor_pools: Table<DescriptorPool>,
    pub(crate) sets: Table<DescriptorSet>,
    pub(crate) command_pools: Table<CommandPool>,
    pub(crate) semaphores: Table<Semaphore>,
    pub(crate) fences: Table<Fence>,
    pub(crate) query_pools: Table<QueryPool>,
}

impl Device {
    /// The device of a handle, for a call that counts and may fail on request.
    pub(crate) fn enter(handle: vk::Device, call: &'static str) -> Reply<Arc<Device>> {
        let device = Device::of(handle)?;
        device.card.options.faults.enter(call).map_err(vk::Result::from_raw)?;
        Ok(device)
    }

    /// The device of a handle.
    pub(crate) fn of(handle: vk::Device) -> Reply<Arc<Device>> {
        let found = DEVICES.get(handle.as_raw()).map(|d| d.as_ref().clone());
        found.ok_or_else(|| unknown("VkDevice", handle.as_raw()))
    }

    /// The device of a queue.
    pub(crate) fn of_queue(handle: vk::Queue) -> Reply<Arc<Device>> {
        let found = QUEUES.get(handle.as_raw()).map(|d| d.as_ref().clone());
        found.ok_or_else(|| unknown("VkQueue", handle.as_raw()))
    }

    /// # Safety
    /// `info` is valid.
    unsafe fn new(physical: vk::PhysicalDevice, info: &vk::DeviceCreateInfo<'_>) -> Reply<Device> {
        let instance = Instance::of(physical)?;
        let shared = instance.card.shared.clone();
        shared.options.faults.enter("vkCreateDevice").map_err(vk::Result::from_raw)?;
        // SAFETY: `info` is valid.
        let mut wanted = unsafe { Wanted::of(info) };
        let mut checks = shared.options.checks;
        checks.ranges &= !wanted.robust();
        let (core, chain) = wanted.link();
        // SAFETY: as above.
        let names = unsafe { texts(info.pp_enabled_extension_names, info.enabled_extension_count) };
        let names: Vec<_> = names.iter().filter(|n| !OWN.contains(n)).map(|n| n.as_ptr()).collect();
        let mut asked =
            vk::DeviceCreateInfo::default().enabled_extension_names(&names).enabled_features(&core);
        (asked.queue_create_info_count, asked.p_queue_create_infos) =
            (info.queue_create_info_count, info.p_queue_create_infos);
        asked.p_next = chain;
        // SAFETY: the queues are the caller's (family 0, which RADV has, too); the chain lives in `wanted`.
        let radv = unsafe { instance.radv.create_device(physical, &asked, None) }?;
        let options = virtual_gpu::Options {
            checks,
            memory: shared.options.memory + shared.options.host_memory + HighMemory::BYTES,
            ..virtual_gpu::Options::default()
        };
        let gpu = Arc::new(Gpu::new(shared.options.model.target(), options));
        Ok(Device {
            high: HighMemory::new(&gpu),
            queue: Queue::new(),
            queue_handle: Dispatchable::new(),
            get_proc_addr: instance.radv.fp_v1_0().get_device_proc_addr,
            clock: AtomicU64::new(1),
            lists: AtomicU64::new(0),
            card: shared,
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
        })
    }

    pub(crate) fn buffer(&self, handle: vk::Buffer) -> Reply<Arc<Buffer>> {
        self.buffers.get(handle.as_raw()).ok_or_else(|| unknown("VkBuffer", handle.as_raw()))
    }

    /// The code of a lost device, if it is lost.
    pub(crate) fn alive(&self) -> Reply {
        if self.queue.fault().is_some() { Err(vk::Result::ERROR_DEVICE_LOST) } else { Ok(()) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.queue.close();
    }
}

pub(crate) unsafe extern "system" fn create(
    physical: vk::PhysicalDevice,
    info: *const vk::DeviceCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Device,
) -> vk::Result {
    // SAFETY: Vulkan's rules for the caller.
    code(unsafe { Device::new(physical, &*info) }.map(|device| {
        let handle = device.radv.handle();
        let device = Arc::new(device);
        QUEUES.put(device.queue_handle.handle(), device.clone());
        DEVICES.put(handle.as_raw(), device);
        // SAFETY: as above.
        unsafe { *out = handle };
    }))
}

pub(crate) unsafe extern "system" fn destroy(
    handle: vk::Device,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    let Some(device) = DEVICES.take(handle.as_raw()) else { return };
    QUEUES.take(device.queue_handle.handle());
    device.queue.close();
    // SAFETY: the caller destroys it once, after everything that was made from it.
    unsafe { device.radv.destroy_device(None) };
}

pub(crate) unsafe extern "system" fn queue(
    handle: vk::Device,
    _family: u32,
    _index: u32,
    out: *mut vk::Queue,
) {
    let queue = Device::of(handle).map_or(0, |device| device.queue_handle.handle());
    // SAFETY: Vulkan's rules for the caller.
    unsafe { *out = vk::Queue::from_raw(queue) };
}

pub(crate) unsafe extern "system" fn queue2(
    handle: vk::Device,
    _info: *const vk::DeviceQueueInfo2<'_>,
    out: *mut vk::Queue,
) {
    // SAFETY: Vulkan's rules for the caller; there is one queue.
    unsafe { queue(handle, 0, 0, out) };
}

pub(crate) unsafe extern "system" fn wait_idle(handle: vk::Device) -> vk::Result {
    code(Device::enter(handle, "vkDeviceWaitIdle").and_then(|device| device.queue.drain()))
}

pub(crate) unsafe extern "system" fn queue_wait_idle(handle: vk::Queue) -> vk::Result {
    code(Device::of_queue(handle).and_then(|device| device.queue.drain()))
}

/// What the device ran into, in the words of VK_EXT_device_fault.
pub(crate) unsafe extern "system" fn fault_info(
    handle: vk::Device,
    counts: *mut vk::DeviceFaultCountsEXT<'_>,
    info: *mut vk::DeviceFaultInfoEXT<'_>,
) -> vk::Result {
    let fault = Device::of(handle).ok().and_then(|device| device.queue.fault());
    // SAFETY: Vulkan's rules for the caller.
    unsafe {
        (*counts).address_info_count = 0;
        (*counts).vendor_info_count = 0;
        (*counts).vendor_binary_size = 0;
        if let Some(info) = info.as_mut() {
            crate::api::put_text(&mut info.description, &fault.unwrap_or_default());
        }
    }
    vk::Result::SUCCESS
}
