//! Fault injection into Vulkan functions, for tests. Any call of a fallible function can be made to fail or
//! hang, and objects that are created and not destroyed are counted.
//!
//! The functions are those of the system's loader behind wrappers of the same types, which ash gets when its
//! tables are filled. There is one set of wrappers for the process, so only one test at a time may use it.

use ash::vk;
use ash::vk::Handle;
use ggml_core::sync::lock;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// Behaviour of a call instead of its normal work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Returns the error code that fits the function.
    Fail,
    /// Returns the error code of too little host memory, after which the device goes on.
    Refuse,
    /// Does not return until [`release`], then does its work.
    Hang,
}

/// A call, identified by the part of the scenario, the function, and the number of earlier calls of that
/// function in that part. The number of polls of the timeline depends on timing, so an index over all
/// functions would not identify a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Part of the scenario.
    pub(crate) part: &'static str,
    /// Name of the function.
    pub(crate) function: &'static str,
    /// Number of earlier calls, from 0.
    pub(crate) count: usize,
}

/// Recorded calls and their state.
#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
    stage: &'static str,
    fault: Option<(Call, Fault)>,
    /// True if the call with the fault was made.
    met: bool,
    /// Number of the scenario.
    scenario: u64,
    hanging: usize,
    released: bool,
    live: BTreeMap<&'static str, i64>,
    functions: BTreeMap<&'static str, usize>,
}

static STATE: Mutex<State> = Mutex::new(State {
    calls: Vec::new(),
    stage: "",
    fault: None,
    met: false,
    scenario: 0,
    hanging: 0,
    released: false,
    live: BTreeMap::new(),
    functions: BTreeMap::new(),
});
static RELEASED: Condvar = Condvar::new();

thread_local! {
    /// The scenario that this thread belongs to.
    static MINE: Cell<u64> = const { Cell::new(0) };
}

/// Begins a scenario with a fault at a call of the threads that make their first call from now on. Threads
/// left over from an earlier scenario continue without being counted.
pub(crate) fn begin(fault: Option<(Call, Fault)>) {
    let mut state = lock(&STATE);
    state.calls.clear();
    state.scenario += 1;
    (state.fault, state.met, state.released) = (fault, false, false);
}

/// Assigns the calls from now on to this part of the scenario.
pub(crate) fn stage(name: &'static str) {
    lock(&STATE).stage = name;
}

/// Returns every call since the beginning of the scenario.
pub(crate) fn calls() -> Vec<Call> {
    lock(&STATE).calls.clone()
}

/// Returns true if the call with the fault was made.
pub(crate) fn met() -> bool {
    lock(&STATE).met
}

/// Lets the hanging call continue, and waits until it does.
pub(crate) fn release() {
    let mut state = lock(&STATE);
    state.released = true;
    RELEASED.notify_all();
    while state.hanging > 0 {
        state = RELEASED.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Returns the numbers of objects that were created and not destroyed, by kind.
pub(crate) fn live() -> Vec<(&'static str, i64)> {
    lock(&STATE).live.iter().filter(|(_, n)| **n != 0).map(|(kind, n)| (*kind, *n)).collect()
}

/// Returns the code that a function fails with.
pub(crate) fn code_of(function: &str) -> vk::Result {
    match function {
        "vkQueueSubmit" | "vkWaitSemaphores" => vk::Result::ERROR_DEVICE_LOST,
        _ => vk::Result::ERROR_OUT_OF_HOST_MEMORY,
    }
}

/// Counts a call; returns the error code if the call is to fail.
fn enter(function: &'static str) -> Option<vk::Result> {
    let mut state = lock(&STATE);
    if MINE.get() == 0 {
        MINE.set(state.scenario);
    }
    if MINE.get() != state.scenario {
        return None;
    }
    let part = state.stage;
    let count = state.calls.iter().filter(|call| (call.part, call.function) == (part, function)).count();
    let call = Call { part, function, count };
    state.calls.push(call);
    let (_, fault) = state.fault.filter(|(at, _)| *at == call)?;
    state.met = true;
    match fault {
        Fault::Fail => Some(code_of(function)),
        Fault::Refuse => Some(vk::Result::ERROR_OUT_OF_HOST_MEMORY),
        Fault::Hang => {
            state.hanging += 1;
            while !state.released {
                state = RELEASED.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.hanging -= 1;
            RELEASED.notify_all();
            None
        }
    }
}

fn made(kind: &'static str, count: i64) {
    *lock(&STATE).live.entry(kind).or_default() += count;
}

fn real(function: &'static str) -> usize {
    lock(&STATE).functions.get(function).copied().unwrap_or(0)
}

/// A function of any type.
type Function = unsafe extern "system" fn();

macro_rules! wrappers {
    (
        results { $($text:literal $name:ident($($arg:ident: $type:ty),*) $kind:literal $count:expr;)* }
        destroys { $($gone:literal $destroy:ident $owner:ty, $handle:ty, $what:literal;)* }
    ) => {
        $(
            unsafe extern "system" fn $name($($arg: $type),*) -> vk::Result {
                let fault = enter($text);
                // A lost device executes nothing more. If it kept executing while objects were freed, that
                // would be a second fault.
                if let Some(code) = fault
                    && $text != "vkWaitSemaphores"
                {
                    return code;
                }
                // SAFETY: the address is that of the driver's function of this name, which has this type; it
                // was stored before this function was returned to a caller. Arguments are passed on
                // unchanged.
                let code = unsafe {
                    let function: unsafe extern "system" fn($($type),*) -> vk::Result =
                        std::mem::transmute(real($text));
                    function($($arg),*)
                };
                if code == vk::Result::SUCCESS && !$kind.is_empty() {
                    made($kind, $count);
                }
                fault.unwrap_or(code)
            }
        )*
        $(
            unsafe extern "system" fn $destroy(
                owner: $owner,
                handle: $handle,
                callbacks: *const vk::AllocationCallbacks<'_>,
            ) {
                if handle.as_raw() != 0 {
                    made($what, -1);
                }
                // SAFETY: as above.
                unsafe {
                    let function: unsafe extern "system" fn($owner, $handle, *const vk::AllocationCallbacks<'_>) =
                        std::mem::transmute(real($gone));
                    function(owner, handle, callbacks);
                }
            }
        )*

        /// Returns the wrapper of a function, if it has one.
        fn wrapper(name: &str) -> Option<(&'static str, Function)> {
            match name {
                $($text => {
                    type Typed = unsafe extern "system" fn($($type),*) -> vk::Result;
                    // SAFETY: all function pointers have the same size; the caller converts it back to the
                    // type of this name.
                    Some(($text, unsafe { std::mem::transmute::<Typed, Function>($name) }))
                })*
                $($gone => {
                    type Typed = unsafe extern "system" fn($owner, $handle, *const vk::AllocationCallbacks<'_>);
                    // SAFETY: as above.
                    Some(($gone, unsafe { std::mem::transmute::<Typed, Function>($destroy) }))
                })*
                _ => None,
            }
        }
    };
}

type Callbacks<'a> = *const vk::AllocationCallbacks<'a>;

wrappers! {
    results {
        "vkEnumerateInstanceVersion" version(version: *mut u32) "" 0;
        "vkEnumerateInstanceExtensionProperties" instance_extensions(
            layer: *const c_char, count: *mut u32, list: *mut vk::ExtensionProperties) "" 0;
        "vkCreateInstance" create_instance(
            info: *const vk::InstanceCreateInfo<'_>, callbacks: Callbacks<'_>, instance: *mut vk::Instance) "instance" 1;
        "vkEnumeratePhysicalDevices" physical_devices(
            instance: vk::Instance, count: *mut u32, list: *mut vk::PhysicalDevice) "" 0;
        "vkEnumerateDeviceExtensionProperties" device_extensions(
            device: vk::PhysicalDevice, layer: *const c_char, count: *mut u32,
            list: *mut vk::ExtensionProperties) "" 0;
        "vkCreateDevice" create_device(
            physical: vk::PhysicalDevice, info: *const vk::DeviceCreateInfo<'_>, callbacks: Callbacks<'_>,
            device: *mut vk::Device) "device" 1;
        "vkCreateSemaphore" create_semaphore(
            device: vk::Device, info: *const vk::SemaphoreCreateInfo<'_>, callbacks: Callbacks<'_>,
            made: *mut vk::Semaphore) "semaphore" 1;
        "vkGetSemaphoreCounterValue" semaphore_value(
            device: vk::Device, semaphore: vk::Semaphore, value: *mut u64) "" 0;
        "vkWaitSemaphores" wait_semaphores(
            device: vk::Device, info: *const vk::SemaphoreWaitInfo<'_>, limit: u64) "" 0;
        "vkQueueSubmit" queue_submit(
            queue: vk::Queue, count: u32, infos: *const vk::SubmitInfo<'_>, fence: vk::Fence) "" 0;
        "vkAllocateMemory" allocate_memory(
            device: vk::Device, info: *const vk::MemoryAllocateInfo<'_>, callbacks: Callbacks<'_>,
            made: *mut vk::DeviceMemory) "memory" 1;
        "vkMapMemory" map_memory(
            device: vk::Device, memory: vk::DeviceMemory, offset: u64, bytes: u64, flags: vk::MemoryMapFlags,
            address: *mut *mut c_void) "" 0;
        "vkCreateBuffer" create_buffer(
            device: vk::Device, info: *const vk::BufferCreateInfo<'_>, callbacks: Callbacks<'_>,
            made: *mut vk::Buffer) "buffer" 1;
        "vkBindBufferMemory" bind_buffer(
            device: vk::Device, buffer: vk::Buffer, memory: vk::DeviceMemory, offset: u64) "" 0;
        "vkCreateDescriptorSetLayout" create_set_layout(
            device: vk::Device, info: *const vk::DescriptorSetLayoutCreateInfo<'_>, callbacks: Callbacks<'_>,
            made: *mut vk::DescriptorSetLayout) "set layout" 1;
        "vkCreatePipelineLayout" create_layout(
            device: vk::Device, info: *const vk::PipelineLayoutCreateInfo<'_>, callbacks: Callbacks<'_>,
            made: *mut vk::PipelineLayout) "pipeline layout" 1;
        "vkCreateShaderModule" create_module(
            device: vk::Device, info: *const vk::ShaderModuleCreateInfo<'_>, callbacks: Callbacks<'_>,
            made: *mut vk::ShaderModule) "module" 1;
        "vkCreateComputePipelines" create_pipelines(
            device: vk::Device, cache: vk::PipelineCache, count: u32,
            infos: *const vk::ComputePipelineCreateInfo<'_>, callbacks: Callbacks<'_>,
            made: *mut vk::Pipeline) "pipeline" i64::from(count);
        "vkCreatePipelineCache" create_cache(
            device: vk::Device, info: *const vk::PipelineCacheCreateInfo<'_>, callbacks: Callbacks<'_>,
            made: *mut vk::PipelineCache) "pipeline cache" 1;
        "vkGetPipelineCacheData" cache_data(
            device: vk::Device, cache: vk::PipelineCache, bytes: *mut usize, data: *mut c_void) "" 0;
        "vkCreateCommandPool" create_command_pool(
            device: vk::Device, info: *const vk::CommandPoolCreateInfo<'_>, callbacks: Callbacks<'_>,
            made: *mut vk::CommandPool) "command pool" 1;
        "vkAllocateCommandBuffers" allocate_commands(
            device: vk::Device, info: *const vk::CommandBufferAllocateInfo<'_>, made: *mut vk::CommandBuffer) "" 0;
        "vkBeginCommandBuffer" begin_commands(
            commands: vk::CommandBuffer, info: *const vk::CommandBufferBeginInfo<'_>) "" 0;
        "vkEndCommandBuffer" end_commands(commands: vk::CommandBuffer) "" 0;
        "vkCreateDescriptorPool" create_descriptor_pool(
            device: vk::Device, info: *const vk::DescriptorPoolCreateInfo<'_>, callbacks: Callbacks<'_>,
            made: *mut vk::DescriptorPool) "descriptor pool" 1;
        "vkAllocateDescriptorSets" allocate_sets(
            device: vk::Device, info: *const vk::DescriptorSetAllocateInfo<'_>, made: *mut vk::DescriptorSet) "" 0;
        "vkCreateQueryPool" create_query_pool(
            device: vk::Device, info: *const vk::QueryPoolCreateInfo<'_>, callbacks: Callbacks<'_>,
            made: *mut vk::QueryPool) "query pool" 1;
        "vkGetQueryPoolResults" query_results(
            device: vk::Device, pool: vk::QueryPool, first: u32, count: u32, bytes: usize, data: *mut c_void,
            stride: u64, flags: vk::QueryResultFlags) "" 0;
    }
    destroys {
        "vkDestroySemaphore" destroy_semaphore vk::Device, vk::Semaphore, "semaphore";
        "vkFreeMemory" free_memory vk::Device, vk::DeviceMemory, "memory";
        "vkDestroyBuffer" destroy_buffer vk::Device, vk::Buffer, "buffer";
        "vkDestroyDescriptorSetLayout" destroy_set_layout vk::Device, vk::DescriptorSetLayout, "set layout";
        "vkDestroyPipelineLayout" destroy_layout vk::Device, vk::PipelineLayout, "pipeline layout";
        "vkDestroyShaderModule" destroy_module vk::Device, vk::ShaderModule, "module";
        "vkDestroyPipeline" destroy_pipeline vk::Device, vk::Pipeline, "pipeline";
        "vkDestroyPipelineCache" destroy_cache vk::Device, vk::PipelineCache, "pipeline cache";
        "vkDestroyCommandPool" destroy_command_pool vk::Device, vk::CommandPool, "command pool";
        "vkDestroyDescriptorPool" destroy_descriptor_pool vk::Device, vk::DescriptorPool, "descriptor pool";
        "vkDestroyQueryPool" destroy_query_pool vk::Device, vk::QueryPool, "query pool";
    }
}

/// Wrappers of destroy functions that take no owner.
unsafe extern "system" fn destroy_instance(instance: vk::Instance, callbacks: Callbacks<'_>) {
    // SAFETY: the driver's function of this name, see above.
    unsafe {
        let function: unsafe extern "system" fn(vk::Instance, Callbacks<'_>) =
            std::mem::transmute(real("vkDestroyInstance"));
        function(instance, callbacks);
    }
    made("instance", -1);
}

unsafe extern "system" fn destroy_device(device: vk::Device, callbacks: Callbacks<'_>) {
    // SAFETY: the driver's function of this name, see above.
    unsafe {
        let function: unsafe extern "system" fn(vk::Device, Callbacks<'_>) =
            std::mem::transmute(real("vkDestroyDevice"));
        function(device, callbacks);
    }
    made("device", -1);
}

/// Returns the wrapper of a driver's function, or the function itself if it has none.
fn replaced(name: &CStr, function: Function) -> Function {
    let text = name.to_str().unwrap_or_default();
    let found = match text {
        "vkDestroyInstance" => {
            type Typed = unsafe extern "system" fn(vk::Instance, Callbacks<'_>);
            // SAFETY: all function pointers have the same size; the caller converts it back to the type of
            // this name.
            Some(("vkDestroyInstance", unsafe { std::mem::transmute::<Typed, Function>(destroy_instance) }))
        }
        "vkDestroyDevice" => {
            type Typed = unsafe extern "system" fn(vk::Device, Callbacks<'_>);
            // SAFETY: as above.
            Some(("vkDestroyDevice", unsafe { std::mem::transmute::<Typed, Function>(destroy_device) }))
        }
        "vkGetDeviceProcAddr" => {
            type Typed = vk::PFN_vkGetDeviceProcAddr;
            // SAFETY: as above.
            Some(("vkGetDeviceProcAddr", unsafe {
                std::mem::transmute::<Typed, Function>(get_device_proc_addr)
            }))
        }
        _ => wrapper(text),
    };
    let Some((name, own)) = found else { return function };
    lock(&STATE).functions.insert(name, function as usize);
    own
}

/// Returns the system's loader, which is never unloaded.
fn loader() -> Option<&'static ash::Entry> {
    static LOADER: OnceLock<Option<ash::Entry>> = OnceLock::new();
    // SAFETY: loading runs the initialisers of the system's Vulkan loader; the entry is never dropped.
    LOADER.get_or_init(|| unsafe { ash::Entry::load() }.ok()).as_ref()
}

/// Returns `vkGetInstanceProcAddr` with wrappers; `None` on a machine without a loader.
pub(crate) fn functions() -> Option<vk::PFN_vkGetInstanceProcAddr> {
    loader().map(|_| get_instance_proc_addr as vk::PFN_vkGetInstanceProcAddr)
}

unsafe extern "system" fn get_instance_proc_addr(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    let get = loader()?.static_fn().get_instance_proc_addr;
    // SAFETY: Vulkan's rules for the caller, who passes a C string.
    unsafe { Some(replaced(CStr::from_ptr(name), get(instance, name)?)) }
}

unsafe extern "system" fn get_device_proc_addr(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: as above; the address is that of the function of this name.
    unsafe {
        let get: vk::PFN_vkGetDeviceProcAddr = std::mem::transmute(real("vkGetDeviceProcAddr"));
        Some(replaced(CStr::from_ptr(name), get(device, name)?))
    }
}
