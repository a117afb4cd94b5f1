//! Detection of device features and extensions; the backend enables the ones it finds.

use ash::{amd, ext, khr, nv, vk};
use std::ffi::{CStr, c_void};

/// Optional features that are enabled if supported. Each flag is true if the device has the feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// Timeline semaphores; required.
    pub(crate) timeline: bool,
    /// 16-bit types in storage buffers.
    pub(crate) storage16: bool,
    /// 8-bit types in storage buffers.
    pub(crate) storage8: bool,
    /// Half-precision arithmetic.
    pub(crate) float16: bool,
    /// Byte arithmetic.
    pub(crate) int8: bool,
    /// 16-bit integers.
    pub(crate) int16: bool,
    /// 64-bit integers.
    pub(crate) int64: bool,
    /// Arrays of storage buffers indexed by non-constant values.
    pub(crate) buffer_arrays: bool,
    /// Required subgroup sizes for compute pipelines.
    pub(crate) subgroup_size: bool,
    /// Pipelines whose subgroups are full: subgroup i is the i-th run of invocations.
    pub(crate) full_subgroups: bool,
    /// Integer dot product instructions.
    pub(crate) int_dot: bool,
    /// Cooperative matrices.
    pub(crate) matrices: bool,
    /// Conversions of sums to operands, reductions of rows and functions of elements of cooperative matrices.
    pub(crate) matrix_rows: bool,
    /// Several views of workgroup-shared memory, including views of 16-bit types.
    pub(crate) shared_views: bool,
    /// The Vulkan memory model with device scope. True only with both, because without device scope no shader
    /// may use that scope.
    pub(crate) memory_model: bool,
    /// Pipeline statistics.
    pub(crate) executable: bool,
    /// Markers written from the command stream.
    pub(crate) marker: bool,
    /// Reports of the budget of each heap.
    pub(crate) budget: bool,
    /// Import of host memory.
    pub(crate) host_memory: bool,
    /// Export of memory as file descriptors.
    pub(crate) memory_fd: bool,
    /// Details of a lost device.
    pub(crate) fault: bool,
    /// Report of the PCI address.
    pub(crate) pci: bool,
    /// Report of wavefronts per SIMD and compute units.
    pub(crate) amd_core: bool,
    /// Report of NVIDIA's compute units.
    pub(crate) nv_core: bool,
}

/// Device extensions, by name.
#[derive(Debug, Default)]
pub(crate) struct Extensions(Vec<vk::ExtensionProperties>);

impl Extensions {
    /// Lists the extensions of a physical device.
    pub(super) fn of(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Extensions {
        // SAFETY: the physical device belongs to the instance, which is alive.
        Extensions(unsafe { instance.enumerate_device_extension_properties(physical) }.unwrap_or_default())
    }

    /// Returns true if an extension is listed.
    pub(crate) fn has(&self, name: &CStr) -> bool {
        self.0.iter().any(|e| e.extension_name_as_c_str() == Ok(name))
    }
}

/// `VkPhysicalDeviceCooperativeMatrix2FeaturesNV`, which is newer than ash.
#[repr(C)]
pub(super) struct MatrixRowFeatures {
    s_type: vk::StructureType,
    p_next: *mut c_void,
    workgroup_scope: vk::Bool32,
    flexible_dimensions: vk::Bool32,
    reductions: vk::Bool32,
    conversions: vk::Bool32,
    per_element: vk::Bool32,
    tensor_addressing: vk::Bool32,
    block_loads: vk::Bool32,
}

// SAFETY: the structure begins with its type and the pointer to the next, as all in a chain do, has the members that
// VK_NV_cooperative_matrix2 gives it, and is allowed in these two chains.
unsafe impl vk::ExtendsPhysicalDeviceFeatures2 for MatrixRowFeatures {}
// SAFETY: as above.
unsafe impl vk::ExtendsDeviceCreateInfo for MatrixRowFeatures {}

impl MatrixRowFeatures {
    /// The name of the extension.
    const NAME: &'static CStr = c"VK_NV_cooperative_matrix2";

    /// Creates the structure with `wanted` for the features that [`Features::matrix_rows`] stands for.
    pub(super) fn new(wanted: bool) -> MatrixRowFeatures {
        let (no, wanted) = (vk::FALSE, vk::Bool32::from(wanted));
        MatrixRowFeatures {
            s_type: vk::StructureType::from_raw(1_000_593_000),
            p_next: std::ptr::null_mut(),
            workgroup_scope: no,
            flexible_dimensions: no,
            reductions: wanted,
            conversions: wanted,
            per_element: wanted,
            tensor_addressing: no,
            block_loads: no,
        }
    }

    fn all(&self) -> bool {
        [self.reductions, self.conversions, self.per_element].map(yes) == [true; 3]
    }
}

fn yes(flag: vk::Bool32) -> bool {
    flag != vk::FALSE
}

impl Features {
    /// Queries a physical device of version 1.2 or later.
    pub(super) fn of(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        api: u32,
        ext: &Extensions,
    ) -> Features {
        let core13 = api >= vk::API_VERSION_1_3;
        let size_control = core13 || ext.has(ext::subgroup_size_control::NAME);
        let int_dot = core13 || ext.has(khr::shader_integer_dot_product::NAME);
        let matrices = ext.has(khr::cooperative_matrix::NAME);
        // Kernels with these operations are SPIR-V 1.6.
        let matrix_rows = core13 && matrices && ext.has(MatrixRowFeatures::NAME);
        let shared_views = ext.has(khr::workgroup_memory_explicit_layout::NAME);
        let executable = ext.has(khr::pipeline_executable_properties::NAME);
        let fault = ext.has(ext::device_fault::NAME);
        let mut v11 = vk::PhysicalDeviceVulkan11Features::default();
        let mut v12 = vk::PhysicalDeviceVulkan12Features::default();
        let mut size = vk::PhysicalDeviceSubgroupSizeControlFeatures::default();
        let mut dot = vk::PhysicalDeviceShaderIntegerDotProductFeatures::default();
        let mut matrix = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
        let mut rows = MatrixRowFeatures::new(false);
        let mut views = vk::PhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR::default();
        let mut statistics = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default();
        let mut faults = vk::PhysicalDeviceFaultFeaturesEXT::default();
        let mut chain = vk::PhysicalDeviceFeatures2::default().push_next(&mut v11).push_next(&mut v12);
        if size_control {
            chain = chain.push_next(&mut size);
        }
        if int_dot {
            chain = chain.push_next(&mut dot);
        }
        if matrices {
            chain = chain.push_next(&mut matrix);
        }
        if matrix_rows {
            chain = chain.push_next(&mut rows);
        }
        if shared_views {
            chain = chain.push_next(&mut views);
        }
        if executable {
            chain = chain.push_next(&mut statistics);
        }
        if fault {
            chain = chain.push_next(&mut faults);
        }
        // SAFETY: the physical device belongs to the instance, which is alive; the chain holds only
        // structures of versions and extensions that the device lists.
        unsafe { instance.get_physical_device_features2(physical, &mut chain) };
        let core = chain.features;
        Features {
            timeline: yes(v12.timeline_semaphore),
            storage16: yes(v11.storage_buffer16_bit_access),
            storage8: yes(v12.storage_buffer8_bit_access),
            float16: yes(v12.shader_float16),
            int8: yes(v12.shader_int8),
            int16: yes(core.shader_int16),
            int64: yes(core.shader_int64),
            buffer_arrays: yes(core.shader_storage_buffer_array_dynamic_indexing),
            subgroup_size: yes(size.subgroup_size_control),
            full_subgroups: yes(size.compute_full_subgroups),
            int_dot: yes(dot.shader_integer_dot_product),
            matrices: yes(matrix.cooperative_matrix),
            matrix_rows: rows.all(),
            shared_views: yes(views.workgroup_memory_explicit_layout)
                && yes(views.workgroup_memory_explicit_layout16_bit_access),
            memory_model: yes(v12.vulkan_memory_model) && yes(v12.vulkan_memory_model_device_scope),
            executable: yes(statistics.pipeline_executable_info),
            marker: ext.has(amd::buffer_marker::NAME),
            budget: ext.has(ext::memory_budget::NAME),
            host_memory: ext.has(ext::external_memory_host::NAME),
            memory_fd: cfg!(unix) && ext.has(khr::external_memory_fd::NAME),
            fault: yes(faults.device_fault),
            pci: ext.has(ext::pci_bus_info::NAME),
            amd_core: ext.has(amd::shader_core_properties::NAME),
            nv_core: ext.has(nv::shader_sm_builtins::NAME),
        }
    }

    /// Returns the extensions to enable for these features.
    pub(super) fn extensions(&self, api: u32, listed: &Extensions) -> Vec<&'static CStr> {
        let old = api < vk::API_VERSION_1_3;
        let wanted = [
            (old && (self.subgroup_size || self.full_subgroups), ext::subgroup_size_control::NAME),
            (old && self.int_dot, khr::shader_integer_dot_product::NAME),
            (self.matrices, khr::cooperative_matrix::NAME),
            (self.matrix_rows, MatrixRowFeatures::NAME),
            (self.shared_views, khr::workgroup_memory_explicit_layout::NAME),
            (self.executable, khr::pipeline_executable_properties::NAME),
            (self.marker, amd::buffer_marker::NAME),
            (self.budget, ext::memory_budget::NAME),
            (self.fault, ext::device_fault::NAME),
            (self.host_memory, ext::external_memory_host::NAME),
            (self.memory_fd, khr::external_memory_fd::NAME),
            (listed.has(khr::portability_subset::NAME), khr::portability_subset::NAME),
        ];
        wanted.into_iter().filter(|(wanted, _)| *wanted).map(|(_, name)| name).collect()
    }
}
