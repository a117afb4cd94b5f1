//! Bytes of a KiB that were read, written and accessed atomically.

/// Bytes of a block.
pub(super) const BLOCK: u64 = 1024;
/// 64-bit words of a map of a block.
pub(super) const WORDS: usize = BLOCK as usize / 64;

/// Kinds of access.
pub(super) const READ: usize = 0;
pub(super) const WRITE: usize = 1;
pub(super) const ATOMIC: usize = 2;
/// Loads that see what other work-groups store: they conflict with nothing.
pub(super) const VOLATILE: usize = 3;
/// Number of kinds.
pub(super) const KINDS: usize = 4;

pub(super) type Map = [u64; WORDS];

/// Tables by number: a number is mixed by one multiplication.
pub(super) type Table<T> = std::collections::HashMap<u64, T, std::hash::BuildHasherDefault<Quick>>;

#[derive(Default)]
pub(super) struct Quick(u64);

impl std::hash::Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// A map for each kind of access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(pub(super) [Map; KINDS]);

impl Marks {
    /// Marks up to [`BLOCK`] bytes inside the block.
    #[inline(always)]
    pub(super) fn add(&mut self, kind: usize, at: usize, bytes: usize) {
        let map = &mut self.0[kind];
        let (word, bit) = (at / 64, at % 64);
        if bit + bytes <= 64 {
            map[word % WORDS] |= u64::MAX >> (64 - bytes) << bit;
            return;
        }
        let end = at + bytes;
        map[word % WORDS] |= u64::MAX << bit;
        map[word + 1..(end / 64).min(WORDS)].fill(u64::MAX);
        if end % 64 != 0 {
            map[end / 64 % WORDS] |= u64::MAX >> (64 - end % 64);
        }
    }

    /// Adds other marks.
    pub(super) fn merge(&mut self, other: &Marks) {
        for (to, from) in self.0.as_flattened_mut().iter_mut().zip(other.0.as_flattened()) {
            *to |= from;
        }
    }

    /// Moves the marks of a range of a kind to other marks.
    pub(super) fn take(&mut self, kind: usize, at: usize, bytes: usize, to: &mut Marks) {
        let mut range = Marks::default();
        range.add(kind, at, bytes);
        for ((from, to), range) in self.0[kind].iter_mut().zip(&mut to.0[kind]).zip(&range.0[kind]) {
            *to |= *from & range;
            *from &= !range;
        }
    }

    /// Drops reads of what other marks say is accessed atomically.
    pub(super) fn forgive(&mut self, other: &Marks) {
        for (read, atomic) in self.0[READ].iter_mut().zip(&other.0[ATOMIC]) {
            *read &= !atomic;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.as_flattened().iter().all(|&word| word == 0)
    }

    /// Returns the words in which something is marked, and something that changes memory, a bit for each.
    pub(super) fn outline(&self) -> [u16; 2] {
        let mut outline = [0; 2];
        for i in 0..WORDS {
            let [read, written, atomic] = [READ, WRITE, ATOMIC].map(|kind| self.0[kind][i]);
            outline[0] |= u16::from(read | written | atomic != 0) << i;
            outline[1] |= u16::from(written | atomic != 0) << i;
        }
        outline
    }

    /// Returns the first byte at which two accesses by different parties may not be in either order.
    pub(super) fn conflict(&self, other: &Marks) -> Option<usize> {
        let (a, b) = (&self.0, &other.0);
        for i in 0..WORDS {
            let plain = a[WRITE][i] & (b[READ][i] | b[WRITE][i] | b[ATOMIC][i])
                | b[WRITE][i] & (a[READ][i] | a[ATOMIC][i])
                | a[ATOMIC][i] & b[READ][i]
                | b[ATOMIC][i] & a[READ][i];
            if plain != 0 {
                return Some(64 * i + plain.trailing_zeros() as usize);
            }
        }
        None
    }

    /// Returns true if a byte is marked.
    pub(super) fn has(&self, kind: usize, at: usize) -> bool {
        self.0[kind][at / 64 % WORDS] >> (at % 64) & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_their_bytes() {
        for (at, bytes) in
            [(0, 1), (63, 1), (63, 2), (60, 16), (0, 64), (0, 1024), (1, 1023), (130, 500), (960, 64)]
        {
            let mut marks = Marks::default();
            marks.add(WRITE, at, bytes);
            for byte in 0..1024 {
                assert_eq!(
                    marks.has(WRITE, byte),
                    (at..at + bytes).contains(&byte),
                    "{byte} of {bytes} at {at}"
                );
            }
            assert!(!marks.has(READ, at) && !marks.is_empty());
            let mut moved = Marks::default();
            marks.clone().take(WRITE, 0, 1024, &mut moved);
            assert_eq!(moved, marks);
        }
    }

    #[test]
    fn a_write_conflicts_and_reads_or_atomics_among_themselves_do_not() {
        let of = |kind, at, bytes| {
            let mut marks = Marks::default();
            marks.add(kind, at, bytes);
            marks
        };
        for (a, b, conflicts) in [
            (READ, READ, false),
            (READ, WRITE, true),
            (READ, ATOMIC, true),
            (WRITE, WRITE, true),
            (WRITE, ATOMIC, true),
            (ATOMIC, ATOMIC, false),
            (VOLATILE, WRITE, false),
            (VOLATILE, ATOMIC, false),
        ] {
            let (x, y) = (of(a, 100, 8), of(b, 107, 8));
            let ([any, changed], [other, also]) = (x.outline(), y.outline());
            assert!(!conflicts || any & also | changed & other != 0);
            assert_eq!(x.conflict(&y), conflicts.then_some(107), "{a} {b}");
            assert_eq!(y.conflict(&x), conflicts.then_some(107), "{b} {a}");
            assert_eq!(x.conflict(&of(b, 108, 8)), None, "neighbours");
        }
    }
}
