//! Properties of a physical device.

use super::features::{Extensions, Features};
use super::instance::{Instance, version_text};
use crate::arch::{self, Caps, MatrixShape, MatrixTypes, SubgroupOps, Traits};
use ash::{khr, vk};
use ggml_core::phase;
use std::ffi::CStr;

/// Kind of device, in order of preference of the default choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A graphics card.
    Discrete,
    /// A GPU that shares memory with the CPU.
    Integrated,
    /// A device provided by a hypervisor.
    Virtual,
    /// The CPU.
    Cpu,
    /// Any other kind.
    Other,
}

impl DeviceKind {
    /// Returns the name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Discrete => "discrete",
            DeviceKind::Integrated => "integrated",
            DeviceKind::Virtual => "virtual",
            DeviceKind::Cpu => "cpu",
            DeviceKind::Other => "other",
        }
    }
}

/// A heap of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heap {
    /// Bytes.
    pub(crate) bytes: u64,
    /// True if the heap is device-local.
    pub(crate) local: bool,
}

/// A memory type: properties and heap.
pub(crate) type MemoryType = (vk::MemoryPropertyFlags, usize);

/// Execution modes of floating-point arithmetic that are supported for both F16 and F32.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FloatControls {
    /// Rounding to nearest, ties to even.
    pub(crate) round_even: bool,
    /// Subnormals are preserved.
    pub(crate) keep_denormals: bool,
    /// Signed zeros, infinities and NaNs are preserved.
    pub(crate) keep_special: bool,
}

/// Device properties that decide which shader modules a device can run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShaderSupport {
    /// Highest Vulkan version that the device supports.
    pub(crate) api: u32,
    /// Features.
    pub(crate) features: Features,
    /// Subgroup operations of compute shaders, as reported by the driver.
    pub(crate) subgroup_operations: vk::SubgroupFeatureFlags,
    /// Floating-point execution modes that shaders can require.
    pub(crate) float_controls: FloatControls,
}

/// Properties queried from a physical device before it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Device name from the driver.
    pub(crate) name: String,
    /// Kind of device.
    pub(crate) kind: DeviceKind,
    /// PCI vendor and device IDs.
    pub(crate) ids: (u32, u32),
    /// PCI domain, bus and device, if the driver reports them.
    pub(crate) pci: Option<[u32; 3]>,
    /// Support for shader requirements.
    pub(crate) support: ShaderSupport,
    /// The driver's version as an integer.
    pub(crate) driver_version: u32,
    /// The driver's name.
    pub(crate) driver: String,
    /// The driver's number.
    pub(crate) driver_id: vk::DriverId,
    /// The driver's additional information, such as its version.
    pub(crate) driver_info: String,
    /// Version of the conformance tests that the driver passed.
    pub(crate) conformance: String,
    /// The device's UUID.
    pub(crate) uuid: [u8; 16],
    /// UUID that pipeline caches are valid for.
    pub(crate) cache_uuid: [u8; 16],
    /// Properties that kernels may depend on. The subgroup operations are as reported, not yet checked by the
    /// lane probe.
    pub(crate) caps: Caps,
    /// Memory heaps.
    pub(crate) heaps: Vec<Heap>,
    /// Memory types.
    pub(crate) types: Vec<MemoryType>,
    /// Largest allocation in bytes.
    pub(crate) max_allocation: u64,
    /// Largest buffer in bytes.
    pub(crate) max_buffer: u64,
    /// Alignment of imported host memory in bytes.
    pub(crate) import_alignment: u64,
    /// Nanoseconds of a timestamp tick and the number of valid bits, if the queue has timestamps.
    pub(crate) timestamps: Option<(f64, u32)>,
    /// The queue family to use.
    pub(crate) queue_family: Option<u32>,
    /// The extensions to enable.
    pub(crate) extensions: Vec<&'static CStr>,
}

/// Converts a fixed-size, NUL-terminated text of a property structure.
pub(super) fn text(chars: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&c| c.to_ne_bytes()[0]).take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Property structures that are queried together.
#[derive(Default)]
struct Properties {
    core: vk::PhysicalDeviceProperties,
    v11: vk::PhysicalDeviceVulkan11Properties<'static>,
    v12: vk::PhysicalDeviceVulkan12Properties<'static>,
    size: Option<vk::PhysicalDeviceSubgroupSizeControlProperties<'static>>,
    dot: Option<vk::PhysicalDeviceShaderIntegerDotProductProperties<'static>>,
    amd: Option<vk::PhysicalDeviceShaderCorePropertiesAMD<'static>>,
    nv: Option<vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV<'static>>,
    host: Option<vk::PhysicalDeviceExternalMemoryHostPropertiesEXT<'static>>,
    maintenance4: Option<vk::PhysicalDeviceMaintenance4Properties<'static>>,
    pci: Option<vk::PhysicalDevicePCIBusInfoPropertiesEXT<'static>>,
}

impl Properties {
    fn of(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        core13: bool,
        features: &Features,
    ) -> Properties {
        let mut p = Properties {
            size: features.subgroup_size.then(Default::default),
            dot: features.int_dot.then(Default::default),
            amd: features.amd_core.then(Default::default),
            nv: features.nv_core.then(Default::default),
            host: features.host_memory.then(Default::default),
            maintenance4: core13.then(Default::default),
            pci: features.pci.then(Default::default),
            ..Properties::default()
        };
        let mut chain = vk::PhysicalDeviceProperties2::default().push_next(&mut p.v11).push_next(&mut p.v12);
        if let Some(size) = &mut p.size {
            chain = chain.push_next(size);
        }
        if let Some(dot) = &mut p.dot {
            chain = chain.push_next(dot);
        }
        if let Some(amd) = &mut p.amd {
            chain = chain.push_next(amd);
        }
        if let Some(nv) = &mut p.nv {
            chain = chain.push_next(nv);
        }
        if let Some(host) = &mut p.host {
            chain = chain.push_next(host);
        }
        if let Some(maintenance4) = &mut p.maintenance4 {
            chain = chain.push_next(maintenance4);
        }
        if let Some(pci) = &mut p.pci {
            chain = chain.push_next(pci);
        }
        // SAFETY: the physical device belongs to the instance, which is alive; the chain holds only
        // structures of versions and extensions that the device lists.
        unsafe { instance.get_physical_device_properties2(physical, &mut chain) };
        p.core = chain.properties;
        p
    }

    fn subgroup_operations(&self) -> vk::SubgroupFeatureFlags {
        match self.v11.subgroup_supported_stages.contains(vk::ShaderStageFlags::COMPUTE) {
            true => self.v11.subgroup_supported_operations,
            false => vk::SubgroupFeatureFlags::empty(),
        }
    }

    fn float_controls(&self) -> FloatControls {
        let v = &self.v12;
        let both = |a: vk::Bool32, b: vk::Bool32| a != vk::FALSE && b != vk::FALSE;
        FloatControls {
            round_even: both(v.shader_rounding_mode_rte_float16, v.shader_rounding_mode_rte_float32),
            keep_denormals: both(v.shader_denorm_preserve_float16, v.shader_denorm_preserve_float32),
            keep_special: both(
                v.shader_signed_zero_inf_nan_preserve_float16,
                v.shader_signed_zero_inf_nan_preserve_float32,
            ),
        }
    }
}

/// Returns the highest version of a physical device.
pub(crate) fn api_version(instance: &Instance, physical: vk::PhysicalDevice) -> u32 {
    // SAFETY: the physical device was listed by this instance, which is alive.
    unsafe { instance.raw.get_physical_device_properties(physical) }.api_version
}

/// Returns the name of a device whose version may be too low for [`Facts::of`].
pub(crate) fn name_of(instance: &Instance, physical: vk::PhysicalDevice) -> String {
    // SAFETY: as above.
    text(&unsafe { instance.raw.get_physical_device_properties(physical) }.device_name)
}

impl Facts {
    /// Queries a physical device of version 1.2 or later.
    pub(crate) fn of(instance: &Instance, physical: vk::PhysicalDevice) -> Facts {
        let raw = &instance.raw;
        let api = api_version(instance, physical);
        let listed = Extensions::of(raw, physical);
        let features = Features::of(raw, physical, api, &listed);
        let p = Properties::of(raw, physical, api >= vk::API_VERSION_1_3, &features);
        // SAFETY: the physical device belongs to the instance, which is alive.
        let memory = unsafe { raw.get_physical_device_memory_properties(physical) };
        let (queue_family, bits) = queue_family(raw, physical);
        let period = f64::from(p.core.limits.timestamp_period);
        let passed = p.v12.conformance_version;
        Facts {
            name: text(&p.core.device_name),
            kind: kind(p.core.device_type),
            ids: (p.core.vendor_id, p.core.device_id),
            pci: p.pci.map(|pci| [pci.pci_domain, pci.pci_bus, pci.pci_device]),
            support: ShaderSupport {
                api,
                features,
                subgroup_operations: p.subgroup_operations(),
                float_controls: p.float_controls(),
            },
            driver_version: p.core.driver_version,
            driver: text(&p.v12.driver_name),
            driver_info: text(&p.v12.driver_info),
            conformance: format!("{}.{}.{}.{}", passed.major, passed.minor, passed.subminor, passed.patch),
            uuid: p.v11.device_uuid,
            cache_uuid: p.core.pipeline_cache_uuid,
            driver_id: p.v12.driver_id,
            caps: caps(&p, &features),
            heaps: memory.memory_heaps_as_slice().iter().map(heap).collect(),
            types: memory
                .memory_types_as_slice()
                .iter()
                .map(|t| (t.property_flags, t.heap_index as usize))
                .collect(),
            max_allocation: p.v11.max_memory_allocation_size,
            max_buffer: p.maintenance4.map_or(u64::MAX, |m| m.max_buffer_size),
            import_alignment: p.host.map_or(0, |h| h.min_imported_host_pointer_alignment),
            timestamps: (bits > 0 && period.is_finite() && period > 0.0).then_some((period, bits)),
            queue_family,
            extensions: features.extensions(api, &listed),
        }
    }

    /// True if this is Mesa's driver for AMD's cards.
    pub(crate) fn is_mesas_for_amd(&self) -> bool {
        self.driver_id == vk::DriverId::MESA_RADV
    }

    /// Returns the Vulkan version as text ("1.4.305").
    pub(crate) fn api_text(&self) -> String {
        version_text(self.support.api)
    }

    /// Returns the bytes of device-local memory.
    pub(crate) fn local_memory(&self) -> u64 {
        self.heaps.iter().filter(|h| h.local).map(|h| h.bytes).sum()
    }

    /// Returns true if the device and the CPU share memory.
    pub(crate) fn unified(&self) -> bool {
        matches!(self.kind, DeviceKind::Integrated | DeviceKind::Cpu)
    }
}

fn heap(heap: &vk::MemoryHeap) -> Heap {
    Heap { bytes: heap.size, local: heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL) }
}

fn kind(kind: vk::PhysicalDeviceType) -> DeviceKind {
    match kind {
        vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::Discrete,
        vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::Integrated,
        vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Virtual,
        vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
        _ => DeviceKind::Other,
    }
}

/// Returns a queue family for compute and the valid bits of its timestamps. A family without graphics is
/// preferred, because it does not slow down the desktop.
fn queue_family(instance: &ash::Instance, physical: vk::PhysicalDevice) -> (Option<u32>, u32) {
    // SAFETY: the physical device belongs to the instance, which is alive.
    let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
    let computing =
        |f: &vk::QueueFamilyProperties| f.queue_count > 0 && f.queue_flags.contains(vk::QueueFlags::COMPUTE);
    let only =
        |f: &vk::QueueFamilyProperties| computing(f) && !f.queue_flags.contains(vk::QueueFlags::GRAPHICS);
    match families.iter().position(only).or_else(|| families.iter().position(computing)) {
        Some(index) => (Some(index as u32), families[index].timestamp_valid_bits),
        None => (None, 0),
    }
}

fn caps(p: &Properties, features: &Features) -> Caps {
    let limits = &p.core.limits;
    let default = p.v11.subgroup_size;
    let (min, max) = p.size.map_or((default, default), |s| (s.min_subgroup_size, s.max_subgroup_size));
    let control = features.subgroup_size
        && p.size.is_some_and(|s| s.required_subgroup_size_stages.contains(vk::ShaderStageFlags::COMPUTE));
    let operations = p.subgroup_operations();
    let dot = p.dot.unwrap_or_default();
    let int_dot_mixed =
        dot.integer_dot_product_accumulating_saturating4x8_bit_packed_mixed_signedness_accelerated != 0;
    let waves_per_simd = p.amd.map(|a| a.wavefronts_per_simd);
    Caps {
        arch: arch::classify(Traits {
            vendor: p.core.vendor_id,
            device: p.core.device_id,
            cpu: p.core.device_type == vk::PhysicalDeviceType::CPU,
            name: &text(&p.core.device_name),
            subgroup_min: min,
            subgroup_max: max,
            waves_per_simd,
            int_dot_mixed,
            matrices: features.matrices,
            is_radv: p.v12.driver_id == vk::DriverId::MESA_RADV,
        }),
        subgroup_min: min,
        subgroup_max: max,
        subgroup_default: default,
        subgroup_control: control,
        subgroup: SubgroupOps {
            arithmetic: operations.contains(vk::SubgroupFeatureFlags::ARITHMETIC),
            shuffle: operations.contains(vk::SubgroupFeatureFlags::SHUFFLE),
            ballot: operations.contains(vk::SubgroupFeatureFlags::BALLOT),
        },
        shared_bytes: limits.max_compute_shared_memory_size,
        max_invocations: limits.max_compute_work_group_invocations,
        max_workgroup_size: limits.max_compute_work_group_size,
        max_workgroups: limits.max_compute_work_group_count,
        fp16: features.float16,
        int8: features.int8,
        int16: features.int16,
        storage16: features.storage16,
        storage8: features.storage8,
        shared_views: features.shared_views,
        small_shared_tiles: false,
        int_dot: features.int_dot,
        int_dot_signed: dot.integer_dot_product_accumulating_saturating4x8_bit_packed_signed_accelerated != 0,
        int_dot_mixed,
        matrices: Vec::new(),
        matrix_rows: features.matrix_rows,
        emulated_matrices: false,
        max_binding: u64::from(limits.max_storage_buffer_range),
        binding_alignment: limits.min_storage_buffer_offset_alignment.max(4),
        // There is one descriptor set and one stage.
        max_storage_buffers: limits
            .max_per_stage_descriptor_storage_buffers
            .min(limits.max_descriptor_set_storage_buffers)
            .min(limits.max_per_stage_resources),
        push_constant_bytes: limits.max_push_constants_size,
        waves_per_simd,
        compute_units: p
            .amd
            .map(compute_units)
            .or(p.nv.map(|nv| nv.shader_sm_count))
            .filter(|&units| units > 0),
        software: p.core.device_type == vk::PhysicalDeviceType::CPU,
    }
}

fn compute_units(amd: vk::PhysicalDeviceShaderCorePropertiesAMD<'_>) -> u32 {
    amd.shader_engine_count * amd.shader_arrays_per_engine_count * amd.compute_units_per_shader_array
}

/// Returns the shapes of a device's cooperative matrices. The device lists VK_KHR_cooperative_matrix.
pub(crate) fn matrices(instance: &Instance, physical: vk::PhysicalDevice) -> Vec<MatrixShape> {
    phase::call("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR", "");
    let functions = khr::cooperative_matrix::Instance::new(instance.entry(), &instance.raw);
    let all =
        // SAFETY: the physical device lists VK_KHR_cooperative_matrix and belongs to the instance, which is
        // alive.
        unsafe { functions.get_physical_device_cooperative_matrix_properties(physical) }.unwrap_or_default();
    let mut shapes: Vec<MatrixShape> = all.iter().filter_map(matrix).collect();
    shapes.dedup();
    shapes
}

fn matrix(p: &vk::CooperativeMatrixPropertiesKHR<'_>) -> Option<MatrixShape> {
    use vk::ComponentTypeKHR as C;
    let types = match (p.a_type, p.b_type, p.c_type, p.result_type) {
        (C::FLOAT16, C::FLOAT16, C::FLOAT32, C::FLOAT32) => MatrixTypes::F16F32,
        (C::FLOAT16, C::FLOAT16, C::FLOAT16, C::FLOAT16) => MatrixTypes::F16F16,
        (C::SINT8, C::SINT8, C::SINT32, C::SINT32) => MatrixTypes::I8I32,
        _ => return None,
    };
    let plain = p.scope == vk::ScopeKHR::SUBGROUP && p.saturating_accumulation == vk::FALSE;
    plain.then_some(MatrixShape { m: p.m_size, n: p.n_size, k: p.k_size, types })
}
