//! Layout of tensors in buffers that a device can allocate.
//!
//! A device has a largest buffer, often smaller than its memory. Tensors that do not fit one buffer together
//! are placed in several; no tensor lies in two.

/// Rules for the layout of tensors in the buffers of a device. A number is the alignment of a device whose
/// buffers have any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLimits {
    /// Alignment of tensors in bytes: a power of two.
    pub alignment: usize,
    /// Bytes of the largest buffer.
    pub largest: usize,
}

impl From<usize> for BufferLimits {
    fn from(alignment: usize) -> BufferLimits {
        BufferLimits { alignment, largest: ADDRESSABLE }
    }
}

impl BufferLimits {
    /// True if a tensor of this length fits a buffer.
    pub fn fits(&self, bytes: usize) -> bool {
        bytes.checked_next_multiple_of(self.alignment).is_some_and(|bytes| bytes <= self.largest)
    }
}

/// The most bytes that all buffers of a layout have together.
const ADDRESSABLE: usize = isize::MAX as usize;

/// Location of a tensor in a layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Index of the buffer.
    pub buffer: usize,
    /// Offset in bytes.
    pub offset: usize,
}

/// Buffers of a layout in the making: at first none.
#[derive(Clone, Debug)]
pub struct Buffers {
    limits: BufferLimits,
    lengths: Vec<usize>,
}

impl Buffers {
    /// Creates an empty layout.
    pub fn new(limits: impl Into<BufferLimits>) -> Buffers {
        Buffers { limits: limits.into(), lengths: Vec::new() }
    }

    /// Returns the length of each buffer in bytes.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Consumes the layout and returns the length of each buffer in bytes.
    pub fn into_lengths(self) -> Vec<usize> {
        self.lengths
    }

    /// Places a tensor at the end of the first buffer that has room for it, or in a further one. A tensor that
    /// fits no buffer ([`BufferLimits::fits`]) gets one of its own, which the device will refuse. `None`: all
    /// together have more bytes than can be addressed.
    pub fn place(&mut self, bytes: usize) -> Option<Location> {
        let bytes = bytes.checked_next_multiple_of(self.limits.alignment)?;
        if let Some(place) = (0..self.lengths.len()).find_map(|buffer| self.extend(buffer, bytes)) {
            return Some(place);
        }
        self.check_total(bytes)?;
        self.lengths.push(bytes);
        Some(Location { buffer: self.lengths.len() - 1, offset: 0 })
    }

    /// Appends bytes to a buffer and returns their place; `None` if it would exceed the largest one.
    pub(crate) fn extend(&mut self, buffer: usize, bytes: usize) -> Option<Location> {
        self.check_total(bytes)?;
        let offset = *self.lengths.get(buffer)?;
        let end = offset.checked_add(bytes).filter(|&end| end <= self.limits.largest)?;
        self.lengths[buffer] = end;
        Some(Location { buffer, offset })
    }

    /// Returns the bytes of all buffers with `more`, if they can be addressed.
    fn check_total(&self, more: usize) -> Option<usize> {
        let sum = self.lengths.iter().try_fold(more, |sum, &bytes| sum.checked_add(bytes));
        sum.filter(|&sum| sum <= ADDRESSABLE)
    }
}

/// Enlarges the buffers of a layout so that they also hold another one.
pub fn enlarge(lengths: &mut Vec<usize>, other: &[usize]) {
    lengths.resize(lengths.len().max(other.len()), 0);
    lengths.iter_mut().zip(other).for_each(|(bytes, &more)| *bytes = more.max(*bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_share_buffers_as_large_as_the_device_allows() {
        let mut buffers = Buffers::new(BufferLimits { alignment: 64, largest: 256 });
        let mut place = |bytes| buffers.place(bytes).map(|p| (p.buffer, p.offset));
        assert_eq!((place(10), place(65)), (Some((0, 0)), Some((0, 64))));
        assert_eq!(place(65), Some((1, 0)), "192 of 256 bytes are taken");
        assert_eq!(place(64), Some((0, 192)), "the first with room");
        assert_eq!(place(1000), Some((2, 0)), "the device says what is wrong with it");
        assert_eq!(place(1), Some((1, 128)));
        assert_eq!((place(usize::MAX), place(usize::MAX / 2)), (None, None));
        assert_eq!(buffers.into_lengths(), [256, 192, 1024]);
    }

    #[test]
    fn a_layout_is_enlarged_buffer_by_buffer() {
        let mut lengths = vec![5, 1];
        enlarge(&mut lengths, &[3]);
        enlarge(&mut lengths, &[1, 2, 3]);
        assert_eq!(lengths, [5, 2, 3]);
    }

    #[test]
    fn one_buffer_is_enough_without_a_limit() {
        let mut buffers = Buffers::new(64);
        assert!((0..100).all(|i| buffers.place(100) == Some(Location { buffer: 0, offset: i * 128 })));
        assert_eq!(buffers.lengths(), [12_800]);
        assert!(BufferLimits::from(64).fits(1 << 40) && !BufferLimits::from(64).fits(usize::MAX));
    }
}
