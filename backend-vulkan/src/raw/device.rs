//! A logical device with its single queue.

use super::fault;
use super::features::{Features, MatrixRowFeatures};
use super::instance::Instance;
use super::physical::Facts;
use super::queue::Queue;
use crate::error::{broken, failure, lost};
use ash::{amd, ext, khr, vk};
use ggml_core::{Deadline, Error, Missing, Phase, Result, phase};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Maximum wait for a resource that the device may still use; after it the resource is leaked instead of
/// freed.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// A logical device.
pub(crate) struct Device {
    /// The functions of the device.
    pub(super) raw: ash::Device,
    /// The physical device.
    pub(super) physical: vk::PhysicalDevice,
    /// Properties queried before the device was opened.
    pub(crate) facts: Facts,
    /// The queue; `None` for a device that is only used to compile.
    pub(super) queue: Option<Queue>,
    /// Functions for buffer markers.
    pub(super) marker: Option<amd::buffer_marker::Device>,
    /// Functions for pipeline statistics.
    pub(super) executable: Option<khr::pipeline_executable_properties::Device>,
    /// Functions for details of a lost device.
    pub(super) fault: Option<ext::device_fault::Device>,
    /// Functions for object names.
    pub(super) names: Option<ext::debug_utils::Device>,
    /// Functions for importing host memory.
    pub(super) host_memory: Option<ext::external_memory_host::Device>,
    /// Functions for exporting memory.
    pub(super) memory_fd: Option<khr::external_memory_fd::Device>,
    /// Name for errors ("vulkan:0").
    pub(crate) name: String,
    lost: AtomicBool,
    /// The driver's description of the fault when the device was lost.
    fault_text: OnceLock<String>,
    abandoned: AtomicBool,
    /// The instance; the last field, so that it is dropped last.
    instance: Arc<Instance>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name)
            .field("device", &self.facts.name)
            .finish_non_exhaustive()
    }
}

/// Purpose of opening a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Computing.
    Compute,
    /// Compiling pipelines only: nothing is allocated, recorded or submitted (drivers without hardware
    /// cannot).
    Compile,
}

impl Device {
    /// Opens a physical device.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with `Missing::Feature` if it has no compute queue or no timeline semaphores.
    pub(crate) fn open(
        instance: &Arc<Instance>,
        physical: vk::PhysicalDevice,
        facts: Facts,
        name: String,
        purpose: Purpose,
    ) -> Result<Arc<Device>> {
        let family = required(&facts, &name)?;
        let raw = create(instance, physical, &facts, family)
            .map_err(|code| failure(&name, Phase::OpenDevice, "vkCreateDevice", code))?;
        if facts.driver_id == vk::DriverId::NVIDIA_PROPRIETARY {
            instance.keep_loaded();
        }
        let (functions, features) = (&instance.raw, facts.support.features);
        let mut device = Device {
            marker: features.marker.then(|| amd::buffer_marker::Device::new(functions, &raw)),
            executable: features
                .executable
                .then(|| khr::pipeline_executable_properties::Device::new(functions, &raw)),
            host_memory: features
                .host_memory
                .then(|| ext::external_memory_host::Device::new(functions, &raw)),
            memory_fd: features.memory_fd.then(|| khr::external_memory_fd::Device::new(functions, &raw)),
            names: instance.names_objects().then(|| ext::debug_utils::Device::new(functions, &raw)),
            fault: features.fault.then(|| ext::device_fault::Device::new(functions, &raw)),
            raw,
            physical,
            facts,
            queue: None,
            name,
            lost: AtomicBool::new(false),
            fault_text: OnceLock::new(),
            abandoned: AtomicBool::new(false),
            instance: instance.clone(),
        };
        if purpose == Purpose::Compute {
            // From here on `device` owns the handle and destroys it on an error.
            device.queue = Some(
                Queue::new(&device.raw, family)
                    .map_err(|code| failure(&device.name, Phase::OpenDevice, "vkCreateSemaphore", code))?,
            );
        }
        Ok(Arc::new(device))
    }

    /// Returns the instance.
    pub(crate) fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    /// Returns the error for a failed call; records a lost device.
    pub(crate) fn failed(&self, phase: Phase, call: &'static str, code: vk::Result) -> Error {
        if code != vk::Result::ERROR_DEVICE_LOST {
            return failure(&self.name, phase, call, code);
        }
        self.lost.store(true, Ordering::Release);
        let fault_text = self.fault_text.get_or_init(|| {
            let fault_text = self.fault.as_ref().and_then(fault::describe).unwrap_or_default();
            tracing::error!(backend = %self.name, %phase, call, fault_text, "the device is lost");
            fault_text
        });
        lost(&self.name, phase, fault_text)
    }

    /// Returns an error if the device has been lost.
    pub(crate) fn check_alive(&self, phase: Phase) -> Result<()> {
        let fault_text = || self.fault_text.get().map_or("", String::as_str);
        if self.is_lost() { Err(lost(&self.name, phase, fault_text())) } else { Ok(()) }
    }

    /// Returns true if the device has been lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Returns true if a resource was leaked because the device did not finish with it.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Marks the device as abandoned: from now on drops do not wait, and the device itself is never
    /// destroyed.
    pub(super) fn abandon(&self) {
        if !self.abandoned.swap(true, Ordering::AcqRel) {
            tracing::warn!(backend = %self.name, "the device does not finish its work; its resources are leaked");
        }
    }

    /// Returns the queue.
    pub(super) fn queue(&self, phase: Phase) -> Result<&Queue> {
        self.queue.as_ref().ok_or_else(|| {
            broken(&self.name, phase, "vkQueueSubmit", "the device was opened to compile only".into())
        })
    }

    /// Returns the value that the timeline has reached. On a lost device: the last value that was observed.
    pub(crate) fn reached(&self) -> u64 {
        let Some(queue) = &self.queue else { return 0 };
        if self.is_lost() { queue.last_reached() } else { queue.poll(&self.raw) }
    }

    /// Returns true if the timeline has reached a value.
    pub(crate) fn is_reached(&self, value: u64) -> bool {
        let last = self.queue.as_ref().map_or(0, Queue::last_reached);
        value <= last || value <= self.reached()
    }

    /// Waits until the timeline reaches a value.
    ///
    /// # Errors
    /// [`Error::Timeout`] without a node when the deadline passes; [`Error::DeviceLost`].
    pub(crate) fn wait(&self, value: u64, deadline: &Deadline) -> Result<()> {
        let queue = self.queue(deadline.phase())?;
        if value <= queue.last_reached() {
            return Ok(());
        }
        self.check_alive(deadline.phase())?;
        match queue.wait(&self.raw, value, deadline.remaining()) {
            Ok(()) => Ok(()),
            Err(vk::Result::TIMEOUT) => Err(deadline.missed(&self.name, None)),
            Err(code) => Err(self.failed(deadline.phase(), "vkWaitSemaphores", code)),
        }
    }

    /// Returns true if the device has finished with a resource last used at `value`, after waiting for at
    /// most [`GRACE`]. If false, the caller must leak the resource. A lost device has finished with
    /// everything.
    pub(super) fn has_finished_with(&self, value: u64) -> bool {
        let Some(queue) = &self.queue else { return true };
        if self.is_lost() || self.is_reached(value) {
            return true;
        }
        let grace = if self.is_abandoned() { Duration::ZERO } else { GRACE };
        let done = self.reaches_within(queue, value, grace);
        if !done {
            self.abandon();
        }
        done
    }

    /// Returns true if the timeline reaches a value, or the device is lost, within the limit.
    fn reaches_within(&self, queue: &Queue, value: u64, limit: Duration) -> bool {
        match queue.wait(&self.raw, value, limit) {
            Ok(()) => true,
            Err(code @ vk::Result::ERROR_DEVICE_LOST) => {
                self.failed(Phase::Close, "vkWaitSemaphores", code);
                true
            }
            Err(_) => self.is_lost(),
        }
    }

    /// Returns the bytes that can still be allocated in each heap, if the driver reports them.
    pub(crate) fn budget(&self) -> Option<Vec<u64>> {
        if !self.facts.support.features.budget {
            return None;
        }
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut chain = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: the physical device belongs to the instance, which is alive, and lists
        // VK_EXT_memory_budget.
        unsafe { self.instance.raw.get_physical_device_memory_properties2(self.physical, &mut chain) };
        let heaps = self.facts.heaps.len();
        let pairs = budget.heap_budget.iter().zip(&budget.heap_usage).take(heaps);
        Some(pairs.map(|(budget, usage)| budget.saturating_sub(*usage)).collect())
    }

    /// Returns the objects that gpu-allocator is created from: the functions of the instance and the physical
    /// device.
    pub(super) fn parents(&self) -> (ash::Instance, vk::PhysicalDevice) {
        (self.instance.raw.clone(), self.physical)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // A thread that submits holds commands and thereby the device, so no submission is in progress.
        let idle = match &self.queue {
            Some(queue) => self.is_lost() || self.reaches_within(queue, queue.submitted(), GRACE),
            None => true,
        };
        if !idle || self.is_abandoned() {
            self.abandon();
            // The library must stay loaded as long as its threads may run.
            std::mem::forget(self.instance.clone());
            return;
        }
        if let Some(queue) = self.queue.take() {
            queue.destroy(&self.raw);
        }
        // SAFETY: everything created from the device holds an `Arc` of it and has been dropped; the queue is
        // idle or lost.
        unsafe { self.raw.destroy_device(None) };
    }
}

/// Checks the features that the backend requires and returns the queue family.
fn required(facts: &Facts, name: &str) -> Result<u32> {
    let missing = |what: &str| Error::Unavailable {
        backend: name.into(),
        phase: Phase::OpenDevice,
        missing: Missing::Feature,
        reason: format!("{} ({}) has no {what}", facts.name, facts.driver),
    };
    if !facts.support.features.timeline {
        return Err(missing("timeline semaphores"));
    }
    facts.queue_family.ok_or_else(|| missing("compute queue"))
}

fn create(
    instance: &Instance,
    physical: vk::PhysicalDevice,
    facts: &Facts,
    family: u32,
) -> Result<ash::Device, vk::Result> {
    let f: Features = facts.support.features;
    let priorities = [1.0];
    let queues =
        [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&priorities)];
    let names: Vec<_> = facts.extensions.iter().map(|e| e.as_ptr()).collect();
    let core = vk::PhysicalDeviceFeatures::default()
        .shader_int16(f.int16)
        .shader_int64(f.int64)
        .shader_storage_buffer_array_dynamic_indexing(f.buffer_arrays);
    let mut v11 = vk::PhysicalDeviceVulkan11Features::default().storage_buffer16_bit_access(f.storage16);
    let mut v12 = vk::PhysicalDeviceVulkan12Features::default()
        .timeline_semaphore(true)
        .storage_buffer8_bit_access(f.storage8)
        .shader_float16(f.float16)
        .shader_int8(f.int8)
        .vulkan_memory_model(f.memory_model)
        .vulkan_memory_model_device_scope(f.memory_model);
    let mut size = vk::PhysicalDeviceSubgroupSizeControlFeatures::default()
        .subgroup_size_control(f.subgroup_size)
        .compute_full_subgroups(f.full_subgroups);
    let mut dot =
        vk::PhysicalDeviceShaderIntegerDotProductFeatures::default().shader_integer_dot_product(true);
    let mut matrix = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default().cooperative_matrix(true);
    let mut rows = MatrixRowFeatures::new(true);
    let mut views = vk::PhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR::default()
        .workgroup_memory_explicit_layout(true)
        .workgroup_memory_explicit_layout16_bit_access(true);
    let mut statistics =
        vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default().pipeline_executable_info(true);
    let mut faults = vk::PhysicalDeviceFaultFeaturesEXT::default().device_fault(true);
    let mut info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_extension_names(&names)
        .enabled_features(&core)
        .push_next(&mut v11)
        .push_next(&mut v12);
    if f.subgroup_size || f.full_subgroups {
        info = info.push_next(&mut size);
    }
    if f.int_dot {
        info = info.push_next(&mut dot);
    }
    if f.matrices {
        info = info.push_next(&mut matrix);
    }
    if f.matrix_rows {
        info = info.push_next(&mut rows);
    }
    if f.shared_views {
        info = info.push_next(&mut views);
    }
    if f.executable {
        info = info.push_next(&mut statistics);
    }
    if f.fault {
        info = info.push_next(&mut faults);
    }
    phase::call("vkCreateDevice", &facts.name);
    // SAFETY: the physical device belongs to the instance; the features and extensions are listed by it; all
    // pointers are valid until the call returns.
    unsafe { instance.raw.create_device(physical, &info, None) }
}
