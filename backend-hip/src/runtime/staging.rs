//! Pinned host memory for transfers: a ring of slots, then a part for the inputs and results of programs.

use super::session::{EventId, HostBlock, Session};
use crate::driver::Coherence;
use ggml_core::{Error, Result};
use std::sync::Arc;

/// Alignment of tensors in an arena in bytes.
pub(crate) const ALIGNMENT: usize = 256;

/// Number of slots of the ring.
pub(super) const SLOTS: usize = 4;

/// Staging memory, with an event for each slot of the ring.
#[derive(Debug)]
pub(crate) struct Staging {
    pub(super) block: Arc<HostBlock>,
    pub(super) slot_bytes: usize,
    pub(super) events: [EventId; SLOTS],
    /// Free ranges (offset, size) of the programs' part, by offset.
    free: Vec<(usize, usize)>,
}

impl Staging {
    /// Allocates the ring, and an eighth of it more for the inputs and results of programs.
    pub(crate) fn open(session: &mut Session, bytes: usize) -> Result<Staging> {
        let slot_bytes = (bytes / SLOTS).max(1 << 12).next_multiple_of(ALIGNMENT);
        let inputs = (slot_bytes / 2).next_multiple_of(ALIGNMENT);
        let total = slot_bytes.checked_mul(SLOTS).and_then(|ring| ring.checked_add(inputs));
        let total =
            total.ok_or_else(|| Error::argument("staging_bytes", bytes, "a size that can be addressed"))?;
        let block = session.allocate_host(total, Coherence::Always)?;
        let mut event = || session.create_event(false);
        let events = [event()?, event()?, event()?, event()?];
        Ok(Staging { block, events, slot_bytes, free: vec![(slot_bytes * SLOTS, inputs)] })
    }

    /// Takes a range of the programs' part, if there is room.
    pub(super) fn reserve(&mut self, bytes: usize) -> Option<usize> {
        let found = self.free.iter().position(|&(_, size)| size >= bytes)?;
        let (offset, size) = self.free[found];
        self.free[found] = (offset + bytes, size - bytes);
        self.free.retain(|&(_, size)| size > 0);
        Some(offset)
    }

    /// Returns a range.
    pub(super) fn release(&mut self, offset: usize, bytes: usize) {
        self.free.push((offset, bytes));
        self.free.sort_unstable();
        // Merge adjacent ranges.
        let mut merged: Vec<(usize, usize)> = Vec::new();
        for &(offset, bytes) in &self.free {
            match merged.last_mut() {
                Some((begin, size)) if *begin + *size == offset => *size += bytes,
                _ => merged.push((offset, bytes)),
            }
        }
        self.free = merged;
    }
}
