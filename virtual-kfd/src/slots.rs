//! The page of slots: an event for each word, into which cards and kernels write the event's number before they raise
//! the interrupt. The driver knows by it which events an interrupt is for.
//!
//! Source: `lookup_signaled_event_by_partial_id`, `kfd_signal_event_interrupt` and `kfd_kmap_event_page` in
//! `drivers/gpu/drm/amd/amdkfd/kfd_events.c`.

#![allow(unsafe_code)]

use crate::process;
use std::sync::atomic::Ordering;

/// Value of a slot without an event.
const EMPTY: u64 = u64::MAX;
/// Most slots of a page.
const MOST: u64 = 4096;

/// The page of a process, which is the runtime's memory of the system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// Handle of the memory.
    pub(crate) handle: u64,
    /// Address in this process, inside the space.
    at: u64,
    count: u64,
}

impl Slots {
    /// Returns a page of memory of the system, with empty slots.
    ///
    /// # Safety The bytes are inside the space, and are not freed as long as the driver lives.
    pub(crate) unsafe fn new(handle: u64, at: u64, bytes: u64) -> Slots {
        let slots = Slots { handle, at, count: MOST.min(bytes / 8) };
        slots.ids().filter_map(|id| slots.slot(id)).for_each(|slot| slot.store(EMPTY, Ordering::Release));
        slots
    }

    /// Returns the numbers of all slots.
    pub(crate) fn ids(&self) -> std::ops::Range<u32> {
        0..self.count as u32
    }

    fn slot(&self, id: u32) -> Option<&std::sync::atomic::AtomicU64> {
        // SAFETY: the promise of `new`.
        (u64::from(id) < self.count).then(|| unsafe { process::word64(self.at + 8 * u64::from(id)) })
    }

    /// Empties a slot; false if it was empty.
    pub(crate) fn take(&self, id: u32) -> bool {
        self.slot(id).is_some_and(|slot| slot.swap(EMPTY, Ordering::AcqRel) != EMPTY)
    }
}
