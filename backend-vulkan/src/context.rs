//! What everything above an open device shares: the device with its queue, what is known of it, how it was asked for.

use crate::device::cost::Model;
use crate::device::tuning::Profile;
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
    /// Command buffers recorded for them.
    pub(crate) recordings: AtomicU64,
    /// Submissions of them.
    pub(crate) submissions: AtomicU64,
    /// Bytes uploaded.
    pub(crate) uploaded: AtomicU64,
}

/// An open device.
pub(crate) struct DeviceContext {
    /// The device.
    pub(crate) device: Arc<Device>,
    /// The device as operations see it.
    pub(crate) profile: Profile,
    /// How long work takes on it.
    pub(crate) model: Model,
    /// How it was opened.
    pub(crate) options: VulkanOptions,
    /// What has been done.
    pub(crate) counters: Counters,
}

impl DeviceContext {
    /// Name for errors ("vulkan:0").
    pub(crate) fn name(&self) -> &str {
        &self.device.name
    }

    /// What a submission may take, in estimated seconds before correction.
    pub(crate) fn budget(&self) -> f64 {
        self.options.submission_budget.as_secs_f64() / self.model.factor()
    }

    /// A deadline that begins now.
    pub(crate) fn deadline(&self, phase: Phase) -> Deadline {
        Deadline::new(phase, self.options.deadlines.of(phase))
    }
}
