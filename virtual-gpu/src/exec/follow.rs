//! Tells the work-group's [`crate::order::Own`] what it does to global memory, and makes faults of what that finds.

use super::group::{Context, Group};
use super::track::Track;
use super::wave::Wave;
use crate::fault::{Access, Fault, FaultKind, Origin, Other, Range, Space};
use crate::isa::text;
use crate::memory::{Region, Span};
use crate::order::{Conflict, Lanes, Party};

impl Group<'_> {
    /// Notes the accesses of the lanes of the instruction at a word to one region.
    #[inline(always)]
    pub(super) fn note_span(&mut self, word: usize, span: &Span<'_>, access: Access, volatile: bool) {
        let Some((own, ledger)) = &mut self.track.followed else { return };
        if access == Access::Read && !span.region().writable && !ledger.traces {
            return;
        }
        let (offsets, active, bytes) = span.lanes();
        let lanes = Lanes { base: span.region().base, offsets, active, bytes };
        if access == Access::Write {
            own.store();
        }
        own.lanes(access, volatile, word, &lanes);
    }

    /// Notes an access to a range of a region.
    #[inline(always)]
    pub(super) fn note(&mut self, wave: &Wave, region: &Region, range: &Range, volatile: bool) {
        let Some((own, ledger)) = &mut self.track.followed else { return };
        if range.access == Access::Read && !region.writable && !ledger.traces {
            return;
        }
        own.range(range.access, volatile, wave.at, range.at, range.bytes);
    }

    /// Returns true if all lanes may store there, and no store ends what an atomic access began.
    pub(super) fn is_plain_store(&self, span: &Span<'_>) -> bool {
        span.region().writable && self.track.followed.as_ref().is_none_or(|(own, _)| !own.has_words())
    }

    /// Returns true if a store is the end of what an atomic access to the same word began.
    pub(super) fn is_signal(&self, at: u64, bytes: u32) -> bool {
        self.track.followed.as_ref().is_some_and(|(own, _)| own.is_word(at, bytes))
    }

    /// Does an atomic access to a word by `access`. One with a result acquires what others released there.
    pub(super) fn signal<T>(&mut self, wave: &Wave, at: u64, returns: bool, access: impl FnOnce() -> T) -> T {
        let Track { followed, release } = &mut self.track;
        let Some((own, ledger)) = followed else { return access() };
        let release = *release.get_or_insert_with(|| own.release(ledger, wave.waits.stores_in_flight()));
        own.add_word(at);
        let (result, before) = ledger.update(at, release, access);
        if returns {
            own.acquire(at, before);
        }
        result
    }

    /// Notes that a wavefront invalidates its caches.
    pub(super) fn note_invalidation(&mut self) {
        if let Some((own, ledger)) = &mut self.track.followed {
            own.invalidate(ledger);
        }
    }
}

impl Context<'_> {
    /// Returns true if a barrier orders stores to memory of the wavefronts of a work-group without a wait: these processors
    /// have no barrier that compilers wait before, and one cache for the whole work-group.
    pub(super) fn barrier_orders_stores(&self) -> bool {
        ["gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"].contains(&self.text.isa().target.name())
    }

    /// Returns the fault of a conflict; `id` returns the id of a work-group by its number.
    pub(crate) fn conflict(&self, conflict: &Conflict, id: impl Fn(u32) -> [u32; 3]) -> Fault {
        let Conflict { address, one, other, in_flight } = conflict;
        let print = |party: &Party| match self.text.at(party.word) {
            Some(inst) => text::print(&inst),
            None => String::new(),
        };
        let group = |party: &Party| party.group.map(&id);
        let range = Range { space: Space::Global, access: one.access, at: *address, bytes: 1 };
        let place = self.place(other.word);
        let second = Box::new(Other {
            access: other.access,
            group: group(other),
            wave: other.wave,
            address: if other.group.is_some() { self.address(other.word) } else { 0 },
            instruction: if other.group.is_some() { print(other) } else { String::new() },
            line: place.filter(|_| other.group.is_some()),
            in_flight: other.late && !in_flight,
        });
        let kind = match in_flight {
            true => FaultKind::StoreInFlight(range, second),
            false => FaultKind::GlobalRace(range, second),
        };
        Fault {
            kind,
            kernel: self.kernel.to_string(),
            address: self.address(one.word),
            instruction: print(one).into(),
            group: group(one).unwrap_or_default(),
            wave: one.wave,
            origin: self.origin(one.word),
        }
    }

    /// Returns the address of a word of the text: in its code object, or in memory.
    pub(super) fn address(&self, word: usize) -> u64 {
        self.text.base.wrapping_add((word as u64).wrapping_mul(4))
    }

    /// Returns what is known of a word of the text and of the run.
    pub(super) fn origin(&self, word: usize) -> Option<Box<Origin>> {
        Some(Box::new(Origin { line: self.place(word), seed: self.noise.shown() }))
    }

    /// Returns the source file and line of a word of the text.
    fn place(&self, word: usize) -> Option<String> {
        self.lines?.at(self.address(word))
    }
}
