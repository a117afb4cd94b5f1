//! History of the accesses to LDS, for the checks: one bit per byte.
//!
//! Wavefronts of a work-group run one after another, in any order, from barrier to barrier; an *epoch* is the
//! interval between two barriers, a *turn* the part of it in which one wavefront runs. Two accesses by different
//! wavefronts to the same bytes in one epoch, at least one of them a write, could happen in either order on
//! hardware: a race. Atomic accesses do not race with each other.
//!
//! The accesses of all other wavefronts are known when a turn begins. Two maps say which bytes the running wavefront
//! must not read, and which it must not write. An access looks at one map and marks another: a few instructions,
//! whatever its size. The maps are combined when a turn ends, as far as it has accessed LDS.

use crate::isa::op::lanes::lanes;
use crate::options::Checks;

/// Most bytes of LDS of a work-group.
pub(crate) const CAPACITY: usize = 64 << 10;

/// Words of a map that bytes have, and one more: it makes the word after any byte's word exist.
const WORDS: usize = CAPACITY / 64;
type Map = [u64; WORDS + 1];

/// Words of a part of a map. One bit for each of 64 parts says where marks may be, so that the rest is left alone.
const PART: usize = WORDS / 64;

/// Returns the bit of the part of a word.
#[inline(always)]
fn part(word: usize) -> u64 {
    1 << (word / PART % 64)
}

/// Returns the words of each part in a set.
#[inline(always)]
fn words_of(parts: u64) -> impl Iterator<Item = std::ops::Range<usize>> {
    lanes(parts).map(|n| n * PART..(n + 1) * PART)
}

/// Accesses of a wavefront in its last turn.
struct Turn {
    epoch: u32,
    /// Parts with marks.
    parts: u64,
    read: Box<Map>,
    written: Box<Map>,
}

/// Why an access is an error.
pub(super) enum Conflict {
    /// The other wavefront.
    Race(u32),
    Uninitialised,
}

/// History of the LDS of a work-group.
pub(super) struct History {
    checks: Checks,
    /// Bytes that have never been written, if that is checked.
    uninitialised: Box<Map>,
    /// Bytes that the running wavefront must not read: uninitialised, or written by others in this epoch.
    unreadable: Box<Map>,
    /// Bytes that it must not write: read or written by others in this epoch.
    unwritable: Box<Map>,
    /// Bytes whose last write in this epoch was atomic, and if there are any.
    atomic: Box<Map>,
    has_atomics: bool,
    /// By wavefront.
    turns: Vec<Turn>,
    running: usize,
    /// Parts in which wavefronts that have ended their turn have marks.
    parts: u64,
    /// True if the running wavefront has accessed LDS in its turn. Many turns do not.
    touched: bool,
    epoch: u32,
    /// Words of the maps in use.
    used: usize,
}

fn map() -> Box<Map> {
    Box::new([0; WORDS + 1])
}

/// Returns the word of a byte in a map. No byte of LDS is beyond the maps; the remainder tells that to the compiler.
#[inline(always)]
fn word(at: u32) -> usize {
    at as usize / 64 % WORDS
}

/// Returns a mask of as many bits as an access has bytes.
#[inline(always)]
fn mask(bytes: u32) -> u64 {
    (1 << bytes) - 1
}

/// Returns true if the bytes of an access are in one word of a map.
#[inline(always)]
pub(super) fn in_one_word(at: u32, bytes: u32) -> bool {
    at % 64 + bytes <= 64
}

/// Returns the bits of up to 16 bytes.
fn bits(map: &Map, at: u32, bytes: u32) -> u64 {
    let both = u128::from(map[word(at)]) | u128::from(map[word(at) + 1]) << 64;
    (both >> (at % 64)) as u64 & mask(bytes)
}

/// Returns the parts of the words that [`set`] changes.
fn parts(at: u32) -> u64 {
    part(word(at)) | part((word(at) + 1).min(WORDS - 1))
}

/// Sets or clears the bits of up to 16 bytes.
fn set(map: &mut Map, at: u32, bytes: u32, on: bool) {
    let both = u128::from(mask(bytes)) << (at % 64);
    for (i, bits) in [both as u64, (both >> 64) as u64].into_iter().enumerate() {
        let to = &mut map[word(at) + i];
        *to = if on { *to | bits } else { *to & !bits };
    }
}

impl History {
    pub(super) fn new() -> History {
        History {
            checks: Checks::NONE,
            uninitialised: map(),
            unreadable: map(),
            unwritable: map(),
            atomic: map(),
            has_atomics: false,
            turns: Vec::new(),
            running: 0,
            parts: 0,
            touched: false,
            epoch: 0,
            used: 0,
        }
    }

    /// Forgets everything, for a new work-group.
    pub(super) fn reset(&mut self, bytes: u32, checks: Checks) {
        (self.checks, self.used) = (checks, bytes.div_ceil(64) as usize);
        self.uninitialised[..self.used].fill(if checks.uninitialised { u64::MAX } else { 0 });
        self.parts = u64::MAX;
        self.barrier();
    }

    /// Starts a new epoch: all wavefronts have reached a barrier.
    pub(super) fn barrier(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        for words in words_of(std::mem::take(&mut self.parts)).take_while(|words| words.start < self.used) {
            self.unwritable[words.clone()].fill(0);
            self.unreadable[words.clone()].copy_from_slice(&self.uninitialised[words]);
        }
        if std::mem::take(&mut self.has_atomics) {
            self.atomic.fill(0);
        }
    }

    /// Starts the turn of a wavefront.
    pub(super) fn begin(&mut self, wave: u32) {
        self.running = wave as usize;
        while self.turns.len() <= self.running {
            self.turns.push(Turn { epoch: 0, parts: 0, read: map(), written: map() });
        }
        // What is there is of another epoch.
        self.turns[self.running].epoch = self.epoch.wrapping_sub(1);
        self.touched = false;
    }

    /// Begins the accesses of a turn.
    #[inline(always)]
    fn touch(&mut self) {
        if !self.touched {
            self.clear_turn();
        }
    }

    #[inline(never)]
    fn clear_turn(&mut self) {
        self.touched = true;
        let epoch = self.epoch;
        let Some(turn) = self.turns.get_mut(self.running) else { return };
        turn.epoch = epoch;
        for words in words_of(std::mem::take(&mut turn.parts)) {
            turn.read[words.clone()].fill(0);
            turn.written[words].fill(0);
        }
    }

    /// Ends the turn: what it did is now what others must not meet.
    #[inline(always)]
    pub(super) fn end(&mut self) {
        if self.touched {
            self.end_turn();
        }
    }

    #[inline(never)]
    fn end_turn(&mut self) {
        let Some(turn) = self.turns.get(self.running) else { return };
        self.parts |= turn.parts;
        for words in words_of(turn.parts) {
            for i in words {
                self.uninitialised[i] &= !turn.written[i];
                if self.checks.races {
                    self.unreadable[i] |= turn.written[i];
                    self.unwritable[i] |= turn.read[i] | turn.written[i];
                }
            }
        }
    }

    /// Begins reads that are each in one word.
    #[inline(always)]
    pub(super) fn reads(&mut self) -> Option<Accesses<'_>> {
        self.touch();
        let turn = self.turns.get_mut(self.running)?;
        Some(Accesses::new(&self.unreadable, &mut turn.read, None, &mut turn.parts))
    }

    /// Begins plain writes that are each in one word; `None` if there were atomic ones.
    #[inline(always)]
    pub(super) fn writes(&mut self) -> Option<Accesses<'_>> {
        self.touch();
        let turn = self.turns.get_mut(self.running).filter(|_| !self.has_atomics)?;
        let unreadable = Some(&mut *self.unreadable);
        Some(Accesses::new(&self.unwritable, &mut turn.written, unreadable, &mut turn.parts))
    }

    /// Records a read of up to 16 bytes.
    pub(super) fn on_read(&mut self, at: u32, bytes: u32) -> Result<(), Conflict> {
        self.touch();
        let bad = bits(&self.unreadable, at, bytes);
        if bad != 0 {
            let writer = self.others().rev().find(|(_, turn)| bits(&turn.written, at, bytes) & bad != 0);
            let other = writer.filter(|_| self.checks.races).map(|(wave, _)| Conflict::Race(wave));
            return Err(other.unwrap_or(Conflict::Uninitialised));
        }
        if let Some(turn) = self.turns.get_mut(self.running) {
            turn.parts |= parts(at);
            set(&mut turn.read, at, bytes, true);
        }
        Ok(())
    }

    /// Records a write of up to 16 bytes. An atomic one reads too, so the bytes must be initialised.
    pub(super) fn on_write(&mut self, at: u32, bytes: u32, atomic: bool) -> Result<(), Conflict> {
        self.touch();
        if atomic && bits(&self.uninitialised, at, bytes) & !self.written_now(at, bytes) != 0 {
            return Err(Conflict::Uninitialised);
        }
        let both_atomic = if atomic { bits(&self.atomic, at, bytes) } else { 0 };
        let bad = bits(&self.unwritable, at, bytes);
        let written = |turn: &Turn| bits(&turn.written, at, bytes) & bad & !both_atomic != 0;
        let read = |turn: &Turn| bits(&turn.read, at, bytes) & bad != 0;
        if bad != 0 {
            let writer = self.others().rev().find(|(_, turn)| written(turn));
            if let Some((wave, _)) = writer.or_else(|| self.others().find(|(_, turn)| read(turn))) {
                return Err(Conflict::Race(wave));
            }
        }
        self.has_atomics |= atomic;
        set(&mut self.atomic, at, bytes, atomic);
        set(&mut self.unreadable, at, bytes, false);
        if let Some(turn) = self.turns.get_mut(self.running) {
            turn.parts |= parts(at);
            set(&mut turn.written, at, bytes, true);
        }
        Ok(())
    }

    /// Returns the bits of the bytes that the running wavefront has written in this epoch.
    fn written_now(&self, at: u32, bytes: u32) -> u64 {
        self.turns.get(self.running).map_or(0, |turn| bits(&turn.written, at, bytes))
    }

    /// Iterates over the turns of other wavefronts in this epoch.
    fn others(&self) -> impl DoubleEndedIterator<Item = (u32, &Turn)> {
        let (running, epoch) = (self.running, self.epoch);
        let turns =
            self.turns.iter().enumerate().filter(move |(wave, turn)| *wave != running && turn.epoch == epoch);
        turns.map(|(wave, turn)| (wave as u32, turn))
    }
}

/// Accesses of the lanes of a wavefront: reads or plain writes. They are marked first; if [`Accesses::are_good`] says no, lane
/// by lane has to tell what is wrong. Lanes often access one word of the maps after another, which is marked once.
pub(super) struct Accesses<'a> {
    /// Bytes that must not be accessed so.
    forbidden: &'a Map,
    marked: &'a mut Map,
    /// Bytes that must not be read: they may be when they are written.
    unreadable: Option<&'a mut Map>,
    /// Parts with marks.
    parts: &'a mut u64,
    /// The word of the last lane, its marks, and what must not be accessed there.
    word: usize,
    bits: u64,
    there: u64,
    bad: u64,
}

impl<'a> Accesses<'a> {
    #[inline(always)]
    fn new(
        forbidden: &'a Map,
        marked: &'a mut Map,
        unreadable: Option<&'a mut Map>,
        parts: &'a mut u64,
    ) -> Accesses<'a> {
        Accesses { forbidden, marked, unreadable, parts, word: 0, bits: 0, there: forbidden[0], bad: 0 }
    }

    /// Adds that of a lane, in one word.
    #[inline(always)]
    pub(super) fn add(&mut self, at: u32, bytes: u32) {
        let word = word(at);
        if word != self.word {
            self.mark();
            (self.word, self.bits, self.there) = (word, 0, self.forbidden[word]);
        }
        self.bad |= self.there >> (at % 64);
        self.bits |= mask(bytes) << (at % 64);
    }

    /// Adds those of `count` lanes: each is of the bytes behind those of the one before.
    #[inline(always)]
    pub(super) fn add_consecutive(&mut self, at: u32, bytes: u32, count: usize) {
        let (mut at, mut left) = (at, bytes * count as u32);
        while left > 0 {
            let here = left.min(64 - at % 64);
            self.mark();
            self.word = word(at);
            self.bits = u64::MAX >> (64 - here) << (at % 64);
            self.there = self.forbidden[self.word];
            // What is forbidden of this range, as if it were in the first byte of an access.
            self.bad |= u64::from(self.there & self.bits != 0);
            (at, left) = (at + here, left - here);
        }
    }

    #[inline(always)]
    fn mark(&mut self) {
        self.marked[self.word] |= self.bits;
        if let Some(unreadable) = &mut self.unreadable {
            unreadable[self.word] &= !self.bits;
        }
        *self.parts |= if self.bits != 0 { part(self.word) } else { 0 };
    }

    /// Ends them; returns true if there is nothing to report of accesses of as many bytes.
    #[inline(always)]
    pub(super) fn are_good(mut self, bytes: u32) -> bool {
        self.mark();
        self.bad & mask(bytes) == 0
    }
}
