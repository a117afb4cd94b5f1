//! Layout of the one arena in which inputs and results of a plan lie.

/// A place in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Byte offset.
    pub offset: usize,
    /// Bytes.
    pub bytes: usize,
}

/// The free parts of an arena while it is laid out, sorted by offset.
pub(super) struct Arena {
    free: Vec<Place>,
    pub(super) end: usize,
    alignment: usize,
}

impl Arena {
    /// Creates an empty arena whose places begin at multiples of `alignment`.
    pub(super) fn new(alignment: usize) -> Arena {
        Arena { free: Vec::new(), end: 0, alignment }
    }

    /// The lowest free part that is large enough, else the end.
    pub(super) fn allocate(&mut self, bytes: usize) -> Option<Place> {
        let bytes = bytes.checked_next_multiple_of(self.alignment)?.max(self.alignment);
        if let Some(i) = self.free.iter().position(|f| f.bytes >= bytes) {
            let place = Place { offset: self.free[i].offset, bytes };
            self.free[i].offset += bytes;
            self.free[i].bytes -= bytes;
            if self.free[i].bytes == 0 {
                self.free.remove(i);
            }
            return Some(place);
        }
        // A free part at the end grows.
        let offset = match self.free.last() {
            Some(last) if last.offset + last.bytes == self.end => {
                let offset = last.offset;
                self.free.pop();
                offset
            }
            _ => self.end,
        };
        self.end = offset.checked_add(bytes)?;
        Some(Place { offset, bytes })
    }

    /// Frees a place.
    pub(super) fn free(&mut self, place: Place) {
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
