//! Descriptor sets: buffer resources in memory, as RADV lays them out.
//!
//! A storage or uniform buffer is a resource of 16 bytes; bindings follow each other in the order of their numbers.

use crate::api::{Reply, code, list, unknown};
use crate::device::Device;
use crate::memory::HighBlock;
use crate::table::lock;
use ash::vk;
use ash::vk::Handle as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use virtual_gpu::Gpu;

/// Bytes of a buffer resource.
const RESOURCE: u64 = 16;

/// The last word of a buffer resource as RADV makes them for GFX9: the four components as they are, 32-bit elements.
const FORMAT: u32 = 0x0002_7fac;

/// The layout of a descriptor set.
pub(crate) struct SetLayout {
    /// For each binding its first resource and how many there are.
    bindings: BTreeMap<u32, (u64, u64)>,
    resources: u64,
}

impl SetLayout {
    fn new(bindings: &[vk::DescriptorSetLayoutBinding<'_>]) -> Reply<SetLayout> {
        let mut layout = SetLayout { bindings: BTreeMap::new(), resources: 0 };
        let mut sorted: Vec<_> = bindings.iter().collect();
        sorted.sort_by_key(|b| b.binding);
        for binding in sorted {
            let kind = binding.descriptor_type;
            if ![vk::DescriptorType::STORAGE_BUFFER, vk::DescriptorType::UNIFORM_BUFFER].contains(&kind) {
                tracing::error!(?kind, "the virtual card has no descriptors of this type");
                return Err(vk::Result::ERROR_FEATURE_NOT_PRESENT);
            }
            let count = u64::from(binding.descriptor_count);
            layout.bindings.insert(binding.binding, (layout.resources, count));
            layout.resources += count;
        }
        Ok(layout)
    }

    fn bytes(&self) -> u64 {
        (self.resources * RESOURCE).max(RESOURCE)
    }
}

/// A pool of descriptor sets: one block of memory.
pub(crate) struct DescriptorPool {
    block: Arc<HighBlock>,
    bytes: u64,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// Bytes from the beginning that were given out.
    used: u64,
    /// Ranges that were given back, by size.
    idle: BTreeMap<u64, Vec<u64>>,
    sets: Vec<u64>,
}

/// A descriptor set.
pub(crate) struct DescriptorSet {
    pub(crate) address: u64,
    layout: Arc<SetLayout>,
    pool: vk::DescriptorPool,
    /// Keeps the memory, which commands that use the set find by its address.
    _block: Arc<HighBlock>,
}

impl DescriptorSet {
    /// Address of a resource, which may be beyond its binding: updates run on into the next one.
    fn resource(&self, binding: u32, element: u64) -> Reply<u64> {
        let &(first, _) =
            self.layout.bindings.get(&binding).ok_or_else(|| unknown("binding", u64::from(binding)))?;
        let at = first + element;
        let inside = at < self.layout.resources;
        if inside { Ok(self.address + at * RESOURCE) } else { Err(unknown("descriptor", at)) }
    }

    /// Forgets everything, so that a later use is seen as an access beyond an empty range.
    fn clear(&self, gpu: &Gpu) {
        let _ = gpu.fill(self.address, 0, self.layout.bytes() as usize);
    }
}

/// A raw buffer resource.
fn resource(address: u64, bytes: u64) -> [u32; 4] {
    let range = u32::try_from(bytes.next_multiple_of(4)).unwrap_or(u32::MAX & !3);
    [address as u32, (address >> 32) as u32 & 0xffff, range, FORMAT]
}

pub(crate) unsafe extern "system" fn create_layout(
    handle: vk::Device,
    info: *const vk::DescriptorSetLayoutCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::DescriptorSetLayout,
) -> vk::Result {
    code(Device::enter(handle, "vkCreateDescriptorSetLayout").and_then(|device| {
        // SAFETY: Vulkan's rules for the caller.
        let info = unsafe { &*info };
        // SAFETY: as above.
        let layout = SetLayout::new(unsafe { list(info.p_bindings, info.binding_count) })?;
        // SAFETY: as above; RADV has its own view of the layout, for its compiler.
        let raw = unsafe { device.radv.create_descriptor_set_layout(info, None) }?;
        device.set_layouts.put(raw.as_raw(), layout);
        // SAFETY: as above.
        unsafe { *out = raw };
        Ok(())
    }))
}

pub(crate) unsafe extern "system" fn destroy_layout(
    handle: vk::Device,
    layout: vk::DescriptorSetLayout,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    let Ok(device) = Device::of(handle) else { return };
    if device.set_layouts.take(layout.as_raw()).is_some() {
        // SAFETY: RADV made it, and the caller destroys it once.
        unsafe { device.radv.destroy_descriptor_set_layout(layout, None) };
    }
}

pub(crate) unsafe extern "system" fn layout_support(
    handle: vk::Device,
    info: *const vk::DescriptorSetLayoutCreateInfo<'_>,
    out: *mut vk::DescriptorSetLayoutSupport<'_>,
) {
    // SAFETY: Vulkan's rules for the caller.
    unsafe {
        let bindings = list((*info).p_bindings, (*info).binding_count);
        let supported = Device::of(handle).and_then(|_| SetLayout::new(bindings)).is_ok();
        (*out).supported = vk::Bool32::from(supported);
    }
}

pub(crate) unsafe extern "system" fn create_pool(
    handle: vk::Device,
    info: *const vk::DescriptorPoolCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::DescriptorPool,
) -> vk::Result {
    code(Device::enter(handle, "vkCreateDescriptorPool").and_then(|device| {
        // SAFETY: Vulkan's rules for the caller.
        let info = unsafe { &*info };
        // SAFETY: as above.
        let sizes = unsafe { list(info.p_pool_sizes, info.pool_size_count) };
        let resources: u64 = sizes.iter().map(|s| u64::from(s.descriptor_count)).sum();
        let bytes = RESOURCE * (resources + u64::from(info.max_sets));
        let block = Arc::new(device.high.allocate(bytes)?);
        let pool = DescriptorPool { block, bytes, state: Mutex::default() };
        // SAFETY: as above.
        unsafe { *out = vk::DescriptorPool::from_raw(device.descriptor_pools.add(pool)) };
        Ok(())
    }))
}

pub(crate) unsafe extern "system" fn reset_pool(
    handle: vk::Device,
    pool: vk::DescriptorPool,
    _flags: vk::DescriptorPoolResetFlags,
) -> vk::Result {
    code(Device::of(handle).map(|device| {
        let Some(pool) = device.descriptor_pools.get(pool.as_raw()) else { return };
        let mut state = lock(&pool.state);
        for set in state.sets.drain(..).filter_map(|set| device.sets.take(set)) {
            set.clear(&device.gpu);
        }
        *state = PoolState::default();
    }))
}

pub(crate) unsafe extern "system" fn destroy_pool(
    handle: vk::Device,
    pool: vk::DescriptorPool,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: the caller's rules are those of this function.
    let _ = unsafe { reset_pool(handle, pool, vk::DescriptorPoolResetFlags::empty()) };
    if let Ok(device) = Device::of(handle) {
        device.descriptor_pools.take(pool.as_raw());
    }
}

fn allocate_one(device: &Device, handle: vk::DescriptorPool, layout: vk::DescriptorSetLayout) -> Reply<u64> {
    let raw = handle.as_raw();
    let pool = device.descriptor_pools.get(raw).ok_or_else(|| unknown("VkDescriptorPool", raw))?;
    let raw = layout.as_raw();
    let layout = device.set_layouts.get(raw).ok_or_else(|| unknown("VkDescriptorSetLayout", raw))?;
    let mut state = lock(&pool.state);
    let bytes = layout.bytes();
    let offset = match state.idle.get_mut(&bytes).and_then(Vec::pop) {
        Some(offset) => offset,
        None if state.used + bytes <= pool.bytes => {
            state.used += bytes;
            state.used - bytes
        }
        None => return Err(vk::Result::ERROR_OUT_OF_POOL_MEMORY),
    };
    let address = pool.block.address + offset;
    let set = DescriptorSet { address, layout, pool: handle, _block: pool.block.clone() };
    let set = device.sets.add(set);
    state.sets.push(set);
    Ok(set)
}

pub(crate) unsafe extern "system" fn allocate(
    handle: vk::Device,
    info: *const vk::DescriptorSetAllocateInfo<'_>,
    out: *mut vk::DescriptorSet,
) -> vk::Result {
    code(Device::enter(handle, "vkAllocateDescriptorSets").and_then(|device| {
        // SAFETY: Vulkan's rules for the caller.
        let info = unsafe { &*info };
        // SAFETY: as above.
        let layouts = unsafe { list(info.p_set_layouts, info.descriptor_set_count) };
        let sets: Vec<u64> = layouts
            .iter()
            .map(|&layout| allocate_one(&device, info.descriptor_pool, layout))
            .collect::<Reply<_>>()?;
        for (i, set) in sets.into_iter().enumerate() {
            // SAFETY: `out` has a place for each layout.
            unsafe { *out.add(i) = vk::DescriptorSet::from_raw(set) };
        }
        Ok(())
    }))
}

pub(crate) unsafe extern "system" fn free(
    handle: vk::Device,
    _pool: vk::DescriptorPool,
    count: u32,
    sets: *const vk::DescriptorSet,
) -> vk::Result {
    code(Device::of(handle).map(|device| {
        // SAFETY: Vulkan's rules for the caller.
        for handle in unsafe { list(sets, count) } {
            let Some(set) = device.sets.take(handle.as_raw()) else { continue };
            set.clear(&device.gpu);
            let Some(pool) = device.descriptor_pools.get(set.pool.as_raw()) else { continue };
            let mut state = lock(&pool.state);
            state.sets.retain(|&s| s != handle.as_raw());
            state.idle.entry(set.layout.bytes()).or_default().push(set.address - pool.block.address);
        }
    }))
}

fn write(device: &Device, w: &vk::WriteDescriptorSet<'_>, infos: &[vk::DescriptorBufferInfo]) -> Reply {
    let raw = w.dst_set.as_raw();
    let set = device.sets.get(raw).ok_or_else(|| unknown("VkDescriptorSet", raw))?;
    for (i, info) in infos.iter().enumerate() {
        let at = set.resource(w.dst_binding, u64::from(w.dst_array_element) + i as u64)?;
        let words = match info.buffer.is_null() {
            true => [0; 4],
            false => {
                let (address, bytes) = device.buffer(info.buffer)?.range(info.offset, info.range)?;
                resource(address, bytes)
            }
        };
        device.gpu.write(at, bytemuck::cast_slice(&words)).map_err(|_| vk::Result::ERROR_UNKNOWN)?;
    }
    Ok(())
}

fn copy(device: &Device, c: &vk::CopyDescriptorSet<'_>) -> Reply {
    let set = |raw: u64| device.sets.get(raw).ok_or_else(|| unknown("VkDescriptorSet", raw));
    let (from, to) = (set(c.src_set.as_raw())?, set(c.dst_set.as_raw())?);
    for i in 0..u64::from(c.descriptor_count) {
        let from = from.resource(c.src_binding, u64::from(c.src_array_element) + i)?;
        let to = to.resource(c.dst_binding, u64::from(c.dst_array_element) + i)?;
        device.gpu.copy(to, from, RESOURCE as usize).map_err(|_| vk::Result::ERROR_UNKNOWN)?;
    }
    Ok(())
}

pub(crate) unsafe extern "system" fn update(
    handle: vk::Device,
    count: u32,
    writes: *const vk::WriteDescriptorSet<'_>,
    copy_count: u32,
    copies: *const vk::CopyDescriptorSet<'_>,
) {
    let Ok(device) = Device::enter(handle, "vkUpdateDescriptorSets") else { return };
    // SAFETY: Vulkan's rules for the caller.
    let (writes, copies) = unsafe { (list(writes, count), list(copies, copy_count)) };
    // A wrong handle was logged; the function has no code to say it with.
    for w in writes {
        // SAFETY: as above.
        let _ = write(&device, w, unsafe { list(w.p_buffer_info, w.descriptor_count) });
    }
    for c in copies {
        let _ = copy(&device, c);
    }
}
