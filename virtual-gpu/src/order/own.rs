//! Accesses of one work-group.

use super::bits::{ATOMIC, BLOCK, Marks, READ, Table, VOLATILE, WRITE};
use super::block::{Block, Site};
use super::conflict::{Conflict, Party, kinds};
use super::ledger::{Entry, Ledger};
use super::release::Release;
use crate::fault::Access;
use crate::isa::op::lanes::LANES;
use std::collections::HashSet;

/// Accesses of the lanes of a wavefront: `bytes` bytes at the base plus each active lane's offset.
pub(crate) struct Lanes<'a> {
    pub(crate) base: u64,
    pub(crate) offsets: &'a [u32; LANES],
    pub(crate) active: u64,
    pub(crate) bytes: u32,
}

/// A range that a store writes.
#[derive(Clone, Copy)]
struct Flight {
    at: u64,
    bytes: u32,
    word: u32,
    /// Number of the store in its wavefront.
    store: u32,
    wave: u8,
}

/// Most ranges of stores that are remembered.
const FLIGHTS: usize = 4096;
/// Entries of the table of blocks used last.
const RECENT: usize = 64;
/// Most acquires of a work-group that are noted. One that does more is in order with all.
const ACQUIRED: usize = 4096;

/// The accesses of a running work-group. It is used for one work-group after another.
pub(crate) struct Own {
    group: u32,
    wave: u8,
    /// True if there is one wavefront: no turns to compare.
    alone: bool,
    /// True if stores in flight are followed, and if a barrier does not order them within the work-group.
    flying: bool,
    passing: bool,
    blocks: Vec<Block>,
    used: usize,
    by_number: Table<u32>,
    recent: [(u64, u32); RECENT],
    /// Blocks of the running turn, of the epoch and of the interval.
    turn: Vec<u32>,
    epoch: Vec<u32>,
    interval: Vec<u32>,
    /// Words that this work-group accessed atomically.
    words: HashSet<u64>,
    /// Ranges of stores: the first `held` were in flight at the last barrier.
    flights: Vec<Flight>,
    held: usize,
    stores: [u32; 32],
    /// Number of releases, of acquires seen by all since the last barrier, and by the running wavefront.
    releases: u32,
    seen_by_all: u32,
    seen: u32,
    /// Acquired words and how many releases they had. Those from `visible` on need an invalidated cache.
    acquired: Vec<(u64, u32)>,
    visible: u32,
    /// True if an event happened since the last barrier, and the wavefronts that caused one.
    eventful: bool,
    causes: u32,
}

impl Own {
    pub(crate) fn new() -> Own {
        Own {
            group: 0,
            wave: 0,
            alone: true,
            flying: false,
            passing: false,
            blocks: Vec::new(),
            used: 0,
            by_number: Table::default(),
            recent: [(u64::MAX, 0); RECENT],
            turn: Vec::new(),
            epoch: Vec::new(),
            interval: Vec::new(),
            words: HashSet::new(),
            flights: Vec::new(),
            held: 0,
            stores: [0; 32],
            releases: 0,
            seen_by_all: 0,
            seen: 0,
            acquired: Vec::new(),
            visible: 0,
            eventful: false,
            causes: 0,
        }
    }

    /// Begins a work-group. `flying`: stores in flight are followed. `passing`: stores in flight at a barrier are ordered
    /// by it within the work-group.
    pub(crate) fn begin(&mut self, group: u32, waves: usize, flying: bool, passing: bool) {
        // What a work-group that ended with a fault left.
        for list in [&mut self.turn, &mut self.epoch, &mut self.interval] {
            for i in list.drain(..) {
                self.blocks[i as usize] = Block::default();
            }
        }
        self.forget();
        (self.group, self.alone, self.flying, self.passing) = (group, waves == 1, flying, passing);
        (self.held, self.stores, self.releases) = (0, [0; 32], 0);
        (self.seen_by_all, self.seen, self.visible) = (0, 0, 0);
        (self.eventful, self.causes) = (false, 0);
        self.flights.clear();
        self.words.clear();
        self.acquired.clear();
    }

    fn forget(&mut self) {
        for block in &mut self.blocks[..self.used] {
            block.sites.clear();
        }
        self.used = 0;
        self.by_number.clear();
        self.recent = [(u64::MAX, 0); RECENT];
    }

    /// Begins the turn of a wavefront.
    pub(crate) fn begin_turn(&mut self, wave: u32) {
        self.wave = wave as u8;
        self.seen = self.seen_by_all;
    }

    #[inline(always)]
    fn block(&mut self, number: u64) -> u32 {
        let recent = self.recent[number as usize % RECENT];
        if recent.0 == number { recent.1 } else { self.find(number) }
    }

    #[inline(never)]
    fn find(&mut self, number: u64) -> u32 {
        let next = self.used;
        let index = *self.by_number.entry(number).or_insert(next as u32);
        if index as usize == next {
            if self.blocks.len() == next {
                self.blocks.push(Block::default());
            }
            self.blocks[next].number = number;
            self.used += 1;
        }
        self.recent[number as usize % RECENT] = (number, index);
        index
    }

    /// Notes the accesses of some lanes by the instruction at a word of the text.
    #[inline(always)]
    pub(crate) fn lanes(&mut self, access: Access, volatile: bool, word: usize, lanes: &Lanes<'_>) {
        let Lanes { base, offsets, active, bytes } = *lanes;
        let first = active.trailing_zeros() as usize % LANES;
        let start = offsets[first];
        // Most accesses are of consecutive lanes to consecutive bytes, or of all lanes to the same.
        let (mut apart, mut other) = (0, 0);
        for (lane, &offset) in offsets.iter().enumerate() {
            let on = ((active >> lane & 1) as u32).wrapping_neg();
            let ahead = (lane as u32).wrapping_sub(first as u32).wrapping_mul(bytes);
            apart |= (offset ^ start.wrapping_add(ahead)) & on;
            other |= (offset ^ start) & on;
        }
        let count = active.count_ones();
        if other == 0 {
            self.range(access, volatile, word, base.wrapping_add(start.into()), bytes);
        } else if apart == 0 && count == 64 - active.leading_zeros() - active.trailing_zeros() {
            self.range(access, volatile, word, base.wrapping_add(start.into()), bytes * count);
        } else {
            self.scattered(access, volatile, word, lanes);
        }
    }

    #[inline(never)]
    fn scattered(&mut self, access: Access, volatile: bool, word: usize, lanes: &Lanes<'_>) {
        let Lanes { base, offsets, active, bytes } = *lanes;
        let (mut from, mut to) = (0, 0);
        for lane in crate::isa::op::lanes::lanes(active) {
            let at = u64::from(offsets[lane]);
            if at == to && to != 0 {
                to += u64::from(bytes);
            } else {
                if to > from {
                    self.range(access, volatile, word, base.wrapping_add(from), (to - from) as u32);
                }
                (from, to) = (at, at + u64::from(bytes));
            }
        }
        self.range(access, volatile, word, base.wrapping_add(from), (to - from) as u32);
    }

    /// Notes an access to a range.
    #[inline(always)]
    pub(crate) fn range(&mut self, access: Access, volatile: bool, word: usize, at: u64, bytes: u32) {
        let kind = match access {
            Access::Read if volatile => VOLATILE,
            Access::Read => READ,
            Access::Write => WRITE,
            Access::Atomic => ATOMIC,
        };
        if kind == WRITE && self.flying {
            self.fly(word, at, bytes);
        }
        let (mut at, mut left) = (at, u64::from(bytes));
        while left > 0 {
            let offset = at % BLOCK;
            let part = left.min(BLOCK - offset);
            self.mark(kind, word as u32, at / BLOCK, offset as usize, part as usize);
            (at, left) = (at.wrapping_add(part), left - part);
        }
    }

    #[inline(always)]
    fn mark(&mut self, kind: usize, word: u32, number: u64, offset: usize, bytes: usize) {
        let index = self.block(number);
        let (wave, block) = (self.wave, &mut self.blocks[index as usize]);
        if !block.in_turn {
            block.in_turn = true;
            self.turn.push(index);
        }
        block.turn.add(kind, offset, bytes);
        let (first, end) = (offset as u16, (offset + bytes) as u16);
        let site = Site { word, first, end, wave, kind: kind as u8, late: false };
        match block.sites.last_mut() {
            Some(last) if last.word == word && last.wave == wave => last.extend(&site),
            _ => block.remember(site),
        }
    }

    /// Notes that a store is in flight.
    #[inline(never)]
    fn fly(&mut self, word: usize, at: u64, bytes: u32) {
        if self.flights.len() == FLIGHTS {
            self.flights.drain(..FLIGHTS / 2);
            self.held = self.held.saturating_sub(FLIGHTS / 2);
        }
        let store = self.stores[usize::from(self.wave) % 32];
        self.flights.push(Flight { at, bytes, word: word as u32, store, wave: self.wave });
    }

    /// Counts a store instruction of the running wavefront, before its ranges.
    pub(crate) fn store(&mut self) {
        self.stores[usize::from(self.wave) % 32] += 1;
    }

    /// Ends the turn of a wavefront; returns a conflict with the turns of others since the last barrier.
    pub(crate) fn end_turn(&mut self, ledger: &Ledger) -> Option<Conflict> {
        let conflict = if self.alone { None } else { self.compare() };
        for index in self.turn.drain(..) {
            let block = &mut self.blocks[index as usize];
            block.in_turn = false;
            if self.eventful {
                let (release, acquire) = (self.releases + 1, self.seen);
                ledger.add(block.number, || {
                    Entry::new(self.group, release, acquire, &block.turn, &block.sites)
                });
            }
            if self.alone {
                if !self.eventful {
                    block.interval.merge(&block.turn);
                    if !std::mem::replace(&mut block.in_interval, true) {
                        self.interval.push(index);
                    }
                }
            } else {
                block.epoch.merge(&block.turn);
                block.epoch.merge(&block.before);
                if !std::mem::replace(&mut block.in_epoch, true) {
                    self.epoch.push(index);
                }
            }
            (block.turn, block.before) = Default::default();
        }
        conflict
    }

    /// Compares the running turn with those of others since the last barrier, and with their stores in flight there.
    fn compare(&mut self) -> Option<Conflict> {
        let mut found: Option<(u64, u32)> = None;
        for &index in &self.turn {
            let block = &self.blocks[index as usize];
            let at = if block.in_epoch {
                [block.turn.conflict(&block.epoch), block.before.conflict(&block.epoch)]
                    .into_iter()
                    .flatten()
                    .min()
            } else {
                None
            };
            if let Some(at) = at {
                let address = block.number * BLOCK + at as u64;
                if found.is_none_or(|(lowest, _)| address < lowest) {
                    found = Some((address, index));
                }
            }
        }
        let wave = self.wave;
        let race = found.and_then(|(address, index)| {
            let (block, at) = (&self.blocks[index as usize], (address % BLOCK) as usize);
            let mut mine = block.turn.clone();
            mine.merge(&block.before);
            let (a, b) = kinds(&mine, &block.epoch, at);
            let one = block.site(at, a, |site| site.wave == wave)?;
            let other = block.site(at, b, |site| site.wave != wave && self.causes >> site.wave & 1 == 0);
            // Both may have used atomics to be in order.
            let other = match self.causes >> wave & 1 {
                0 => other.or_else(|| block.site(at, b, |site| site.wave != wave)),
                _ => other,
            }?;
            Some(Conflict::new(address, Party::new(self.group, &one), Party::new(self.group, &other), false))
        });
        race.or_else(|| self.overtakes())
    }

    /// Returns an access of the running turn to bytes that another wavefront's store had not reached at the last barrier.
    fn overtakes(&self) -> Option<Conflict> {
        if self.passing {
            return None;
        }
        for flight in self.flights[..self.held].iter().filter(|flight| flight.wave != self.wave) {
            let bytes = (0..u64::from(flight.bytes)).map(|i| flight.at + i);
            for address in bytes {
                let Some(&index) = self.by_number.get(&(address / BLOCK)) else { continue };
                let (block, at) = (&self.blocks[index as usize], (address % BLOCK) as usize);
                let touched =
                    |kind| block.in_turn && (block.turn.has(kind, at) || block.before.has(kind, at));
                let Some(kind) = [READ, WRITE].into_iter().find(|&kind| touched(kind)) else { continue };
                let Some(site) = block.site(at, kind, |site| site.wave == self.wave) else { continue };
                let other =
                    Party { late: true, ..Party::of_store(self.group, flight.wave.into(), flight.word) };
                return Some(Conflict::new(address, Party::new(self.group, &site), other, true));
            }
        }
        None
    }

    /// All wavefronts have reached a barrier; `in_flight` returns the number of a wavefront's stores in flight.
    pub(crate) fn barrier(&mut self, in_flight: impl Fn(usize) -> usize) {
        for index in self.epoch.drain(..) {
            let block = &mut self.blocks[index as usize];
            block.in_epoch = false;
            if !self.eventful {
                block.interval.merge(&block.epoch);
                if !std::mem::replace(&mut block.in_interval, true) {
                    self.interval.push(index);
                }
            }
            block.epoch = Marks::default();
        }
        (self.eventful, self.causes, self.seen_by_all) = (false, 0, self.visible);
        if !self.flights.is_empty() {
            let stores = self.stores;
            let flies = |wave: u8, store: u32| {
                let wave = usize::from(wave) % 32;
                u64::from(store) + in_flight(wave) as u64 > u64::from(stores[wave])
            };
            self.flights.retain(|flight| flies(flight.wave, flight.store));
            self.held = self.flights.len();
        }
    }

    /// The running wavefront accesses words atomically: releases what is before. `in_flight` is the number of its own
    /// stores in flight. [`Ledger::update`] does the access.
    pub(crate) fn release(&mut self, ledger: &Ledger, in_flight: usize) -> Release {
        let late = self.late(in_flight);
        self.send(ledger, self.releases + 1);
        self.releases += 1;
        for (index, marks) in late {
            let block = &self.blocks[index as usize];
            let entry = Entry::new(self.group, self.releases + 1, self.seen_by_all, &marks, &block.sites);
            ledger.add(block.number, || entry.late());
        }
        // What others did since the barrier is not released by this wavefront.
        if !std::mem::replace(&mut self.eventful, true) {
            for &index in &self.epoch {
                let block = &self.blocks[index as usize];
                let (release, acquire) = (self.releases + 1, self.seen_by_all);
                ledger.add(block.number, || {
                    Entry::new(self.group, release, acquire, &block.epoch, &block.sites)
                });
            }
        }
        self.causes |= 1 << (self.wave % 32);
        Release { group: self.group, number: self.releases, seen: self.seen }
    }

    /// Sends the marks of the interval and of the turn to the ledger.
    fn send(&mut self, ledger: &Ledger, release: u32) {
        for index in self.interval.drain(..) {
            let block = &mut self.blocks[index as usize];
            block.in_interval = false;
            ledger.add(block.number, || {
                Entry::new(self.group, release, self.seen_by_all, &block.interval, &block.sites)
            });
            block.interval = Marks::default();
        }
        for &index in &self.turn {
            let block = &mut self.blocks[index as usize];
            if !block.turn.is_empty() {
                ledger.add(block.number, || {
                    Entry::new(self.group, release, self.seen, &block.turn, &block.sites)
                });
                let turn = std::mem::take(&mut block.turn);
                block.before.merge(&turn);
            }
        }
    }

    /// Takes the bytes of stores in flight out of what is released.
    fn late(&mut self, in_flight: usize) -> Vec<(u32, Marks)> {
        let (wave, held) = (self.wave, self.held);
        let issued = u64::from(self.stores[usize::from(wave) % 32]);
        let mut late: Vec<(u32, Marks)> = Vec::new();
        for (i, flight) in self.flights.iter().enumerate() {
            let flies = match flight.wave == wave {
                true => u64::from(flight.store) + in_flight as u64 > issued,
                false => i < held,
            };
            if !flies {
                continue;
            }
            let (mut at, end) = (flight.at, flight.at.wrapping_add(flight.bytes.into()));
            while at < end {
                let (offset, number) = ((at % BLOCK) as usize, at / BLOCK);
                let bytes = (end - at).min(BLOCK - at % BLOCK);
                if let Some(&index) = self.by_number.get(&number) {
                    let mut marks = Marks::default();
                    let block = &mut self.blocks[index as usize];
                    block.interval.take(WRITE, offset, bytes as usize, &mut marks);
                    block.turn.take(WRITE, offset, bytes as usize, &mut marks);
                    if !marks.is_empty() {
                        match late.iter_mut().find(|(known, _)| *known == index) {
                            Some((_, known)) => known.merge(&marks),
                            None => late.push((index, marks)),
                        }
                    }
                }
                at += bytes;
            }
        }
        late
    }

    /// Notes that an atomic access to a word came after `count` releases there. It acquires them when the cache is
    /// invalidated.
    pub(crate) fn acquire(&mut self, word: u64, count: u32) {
        // The entry after the last one orders everything.
        match self.acquired.len() {
            ..ACQUIRED => self.acquired.push((word, count)),
            ACQUIRED => self.acquired.push((word, u32::MAX)),
            _ => {}
        }
    }

    /// Notes the words that an atomic access uses.
    pub(crate) fn add_word(&mut self, word: u64) {
        self.words.insert(word);
    }

    /// Returns true if the work-group has accessed words atomically.
    pub(crate) fn has_words(&self) -> bool {
        !self.words.is_empty()
    }

    /// Returns true if a store ends what the work-group began with an atomic access to the same word.
    pub(crate) fn is_word(&self, at: u64, bytes: u32) -> bool {
        bytes <= 8 && !self.words.is_empty() && self.words.contains(&at)
    }

    /// The running wavefront invalidates the cache: what was acquired is visible.
    pub(crate) fn invalidate(&mut self, ledger: &Ledger) {
        if self.acquired.len() == self.visible as usize {
            return;
        }
        // The number of the next release stays: nothing is released here.
        self.send(ledger, self.releases + 1);
        if !std::mem::replace(&mut self.eventful, true) {
            for &index in &self.epoch {
                let block = &self.blocks[index as usize];
                let (release, acquire) = (self.releases + 1, self.seen_by_all);
                ledger.add(block.number, || {
                    Entry::new(self.group, release, acquire, &block.epoch, &block.sites)
                });
            }
        }
        self.visible = self.acquired.len() as u32;
        self.seen = self.visible;
    }

    /// Ends the work-group.
    pub(crate) fn end(&mut self, ledger: &Ledger) {
        self.barrier(|_| 0);
        self.send(ledger, self.releases + 1);
        if !self.acquired.is_empty() {
            ledger.acquired(self.group, std::mem::take(&mut self.acquired));
        }
        self.forget();
    }
}
