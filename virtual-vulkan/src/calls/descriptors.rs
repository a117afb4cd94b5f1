//! Descriptor sets, their layouts and pools.

use super::api::{code, list};
use crate::descriptors::{DescriptorPool, DescriptorSet, PoolState, RESOURCE, SetLayout, resource};
use crate::device::Device;
use crate::reply::{Reply, unknown};
use crate::table::lock;
use ash::vk;
use ash::vk::Handle as _;
use std::sync::{Arc, Mutex};

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
        // SAFETY: as above; RADV stores its own layout, for its compiler.
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
    // SAFETY: the caller's obligations are those of this function.
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
            // SAFETY: `out` has an element for each layout.
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
                resource(device.card.options.model, address, bytes)
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
    // An unknown handle is logged; the function has no return code.
    for w in writes {
        // SAFETY: as above.
        let _ = write(&device, w, unsafe { list(w.p_buffer_info, w.descriptor_count) });
    }
    for c in copies {
        let _ = copy(&device, c);
    }
}
