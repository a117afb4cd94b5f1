//! Interrupts of cards and kernels: which events they set.
//!
//! Source: `kfd_signal_event_interrupt` and `kfd_kmap_event_page` in `drivers/gpu/drm/amd/amdkfd/kfd_events.c`.

#![allow(unsafe_code)]

use crate::allocation::Backing;
use crate::shared::{Answer, Shared, State};
use crate::slots::Slots;

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
        let at = self.space.at(offset).as_ptr() as u64;
        // SAFETY: memory of the space; `free` refuses to free it.
        *slots = Some(unsafe { Slots::new(handle, at, allocation.bytes) });
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
        for id in slots.ids().filter(|&id| slots.take(id)) {
            self.events.set(id);
        }
    }
}
