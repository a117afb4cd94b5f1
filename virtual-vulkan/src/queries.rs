//! Timestamps of a simulated clock: see [`crate::execute`].

use std::sync::atomic::{AtomicU64, Ordering};

/// A pool of timestamps.
pub(crate) struct QueryPool {
    /// Nanoseconds; [`NONE`] for a query without a result.
    pub(crate) values: Vec<AtomicU64>,
}

/// Value of a query without a result.
pub(crate) const NONE: u64 = u64::MAX;

impl QueryPool {
    pub(crate) fn reset(&self, first: u32, count: u32) {
        for value in self.values.iter().skip(first as usize).take(count as usize) {
            value.store(NONE, Ordering::Relaxed);
        }
    }

    pub(crate) fn set(&self, index: u32, nanoseconds: u64) {
        if let Some(value) = self.values.get(index as usize) {
            value.store(nanoseconds, Ordering::Relaxed);
        }
    }
}
