//! State shared by everything above an open device: the device with its queue, its profile, and the options
//! it was opened with.

use crate::device::cost::Model;
use crate::device::profile::Profile;
use crate::options::VulkanOptions;
use crate::raw::device::Device;
use ggml_core::{Deadline, Phase};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Counters of programs.
#[derive(Default)]
pub(crate) struct Counters {
    /// Programs prepared.
    pub(crate) programs: AtomicU64,
    /// Command buffers recorded for programs.
    pub(crate) recordings: AtomicU64,
    /// Submissions of programs.
    pub(crate) submissions: AtomicU64,
    /// Bytes uploaded.
    pub(crate) uploaded: AtomicU64,
}

/// An open device with its profile, timing model, options and counters.
pub(crate) struct DeviceContext {
    /// The device.
    pub(crate) device: Arc<Device>,
    /// Device properties and tuning for operations.
    pub(crate) profile: Profile,
    /// Estimates of execution times on the device.
    pub(crate) model: Model,
    /// Options the device was opened with.
    pub(crate) options: VulkanOptions,
    /// Counters of the programs on this device.
    pub(crate) counters: Counters,
}

impl DeviceContext {
    /// Returns the name for errors ("vulkan:0").
    pub(crate) fn name(&self) -> &str {
        &self.device.name
    }

    /// Returns the time budget of a submission in seconds.
    pub(crate) fn budget(&self) -> f64 {
        self.options.submission_budget.as_secs_f64()
    }

    /// Returns a deadline for the phase that starts now.
    pub(crate) fn deadline(&self, phase: Phase) -> Deadline {
        Deadline::new(phase, self.options.deadlines.of(phase))
    }
}
