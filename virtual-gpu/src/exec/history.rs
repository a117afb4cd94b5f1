//! History of the accesses to LDS, for the checks: one bit per byte.
//!
//! Wavefronts of a work-group run one after another, in any order, from barrier to barrier; an *epoch* is the
//! interval between two barriers, a *turn* the part of it in which one wavefront runs. Two accesses by different
//! wavefronts to the same bytes in one epoch, at least one of them a write, could happen in either order on
//! hardware: a race. Atomic accesses do not race with each other.
//!
//! The accesses of all other wavefronts are known when a turn begins. Two maps say which bytes the running wavefront
//! must not read, and which it must not write. An access looks at one map and marks another: a few instructions,
//! whatever its size. The maps are combined when a turn ends.

use crate::options::Checks;

/// Most bytes of LDS of a work-group.
pub(crate) const CAPACITY: usize = 64 << 10;

/// Words of a map that bytes have, and one more: it makes the word after any byte's word exist.
const WORDS: usize = CAPACITY / 64;
type Map = [u64; WORDS + 1];

/// Accesses of a wavefront in its last turn.
struct Turn {
    epoch: u32,
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
            epoch: 0,
            used: 0,
        }
    }

    /// Forgets everything, for a new work-group.
    pub(super) fn reset(&mut self, bytes: u32, checks: Checks) {
        (self.checks, self.used) = (checks, bytes.div_ceil(64) as usize);
        self.uninitialised[..self.used].fill(if checks.uninitialised { u64::MAX } else { 0 });
        self.barrier();
    }

    /// Starts a new epoch: all wavefronts have reached a barrier.
    pub(super) fn barrier(&mut self) {
        let used = self.used;
        self.epoch = self.epoch.wrapping_add(1);
        self.unwritable[..used].fill(0);
        self.unreadable[..used].copy_from_slice(&self.uninitialised[..used]);
        if std::mem::take(&mut self.has_atomics) {
            self.atomic.fill(0);
        }
    }

    /// Starts the turn of a wavefront.
    pub(super) fn begin(&mut self, wave: u32) {
        self.running = wave as usize;
        while self.turns.len() <= self.running {
            self.turns.push(Turn { epoch: 0, read: map(), written: map() });
        }
        let turn = &mut self.turns[self.running];
        turn.epoch = self.epoch;
        turn.read[..self.used].fill(0);
        turn.written[..self.used].fill(0);
    }

    /// Ends the turn: what it did is now what others must not meet.
    #[inline(always)]
    pub(super) fn end(&mut self) {
        let Some(turn) = self.turns.get(self.running) else { return };
        let used = self.used.min(WORDS);
        for i in 0..used {
            self.uninitialised[i] &= !turn.written[i];
        }
        // Two loops, because both are vectorised.
        for i in 0..if self.checks.races { used } else { 0 } {
            self.unreadable[i] |= turn.written[i];
            self.unwritable[i] |= turn.read[i] | turn.written[i];
        }
    }

    /// Returns the maps for reads that are each in one word.
    #[inline(always)]
    pub(super) fn reads(&mut self) -> Option<Reads<'_>> {
        let turn = self.turns.get_mut(self.running)?;
        Some(Reads { unreadable: &self.unreadable, read: &mut turn.read, bad: 0 })
    }

    /// Returns the maps for plain writes that are each in one word; `None` if there were atomic ones.
    #[inline(always)]
    pub(super) fn writes(&mut self) -> Option<Writes<'_>> {
        let turn = self.turns.get_mut(self.running).filter(|_| !self.has_atomics)?;
        let (unreadable, unwritable) = (&mut self.unreadable, &self.unwritable);
        Some(Writes { unreadable, unwritable, written: &mut turn.written, bad: 0 })
    }

    /// Records a read of up to 16 bytes.
    pub(super) fn on_read(&mut self, at: u32, bytes: u32) -> Result<(), Conflict> {
        let bad = bits(&self.unreadable, at, bytes);
        if bad != 0 {
            let writer = self.others().rev().find(|(_, turn)| bits(&turn.written, at, bytes) & bad != 0);
            let other = writer.filter(|_| self.checks.races).map(|(wave, _)| Conflict::Race(wave));
            return Err(other.unwrap_or(Conflict::Uninitialised));
        }
        if let Some(turn) = self.turns.get_mut(self.running) {
            set(&mut turn.read, at, bytes, true);
        }
        Ok(())
    }

    /// Records a write of up to 16 bytes. An atomic one reads too, so the bytes must be initialised.
    pub(super) fn on_write(&mut self, at: u32, bytes: u32, atomic: bool) -> Result<(), Conflict> {
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

/// Reads of the lanes of a wavefront. They are marked first; if [`Reads::bad`] has a bit of an access, lane by lane
/// has to tell what is wrong.
pub(super) struct Reads<'a> {
    unreadable: &'a Map,
    read: &'a mut Map,
    bad: u64,
}

impl Reads<'_> {
    #[inline(always)]
    pub(super) fn add(&mut self, at: u32, bytes: u32) {
        let word = word(at);
        self.bad |= self.unreadable[word] >> (at % 64);
        self.read[word] |= mask(bytes) << (at % 64);
    }

    /// Returns true if there is nothing to report of accesses of as many bytes.
    #[inline(always)]
    pub(super) fn are_good(&self, bytes: u32) -> bool {
        self.bad & mask(bytes) == 0
    }
}

/// Plain writes of the lanes of a wavefront, as [`Reads`].
pub(super) struct Writes<'a> {
    unreadable: &'a mut Map,
    unwritable: &'a Map,
    written: &'a mut Map,
    bad: u64,
}

impl Writes<'_> {
    #[inline(always)]
    pub(super) fn add(&mut self, at: u32, bytes: u32) {
        let (word, bits) = (word(at), mask(bytes) << (at % 64));
        self.bad |= self.unwritable[word] >> (at % 64);
        self.written[word] |= bits;
        self.unreadable[word] &= !bits;
    }

    #[inline(always)]
    pub(super) fn are_good(&self, bytes: u32) -> bool {
        self.bad & mask(bytes) == 0
    }
}
