//! Compute pipelines, their layouts, and the driver's pipeline cache.

use super::device::Device;
use ash::vk;
use ggml_core::{Error, Phase, Result, phase};
use shaders::ShaderId;
use std::ffi::CString;
use std::sync::Arc;

/// A descriptor set layout of storage buffers and the pipeline layout around it.
pub(crate) struct Layout {
    /// The device.
    pub(super) device: Arc<Device>,
    /// Layout of the descriptor set.
    pub(super) set: vk::DescriptorSetLayout,
    /// Layout of the pipeline.
    pub(super) raw: vk::PipelineLayout,
    /// Number of storage buffers at each binding, from 0.
    pub(crate) bindings: Vec<u32>,
    /// Push constants in bytes.
    pub(crate) push_bytes: u32,
}

impl Layout {
    /// Creates a layout with the given number of storage buffers at each binding and `push_bytes` bytes of
    /// push constants.
    pub(crate) fn new(device: &Arc<Device>, bindings: &[u32], push_bytes: u32) -> Result<Arc<Layout>> {
        let limit = device.facts.caps.push_constant_bytes;
        if push_bytes > limit || !push_bytes.is_multiple_of(4) {
            let (found, expected) =
                (format!("{push_bytes} bytes"), format!("whole words, up to {limit} bytes"));
            return Err(Error::argument("push constants", found, expected));
        }
        let slots: Vec<_> = (0..)
            .zip(bindings)
            .map(|(binding, &count)| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(count)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&slots);
        // SAFETY: the device is alive; the bindings are distinct.
        let set = unsafe { device.raw.create_descriptor_set_layout(&info, None) }
            .map_err(|code| device.failed(Phase::Compile, "vkCreateDescriptorSetLayout", code))?;
        let ranges = [vk::PushConstantRange {
            stage_flags: vk::ShaderStageFlags::COMPUTE,
            offset: 0,
            size: push_bytes,
        }];
        let sets = [set];
        let info = vk::PipelineLayoutCreateInfo::default()
            .set_layouts(&sets)
            .push_constant_ranges(if push_bytes == 0 { &[] } else { &ranges });
        // SAFETY: the device and the set layout are alive; the range is within the device's limit.
        match unsafe { device.raw.create_pipeline_layout(&info, None) } {
            Ok(raw) => {
                let (device, bindings) = (device.clone(), bindings.to_vec());
                Ok(Arc::new(Layout { device, set, raw, bindings, push_bytes }))
            }
            Err(code) => {
                // SAFETY: the set layout was created above, and no other code has its handle.
                unsafe { device.raw.destroy_descriptor_set_layout(set, None) };
                Err(device.failed(Phase::Compile, "vkCreatePipelineLayout", code))
            }
        }
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: pipelines and descriptor sets hold an `Arc` of their layout, so none is left.
        unsafe {
            self.device.raw.destroy_pipeline_layout(self.raw, None);
            self.device.raw.destroy_descriptor_set_layout(self.set, None);
        }
    }
}

/// Compiler output that the driver retains for a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// Nothing.
    Nothing,
    /// Statistics.
    Statistics,
    /// Internal representations, including machine code as text.
    Listing,
}

/// Parameters for creating a pipeline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe<'a> {
    /// The shader.
    pub(crate) shader: ShaderId,
    /// Values of the specialisation constants, from ID 0.
    pub(crate) specialization: &'a [u32],
    /// Required subgroup size, if any.
    pub(crate) subgroup: Option<u32>,
    /// True if the shader has subgroup operations: then subgroups are full where the device can promise it.
    pub(crate) has_subgroups: bool,
    /// Compiler output to retain.
    pub(crate) capture: Capture,
    /// Name for tools and reports.
    pub(crate) name: &'a str,
}

/// A compute pipeline.
pub(crate) struct Pipeline {
    /// The pipeline.
    pub(super) raw: vk::Pipeline,
    /// Its layout.
    pub(crate) layout: Arc<Layout>,
    capture: Capture,
}

/// A value that the driver's compiler reports for a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Statistic {
    /// Name from the driver.
    pub(crate) name: String,
    /// Value.
    pub(crate) value: f64,
}

impl Pipeline {
    /// Compiles a shader. This may take long: see `pipeline::PipelineSet`.
    pub(crate) fn new(
        layout: &Arc<Layout>,
        cache: Option<&DriverCache>,
        recipe: Recipe<'_>,
    ) -> Result<Pipeline> {
        let device = &layout.device;
        device.check_alive(Phase::Compile)?;
        let words = recipe.shader.words().ok_or_else(|| {
            let what = format!("SPIR-V of shader {}", recipe.shader);
            Error::argument(what, "none", "a committed module; `make shaders` writes it")
        })?;
        let info = vk::ShaderModuleCreateInfo::default().code(words);
        // SAFETY: the words are a module of the shaders crate, whose tests validate every module; its
        // capabilities have been compared with the enabled features by `pipeline::modules`.
        let module = unsafe { device.raw.create_shader_module(&info, None) }
            .map_err(|code| device.failed(Phase::Compile, "vkCreateShaderModule", code))?;
        let raw = compile(layout, cache, module, recipe);
        // SAFETY: the module was created above; a pipeline does not need it after creation.
        unsafe { device.raw.destroy_shader_module(module, None) };
        let pipeline = Pipeline { raw: raw?, layout: layout.clone(), capture: recipe.capture };
        pipeline.set_name(recipe.name);
        Ok(pipeline)
    }

    fn set_name(&self, name: &str) {
        let (Some(functions), Ok(name)) = (&self.layout.device.names, CString::new(name)) else { return };
        let info = vk::DebugUtilsObjectNameInfoEXT::default().object_handle(self.raw).object_name(&name);
        // SAFETY: the pipeline was just created, and no other thread has it. If setting the name fails, only
        // the name is missing.
        let _ = unsafe { functions.set_debug_utils_object_name(&info) };
    }

    /// Returns the subgroup size that the driver's compiler chose, if it is reported.
    pub(crate) fn subgroup_size(&self) -> Option<u32> {
        let functions = self.layout.device.executable.as_ref()?;
        let info = vk::PipelineInfoKHR::default().pipeline(self.raw);
        // SAFETY: the pipeline is alive, and the extension and its feature are enabled.
        let all = unsafe { functions.get_pipeline_executable_properties(&info) }.ok()?;
        all.first().map(|executable| executable.subgroup_size)
    }

    /// Returns the statistics of the driver's compiler; empty if there are none.
    pub(crate) fn statistics(&self) -> Vec<Statistic> {
        let Some(functions) = &self.layout.device.executable else { return Vec::new() };
        if self.capture != Capture::Statistics {
            return Vec::new();
        }
        let info = vk::PipelineExecutableInfoKHR::default().pipeline(self.raw).executable_index(0);
        // SAFETY: the pipeline is alive and was created with CAPTURE_STATISTICS; a compute pipeline has an
        // executable.
        let all = unsafe { functions.get_pipeline_executable_statistics(&info) }.unwrap_or_default();
        all.iter().map(statistic).collect()
    }

    /// Returns the machine code as text; `None` if the driver provides none.
    pub(crate) fn listing(&self) -> Option<String> {
        let functions =
            self.layout.device.executable.as_ref().filter(|_| self.capture == Capture::Listing)?;
        let info = vk::PipelineExecutableInfoKHR::default().pipeline(self.raw).executable_index(0);
        let read = functions.fp().get_pipeline_executable_internal_representations_khr;
        let mut count = 0;
        // SAFETY: the pipeline is alive and was created with CAPTURE_INTERNAL_REPRESENTATIONS; a compute
        // pipeline has an executable. Without an array the driver writes only their number.
        let counted = unsafe { read(functions.device(), &info, &mut count, std::ptr::null_mut()) };
        counted.result().ok()?;
        let mut all = vec![vk::PipelineExecutableInternalRepresentationKHR::default(); count as usize];
        // SAFETY: as above; the array has `count` elements, whose null data requests sizes.
        let sized = unsafe { read(functions.device(), &info, &mut count, all.as_mut_ptr()) };
        sized.result().ok()?;
        let named = |r: &vk::PipelineExecutableInternalRepresentationKHR<'_>| {
            let name = r.name_as_c_str().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
            r.is_text == vk::TRUE && name.contains("assembly")
        };
        let index = all.iter().position(named)?;
        let mut text = vec![0u8; all[index].data_size];
        // For the others the driver writes only their sizes.
        all[index].p_data = text.as_mut_ptr().cast();
        // SAFETY: as above; `text` has as many bytes as its element specifies.
        let read = unsafe { read(functions.device(), &info, &mut count, all.as_mut_ptr()) };
        read.result().ok()?;
        Some(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned())
    }
}

fn statistic(raw: &vk::PipelineExecutableStatisticKHR<'_>) -> Statistic {
    let name = raw.name_as_c_str().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    use vk::PipelineExecutableStatisticFormatKHR as Format;
    // SAFETY: the format specifies which member of the union the driver wrote; all members are plain numbers.
    let value = unsafe {
        match raw.format {
            Format::INT64 => raw.value.i64 as f64,
            Format::UINT64 => raw.value.u64 as f64,
            Format::FLOAT64 => raw.value.f64,
            _ => f64::from(raw.value.b32),
        }
    };
    Statistic { name, value }
}

fn compile(
    layout: &Layout,
    cache: Option<&DriverCache>,
    module: vk::ShaderModule,
    recipe: Recipe<'_>,
) -> Result<vk::Pipeline> {
    let device = &layout.device;
    let entries: Vec<_> = (0..recipe.specialization.len() as u32)
        .map(|id| vk::SpecializationMapEntry { constant_id: id, offset: 4 * id, size: 4 })
        .collect();
    let constants = vk::SpecializationInfo::default()
        .map_entries(&entries)
        .data(bytemuck::cast_slice(recipe.specialization));
    let mut size = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default()
        .required_subgroup_size(recipe.subgroup.unwrap_or(0));
    let mut stage = vk::PipelineShaderStageCreateInfo::default()
        .stage(vk::ShaderStageFlags::COMPUTE)
        .module(module)
        .name(c"main")
        .specialization_info(&constants);
    // RADV aborts if a subgroup size is required on a device where it cannot be chosen (gfx8, gfx9).
    if recipe.subgroup.is_some() && device.facts.caps.subgroup_control {
        stage = stage.push_next(&mut size);
    }
    // Without this, no rule says that subgroup i is the i-th run of invocations. Vulkan allows it only for work-groups of
    // whole subgroups.
    let lanes = recipe.subgroup.unwrap_or(device.facts.caps.subgroup_default).max(1);
    let is_whole = recipe.specialization.first().is_some_and(|x| x.is_multiple_of(lanes));
    if recipe.has_subgroups && is_whole && device.facts.support.features.full_subgroups {
        stage = stage.flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS);
    }
    // DISPATCH_BASE: long dispatches are split with vkCmdDispatchBase.
    let mut flags = vk::PipelineCreateFlags::DISPATCH_BASE;
    if device.facts.support.features.executable {
        flags |= match recipe.capture {
            Capture::Nothing => vk::PipelineCreateFlags::empty(),
            Capture::Statistics => vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR,
            Capture::Listing => vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR,
        };
    }
    let info = [vk::ComputePipelineCreateInfo::default().flags(flags).stage(stage).layout(layout.raw)];
    let cache = cache.map_or(vk::PipelineCache::null(), |c| c.raw);
    phase::call("vkCreateComputePipelines", recipe.name);
    // SAFETY: device, module, layout and cache are alive and belong to the same device; the specialisation
    // data has one word for each entry; a required size is chained only where the device allows it, and
    // `pipeline::PipelineSet` has checked that it is within the device's limits.
    let made = unsafe { device.raw.create_compute_pipelines(cache, &info, None) };
    match made {
        Ok(pipelines) => match pipelines.first() {
            Some(&raw) => Ok(raw),
            None => Err(device.failed(Phase::Compile, "vkCreateComputePipelines", vk::Result::ERROR_UNKNOWN)),
        },
        Err((_, code)) => Err(device.failed(Phase::Compile, "vkCreateComputePipelines", code)),
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // SAFETY: commands that bind the pipeline hold an `Arc` of it and are dropped only when the device
        // has finished with them.
        unsafe { self.layout.device.raw.destroy_pipeline(self.raw, None) };
    }
}

/// The driver's pipeline cache, which the driver synchronises internally.
pub(crate) struct DriverCache {
    device: Arc<Device>,
    raw: vk::PipelineCache,
}

impl DriverCache {
    /// Creates a cache from the data of an earlier one for the same device and driver. The caller has
    /// validated the header of the data.
    pub(crate) fn new(device: &Arc<Device>, data: &[u8]) -> Result<DriverCache> {
        let info = vk::PipelineCacheCreateInfo::default().initial_data(data);
        // SAFETY: the device is alive; the data is empty or was returned by vkGetPipelineCacheData for this
        // device and driver (`cache::load` compares the identity and a checksum).
        let raw = unsafe { device.raw.create_pipeline_cache(&info, None) }
            .map_err(|code| device.failed(Phase::OpenDevice, "vkCreatePipelineCache", code))?;
        Ok(DriverCache { device: device.clone(), raw })
    }

    /// Returns the data for a later cache.
    pub(crate) fn data(&self) -> Result<Vec<u8>> {
        // SAFETY: the cache is alive.
        unsafe { self.device.raw.get_pipeline_cache_data(self.raw) }
            .map_err(|code| self.device.failed(Phase::Close, "vkGetPipelineCacheData", code))
    }
}

impl Drop for DriverCache {
    fn drop(&mut self) {
        // SAFETY: threads that compile hold an `Arc` of the structure that owns this cache, so none uses it.
        unsafe { self.device.raw.destroy_pipeline_cache(self.raw, None) };
    }
}
