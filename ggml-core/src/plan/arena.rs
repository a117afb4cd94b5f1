//! Layout of the compute arena, which holds inputs and results of a plan.

/// Region of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Offset in bytes.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
}

/// Free regions of an arena while it is laid out, sorted by offset.
pub(super) struct Arena {
    free: Vec<Region>,
    pub(super) end: usize,
    alignment: usize,
}

impl Arena {
    /// Creates an empty arena whose regions begin at multiples of `alignment`.
    pub(super) fn new(alignment: usize) -> Arena {
        Arena { free: Vec::new(), end: 0, alignment }
    }

    /// Allocates the lowest free region that is large enough, or extends the arena. `None` on overflow.
    pub(super) fn allocate(&mut self, bytes: usize) -> Option<Region> {
        let bytes = bytes.checked_next_multiple_of(self.alignment)?.max(self.alignment);
        if let Some(i) = self.free.iter().position(|f| f.bytes >= bytes) {
            let place = Region { offset: self.free[i].offset, bytes };
            self.free[i].offset += bytes;
            self.free[i].bytes -= bytes;
            if self.free[i].bytes == 0 {
                self.free.remove(i);
            }
            return Some(place);
        }
        // A free region at the end is extended.
        let offset = match self.free.last() {
            Some(last) if last.offset + last.bytes == self.end => {
                let offset = last.offset;
                self.free.pop();
                offset
            }
            _ => self.end,
        };
        self.end = offset.checked_add(bytes)?;
        Some(Region { offset, bytes })
    }

    /// Frees a region.
    pub(super) fn free(&mut self, place: Region) {
        let at = self.free.partition_point(|f| f.offset < place.offset);
        self.free.insert(at, place);
        if at + 1 < self.free.len() && self.free[at].offset + self.free[at].bytes == self.free[at + 1].offset
        {
            self.free[at].bytes += self.free.remove(at + 1).bytes;
        }
        if at > 0 && self.free[at - 1].offset + self.free[at - 1].bytes == self.free[at].offset {
            self.free[at - 1].bytes += self.free.remove(at).bytes;
        }
    }
}
