//! Layout of the compute arena, which holds inputs and results of a plan.

use crate::buffers::{BufferLimits, Buffers};

/// Region of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Region {
    /// Index of the buffer that it lies in.
    pub buffer: usize,
    /// Offset in bytes.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
}

impl Region {
    fn end(&self) -> usize {
        self.offset + self.bytes
    }

    /// True if the other region begins where this one ends.
    fn precedes(&self, other: &Region) -> bool {
        self.buffer == other.buffer && self.end() == other.offset
    }
}

/// Free regions of an arena while it is laid out, sorted by buffer and offset.
pub(super) struct Arena {
    free: Vec<Region>,
    buffers: Buffers,
    alignment: usize,
}

impl Arena {
    /// Creates an empty arena.
    pub(super) fn new(limits: BufferLimits) -> Arena {
        Arena { free: Vec::new(), buffers: Buffers::new(limits), alignment: limits.alignment }
    }

    /// Returns the length of each buffer in bytes.
    pub(super) fn into_lengths(self) -> Vec<usize> {
        self.buffers.into_lengths()
    }

    /// Allocates the first free region that is large enough, or extends the arena. `None` on overflow.
    pub(super) fn allocate(&mut self, bytes: usize) -> Option<Region> {
        let bytes = bytes.checked_next_multiple_of(self.alignment)?.max(self.alignment);
        if let Some(i) = self.free.iter().position(|f| f.bytes >= bytes) {
            let place = Region { bytes, ..self.free[i] };
            self.free[i].offset += bytes;
            self.free[i].bytes -= bytes;
            if self.free[i].bytes == 0 {
                self.free.remove(i);
            }
            return Some(place);
        }
        // A free region at the end of a buffer is extended.
        for (i, free) in self.free.iter().enumerate() {
            if self.buffers.lengths().get(free.buffer) == Some(&free.end())
                && self.buffers.extend(free.buffer, bytes - free.bytes).is_some()
            {
                return Some(Region { bytes, ..self.free.remove(i) });
            }
        }
        let place = self.buffers.place(bytes)?;
        Some(Region { buffer: place.buffer, offset: place.offset, bytes })
    }

    /// Frees a region.
    pub(super) fn free(&mut self, place: Region) {
        let at = self.free.partition_point(|f| *f < place);
        self.free.insert(at, place);
        if at + 1 < self.free.len() && self.free[at].precedes(&self.free[at + 1]) {
            self.free[at].bytes += self.free.remove(at + 1).bytes;
        }
        if at > 0 && self.free[at - 1].precedes(&self.free[at]) {
            self.free[at - 1].bytes += self.free.remove(at).bytes;
        }
    }
}
