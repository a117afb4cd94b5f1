//! The page of slots: an event for each word, into which cards and kernels write the event's number before they raise
//! the interrupt. The driver knows by it which events an interrupt is for.
//!
//! Source: `lookup_signaled_event_by_partial_id`, `kfd_signal_event_interrupt` and `kfd_kmap_event_page` in
//! `drivers/gpu/drm/amd/amdkfd/kfd_events.c`.

#![allow(unsafe_code)]

use crate::allocation::Backing;
use crate::process;
use crate::shared::{Answer, Shared, State};
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
    fn slot(&self, id: u32) -> Option<&std::sync::atomic::AtomicU64> {
        // SAFETY: inside memory of the space, which is mapped as long as the driver lives; it is not freed.
        (u64::from(id) < self.count).then(|| unsafe { process::word64(self.at + 8 * u64::from(id)) })
    }

    /// Empties a slot; false if it was empty.
    fn take(&self, id: u32) -> bool {
        self.slot(id).is_some_and(|slot| slot.swap(EMPTY, Ordering::AcqRel) != EMPTY)
    }
}

impl Shared {
    /// Takes memory as the page of slots, once.
    pub(crate) fn set_slots(&self, handle: u64) -> Answer {
        let mut state = self.state();
        let State { allocations, slots, .. } = &mut *state;
        if slots.is_some() {
            return Err(libc::EBUSY);
        }
        let allocation = allocations.get(&handle).ok_or(libc::EINVAL)?;
        let Backing::Space(offset) = allocation.backing else { return Err(libc::EINVAL) };
        let count = MOST.min(allocation.bytes / 8);
        let page = Slots { handle, at: self.space.at(offset).as_ptr() as u64, count };
        (0..count as u32)
            .filter_map(|id| page.slot(id))
            .for_each(|slot| slot.store(EMPTY, Ordering::Release));
        *slots = Some(page);
        Ok(())
    }

    /// Answers an interrupt: sets the event of the number, or, if its slot is empty, all events whose slots are not. The
    /// number is what the interrupt carries, of which upper bits may be missing.
    pub(crate) fn interrupt(&self, id: u32) {
        let slots = self.state().slots;
        let Some(slots) = slots else {
            self.events.set(id);
            return;
        };
        // A slot is emptied first: what is written into it from now on is another interrupt's.
        if id != 0 && slots.take(id) {
            self.events.set(id);
            return;
        }
        for id in (0..slots.count as u32).filter(|&id| slots.take(id)) {
            self.events.set(id);
        }
    }
}
