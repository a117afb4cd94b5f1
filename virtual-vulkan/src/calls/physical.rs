//! Physical devices: RADV's properties of the family, except for the parts that this library implements.

use super::api::{chain, chained, code, extension, put_text, write_list};
use crate::card::Card;
use crate::heaps::{HEAPS, types};
use crate::instance::Instance;
use ash::vk;
use std::ffi::{CStr, c_char, c_void};

/// RADV's device extensions that work here.
const RADV: [&CStr; 24] = [
    c"VK_KHR_16bit_storage",
    c"VK_KHR_8bit_storage",
    c"VK_KHR_buffer_device_address",
    c"VK_KHR_cooperative_matrix",
    c"VK_KHR_copy_commands2",
    c"VK_KHR_driver_properties",
    c"VK_KHR_get_memory_requirements2",
    c"VK_KHR_maintenance1",
    c"VK_KHR_maintenance3",
    c"VK_KHR_maintenance4",
    c"VK_KHR_pipeline_executable_properties",
    c"VK_KHR_shader_float16_int8",
    c"VK_KHR_shader_float_controls",
    c"VK_KHR_shader_integer_dot_product",
    c"VK_KHR_shader_non_semantic_info",
    c"VK_KHR_shader_subgroup_extended_types",
    c"VK_KHR_storage_buffer_storage_class",
    c"VK_KHR_synchronization2",
    c"VK_KHR_timeline_semaphore",
    c"VK_KHR_vulkan_memory_model",
    c"VK_KHR_workgroup_memory_explicit_layout",
    c"VK_EXT_subgroup_size_control",
    c"VK_AMD_shader_core_properties",
    c"VK_EXT_robustness2",
];

/// This library's device extensions, whether or not RADV supports them for a null device.
pub(crate) const OWN: [&CStr; 4] =
    [c"VK_EXT_memory_budget", c"VK_EXT_device_fault", c"VK_AMD_buffer_marker", c"VK_KHR_external_memory_fd"];

/// Largest binding and allocation: RADV's own value on real devices.
const MAX_ALLOCATION: u64 = 0xffff_fffc;

fn heap_bytes(card: &Card) -> [u64; HEAPS] {
    [card.options().memory, card.options().host_memory]
}

fn change(properties: &mut vk::PhysicalDeviceProperties, card: &Card) {
    let name = format!("virtual {} (RADV)", card.options().model.chip());
    put_text(&mut properties.device_name, &name);
    properties.device_type = match card.options().model.is_integrated() {
        true => vk::PhysicalDeviceType::INTEGRATED_GPU,
        false => vk::PhysicalDeviceType::DISCRETE_GPU,
    };
    properties.api_version = properties.api_version.min(vk::make_api_version(0, 1, 3, 305));
    properties.limits.timestamp_period = 1.0;
    properties.limits.timestamp_compute_and_graphics = vk::TRUE;
    properties.limits.max_storage_buffer_range = MAX_ALLOCATION as u32;
    properties.limits.max_memory_allocation_count = 4096;
}

/// Returns the bytes of the processor's name, as HIP's virtual device does: both are one card.
fn uuid(card: &Card) -> [u8; 16] {
    let mut uuid = [0; 16];
    let name = card.options().model.target().name().as_bytes();
    uuid[..name.len()].copy_from_slice(name);
    uuid
}

/// Returns RADV's shapes of cooperative matrices. The call can fail or hang by injection, as on drivers that advertise
/// units and die when they are asked for them.
pub(crate) unsafe extern "system" fn matrices(
    physical: vk::PhysicalDevice,
    count: *mut u32,
    to: *mut vk::CooperativeMatrixPropertiesKHR<'_>,
) -> vk::Result {
    const NAME: &str = "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR";
    code(Instance::of(physical).and_then(|instance| {
        let shared = &instance.card.shared;
        shared.options.faults.enter(NAME).map_err(vk::Result::from_raw)?;
        let function = shared
            .radv
            .function(instance.radv.handle(), c"vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
        let function = function.ok_or(vk::Result::ERROR_EXTENSION_NOT_PRESENT)?;
        type Matrices = vk::PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR;
        // SAFETY: a function of this name has this type; the arguments follow Vulkan's rules for the caller.
        unsafe { std::mem::transmute::<unsafe extern "system" fn(), Matrices>(function)(physical, count, to) }
            .result()
    }))
}

pub(crate) unsafe extern "system" fn properties(
    physical: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceProperties,
) {
    let Ok(instance) = Instance::of(physical) else { return };
    // SAFETY: Vulkan's rules for the caller.
    unsafe {
        *out = instance.radv.get_physical_device_properties(physical);
        change(&mut *out, &instance.card);
    }
}

pub(crate) unsafe extern "system" fn properties2(
    physical: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceProperties2<'_>,
) {
    let Ok(instance) = Instance::of(physical) else { return };
    // SAFETY: Vulkan's rules for the caller; a chain contains each structure type at most once.
    unsafe {
        (instance.radv.fp_v1_1().get_physical_device_properties2)(physical, out.cast());
        change(&mut (*out).properties, &instance.card);
        let chain = (*out).p_next.cast_const();
        if let Some(v11) = chained::<vk::PhysicalDeviceVulkan11Properties<'_>>(chain) {
            v11.device_uuid = uuid(&instance.card);
            v11.max_memory_allocation_size = MAX_ALLOCATION;
        }
        if let Some(id) = chained::<vk::PhysicalDeviceIDProperties<'_>>(chain) {
            id.device_uuid = uuid(&instance.card);
        }
        if let Some(m) = chained::<vk::PhysicalDeviceMaintenance3Properties<'_>>(chain) {
            m.max_memory_allocation_size = MAX_ALLOCATION;
        }
        let buffer = [
            chained::<vk::PhysicalDeviceMaintenance4Properties<'_>>(chain).map(|m| &mut m.max_buffer_size),
            chained::<vk::PhysicalDeviceVulkan13Properties<'_>>(chain).map(|m| &mut m.max_buffer_size),
        ];
        buffer.into_iter().flatten().for_each(|bytes| *bytes = MAX_ALLOCATION);
    }
}

pub(crate) unsafe extern "system" fn features(
    physical: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceFeatures,
) {
    let Ok(instance) = Instance::of(physical) else { return };
    // SAFETY: Vulkan's rules for the caller.
    unsafe {
        *out = instance.radv.get_physical_device_features(physical);
        without_graphics(&mut *out);
    }
}

/// Disables all features except those of compute shaders.
fn without_graphics(features: &mut vk::PhysicalDeviceFeatures) {
    *features = vk::PhysicalDeviceFeatures {
        robust_buffer_access: features.robust_buffer_access,
        shader_storage_buffer_array_dynamic_indexing: features.shader_storage_buffer_array_dynamic_indexing,
        shader_uniform_buffer_array_dynamic_indexing: features.shader_uniform_buffer_array_dynamic_indexing,
        shader_float64: features.shader_float64,
        shader_int64: features.shader_int64,
        shader_int16: features.shader_int16,
        ..Default::default()
    };
}

pub(crate) unsafe extern "system" fn features2(
    physical: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceFeatures2<'_>,
) {
    let Ok(instance) = Instance::of(physical) else { return };
    // SAFETY: Vulkan's rules for the caller.
    unsafe {
        (instance.radv.fp_v1_1().get_physical_device_features2)(physical, out.cast());
        without_graphics(&mut (*out).features);
        for s in chain((*out).p_next.cast_const()) {
            hide_features(s);
        }
    }
}

/// Disables RADV's features that this library does not support, and enables its own.
///
/// # Safety `s` is a Vulkan structure without other users.
unsafe fn hide_features(s: *mut vk::BaseOutStructure<'_>) {
    // SAFETY: the tag identifies the structure.
    unsafe {
        match (*s).s_type {
            vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_1_FEATURES => {
                let f = &mut *s.cast::<vk::PhysicalDeviceVulkan11Features<'_>>();
                (f.multiview, f.protected_memory, f.sampler_ycbcr_conversion) = (0, 0, 0);
            }
            vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_2_FEATURES => {
                let f = &mut *s.cast::<vk::PhysicalDeviceVulkan12Features<'_>>();
                (f.descriptor_indexing, f.host_query_reset, f.imageless_framebuffer) = (0, 1, 0);
                (f.buffer_device_address_capture_replay, f.buffer_device_address_multi_device) = (0, 0);
            }
            vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_3_FEATURES => {
                let f = &mut *s.cast::<vk::PhysicalDeviceVulkan13Features<'_>>();
                (f.dynamic_rendering, f.inline_uniform_block, f.private_data) = (0, 0, 0);
                (f.texture_compression_astc_hdr, f.robust_image_access) = (0, 0);
            }
            vk::StructureType::PHYSICAL_DEVICE_FAULT_FEATURES_EXT => {
                (*s.cast::<vk::PhysicalDeviceFaultFeaturesEXT<'_>>()).device_fault = vk::TRUE;
            }
            _ => {}
        }
    }
}

fn memory(card: &Card) -> vk::PhysicalDeviceMemoryProperties {
    let mut out = vk::PhysicalDeviceMemoryProperties::default();
    for (i, bytes) in heap_bytes(card).into_iter().enumerate() {
        let local = vk::MemoryHeapFlags::DEVICE_LOCAL;
        let flags = if i == 0 { local } else { vk::MemoryHeapFlags::empty() };
        out.memory_heaps[i] = vk::MemoryHeap { size: bytes, flags };
    }
    let types = types(card.options().model.is_integrated());
    for (i, &(property_flags, heap_index)) in types.iter().enumerate() {
        out.memory_types[i] = vk::MemoryType { property_flags, heap_index };
    }
    (out.memory_heap_count, out.memory_type_count) = (HEAPS as u32, types.len() as u32);
    out
}

pub(crate) unsafe extern "system" fn memory_properties(
    physical: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceMemoryProperties,
) {
    let Ok(instance) = Instance::of(physical) else { return };
    // SAFETY: Vulkan's rules for the caller.
    unsafe { *out = memory(&instance.card) };
}

pub(crate) unsafe extern "system" fn memory_properties2(
    physical: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceMemoryProperties2<'_>,
) {
    let Ok(instance) = Instance::of(physical) else { return };
    // SAFETY: Vulkan's rules for the caller.
    unsafe {
        (*out).memory_properties = memory(&instance.card);
        let chain = (*out).p_next.cast_const();
        if let Some(budget) = chained::<vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>>(chain) {
            let used = instance.card.shared.used();
            budget.heap_budget[..HEAPS].copy_from_slice(&heap_bytes(&instance.card));
            budget.heap_usage[..HEAPS].copy_from_slice(&used);
        }
    }
}

/// Returns the only queue family.
fn family() -> vk::QueueFamilyProperties {
    vk::QueueFamilyProperties {
        queue_flags: vk::QueueFlags::COMPUTE | vk::QueueFlags::TRANSFER,
        queue_count: 1,
        timestamp_valid_bits: 64,
        min_image_transfer_granularity: vk::Extent3D { width: 1, height: 1, depth: 1 },
    }
}

pub(crate) unsafe extern "system" fn families(
    _physical: vk::PhysicalDevice,
    count: *mut u32,
    to: *mut vk::QueueFamilyProperties,
) {
    // SAFETY: Vulkan's rules for the caller.
    let _ = unsafe { write_list(&[family()], count, to) };
}

pub(crate) unsafe extern "system" fn families2(
    _physical: vk::PhysicalDevice,
    count: *mut u32,
    to: *mut vk::QueueFamilyProperties2<'_>,
) {
    // SAFETY: Vulkan's rules for the caller; the chains of the elements are not modified.
    unsafe {
        if to.is_null() {
            *count = 1;
        } else if *count > 0 {
            *count = 1;
            (*to).queue_family_properties = family();
        }
    }
}

pub(crate) unsafe extern "system" fn extensions(
    physical: vk::PhysicalDevice,
    layer: *const c_char,
    count: *mut u32,
    to: *mut vk::ExtensionProperties,
) -> vk::Result {
    if !layer.is_null() {
        return vk::Result::ERROR_LAYER_NOT_PRESENT;
    }
    code(Instance::of(physical).and_then(|instance| {
        // SAFETY: the physical device is RADV's.
        let all = unsafe { instance.radv.enumerate_device_extension_properties(physical) }?;
        let named = |e: &vk::ExtensionProperties, list: &[&CStr]| {
            e.extension_name_as_c_str().is_ok_and(|name| list.contains(&name))
        };
        let mut listed: Vec<_> = all.into_iter().filter(|e| named(e, &RADV)).collect();
        listed.extend(OWN.map(extension));
        // SAFETY: Vulkan's rules for the caller.
        unsafe { write_list(&listed, count, to) }
    }))
}

/// A copy of the features requested for a device, in its own chain, to pass to RADV.
pub(crate) struct Wanted {
    core: vk::PhysicalDeviceFeatures,
    chained: Vec<Box<dyn Chainable>>,
}

/// A structure that can be an element of a chain.
trait Chainable {
    fn link(&mut self, next: *mut c_void) -> *mut c_void;
}

macro_rules! copied {
    ($s:ident: $($name:ident)*) => {
        // SAFETY: the caller of `copied` passes a Vulkan structure, which begins with its tag.
        match unsafe { (*$s).s_type } {
            $(<vk::$name<'_> as vk::TaggedStructure>::STRUCTURE_TYPE => {
                // SAFETY: the tag identifies the structure.
                let copy = unsafe { *$s.cast::<vk::$name<'static>>() };
                Some(Box::new(copy))
            })*
            _ => None,
        }
    };
}

macro_rules! chainable {
    ($($name:ident)*) => {
        $(impl Chainable for vk::$name<'static> {
            fn link(&mut self, next: *mut c_void) -> *mut c_void {
                self.p_next = next;
                std::ptr::from_mut(self).cast()
            }
        })*

        /// Returns a copy of a feature structure if it is one to pass to RADV.
        ///
        /// # Safety
        /// `s` is a Vulkan structure.
        unsafe fn copied(s: *mut vk::BaseOutStructure<'static>) -> Option<Box<dyn Chainable>> {
            copied!(s: $($name)*)
        }
    };
}

chainable! {
    PhysicalDeviceVulkan11Features PhysicalDeviceVulkan12Features PhysicalDeviceVulkan13Features
    PhysicalDevice16BitStorageFeatures PhysicalDevice8BitStorageFeatures PhysicalDeviceShaderFloat16Int8Features
    PhysicalDeviceSubgroupSizeControlFeatures PhysicalDeviceShaderIntegerDotProductFeatures
    PhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR
    PhysicalDeviceTimelineSemaphoreFeatures PhysicalDeviceVulkanMemoryModelFeatures
    PhysicalDeviceBufferDeviceAddressFeatures PhysicalDeviceMaintenance4Features PhysicalDeviceRobustness2FeaturesEXT
    PhysicalDevicePipelineExecutablePropertiesFeaturesKHR PhysicalDeviceSynchronization2Features
    PhysicalDeviceShaderSubgroupExtendedTypesFeatures PhysicalDeviceCooperativeMatrixFeaturesKHR
}

impl Wanted {
    /// Copies the features that a device's creation requests.
    ///
    /// # Safety
    /// `info` is valid.
    pub(crate) unsafe fn of(info: &vk::DeviceCreateInfo<'_>) -> Wanted {
        // SAFETY: the caller's promise.
        unsafe {
            let mut core = info.p_enabled_features.as_ref().copied().unwrap_or_default();
            if let Some(f2) = chained::<vk::PhysicalDeviceFeatures2<'_>>(info.p_next) {
                core = f2.features;
            }
            Wanted { core, chained: chain(info.p_next).filter_map(|s| copied(s)).collect() }
        }
    }

    /// Returns true if out-of-range accesses are defined, so that shaders may make them.
    pub(crate) fn robust(&self) -> bool {
        self.core.robust_buffer_access != vk::FALSE
    }

    /// Returns the core features and the head of the chain, valid as long as `self`.
    pub(crate) fn link(&mut self) -> (vk::PhysicalDeviceFeatures, *mut c_void) {
        let head = self.chained.iter_mut().fold(std::ptr::null_mut(), |next, s| s.link(next));
        (self.core, head)
    }
}
