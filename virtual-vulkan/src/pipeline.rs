//! Pipelines: RADV compiles them, and its machine code is taken from a pipeline cache.

use crate::api::{Reply, code, list, unknown};
use crate::device::Device;
use crate::record::{self, Binary};
use crate::table::lock;
use ash::vk;
use ash::vk::Handle as _;
use std::ffi::CStr;
use std::sync::{Arc, Mutex};
use virtual_gpu::{Bare, BareKernel};

/// A compute pipeline.
pub(crate) struct Pipeline {
    pub(crate) binary: Binary,
    name: Mutex<String>,
    kernel: Mutex<Option<BareKernel>>,
}

impl Pipeline {
    /// The name that the program gave it.
    pub(crate) fn name(&self) -> String {
        lock(&self.name).clone()
    }

    /// The code, loaded.
    pub(crate) fn kernel(&self, device: &Device) -> virtual_gpu::Result<BareKernel> {
        let mut kernel = lock(&self.kernel);
        if let Some(kernel) = &*kernel {
            return Ok(kernel.clone());
        }
        let (name, b) = (self.name(), &self.binary);
        let mut code = b.code.clone();
        if let Some(rewrite) = device.card.options.rewrite {
            rewrite(&name, &mut code);
        }
        let loaded = device.gpu.load_bare(&Bare {
            name: &name,
            code: bytemuck::cast_slice(&code),
            rsrc1: b.rsrc1,
            rsrc2: b.rsrc2,
            threads: b.threads,
            lds_bytes: b.lds_bytes,
        })?;
        *kernel = Some(loaded.clone());
        Ok(loaded)
    }
}

/// A pipeline cache of RADV's for one pipeline, gone when it is dropped.
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
        // SAFETY: made in `new`; nobody else knows it.
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
        // SAFETY: made above, known to nobody else.
        unsafe { device.radv.destroy_pipeline(raw, None) };
    })?;
    if !theirs.is_null() {
        // SAFETY: both caches are RADV's; it locks them itself. What is not merged is compiled again, no more.
        let _ = unsafe { device.radv.merge_pipeline_caches(theirs, &[cache.raw]) };
    }
    let name = Mutex::new(format!("pipeline {:#x}", raw.as_raw()));
    device.pipelines.put(raw.as_raw(), Pipeline { binary, name, kernel: Mutex::default() });
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
            // SAFETY: as above; `out` has a place for each pipeline, and one that failed is null.
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
        if let Some(kernel) = lock(&known.kernel).take() {
            let _ = device.gpu.unload_bare(&kernel);
        }
        // SAFETY: RADV made it, and the caller destroys it once.
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
        // SAFETY: RADV made it, and the caller destroys it once.
        unsafe { device.radv.destroy_pipeline_layout(layout, None) };
    }
}

/// Names of pipelines are kept, for reports.
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
            *lock(&pipeline.name) = name.to_string_lossy().into_owned();
        }
    }))
}

/// The pipeline of a handle.
pub(crate) fn of(device: &Device, handle: vk::Pipeline) -> Reply<Arc<Pipeline>> {
    device.pipelines.get(handle.as_raw()).ok_or_else(|| unknown("VkPipeline", handle.as_raw()))
}
