//! LDS of a work-group, with the history of each word for the checks.
//!
//! Wavefronts of a work-group run one after another from barrier to barrier; an *epoch* is the interval
//! between two barriers. Two accesses by different wavefronts to the same bytes in one epoch, at least one of
//! them a write, could happen in either order on hardware: a race. Atomic accesses do not race with each
//! other.

use crate::fault::{Access, FaultKind, Range, Space};
use crate::options::Checks;

/// History of a word.
#[derive(Clone, Copy, Default)]
struct Shadow {
    /// Last write: its epoch, wavefront, bytes (bit mask), and if it was atomic.
    write_epoch: u32,
    writer: u16,
    write_bytes: u8,
    atomic: bool,
    /// Last reads: their epoch, one of the readers, their bytes, and if there were more readers.
    read_epoch: u32,
    reader: u16,
    read_bytes: u8,
    more_readers: bool,
    /// Bytes that have ever been written.
    written: u8,
}

impl Shadow {
    /// Records that a wavefront reads the word; returns false, recording nothing, if the read might be an
    /// error.
    #[inline(always)]
    fn is_read(&mut self, epoch: u32, wave: u16) -> bool {
        if self.written != 15 || self.write_epoch == epoch && self.writer != wave {
            return false;
        }
        let first = self.read_epoch != epoch;
        self.more_readers = !first && (self.more_readers || self.reader != wave);
        self.reader = if first { wave } else { self.reader };
        (self.read_epoch, self.read_bytes) = (epoch, 15);
        true
    }

    /// Records that a wavefront writes the word; returns false, recording nothing, if the write might be an
    /// error.
    #[inline(always)]
    fn is_written(&mut self, epoch: u32, wave: u16) -> bool {
        let of_others = self.write_epoch == epoch && self.writer != wave
            || self.read_epoch == epoch && (self.reader != wave || self.more_readers);
        if !of_others {
            (self.write_epoch, self.writer, self.write_bytes, self.atomic) = (epoch, wave, 15, false);
            self.written = 15;
        }
        !of_others
    }
}

/// LDS of a work-group.
pub(crate) struct Lds {
    words: Vec<u32>,
    shadow: Vec<Shadow>,
    bytes: u32,
    epoch: u32,
    pub(crate) read: u64,
    pub(crate) stored: u64,
}

/// Calls `f` with the index of each word that a range touches and a bit mask of its bytes.
#[inline(always)]
fn each_word(at: u32, bytes: u32, mut f: impl FnMut(usize, u8) -> Result<(), u32>) -> Result<(), u32> {
    if bytes < 4 || at % 4 != 0 {
        // Partial words.
        for i in at..at + bytes {
            f(i as usize / 4, 1 << (i % 4))?;
        }
        return Ok(());
    }
    for word in at / 4..(at + bytes) / 4 {
        f(word as usize, 15)?;
    }
    Ok(())
}

impl Lds {
    pub(crate) fn new() -> Lds {
        Lds { words: Vec::new(), shadow: Vec::new(), bytes: 0, epoch: 1, read: 0, stored: 0 }
    }

    /// Resets the memory for a new work-group.
    pub(crate) fn reset(&mut self, bytes: u32) {
        let words = bytes.div_ceil(4) as usize;
        self.words.clear();
        // Not zeros: uninitialised data must not look plausible.
        self.words.resize(words, 0xdead_beef);
        self.shadow.clear();
        self.shadow.resize(words, Shadow::default());
        (self.bytes, self.epoch) = (bytes, 1);
    }

    /// Starts a new epoch: all wavefronts have reached a barrier.
    pub(crate) fn barrier(&mut self) {
        self.epoch += 1;
    }

    fn check(&self, at: u32, bytes: u32, access: Access, checks: Checks) -> Result<(), FaultKind> {
        let range = Range { space: Space::Lds, access, at: at.into(), bytes };
        if at.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(FaultKind::OutOfBounds(range));
        }
        // 12 bytes need an alignment of 16; all other sizes need their own.
        let wanted = bytes.next_power_of_two();
        if checks.alignment && at % wanted != 0 {
            return Err(FaultKind::Misaligned(range, wanted));
        }
        Ok(())
    }

    fn on_read(&mut self, at: u32, bytes: u32, wave: u32, checks: Checks) -> Result<(), FaultKind> {
        let range = Range { space: Space::Lds, access: Access::Read, at: at.into(), bytes };
        let (epoch, shadow, wave) = (self.epoch, &mut self.shadow, wave as u16);
        let mut uninitialised = false;
        let found = each_word(at, bytes, |word, mask| {
            let s = &mut shadow[word];
            if checks.races && s.write_epoch == epoch && s.writer != wave && s.write_bytes & mask != 0 {
                return Err(s.writer.into());
            }
            uninitialised |= s.written & mask != mask;
            if s.read_epoch != epoch {
                (s.read_epoch, s.reader, s.read_bytes, s.more_readers) = (epoch, wave, mask, false);
            } else {
                s.more_readers |= s.reader != wave;
                s.read_bytes |= mask;
            }
            Ok(())
        });
        found.map_err(|other| FaultKind::Race(range, other))?;
        if checks.uninitialised && uninitialised {
            return Err(FaultKind::Uninitialised(range));
        }
        Ok(())
    }

    fn on_write(
        &mut self,
        at: u32,
        bytes: u32,
        wave: u32,
        atomic: bool,
        checks: Checks,
    ) -> Result<(), FaultKind> {
        let access = if atomic { Access::Atomic } else { Access::Write };
        let range = Range { space: Space::Lds, access, at: at.into(), bytes };
        let (epoch, shadow, wave) = (self.epoch, &mut self.shadow, wave as u16);
        let found = each_word(at, bytes, |word, mask| {
            let s = &mut shadow[word];
            if checks.races {
                let written = s.write_epoch == epoch && s.write_bytes & mask != 0;
                if written && s.writer != wave && !(atomic && s.atomic) {
                    return Err(s.writer.into());
                }
                let read = s.read_epoch == epoch && s.read_bytes & mask != 0;
                if read && (s.reader != wave || s.more_readers) {
                    return Err(s.reader.into());
                }
            }
            let before = if s.write_epoch == epoch { s.write_bytes } else { 0 };
            (s.write_epoch, s.writer, s.write_bytes, s.atomic) = (epoch, wave, before | mask, atomic);
            s.written |= mask;
            Ok(())
        });
        found.map_err(|other| FaultKind::Race(range, other))
    }

    /// Returns the index of the first word of an aligned access inside the memory.
    #[inline(always)]
    fn first_word(&self, at: u32, bytes: u32, checks: Checks) -> Option<usize> {
        let inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let aligned = at % 4 == 0 && (!checks.alignment || at % bytes.next_power_of_two() == 0);
        (inside && aligned).then_some(at as usize / 4)
    }

    /// Loads entire words if there is nothing to report; returns `None` if there may be, and [`Lds::load`]
    /// decides.
    #[inline(always)]
    pub(crate) fn load_words<const N: usize>(
        &mut self,
        at: u32,
        wave: u32,
        checks: Checks,
    ) -> Option<[u32; N]> {
        let first = self.first_word(at, 4 * N as u32, checks)?;
        let (epoch, tracked) = (self.epoch, checks.races || checks.uninitialised);
        let shadow = self.shadow.get_mut(first..)?.first_chunk_mut::<N>()?;
        if tracked && !shadow.iter_mut().all(|s| s.is_read(epoch, wave as u16)) {
            return None;
        }
        self.read += 4 * N as u64;
        self.words.get(first..)?.first_chunk::<N>().copied()
    }

    /// Stores entire words if there is nothing to report; returns `None` if there may be, and [`Lds::store`]
    /// decides.
    #[inline(always)]
    pub(crate) fn store_words<const N: usize>(
        &mut self,
        at: u32,
        values: [u32; N],
        wave: u32,
        checks: Checks,
    ) -> Option<()> {
        let first = self.first_word(at, 4 * N as u32, checks)?;
        let (epoch, tracked) = (self.epoch, checks.races || checks.uninitialised);
        let shadow = self.shadow.get_mut(first..)?.first_chunk_mut::<N>()?;
        if tracked && !shadow.iter_mut().all(|s| s.is_written(epoch, wave as u16)) {
            return None;
        }
        self.stored += 4 * N as u64;
        *self.words.get_mut(first..)?.first_chunk_mut::<N>()? = values;
        Some(())
    }

    /// Loads up to 16 bytes as words.
    #[inline(never)]
    pub(crate) fn load(
        &mut self,
        at: u32,
        bytes: u32,
        wave: u32,
        checks: Checks,
    ) -> Result<[u32; 4], FaultKind> {
        self.check(at, bytes, Access::Read, checks)?;
        if checks.races || checks.uninitialised {
            self.on_read(at, bytes, wave, checks)?;
        }
        self.read += u64::from(bytes);
        let mut values = [0; 4];
        for i in 0..bytes {
            let byte = self.words[(at + i) as usize / 4] >> (8 * ((at + i) % 4)) & 255;
            values[i as usize / 4] |= byte << (8 * (i % 4));
        }
        Ok(values)
    }

    /// Stores up to 16 bytes from words.
    #[inline(never)]
    pub(crate) fn store(
        &mut self,
        at: u32,
        bytes: u32,
        values: &[u32; 4],
        wave: u32,
        checks: Checks,
    ) -> Result<(), FaultKind> {
        self.check(at, bytes, Access::Write, checks)?;
        if checks.races || checks.uninitialised {
            self.on_write(at, bytes, wave, false, checks)?;
        }
        self.stored += u64::from(bytes);
        for i in 0..bytes {
            let (word, shift) = ((at + i) as usize / 4, 8 * ((at + i) % 4));
            let byte = values[i as usize / 4] >> (8 * (i % 4)) & 255;
            self.words[word] = self.words[word] & !(255 << shift) | byte << shift;
        }
        Ok(())
    }

    /// Updates 4 or 8 bytes with `f` and returns the old value.
    pub(crate) fn atomic(
        &mut self,
        at: u32,
        bytes: u32,
        wave: u32,
        checks: Checks,
        f: impl Fn(u64) -> u64,
    ) -> Result<u64, FaultKind> {
        let range = Range { space: Space::Lds, access: Access::Atomic, at: at.into(), bytes };
        if at % bytes != 0 {
            return Err(FaultKind::Misaligned(range, bytes));
        }
        self.check(at, bytes, Access::Atomic, checks)?;
        let first = at as usize / 4;
        if checks.uninitialised && (0..bytes as usize / 4).any(|i| self.shadow[first + i].written != 15) {
            return Err(FaultKind::Uninitialised(range));
        }
        self.on_write(at, bytes, wave, true, checks)?;
        (self.read, self.stored) = (self.read + u64::from(bytes), self.stored + u64::from(bytes));
        let high = if bytes == 8 { u64::from(self.words[first + 1]) << 32 } else { 0 };
        let old = u64::from(self.words[first]) | high;
        let new = f(old);
        self.words[first] = new as u32;
        if bytes == 8 {
            self.words[first + 1] = (new >> 32) as u32;
        }
        Ok(old)
    }
}
