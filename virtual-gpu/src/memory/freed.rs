//! Ranges that were freed, as far as they are remembered: an access to one is told from one to memory that never was.
//!
//! Each launch frees its arguments, so the ranges are sorted, and the oldest is forgotten without a look at the others.

use std::collections::{BTreeMap, VecDeque};

/// Number of freed ranges that are remembered.
const REMEMBERED: usize = 4096;

/// Freed ranges, none of which overlap: memory that is allocated is no longer freed.
#[derive(Debug, Default)]
pub(super) struct Freed {
    /// Bytes by first address.
    ranges: BTreeMap<u64, u64>,
    /// First addresses, oldest first.
    order: VecDeque<u64>,
}

impl Freed {
    /// Adds a range, and forgets the oldest if there are too many.
    pub(super) fn add(&mut self, base: u64, bytes: u64) {
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ranges.remove(&oldest);
        }
        self.ranges.insert(base, bytes);
        self.order.push_back(base);
    }

    /// Takes out what overlaps a range: it is allocated again.
    pub(super) fn take_out(&mut self, base: u64, bytes: u64) {
        while let Some(first) = self.last_before(base.saturating_add(bytes)).filter(|&(b, n)| b + n > base) {
            self.ranges.remove(&first.0);
            self.order.retain(|&base| base != first.0);
        }
    }

    /// Returns true if a range begins there.
    pub(super) fn begins_at(&self, base: u64) -> bool {
        self.ranges.contains_key(&base)
    }

    /// Returns true if a range has this address.
    pub(super) fn contains(&self, address: u64) -> bool {
        let up_to = self.ranges.range(..=address).next_back();
        up_to.is_some_and(|(&base, &bytes)| address - base < bytes)
    }

    /// Returns the last range that begins before an address.
    fn last_before(&self, address: u64) -> Option<(u64, u64)> {
        self.ranges.range(..address).next_back().map(|(&base, &bytes)| (base, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered_until_they_are_allocated_again() {
        let mut freed = Freed::default();
        for n in 0..=REMEMBERED as u64 {
            freed.add(0x1000 * n, 0x800);
        }
        assert!(!freed.begins_at(0) && !freed.contains(0x7ff), "the oldest is forgotten");
        assert!(freed.begins_at(0x1000) && freed.contains(0x17ff) && !freed.contains(0x1800));
        freed.take_out(0x1800, 0x800);
        assert!(freed.contains(0x1000) && freed.contains(0x2000), "neighbours stay");
        freed.take_out(0x17ff, 0x802);
        assert!(!freed.contains(0x1000) && !freed.contains(0x2000) && freed.contains(0x3000));
        assert_eq!(freed.ranges.len(), freed.order.len());
        freed.add(0x1000, 8);
        assert!(freed.begins_at(0x1000) && !freed.contains(0x1008));
    }
}
