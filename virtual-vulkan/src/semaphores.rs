//! Binary and timeline semaphores, and fences.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A semaphore with its value, which is 0 or 1 for a binary one.
pub(crate) struct Semaphore {
    pub(crate) value: AtomicU64,
    pub(crate) timeline: bool,
}

impl Semaphore {
    /// Returns true if a wait for a value is over; this resets a binary semaphore.
    pub(crate) fn passes(&self, value: u64) -> bool {
        match self.timeline {
            true => self.value.load(Ordering::Acquire) >= value,
            false => self.value.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok(),
        }
    }

    pub(crate) fn signal(&self, value: u64) {
        self.value.store(if self.timeline { value } else { 1 }, Ordering::Release);
    }
}

/// A fence.
pub(crate) struct Fence(pub(crate) AtomicBool);

impl Fence {
    pub(crate) fn signal(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_signalled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
