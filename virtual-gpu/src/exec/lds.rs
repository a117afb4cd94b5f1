//! LDS of a work-group.

pub(crate) use super::history::CAPACITY;
use super::history::{Conflict, History, in_one_word};
use super::repeat::{RUN, Repeat, repeat};
use super::simd::transposed;
use crate::fault::{Access, FaultKind, Range, Space};
use crate::isa::op::lanes::{LANES, lanes, rounds, whole};
use crate::options::Checks;

/// Words of the memory.
const WORDS: usize = CAPACITY / 4;

/// LDS of a work-group.
pub(crate) struct Lds {
    /// Three more than are used: so an access of four words that begins inside is inside for the compiler.
    words: Box<[u32; WORDS + 3]>,
    history: History,
    bytes: u32,
    checks: Checks,
    pub(crate) read: u64,
    pub(crate) stored: u64,
}

impl Lds {
    pub(crate) fn new() -> Lds {
        let (words, history) = (Box::new([0; WORDS + 3]), History::new());
        Lds { words, history, bytes: 0, checks: Checks::NONE, read: 0, stored: 0 }
    }

    /// Resets the memory for a new work-group, to some words.
    pub(crate) fn reset(&mut self, bytes: u32, checks: Checks, words: Option<&[u32]>) {
        (self.bytes, self.checks) = (bytes.min(CAPACITY as u32), checks);
        (self.read, self.stored) = (0, 0);
        let used = &mut self.words[..self.bytes.div_ceil(4) as usize];
        match words {
            Some(words) => used.iter_mut().zip(words).for_each(|(to, from)| *to = *from),
            // Not zeros: uninitialised data must not look plausible.
            None => used.fill(0xdead_beef),
        }
        self.history.reset(self.bytes, checks);
    }

    /// All wavefronts have reached a barrier.
    pub(crate) fn barrier(&mut self) {
        self.history.barrier();
    }

    /// A wavefront begins to run, after others or before them.
    pub(crate) fn begin(&mut self, wave: u32) {
        self.history.begin(wave);
    }

    /// It has reached a barrier or its end.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        self.history.end();
    }

    fn check(&self, range: Range) -> Result<u32, FaultKind> {
        let (at, bytes) = (range.at as u32, range.bytes);
        if at.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(FaultKind::OutOfBounds(range));
        }
        // 12 bytes need an alignment of 16; all other sizes need their own.
        let wanted = bytes.next_power_of_two();
        if self.checks.alignment && at % wanted != 0 {
            return Err(FaultKind::Misaligned(range, wanted));
        }
        Ok(at)
    }

    /// Returns true if accesses are inside, aligned as words are and as it is checked, and in one word of a map each.
    #[inline(always)]
    fn fit(&self, at: impl Iterator<Item = u32> + Clone, bytes: u32) -> bool {
        let Some(last) = self.bytes.checked_sub(bytes) else { return false };
        let (most, all) = at.clone().fold((0, 0), |(most, all): (u32, u32), at| (most.max(at), all | at));
        let size = bytes.next_power_of_two();
        if all % size != 0 {
            let mut at = at;
            if self.checks.alignment || all % size.min(4) != 0 || at.any(|at| !in_one_word(at, bytes)) {
                return false;
            }
        }
        most <= last
    }

    /// Returns true if the accesses of all lanes of a mask fit.
    #[inline(always)]
    fn fit_lanes(&self, at: &[u32; LANES], mask: u64, bytes: u32) -> bool {
        match whole(mask) {
            0 => self.fit(lanes(mask).map(|lane| at[lane]), bytes),
            count => self.fit(at[..rounds(count)].iter().copied(), bytes),
        }
    }

    /// Returns true if accesses that follow each other fit, from the first one on.
    #[inline(always)]
    fn fit_consecutive(&self, first: u32, bytes: u32, count: usize) -> bool {
        let inside = first.checked_add(bytes * count as u32).is_some_and(|end| end <= self.bytes);
        // Two of them tell about the alignment of all.
        inside && self.fit([first, first + bytes].into_iter(), bytes)
    }

    /// Loads N words for each lane of a mask if there is nothing to report; the caller counts the bytes. Otherwise
    /// returns false, and [`Lds::load`] for each lane decides.
    #[inline(always)]
    pub(crate) fn load_lanes<const N: usize>(
        &mut self,
        at: &[u32; LANES],
        mask: u64,
        to: &mut [[u32; LANES]; N],
    ) -> bool {
        let bytes = 4 * N as u32;
        let pattern = match whole(mask) {
            0 => Repeat::None,
            count => Repeat::of(at, count, bytes),
        };
        if !self.note_reads(at, mask, bytes, pattern) {
            return false;
        }
        self.copy_lanes(at, mask, pattern, to);
        true
    }

    /// Notes the reads of all lanes of a mask; returns false if they do not fit or there is something to report.
    #[inline(always)]
    fn note_reads(&mut self, at: &[u32; LANES], mask: u64, bytes: u32, pattern: Repeat) -> bool {
        let count = whole(mask);
        let (lanes_read, step) = pattern.different(count);
        // By index: the standard library's steps are not inline.
        let different = (0..lanes_read / step).map(|n| at[n * step % LANES]);
        let fit = match pattern {
            Repeat::Consecutive => self.fit_consecutive(at[0], bytes, count),
            Repeat::None => self.fit_lanes(at, mask, bytes),
            _ => self.fit(different.clone(), bytes),
        };
        if !fit {
            return false;
        }
        let Some(mut reads) = self.history.reads() else { return false };
        match pattern {
            Repeat::Consecutive => reads.add_consecutive(at[0], bytes, count),
            Repeat::None if count == 0 => lanes(mask).for_each(|lane| reads.add(at[lane], bytes)),
            _ => different.for_each(|at| reads.add(at, bytes)),
        }
        reads.are_good(bytes)
    }

    /// Copies N words for each lane of a mask.
    #[inline(always)]
    fn copy_lanes<const N: usize>(
        &self,
        at: &[u32; LANES],
        mask: u64,
        pattern: Repeat,
        to: &mut [[u32; LANES]; N],
    ) {
        let (words, count) = (&self.words, whole(mask));
        let load = |lane: usize| {
            let first = at[lane % LANES] as usize / 4 % WORDS;
            std::array::from_fn::<_, N, _>(|i| words[first + i])
        };
        match pattern {
            Repeat::Consecutive if N == 1 => {
                let from = words[at[0] as usize / 4 % WORDS..].as_chunks::<RUN>().0;
                let to = to.as_flattened_mut().as_chunks_mut::<RUN>().0;
                to.iter_mut().zip(from).take(count / RUN).for_each(|(to, from)| *to = *from);
                return;
            }
            Repeat::Runs => {
                for first in (0..count).step_by(RUN) {
                    let words = load(first);
                    to.iter_mut().zip(words).for_each(|(to, word)| fill(to, first, word));
                }
                return;
            }
            _ => {}
        }
        for four in (0..pattern.different(count).0).step_by(4) {
            for (to, lanes) in to.iter_mut().zip(transposed(std::array::from_fn(|n| load(four + n)))) {
                if let Some(to) = to[four % LANES..].first_chunk_mut() {
                    *to = lanes;
                }
            }
        }
        match pattern {
            Repeat::Period(8) => to.iter_mut().for_each(|to| repeat::<8>(to, count)),
            Repeat::Period(16) => to.iter_mut().for_each(|to| repeat::<16>(to, count)),
            Repeat::Period(_) => to.iter_mut().for_each(|to| repeat::<32>(to, count)),
            _ => {}
        }
        for lane in lanes(if count == 0 { mask } else { 0 }) {
            to.iter_mut().zip(load(lane)).for_each(|(to, word)| to[lane] = word);
        }
    }

    /// Loads a byte or two for each lane of a mask, as [`Lds::load_lanes`].
    #[inline(always)]
    pub(crate) fn load_parts<const BYTES: u32>(
        &mut self,
        at: &[u32; LANES],
        mask: u64,
        to: &mut [u32; LANES],
    ) -> bool {
        if !self.fit_lanes(at, mask, BYTES) {
            return false;
        }
        let Some(mut reads) = self.history.reads() else { return false };
        for lane in lanes(mask) {
            reads.add(at[lane], BYTES);
            let word = self.words[at[lane] as usize / 4 % WORDS] >> (8 * (at[lane] % 4));
            to[lane] = word & ((1 << (8 * BYTES)) - 1);
        }
        let good = reads.are_good(BYTES);
        self.read += if good { u64::from(BYTES * mask.count_ones()) } else { 0 };
        good
    }

    /// Stores N words of each lane of a mask, at one address or at each of two, if there is nothing to report.
    /// Otherwise returns false, and [`Lds::store`] for each lane decides.
    #[inline(always)]
    pub(crate) fn store_lanes<const COUNT: usize, const N: usize>(
        &mut self,
        at: &[[u32; LANES]; COUNT],
        mask: u64,
        from: [Option<&[[u32; LANES]; N]>; COUNT],
    ) -> bool {
        let bytes = 4 * N as u32;
        if from.iter().any(Option::is_none) || at.iter().any(|at| !self.fit_lanes(at, mask, bytes)) {
            return false;
        }
        let Some(mut writes) = self.history.writes() else { return false };
        let count = whole(mask);
        let follow = |at: &[u32; LANES]| count > 0 && Repeat::of(at, count, bytes) == Repeat::Consecutive;
        let words = &mut self.words;
        if COUNT == 1
            && follow(&at[0])
            && let Some(from) = from[0]
        {
            writes.add_consecutive(at[0][0], bytes, count);
            let to = &mut words[at[0][0] as usize / 4 % WORDS..];
            store_consecutive(to, from, count);
        } else {
            for at in at {
                lanes(mask).for_each(|lane| writes.add(at[lane], bytes));
            }
            // Lane after lane, so that the last lane wins where lanes write the same word.
            for lane in lanes(mask) {
                for (at, from) in at.iter().zip(from) {
                    let Some(from) = from else { return false };
                    let first = at[lane] as usize / 4 % WORDS;
                    for (i, from) in from.iter().enumerate() {
                        words[first + i] = from[lane];
                    }
                }
            }
        }
        let good = writes.are_good(bytes);
        self.stored += if good { u64::from(COUNT as u32 * bytes * mask.count_ones()) } else { 0 };
        good
    }

    /// Stores a byte or two of each lane of a mask, as [`Lds::store_lanes`].
    #[inline(always)]
    pub(crate) fn store_parts<const BYTES: u32>(
        &mut self,
        at: &[u32; LANES],
        mask: u64,
        from: &[u32; LANES],
        shift: u32,
    ) -> bool {
        if !self.fit_lanes(at, mask, BYTES) {
            return false;
        }
        let Some(mut writes) = self.history.writes() else { return false };
        let part = (1u32 << (8 * BYTES)) - 1;
        for lane in lanes(mask) {
            writes.add(at[lane], BYTES);
            let (word, to) = (&mut self.words[at[lane] as usize / 4 % WORDS], 8 * (at[lane] % 4));
            *word = *word & !(part << to) | (from[lane] >> shift & part) << to;
        }
        let good = writes.are_good(BYTES);
        self.stored += if good { u64::from(BYTES * mask.count_ones()) } else { 0 };
        good
    }

    /// Loads up to 16 bytes as words.
    #[inline(never)]
    pub(crate) fn load(&mut self, at: u32, bytes: u32) -> Result<[u32; 4], FaultKind> {
        let range = range(at, bytes, Access::Read);
        let at = self.check(range)?;
        self.history.on_read(at, bytes).map_err(|conflict| fault(conflict, range))?;
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
    pub(crate) fn store(&mut self, at: u32, bytes: u32, values: &[u32; 4]) -> Result<(), FaultKind> {
        let range = range(at, bytes, Access::Write);
        let at = self.check(range)?;
        self.history.on_write(at, bytes, false).map_err(|conflict| fault(conflict, range))?;
        self.stored += u64::from(bytes);
        for i in 0..bytes {
            let (word, shift) = ((at + i) as usize / 4, 8 * ((at + i) % 4));
            let byte = values[i as usize / 4] >> (8 * (i % 4)) & 255;
            self.words[word] = self.words[word] & !(255 << shift) | byte << shift;
        }
        Ok(())
    }

    /// Updates 4 or 8 bytes with `f` and returns the old value.
    pub(crate) fn atomic(&mut self, at: u32, bytes: u32, f: impl Fn(u64) -> u64) -> Result<u64, FaultKind> {
        let range = range(at, bytes, Access::Atomic);
        if at % bytes != 0 {
            return Err(FaultKind::Misaligned(range, bytes));
        }
        let first = self.check(range)? as usize / 4;
        self.history.on_write(at, bytes, true).map_err(|conflict| fault(conflict, range))?;
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

/// Fills the lanes of a run.
#[inline(always)]
fn fill(to: &mut [u32; LANES], first: usize, word: u32) {
    if let Some(run) = to[first % LANES..].first_chunk_mut::<RUN>() {
        *run = [word; RUN];
    }
}

/// Stores N words of each of `count` lanes behind each other.
#[inline(always)]
fn store_consecutive<const N: usize>(to: &mut [u32], from: &[[u32; LANES]; N], count: usize) {
    if N == 1 {
        let (to, from) = (to.as_chunks_mut::<RUN>().0, from.as_flattened().as_chunks::<RUN>().0);
        to.iter_mut().zip(from).take(count / RUN).for_each(|(to, from)| *to = *from);
        return;
    }
    for (lane, to) in to.as_chunks_mut::<N>().0.iter_mut().enumerate().take(count.min(LANES)) {
        *to = std::array::from_fn(|i| from[i][lane]);
    }
}

fn range(at: u32, bytes: u32, access: Access) -> Range {
    Range { space: Space::Lds, access, at: at.into(), bytes }
}

fn fault(conflict: Conflict, range: Range) -> FaultKind {
    match conflict {
        Conflict::Race(other) => FaultKind::Race(range, other),
        Conflict::Uninitialised => FaultKind::Uninitialised(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// History of a byte, by definition.
    #[derive(Clone, Copy, Default)]
    struct Byte {
        initialised: bool,
        /// Wavefronts that have read and written it in this epoch, as bits.
        readers: u32,
        writers: u32,
        /// Last write in this epoch: its wavefront, and if it was atomic.
        last: (u32, bool),
    }

    impl Byte {
        fn may_be_read(&self, wave: u32) -> bool {
            self.initialised && (self.writers & !(1 << wave) == 0 || self.last.0 == wave)
        }

        fn may_be_written(&self, wave: u32, atomic: bool) -> bool {
            let both_atomic = atomic && self.last.1;
            self.readers & !(1 << wave) == 0 && (self.writers & !(1 << wave) == 0 || both_atomic)
        }

        fn write(&mut self, wave: u32, atomic: bool) {
            (self.initialised, self.last) = (true, (wave, atomic));
            self.writers |= 1 << wave;
        }
    }

    /// Returns the next value of a small generator (G. Marsaglia's xorshift).
    fn random(state: &mut u64, below: u32) -> u32 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 32) as u32 % below
    }

    /// Accesses of any size by any wavefront are errors when the definition says so. All lanes at once do what lane
    /// by lane does.
    #[test]
    fn history_is_that_of_each_byte() {
        const BYTES: u32 = 1024;
        let (mut lds, mut state, mut errors, mut good) = (Lds::new(), 0x1234_5678_9abc_def1, 0, 0);
        for group in 0..600 {
            lds.reset(BYTES, Checks { alignment: false, ..Checks::ALL }, None);
            let mut bytes = [Byte::default(); BYTES as usize];
            if group % 4 != 0 {
                lds.begin(0);
                (0..BYTES).step_by(16).for_each(|at| assert!(store(&mut lds, at, 16)));
                lds.end();
                lds.barrier();
                bytes.fill(Byte { initialised: true, ..Byte::default() });
            }
            'group: for _ in 0..3 {
                for wave in 0..3 {
                    lds.begin(wave);
                    for _ in 0..12 {
                        let size = [1, 2, 4, 8, 12, 16][random(&mut state, 6) as usize];
                        let kind = random(&mut state, 8);
                        let at = random(&mut state, BYTES - size + 1) / if kind > 4 { 8 } else { 1 };
                        let size = if kind == 7 { 4 } else { size };
                        let at = if kind == 7 { at / 4 * 4 } else { at };
                        let range = &mut bytes[at as usize..(at + size) as usize];
                        let (want, got) = match kind {
                            7 => {
                                let free =
                                    range.iter().all(|b| b.initialised && b.may_be_written(wave, true));
                                range.iter_mut().for_each(|b| b.write(wave, true));
                                (free, lds.atomic(at, size, |old| old).is_ok())
                            }
                            0..=3 => {
                                let free = range.iter().all(|b| b.may_be_read(wave));
                                range.iter_mut().for_each(|b| b.readers |= 1 << wave);
                                (free, load(&mut lds, at, size))
                            }
                            _ => {
                                let free = range.iter().all(|b| b.may_be_written(wave, false));
                                range.iter_mut().for_each(|b| b.write(wave, false));
                                (free, store(&mut lds, at, size))
                            }
                        };
                        assert_eq!(got, want, "wavefront {wave}, {kind}: {size} bytes at {at}");
                        (errors, good) = (errors + u32::from(!want), good + u32::from(want));
                        if !want {
                            break 'group;
                        }
                    }
                    lds.end();
                }
                lds.barrier();
                bytes.iter_mut().for_each(|b| *b = Byte { initialised: b.initialised, ..Byte::default() });
            }
        }
        assert!(errors > 100 && good > 1000, "{errors} {good}");
    }

    /// Loads in one lane, then with all at once; returns true if there is nothing to report.
    fn load(lds: &mut Lds, at: u32, size: u32) -> bool {
        let (addresses, mut to) = ([at; LANES], [[0; LANES]; 4]);
        let whole = match size {
            1 => lds.load_parts::<1>(&addresses, 1 << 63, &mut to[0]),
            2 => lds.load_parts::<2>(&addresses, 1 << 63, &mut to[0]),
            4 => lds.load_lanes::<1>(&addresses, 1 << 63, to.first_chunk_mut().expect("registers")),
            8 => lds.load_lanes::<2>(&addresses, 1 << 63, to.first_chunk_mut().expect("registers")),
            12 => lds.load_lanes::<3>(&addresses, 1 << 63, to.first_chunk_mut().expect("registers")),
            _ => lds.load_lanes::<4>(&addresses, 1 << 63, &mut to),
        };
        let words = lds.load(at, size);
        assert!(
            !whole || words.as_ref().is_ok_and(|words| *words == to.map(|register| register[63])),
            "{size} bytes at {at}"
        );
        words.is_ok()
    }

    /// Stores all at once, and lane by lane if that is refused; returns true if there is nothing to report.
    fn store(lds: &mut Lds, at: u32, size: u32) -> bool {
        let (addresses, from) = ([at; LANES], [[at.wrapping_mul(0x0102_0304); LANES]; 4]);
        let whole = match size {
            1 => lds.store_parts::<1>(&addresses, 1, &from[0], 0),
            2 => lds.store_parts::<2>(&addresses, 1, &from[0], 0),
            4 => lds.store_lanes::<1, 1>(&[addresses], 1, [from.first_chunk()]),
            8 => lds.store_lanes::<1, 2>(&[addresses], 1, [from.first_chunk()]),
            12 => lds.store_lanes::<1, 3>(&[addresses], 1, [from.first_chunk()]),
            _ => lds.store_lanes::<1, 4>(&[addresses], 1, [Some(&from)]),
        };
        whole || lds.store(at, size, &from.map(|register| register[0])).is_ok()
    }

    #[test]
    fn conflicts_name_the_other_wavefront() {
        let mut lds = Lds::new();
        lds.reset(64, Checks::ALL, None);
        for wave in 0..2 {
            lds.begin(wave);
            assert_eq!(lds.store(8 + wave, 1, &[7; 4]), Ok(()), "different bytes of a word");
            lds.end();
        }
        lds.begin(2);
        let race = |access, at, other| Err(FaultKind::Race(range(at, 1, access), other));
        assert_eq!(lds.load(8, 1).map(|_| ()), race(Access::Read, 8, 0));
        assert_eq!(lds.store(9, 1, &[7; 4]), race(Access::Write, 9, 1));
        assert_eq!(lds.load(10, 1).map(|_| ()), Err(FaultKind::Uninitialised(range(10, 1, Access::Read))));
        // The last writer of one byte has not written its neighbour.
        lds.reset(64, Checks::ALL, None);
        lds.begin(0);
        assert_eq!(lds.store(8, 1, &[7; 4]), Ok(()));
        lds.end();
        lds.begin(1);
        assert_eq!(lds.store(9, 1, &[7; 4]), Ok(()));
        assert_eq!(lds.load(8, 1).map(|_| ()), race(Access::Read, 8, 0));
    }
}
