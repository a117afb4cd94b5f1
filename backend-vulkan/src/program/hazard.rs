//! Hazards between dispatches, which decide where barriers are recorded.
//!
//! Dispatches may overlap on the device until one accesses memory that another wrote, or writes memory that
//! another read. The tracker records the reads and writes since the last barrier and reports when the next
//! command has to wait.

use super::windows::{BufferRef, Window};
use ggml_core::repeat::Range;

/// A byte range of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange {
    buffer: BufferRef,
    begin: u64,
    /// Offset of the byte after the last.
    end: u64,
}

impl ByteRange {
    /// Returns the byte range of a window.
    pub(crate) fn of(window: &Window) -> ByteRange {
        ByteRange { buffer: window.buffer, begin: window.offset, end: window.end() }
    }

    /// Returns true if the range is in the scratch memory that all dispatches share.
    pub(crate) fn is_scratch(&self) -> bool {
        self.buffer == BufferRef::Scratch
    }
}

impl Range for ByteRange {
    fn meets(&self, other: &ByteRange) -> bool {
        self.buffer == other.buffer && self.begin < other.end && other.begin < self.end
    }
}

/// Reads and writes since the last barrier.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    reads: Vec<ByteRange>,
    writes: Vec<ByteRange>,
}

impl Tracker {
    /// Adds a command with these reads and writes, and returns true if it must wait for earlier ones. The
    /// caller then records a barrier before it, and all earlier commands count as complete.
    pub(crate) fn must_wait(&mut self, reads: &[ByteRange], writes: &[ByteRange]) -> bool {
        let meet = |a: &[ByteRange], b: &[ByteRange]| a.iter().any(|x| b.iter().any(|y| x.meets(y)));
        let wait = meet(&self.writes, reads) || meet(&self.writes, writes) || meet(&self.reads, writes);
        if wait {
            self.clear();
        }
        self.reads.extend_from_slice(reads);
        self.writes.extend_from_slice(writes);
        wait
    }

    /// Marks all earlier commands as complete.
    pub(crate) fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(buffer: usize, begin: u64, bytes: u64) -> [ByteRange; 1] {
        [ByteRange { buffer: BufferRef::Bound(buffer), begin, end: begin + bytes }]
    }

    #[test]
    fn independent_work_overlaps() {
        let mut t = Tracker::default();
        assert!(!t.must_wait(&at(1, 0, 64), &at(2, 0, 64)));
        assert!(!t.must_wait(&at(1, 0, 64), &at(2, 64, 64)), "neighbours, and reads of the same");
        assert!(!t.must_wait(&at(2, 128, 64), &at(3, 0, 64)), "another buffer");
    }

    #[test]
    fn each_kind_of_hazard_waits_once() {
        let mut t = Tracker::default();
        t.must_wait(&[], &at(1, 0, 64));
        assert!(t.must_wait(&at(1, 60, 8), &at(1, 512, 8)), "read after write");
        assert!(!t.must_wait(&at(1, 0, 64), &at(1, 640, 8)), "the barrier covered the first write");
        assert!(t.must_wait(&[], &at(1, 32, 4)), "write after read");
        assert!(t.must_wait(&[], &at(1, 32, 4)), "write after write");
        t.clear();
        assert!(!t.must_wait(&at(1, 32, 4), &[]));
    }
}
