//! The verdict over the accesses of a launch.

use super::bits::{ATOMIC, BLOCK, Marks, READ, VOLATILE, WRITE};
use super::block::Site;
use super::conflict::{Conflict, Party, kinds};
use super::ledger::{Closed, Entry, Ledger, Slot};
use crate::fault::Access;
use crate::footprint::Footprint;
use std::collections::HashSet;

impl Ledger {
    /// Returns the conflict at the lowest address.
    pub(crate) fn verdict(self) -> (Option<Conflict>, Option<Footprint>) {
        let (judges, traces) = (self.judges, self.traces);
        let closed = self.into_closed();
        let conflict = if judges { closed.conflict() } else { None };
        (conflict, traces.then(|| closed.footprint()))
    }
}

/// Returns the marks of an entry without loads of what its work-group accesses atomically: a compiler begins a loop around
/// compare-and-swap with a plain load.
fn plain_marks(slot: &Slot, entry: &Entry) -> Marks {
    let mut marks = entry.marks();
    if !entry.has(READ) {
        return marks;
    }
    for own in slot.entries.iter().filter(|own| own.group == entry.group && own.has(ATOMIC)) {
        marks.forgive(&own.marks());
    }
    if let Some(others) = slot.others.as_deref().filter(|others| others.may_have(entry.group)) {
        marks.forgive(&others.marks);
    }
    marks
}

/// Most steps of a search for an order; beyond them there is one.
const STEPS: usize = 100_000;

impl Closed {
    pub(super) fn conflict(&self) -> Option<Conflict> {
        // Blocks are sorted, and most have one entry.
        self.slots.iter().find_map(|(number, slot)| self.in_slot(*number, slot))
    }

    /// Returns the conflict at the lowest byte of a block.
    fn in_slot(&self, number: u64, slot: &Slot) -> Option<Conflict> {
        let marks: Vec<Marks> = match slot.entries.len() {
            0 | 1 if slot.others.is_none() => return None,
            _ => slot.entries.iter().map(|entry| plain_marks(slot, entry)).collect(),
        };
        // Most work-groups write what no other one accesses.
        let outlines: Vec<[u16; 2]> = marks.iter().map(Marks::outline).collect();
        let may_conflict = |i: usize, j: usize| {
            let ([any, changed], [other, also]) = (outlines[i], outlines[j]);
            any & also | changed & other != 0
        };
        let mut lowest: Option<(usize, [u32; 2], usize, usize)> = None;
        for (i, (a, x)) in slot.entries.iter().zip(&marks).enumerate() {
            for (j, (b, y)) in slot.entries.iter().zip(&marks).enumerate().skip(i + 1) {
                if !may_conflict(i, j) || a.group == b.group {
                    continue;
                }
                let Some(at) = x.conflict(y) else { continue };
                let key = (at, [a.group.max(b.group), a.group.min(b.group)]);
                let is_lower = lowest.is_none_or(|(at, groups, ..)| key < (at, groups));
                if is_lower && !self.ordered(a, b) && !self.ordered(b, a) {
                    // A store in flight is the second one, and of others that of the lower work-group.
                    let first = if a.late == b.late { a.group > b.group } else { b.late };
                    let (i, j) = if first { (i, j) } else { (j, i) };
                    lowest = Some((key.0, key.1, i, j));
                }
            }
        }
        let named = lowest.map(|(at, _, i, j)| {
            let (a, b) = kinds(&marks[i], &marks[j], at);
            let address = number * BLOCK + at as u64;
            let party = |entry: &Entry, kind| entry.party(at, kind);
            Conflict::new(address, party(&slot.entries[i], a), party(&slot.entries[j], b), false)
        });
        named.or_else(|| self.with_others(number, slot, &marks))
    }

    /// Returns the conflict of a work-group with those that are not known by name.
    fn with_others(&self, number: u64, slot: &Slot, marks: &[Marks]) -> Option<Conflict> {
        let nameless = slot.others.as_deref()?;
        let mut others = nameless.marks.clone();
        others.forgive(&nameless.marks);
        let others = &others;
        // A work-group that acquired something may be ordered after all of them.
        let candidates = slot.entries.iter().zip(marks);
        let candidates =
            candidates.filter(|(entry, _)| entry.acquire == 0 && !nameless.may_have(entry.group));
        let found = candidates.filter_map(|(entry, x)| Some((x.conflict(others)?, entry, x)));
        let (at, entry, x) = found.min_by_key(|(at, entry, _)| (*at, entry.group))?;
        let (a, b) = kinds(x, others, at);
        let access = if b == ATOMIC { Access::Atomic } else { Access::Read };
        let other = Party { group: None, wave: 0, word: 0, access, late: false };
        Some(Conflict::new(number * BLOCK + at as u64, entry.party(at, a), other, false))
    }

    /// Returns true if what `before` did is released to `after`.
    fn ordered(&self, before: &Entry, after: &Entry) -> bool {
        self.released(before, after) || self.flagged(before, after)
    }

    fn released(&self, before: &Entry, after: &Entry) -> bool {
        let mut open = vec![(after.group, after.acquire)];
        let mut known: HashSet<(u32, u32)> = open.iter().copied().collect();
        let mut steps = 0;
        while let Some((group, seen)) = open.pop() {
            let acquired = self.acquired.get(&group).map(Vec::as_slice).unwrap_or_default();
            for (word, count) in acquired.iter().take(seen as usize) {
                if *count == u32::MAX {
                    return true;
                }
                let releases = self.releases.get(word).map(Vec::as_slice).unwrap_or_default();
                for release in releases.iter().take(*count as usize) {
                    steps += 1;
                    let found = release.group == before.group && release.number >= before.release;
                    if found || steps > STEPS {
                        return true;
                    }
                    if release.seen > 0 && known.insert((release.group, release.seen)) {
                        open.push((release.group, release.seen));
                    }
                }
            }
        }
        false
    }

    /// Returns true if the one work-group loaded, as a flag, what the other stored.
    fn flagged(&self, before: &Entry, after: &Entry) -> bool {
        self.slots.iter().any(|(_, slot)| {
            let loads = |entry: &&Entry| entry.group == after.group && entry.has(VOLATILE);
            let stores = |entry: &&Entry| entry.group == before.group && entry.has(WRITE);
            let Some(load) = slot.entries.iter().find(loads) else { return false };
            let loaded = load.marks();
            slot.entries.iter().filter(stores).any(|store| {
                let stored = store.marks();
                stored.0[WRITE].iter().zip(&loaded.0[VOLATILE]).any(|(a, b)| a & b != 0)
            })
        })
    }
}

impl Entry {
    /// Returns the access of a kind to a byte.
    fn party(&self, at: usize, kind: usize) -> Party {
        let site = self.sites.iter().rev().find(|site| site.covers(at, kind)).copied();
        let unknown = Site { word: u32::MAX, first: 0, end: 0, wave: 0, kind: kind as u8, late: false };
        Party { late: self.late, ..Party::new(self.group, &site.unwrap_or(unknown)) }
    }
}
