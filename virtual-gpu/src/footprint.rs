//! Bytes of global memory that a launch reads and writes: the footprints of two unordered launches must not
//! conflict.

use crate::fault::Access;
use std::collections::HashMap;

/// Bytes per page, and 64-bit words of a page's bit mask.
const PAGE: u64 = 4096;
const WORDS: usize = PAGE as usize / 64;

/// One bit per byte of a page.
type Bits = Box<[u64; WORDS]>;

/// The bytes read and the bytes written.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    read: HashMap<u64, Bits>,
    written: HashMap<u64, Bits>,
}

impl Footprint {
    /// Adds a range. An atomic access counts as read and as written.
    pub fn add(&mut self, address: u64, bytes: u64, access: Access) {
        if access != Access::Write {
            mark(&mut self.read, address, bytes);
        }
        if access != Access::Read {
            mark(&mut self.written, address, bytes);
        }
    }

    /// Adds another footprint.
    pub fn merge(&mut self, other: Footprint) {
        for (to, from) in [(&mut self.read, other.read), (&mut self.written, other.written)] {
            for (page, bits) in from {
                match to.get_mut(&page) {
                    Some(known) => known.iter_mut().zip(*bits).for_each(|(a, b)| *a |= b),
                    None => {
                        to.insert(page, bits);
                    }
                }
            }
        }
    }

    /// Adds the bytes of a KiB: one bit for each that was read, and for each that was written.
    pub(crate) fn add_block(&mut self, address: u64, read: &[u64; 16], written: &[u64; 16]) {
        for (pages, bits) in [(&mut self.read, read), (&mut self.written, written)] {
            if bits.iter().any(|&word| word != 0) {
                let page = pages.entry(address / PAGE).or_insert_with(|| Box::new([0; WORDS]));
                let first = (address % PAGE) as usize / 64;
                page[first..].iter_mut().zip(bits).for_each(|(to, from)| *to |= from);
            }
        }
    }

    /// Returns the addresses of the aligned 32-bit words that were written completely, in ascending order.
    pub fn words_written(&self) -> Vec<u64> {
        let mut pages: Vec<_> = self.written.iter().collect();
        pages.sort_unstable_by_key(|(page, _)| **page);
        let entire = |bits: &Bits, word: u64| bits[(word / 16) as usize] >> (word % 16 * 4) & 15 == 15;
        let in_page = |(&page, bits): (&u64, &Bits)| {
            (0..PAGE / 4).filter(|&word| entire(bits, word)).map(|word| page * PAGE + 4 * word).collect()
        };
        pages.into_iter().flat_map(|page| -> Vec<u64> { in_page(page) }).collect()
    }

    /// Returns the lowest address that this footprint reads and an earlier one wrote.
    pub fn reads_from(&self, earlier: &Footprint) -> Option<u64> {
        meeting(&self.read, &earlier.written)
    }

    /// Returns the lowest address that both this footprint and an earlier one write.
    pub fn overwrites(&self, earlier: &Footprint) -> Option<u64> {
        meeting(&self.written, &earlier.written)
    }

    /// Returns the lowest address that one footprint writes and the other reads or writes.
    pub fn conflict(&self, other: &Footprint) -> Option<u64> {
        let pairs =
            [(&self.written, &other.written), (&self.written, &other.read), (&self.read, &other.written)];
        pairs.into_iter().filter_map(|(a, b)| meeting(a, b)).min()
    }
}

fn mark(pages: &mut HashMap<u64, Bits>, address: u64, bytes: u64) {
    let end = address.saturating_add(bytes);
    let mut at = address;
    while at < end {
        let (page, offset) = (at / PAGE, at % PAGE);
        let count = (PAGE - offset).min(end - at);
        let bits = pages.entry(page).or_insert_with(|| Box::new([0; WORDS]));
        let mut bit = offset;
        while bit < offset + count {
            let in_word = (64 - bit % 64).min(offset + count - bit);
            bits[(bit / 64) as usize] |= u64::MAX >> (64 - in_word) << (bit % 64);
            bit += in_word;
        }
        at += count;
    }
}

/// Returns the lowest address in both sets.
fn meeting(a: &HashMap<u64, Bits>, b: &HashMap<u64, Bits>) -> Option<u64> {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let in_page = |(page, bits): (&u64, &Bits)| {
        let other = many.get(page)?;
        let both = bits.iter().zip(other.iter()).map(|(x, y)| x & y);
        let (word, bits) = both.enumerate().find(|(_, bits)| *bits != 0)?;
        Some(page * PAGE + 64 * word as u64 + u64::from(bits.trailing_zeros()))
    };
    few.iter().filter_map(in_page).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ranges: &[(u64, u64, Access)]) -> Footprint {
        let mut footprint = Footprint::default();
        ranges.iter().for_each(|&(at, bytes, access)| footprint.add(at, bytes, access));
        footprint
    }

    #[test]
    fn writes_meet_what_others_read_or_write() {
        let (read, write) = (Access::Read, Access::Write);
        let a = of(&[(0x1ff8, 16, write), (0x9000, 4, read)]);
        assert_eq!(a.conflict(&of(&[(0x2007, 1, read)])), Some(0x2007));
        assert_eq!(a.conflict(&of(&[(0x2008, 64, write), (0x1f00, 0xf8, write)])), None);
        assert_eq!(a.conflict(&of(&[(0, 0x8000, Access::Atomic)])), Some(0x1ff8));
        assert_eq!(a.conflict(&of(&[(0x9000, 4, read)])), None);
        assert_eq!(of(&[(0x9000, 4, read)]).conflict(&of(&[(0x9003, 1, write)])), Some(0x9003));
        assert_eq!(a.words_written(), [0x1ff8, 0x1ffc, 0x2000, 0x2004]);
        assert_eq!(of(&[(0x3001, 8, write)]).words_written(), [0x3004], "entirely written words");
        let mut both = of(&[(0x1000, 4, write)]);
        both.merge(a);
        assert_eq!(both.conflict(&of(&[(0, 1 << 20, read)])), Some(0x1000));
        assert_eq!(both.conflict(&of(&[(0x2000, 1, read)])), Some(0x2000));
    }
}
