//! Functions by name: this library's, and those of RADV's whose arguments RADV created itself.

use super::{
    commands as cmd, descriptors, device, instance, memory, physical, pipeline, queries, queue, semaphores,
};
use crate::card::Card;
use crate::device::Device;
use ash::vk;
use ash::vk::Handle as _;
use std::ffi::{CStr, c_char};

/// A function pointer of any type.
type Function = unsafe extern "system" fn();

macro_rules! table {
    ($name:expr => $($text:literal: $type:ident = $function:path;)*) => {
        match $name {
            $($text => {
                let function: vk::$type = $function;
                // SAFETY: all function pointers have the same size; the caller casts it back to the type of
                // this name.
                Some(unsafe { std::mem::transmute::<vk::$type, Function>(function) })
            })*
            _ => None,
        }
    };
}

/// Returns this library's function with a name; for a promoted extension, without its suffix.
fn own(name: &str) -> Option<Function> {
    table! { name =>
        "vkGetInstanceProcAddr": PFN_vkGetInstanceProcAddr = vk_get_instance_proc_addr;
        "vkGetDeviceProcAddr": PFN_vkGetDeviceProcAddr = get_device_proc_addr;
        "vkEnumerateInstanceVersion": PFN_vkEnumerateInstanceVersion = instance::version;
        "vkEnumerateInstanceLayerProperties": PFN_vkEnumerateInstanceLayerProperties = instance::layers;
        "vkEnumerateInstanceExtensionProperties": PFN_vkEnumerateInstanceExtensionProperties = instance::extensions;
        "vkCreateInstance": PFN_vkCreateInstance = instance::create;
        "vkDestroyInstance": PFN_vkDestroyInstance = instance::destroy;
        "vkEnumeratePhysicalDevices": PFN_vkEnumeratePhysicalDevices = instance::physical_devices;
        "vkGetPhysicalDeviceProperties": PFN_vkGetPhysicalDeviceProperties = physical::properties;
        "vkGetPhysicalDeviceProperties2": PFN_vkGetPhysicalDeviceProperties2 = physical::properties2;
        "vkGetPhysicalDeviceFeatures": PFN_vkGetPhysicalDeviceFeatures = physical::features;
        "vkGetPhysicalDeviceFeatures2": PFN_vkGetPhysicalDeviceFeatures2 = physical::features2;
        "vkGetPhysicalDeviceMemoryProperties": PFN_vkGetPhysicalDeviceMemoryProperties = physical::memory_properties;
        "vkGetPhysicalDeviceMemoryProperties2": PFN_vkGetPhysicalDeviceMemoryProperties2 = physical::memory_properties2;
        "vkGetPhysicalDeviceQueueFamilyProperties": PFN_vkGetPhysicalDeviceQueueFamilyProperties = physical::families;
        "vkGetPhysicalDeviceQueueFamilyProperties2": PFN_vkGetPhysicalDeviceQueueFamilyProperties2 = physical::families2;
        "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR": PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR = physical::matrices;
        "vkEnumerateDeviceExtensionProperties": PFN_vkEnumerateDeviceExtensionProperties = physical::extensions;
        "vkCreateDevice": PFN_vkCreateDevice = device::create;
        "vkDestroyDevice": PFN_vkDestroyDevice = device::destroy;
        "vkGetDeviceQueue": PFN_vkGetDeviceQueue = device::queue;
        "vkGetDeviceQueue2": PFN_vkGetDeviceQueue2 = device::queue2;
        "vkDeviceWaitIdle": PFN_vkDeviceWaitIdle = device::wait_idle;
        "vkQueueWaitIdle": PFN_vkQueueWaitIdle = device::queue_wait_idle;
        "vkGetDeviceFaultInfoEXT": PFN_vkGetDeviceFaultInfoEXT = device::fault_info;
        "vkQueueSubmit": PFN_vkQueueSubmit = queue::submit;
        "vkQueueSubmit2": PFN_vkQueueSubmit2 = queue::submit2;
        "vkAllocateMemory": PFN_vkAllocateMemory = memory::allocate;
        "vkGetMemoryFdKHR": PFN_vkGetMemoryFdKHR = memory::export;
        "vkFreeMemory": PFN_vkFreeMemory = memory::free;
        "vkMapMemory": PFN_vkMapMemory = memory::map;
        "vkUnmapMemory": PFN_vkUnmapMemory = memory::unmap;
        "vkFlushMappedMemoryRanges": PFN_vkFlushMappedMemoryRanges = memory::flush;
        "vkInvalidateMappedMemoryRanges": PFN_vkInvalidateMappedMemoryRanges = memory::flush;
        "vkCreateBuffer": PFN_vkCreateBuffer = memory::create_buffer;
        "vkDestroyBuffer": PFN_vkDestroyBuffer = memory::destroy_buffer;
        "vkGetBufferMemoryRequirements": PFN_vkGetBufferMemoryRequirements = memory::buffer_requirements;
        "vkGetBufferMemoryRequirements2": PFN_vkGetBufferMemoryRequirements2 = memory::buffer_requirements2;
        "vkGetDeviceBufferMemoryRequirements": PFN_vkGetDeviceBufferMemoryRequirements = memory::device_buffer_requirements;
        "vkBindBufferMemory": PFN_vkBindBufferMemory = memory::bind;
        "vkBindBufferMemory2": PFN_vkBindBufferMemory2 = memory::bind2;
        "vkGetBufferDeviceAddress": PFN_vkGetBufferDeviceAddress = memory::buffer_address;
        "vkCreateDescriptorSetLayout": PFN_vkCreateDescriptorSetLayout = descriptors::create_layout;
        "vkDestroyDescriptorSetLayout": PFN_vkDestroyDescriptorSetLayout = descriptors::destroy_layout;
        "vkGetDescriptorSetLayoutSupport": PFN_vkGetDescriptorSetLayoutSupport = descriptors::layout_support;
        "vkCreateDescriptorPool": PFN_vkCreateDescriptorPool = descriptors::create_pool;
        "vkDestroyDescriptorPool": PFN_vkDestroyDescriptorPool = descriptors::destroy_pool;
        "vkResetDescriptorPool": PFN_vkResetDescriptorPool = descriptors::reset_pool;
        "vkAllocateDescriptorSets": PFN_vkAllocateDescriptorSets = descriptors::allocate;
        "vkFreeDescriptorSets": PFN_vkFreeDescriptorSets = descriptors::free;
        "vkUpdateDescriptorSets": PFN_vkUpdateDescriptorSets = descriptors::update;
        "vkCreatePipelineLayout": PFN_vkCreatePipelineLayout = pipeline::create_layout;
        "vkDestroyPipelineLayout": PFN_vkDestroyPipelineLayout = pipeline::destroy_layout;
        "vkCreateComputePipelines": PFN_vkCreateComputePipelines = pipeline::create;
        "vkDestroyPipeline": PFN_vkDestroyPipeline = pipeline::destroy;
        "vkSetDebugUtilsObjectNameEXT": PFN_vkSetDebugUtilsObjectNameEXT = pipeline::set_name;
        "vkCreateSemaphore": PFN_vkCreateSemaphore = semaphores::create;
        "vkDestroySemaphore": PFN_vkDestroySemaphore = semaphores::destroy;
        "vkGetSemaphoreCounterValue": PFN_vkGetSemaphoreCounterValue = semaphores::value;
        "vkWaitSemaphores": PFN_vkWaitSemaphores = semaphores::wait;
        "vkSignalSemaphore": PFN_vkSignalSemaphore = semaphores::signal;
        "vkCreateFence": PFN_vkCreateFence = semaphores::create_fence;
        "vkDestroyFence": PFN_vkDestroyFence = semaphores::destroy_fence;
        "vkResetFences": PFN_vkResetFences = semaphores::reset_fences;
        "vkGetFenceStatus": PFN_vkGetFenceStatus = semaphores::fence_status;
        "vkWaitForFences": PFN_vkWaitForFences = semaphores::wait_fences;
        "vkCreateQueryPool": PFN_vkCreateQueryPool = queries::create;
        "vkDestroyQueryPool": PFN_vkDestroyQueryPool = queries::destroy;
        "vkGetQueryPoolResults": PFN_vkGetQueryPoolResults = queries::results;
        "vkResetQueryPool": PFN_vkResetQueryPool = queries::reset;
        "vkCreateCommandPool": PFN_vkCreateCommandPool = cmd::create_pool;
        "vkDestroyCommandPool": PFN_vkDestroyCommandPool = cmd::destroy_pool;
        "vkResetCommandPool": PFN_vkResetCommandPool = cmd::reset_pool;
        "vkAllocateCommandBuffers": PFN_vkAllocateCommandBuffers = cmd::allocate;
        "vkFreeCommandBuffers": PFN_vkFreeCommandBuffers = cmd::free;
        "vkBeginCommandBuffer": PFN_vkBeginCommandBuffer = cmd::begin;
        "vkEndCommandBuffer": PFN_vkEndCommandBuffer = cmd::end;
        "vkResetCommandBuffer": PFN_vkResetCommandBuffer = cmd::reset;
        "vkCmdBindPipeline": PFN_vkCmdBindPipeline = cmd::bind_pipeline;
        "vkCmdBindDescriptorSets": PFN_vkCmdBindDescriptorSets = cmd::bind_sets;
        "vkCmdPushConstants": PFN_vkCmdPushConstants = cmd::push;
        "vkCmdDispatch": PFN_vkCmdDispatch = cmd::dispatch;
        "vkCmdDispatchBase": PFN_vkCmdDispatchBase = cmd::dispatch_base;
        "vkCmdDispatchIndirect": PFN_vkCmdDispatchIndirect = cmd::dispatch_indirect;
        "vkCmdCopyBuffer": PFN_vkCmdCopyBuffer = cmd::copy;
        "vkCmdFillBuffer": PFN_vkCmdFillBuffer = cmd::fill;
        "vkCmdUpdateBuffer": PFN_vkCmdUpdateBuffer = cmd::update;
        "vkCmdPipelineBarrier": PFN_vkCmdPipelineBarrier = cmd::barrier;
        "vkCmdPipelineBarrier2": PFN_vkCmdPipelineBarrier2 = cmd::barrier2;
        "vkCmdResetQueryPool": PFN_vkCmdResetQueryPool = cmd::reset_queries;
        "vkCmdWriteTimestamp": PFN_vkCmdWriteTimestamp = cmd::timestamp;
        "vkCmdWriteTimestamp2": PFN_vkCmdWriteTimestamp2 = cmd::timestamp2;
        "vkCmdWriteBufferMarkerAMD": PFN_vkCmdWriteBufferMarkerAMD = cmd::marker;
    }
}

/// RADV's functions that are returned unchanged.
const RADV: [&str; 22] = [
    "vkEnumeratePhysicalDeviceGroups",
    "vkGetPhysicalDeviceFormatProperties",
    "vkGetPhysicalDeviceFormatProperties2",
    "vkGetPhysicalDeviceImageFormatProperties",
    "vkGetPhysicalDeviceImageFormatProperties2",
    "vkGetPhysicalDeviceSparseImageFormatProperties",
    "vkGetPhysicalDeviceSparseImageFormatProperties2",
    "vkGetPhysicalDeviceExternalBufferProperties",
    "vkGetPhysicalDeviceExternalFenceProperties",
    "vkGetPhysicalDeviceExternalSemaphoreProperties",
    "vkGetPhysicalDeviceToolProperties",
    "vkEnumerateDeviceLayerProperties",
    "vkCreateDebugUtilsMessengerEXT",
    "vkDestroyDebugUtilsMessengerEXT",
    "vkCreateShaderModule",
    "vkDestroyShaderModule",
    "vkCreatePipelineCache",
    "vkDestroyPipelineCache",
    "vkGetPipelineCacheData",
    "vkMergePipelineCaches",
    "vkGetPipelineExecutablePropertiesKHR",
    "vkGetPipelineExecutableStatisticsKHR",
];

/// Returns this library's function with a name, with or without the KHR suffix.
fn known(name: &str) -> Option<Function> {
    own(name).or_else(|| own(name.strip_suffix("KHR")?))
}

/// `vkGetInstanceProcAddr`.
pub(crate) unsafe extern "system" fn vk_get_instance_proc_addr(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: Vulkan's rules for the caller.
    let name = unsafe { CStr::from_ptr(name) };
    let text = name.to_str().ok()?;
    if let Some(function) = known(text) {
        return Some(function);
    }
    let known = crate::instance::INSTANCES.get(instance.as_raw())?;
    RADV.contains(&text).then(|| known.card.shared.radv.function(instance, name))?
}

/// `vkGetDeviceProcAddr`.
unsafe extern "system" fn get_device_proc_addr(
    handle: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: Vulkan's rules for the caller.
    let name = unsafe { CStr::from_ptr(name) };
    let text = name.to_str().ok()?;
    if let Some(function) = known(text) {
        return Some(function);
    }
    let device = Device::of(handle).ok()?;
    let get = device.get_proc_addr;
    // SAFETY: RADV's function, for RADV's device.
    RADV.contains(&text).then(|| unsafe { get(handle, name.as_ptr()) })?
}

impl Card {
    /// Returns Vulkan's functions. The next instance that this thread creates through them uses this card.
    pub fn entry(&self) -> ash::StaticFn {
        self.is_next();
        ash::StaticFn { get_instance_proc_addr: vk_get_instance_proc_addr }
    }
}
