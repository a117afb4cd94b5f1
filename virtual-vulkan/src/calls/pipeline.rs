//! Pipelines: RADV compiles them, and their machine code is read from a pipeline cache.

use super::api::{code, list};
use crate::device::Device;
use crate::pipeline::Pipeline;
use crate::record;
use crate::reply::Reply;
use ash::vk;
use ash::vk::Handle as _;
use std::ffi::CStr;

/// A RADV pipeline cache for one pipeline, destroyed on drop.
struct Cache<'a> {
    device: &'a Device,
    raw: vk::PipelineCache,
}

impl<'a> Cache<'a> {
    fn new(device: &'a Device) -> Reply<Cache<'a>> {
        let info = vk::PipelineCacheCreateInfo::default();
        // SAFETY: the device is RADV's and alive.
        let raw = unsafe { device.radv.create_pipeline_cache(&info, None) }?;
        Ok(Cache { device, raw })
    }
}

impl Drop for Cache<'_> {
    fn drop(&mut self) {
        // SAFETY: created in `new` and not shared.
        unsafe { self.device.radv.destroy_pipeline_cache(self.raw, None) };
    }
}

/// Compiles one pipeline.
///
/// # Safety
/// `info` is valid.
unsafe fn compile(
    device: &Device,
    theirs: vk::PipelineCache,
    info: &vk::ComputePipelineCreateInfo<'_>,
) -> Reply<vk::Pipeline> {
    let cache = Cache::new(device)?;
    // SAFETY: the caller's promise; all handles in it are RADV's own.
    let made = unsafe { device.radv.create_compute_pipelines(cache.raw, &[*info], None) };
    let raw = made.map_err(|(_, code)| code)?.first().copied().ok_or(vk::Result::ERROR_UNKNOWN)?;
    // SAFETY: the cache is alive.
    let data = unsafe { device.radv.get_pipeline_cache_data(cache.raw) };
    let binary = data.and_then(|data| {
        record::shader(&data).map_err(|why| {
            tracing::error!(%why, "a compiled shader is not as Mesa {} has them", crate::MESA);
            vk::Result::ERROR_INVALID_SHADER_NV
        })
    });
    let binary = binary.inspect_err(|_| {
        // SAFETY: created above and not shared.
        unsafe { device.radv.destroy_pipeline(raw, None) };
    })?;
    if !theirs.is_null() {
        // SAFETY: both caches are RADV's, which locks them itself. If the merge fails, the pipeline is only
        // compiled again later.
        let _ = unsafe { device.radv.merge_pipeline_caches(theirs, &[cache.raw]) };
    }
    device.pipelines.put(raw.as_raw(), Pipeline::new(binary, format!("pipeline {:#x}", raw.as_raw())));
    Ok(raw)
}

pub(crate) unsafe extern "system" fn create(
    handle: vk::Device,
    cache: vk::PipelineCache,
    count: u32,
    infos: *const vk::ComputePipelineCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Pipeline,
) -> vk::Result {
    code(Device::enter(handle, "vkCreateComputePipelines").and_then(|device| {
        device.alive()?;
        // SAFETY: Vulkan's rules for the caller.
        let infos = unsafe { list(infos, count) };
        let mut result = Ok(());
        for (i, info) in infos.iter().enumerate() {
            // SAFETY: as above; `out` has an element for each pipeline; a failed one is null.
            unsafe {
                let made = compile(&device, cache, info);
                *out.add(i) = made.unwrap_or(vk::Pipeline::null());
                result = result.and(made.map(|_| ()));
            }
        }
        result
    }))
}

pub(crate) unsafe extern "system" fn destroy(
    handle: vk::Device,
    pipeline: vk::Pipeline,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    let Ok(device) = Device::of(handle) else { return };
    if let Some(known) = device.pipelines.take(pipeline.as_raw()) {
        known.unload(&device.gpu);
        // SAFETY: RADV created it, and the caller destroys it once.
        unsafe { device.radv.destroy_pipeline(pipeline, None) };
    }
}

pub(crate) unsafe extern "system" fn create_layout(
    handle: vk::Device,
    info: *const vk::PipelineLayoutCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::PipelineLayout,
) -> vk::Result {
    code(Device::enter(handle, "vkCreatePipelineLayout").and_then(|device| {
        // SAFETY: Vulkan's rules for the caller; the set layouts are RADV's own handles.
        unsafe { *out = device.radv.create_pipeline_layout(&*info, None)? };
        Ok(())
    }))
}

pub(crate) unsafe extern "system" fn destroy_layout(
    handle: vk::Device,
    layout: vk::PipelineLayout,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    if let Ok(device) = Device::of(handle) {
        // SAFETY: RADV created it, and the caller destroys it once.
        unsafe { device.radv.destroy_pipeline_layout(layout, None) };
    }
}

/// Stores the names of pipelines for reports.
pub(crate) unsafe extern "system" fn set_name(
    handle: vk::Device,
    info: *const vk::DebugUtilsObjectNameInfoEXT<'_>,
) -> vk::Result {
    code(Device::of(handle).map(|device| {
        // SAFETY: Vulkan's rules for the caller.
        let info = unsafe { &*info };
        if info.object_type == vk::ObjectType::PIPELINE
            && !info.p_object_name.is_null()
            && let Some(pipeline) = device.pipelines.get(info.object_handle)
        {
            // SAFETY: as above.
            let name = unsafe { CStr::from_ptr(info.p_object_name) };
            pipeline.set_name(name.to_string_lossy().into_owned());
        }
    }))
}
