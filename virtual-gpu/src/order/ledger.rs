//! Accesses of the work-groups of a launch, and how atomics ordered them.

use super::bits::{ATOMIC, BLOCK, KINDS, Map, Marks, READ, Table, VOLATILE, WORDS, WRITE};
use super::block::Site;
use super::release::Release;
use crate::footprint::Footprint;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts of the ledger, each with its own lock.
const SHARDS: usize = 64;
/// Work-groups that read a block, or access it atomically, that are known by name, and those of them that have acquired
/// something before. Others of the latter are forgotten.
const NAMED: usize = 4;
const ACQUIRED: usize = 16;
/// Most numbers of work-groups that are not known by name.
const NAMELESS: usize = 256;
/// Most releases of a word that are kept. Who acquires after more is in order with all.
const RELEASES: usize = 1 << 16;

/// The accesses of a work-group to a block in one interval.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) group: u32,
    /// Number of the first release after these accesses.
    pub(super) release: u32,
    /// Number of acquires before them.
    pub(super) acquire: u32,
    /// True for stores that were in flight at the release before.
    pub(super) late: bool,
    marks: Packed,
    pub(super) sites: Box<[Site]>,
}

/// Marks with their empty words left out.
#[derive(Clone, Debug)]
struct Packed {
    /// Kinds that have marks, as bits, and those that have all.
    some: u8,
    all: u8,
    first: u8,
    words: Box<[u64]>,
}

impl Packed {
    fn new(marks: &Marks) -> Packed {
        let (mut some, mut all) = (0u8, 0u8);
        let (mut first, mut end) = (WORDS, 0);
        for (kind, map) in marks.0.iter().enumerate() {
            if map.iter().all(|&word| word == u64::MAX) {
                all |= 1 << kind;
            } else if let Some(lowest) = map.iter().position(|&word| word != 0) {
                some |= 1 << kind;
                let highest = map.iter().rposition(|&word| word != 0).unwrap_or(lowest);
                (first, end) = (first.min(lowest), end.max(highest + 1));
            }
        }
        // As many as there are: a list that grows is copied again and again.
        let mut words = Vec::with_capacity(some.count_ones() as usize * end.saturating_sub(first));
        for kind in (0..KINDS).filter(|kind| some >> kind & 1 != 0) {
            words.extend_from_slice(&marks.0[kind][first..end]);
        }
        Packed { some, all, first: first.min(WORDS) as u8, words: words.into() }
    }

    fn unpack(&self) -> Marks {
        let mut marks = Marks::default();
        let length = self.words.len() / (self.some.count_ones() as usize).max(1);
        let mut parts = self.words.chunks_exact(length.max(1));
        for (kind, map) in marks.0.iter_mut().enumerate() {
            if self.all >> kind & 1 != 0 {
                map.fill(u64::MAX);
            } else if self.some >> kind & 1 != 0
                && let Some(part) = parts.next()
            {
                let first = usize::from(self.first);
                map[first..first + part.len()].copy_from_slice(part);
            }
        }
        marks
    }

    fn has(&self, kind: usize) -> bool {
        (self.some | self.all) >> kind & 1 != 0
    }
}

impl Entry {
    pub(super) fn new(group: u32, release: u32, acquire: u32, marks: &Marks, sites: &[Site]) -> Entry {
        Entry { group, release, acquire, late: false, marks: Packed::new(marks), sites: sites.into() }
    }

    /// Makes it one of stores in flight.
    pub(super) fn late(mut self) -> Entry {
        self.late = true;
        self.sites.iter_mut().for_each(|site| site.late = true);
        self
    }

    pub(super) fn marks(&self) -> Marks {
        self.marks.unpack()
    }

    pub(super) fn has(&self, kind: usize) -> bool {
        self.marks.has(kind)
    }

    /// Returns true if it stays by itself: what it stored, or loaded as flags, may concern any other work-group.
    fn stays(&self) -> bool {
        self.has(WRITE) || self.has(VOLATILE)
    }
}

/// The accesses to a block.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) entries: Vec<Entry>,
    pub(super) others: Option<Box<Others>>,
}

/// Reads and atomic accesses of further work-groups, which have acquired nothing before.
#[derive(Default)]
pub(super) struct Others {
    pub(super) marks: Marks,
    /// Their numbers, as far as they are kept.
    groups: Vec<u32>,
    too_many: bool,
}

impl Others {
    fn add(&mut self, entry: &Entry) {
        self.marks.merge(&entry.marks());
        if self.groups.contains(&entry.group) {
            return;
        }
        self.too_many |= self.groups.len() == NAMELESS;
        if !self.too_many {
            self.groups.push(entry.group);
        }
    }

    /// Returns true if a work-group may be one of them.
    pub(super) fn may_have(&self, group: u32) -> bool {
        self.too_many || self.groups.contains(&group)
    }
}

impl Slot {
    fn add(&mut self, entry: Entry) {
        self.entries.push(entry);
        if self.entries.len() > NAMED {
            self.limit(NAMED, false);
            self.limit(ACQUIRED, true);
        }
    }

    /// Lets an entry go if there are more than `most` of those that have acquired something, or have not.
    fn limit(&mut self, most: usize, acquired: bool) {
        let concerned = |(_, e): &(usize, &Entry)| !e.stays() && (e.acquire > 0) == acquired;
        if self.entries.iter().enumerate().filter(concerned).count() <= most {
            return;
        }
        // The highest number leaves, so that those that stay do not depend on the order.
        let highest =
            self.entries.iter().enumerate().filter(concerned).max_by_key(|(_, e)| (e.group, e.release));
        if let Some((i, _)) = highest {
            let entry = self.entries.swap_remove(i);
            if !acquired {
                self.others.get_or_insert_default().add(&entry);
            }
        }
    }
}

/// A part of the ledger.
#[derive(Default)]
struct Shard {
    slots: Table<Slot>,
    /// Releases through each word, in the order of the accesses to it.
    releases: Table<Vec<Release>>,
}

/// The accesses of a launch.
pub(crate) struct Ledger {
    shards: Box<[Mutex<Shard>]>,
    acquired: Mutex<HashMap<u32, Vec<(u64, u32)>>>,
    /// True if conflicts are looked for; otherwise accesses are only collected.
    pub(crate) judges: bool,
    /// True if all accesses are wanted, those too that can be in no conflict.
    pub(crate) traces: bool,
}

/// A ledger that nothing is added to any more.
pub(super) struct Closed {
    pub(super) slots: Vec<(u64, Slot)>,
    pub(super) releases: Table<Vec<Release>>,
    pub(super) acquired: HashMap<u32, Vec<(u64, u32)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    pub(crate) fn new(judges: bool, traces: bool) -> Ledger {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Ledger { shards, acquired: Mutex::default(), judges, traces }
    }

    /// Adds accesses to a block, if they are wanted.
    pub(super) fn add(&self, block: u64, entry: impl FnOnce() -> Entry) {
        if !self.judges && !self.traces {
            return;
        }
        let entry = entry();
        lock(&self.shards[block as usize % SHARDS]).slots.entry(block).or_default().add(entry);
    }

    pub(super) fn acquired(&self, group: u32, words: Vec<(u64, u32)>) {
        lock(&self.acquired).insert(group, words);
    }

    /// Does an atomic access to a word and notes the release; returns its result and the number of releases before it.
    pub(crate) fn update<T>(&self, word: u64, release: Release, access: impl FnOnce() -> T) -> (T, u32) {
        let mut shard = lock(&self.shards[(word / 4) as usize % SHARDS]);
        let releases = shard.releases.entry(word).or_default();
        let before = if releases.len() < RELEASES { releases.len() as u32 } else { u32::MAX };
        match releases.last_mut() {
            Some(last) if last.group == release.group => *last = release,
            _ if before < u32::MAX => releases.push(release),
            _ => {}
        }
        (access(), before)
    }

    pub(super) fn into_closed(self) -> Closed {
        let mut closed = Closed {
            slots: Vec::new(),
            releases: Table::default(),
            acquired: self.acquired.into_inner().unwrap_or_else(PoisonError::into_inner),
        };
        for shard in self.shards {
            let shard = shard.into_inner().unwrap_or_else(PoisonError::into_inner);
            closed.slots.extend(shard.slots);
            closed.releases.extend(shard.releases);
        }
        closed.slots.sort_unstable_by_key(|(number, _)| *number);
        closed
    }
}

impl Closed {
    pub(super) fn footprint(&self) -> Footprint {
        let mut footprint = Footprint::default();
        for (number, slot) in &self.slots {
            let mut all = slot.others.as_ref().map(|others| others.marks.clone()).unwrap_or_default();
            slot.entries.iter().for_each(|entry| all.merge(&entry.marks()));
            let either = |a: usize, b: usize| -> Map { std::array::from_fn(|i| all.0[a][i] | all.0[b][i]) };
            let mut read = either(READ, VOLATILE);
            read.iter_mut().zip(&all.0[ATOMIC]).for_each(|(to, from)| *to |= from);
            footprint.add_block(number * BLOCK, &read, &either(WRITE, ATOMIC));
        }
        footprint
    }
}
