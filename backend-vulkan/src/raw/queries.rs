//! Timestamps.

use super::device::Device;
use ash::vk;
use ggml_core::{Phase, Result};
use std::sync::Arc;
use std::time::Duration;

/// A pool of timestamps.
pub(crate) struct Timestamps {
    device: Arc<Device>,
    /// The pool.
    pub(super) raw: vk::QueryPool,
    /// Number of timestamps.
    pub(crate) count: u32,
    period: f64,
    mask: u64,
}

impl Timestamps {
    /// Creates a pool of `count` timestamps; `None` if the queue has none.
    pub(crate) fn new(device: &Arc<Device>, count: u32) -> Result<Option<Arc<Timestamps>>> {
        let Some((period, bits)) = device.facts.timestamps else { return Ok(None) };
        let info =
            vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(count.max(1));
        // SAFETY: the device is alive; the count is not 0.
        let raw = unsafe { device.raw.create_query_pool(&info, None) }
            .map_err(|code| device.failed(Phase::Prepare, "vkCreateQueryPool", code))?;
        let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        Ok(Some(Arc::new(Timestamps { device: device.clone(), raw, count: count.max(1), period, mask })))
    }

    /// Returns the time from timestamp `first` to timestamp `last`, if both have been written.
    pub(crate) fn between(&self, first: u32, last: u32) -> Option<Duration> {
        let ticks = self.read(last)?.wrapping_sub(self.read(first)?) & self.mask;
        Some(Duration::from_nanos((ticks as f64 * self.period) as u64))
    }

    fn read(&self, index: u32) -> Option<u64> {
        if index >= self.count {
            return None;
        }
        let mut value = [0u64];
        // SAFETY: the pool is alive, the index is within it, and `value` has room for one 64-bit result.
        // Without the flag WAIT the call does not block.
        unsafe {
            self.device.raw.get_query_pool_results(self.raw, index, &mut value, vk::QueryResultFlags::TYPE_64)
        }
        .ok()?;
        Some(value[0])
    }
}

impl Drop for Timestamps {
    fn drop(&mut self) {
        // SAFETY: commands that write the pool hold an `Arc` of it and are dropped only when the device has
        // finished with them.
        unsafe { self.device.raw.destroy_query_pool(self.raw, None) };
    }
}
