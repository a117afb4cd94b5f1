//! The bytes of an allocation.
//!
//! Work-groups run in parallel, and so do their loads and stores. Every access is atomic (relaxed) in units
//! of its alignment, up to 8 bytes. So a race in a kernel gives some value rather than undefined behaviour,
//! and aligned 64-bit words are never seen half written. Processors guarantee the latter, and kernels that
//! pass a flag and a value in one word rely on it.

#![allow(unsafe_code)]

use super::block::Block;
use crate::isa::op::lanes::{LANES, each_lane, lanes};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Weak};

/// Alignment of parts of a region.
pub(super) const PART_ALIGN: u64 = 16;

/// A range of addresses and its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// True if kernels may write there.
    pub(crate) writable: bool,
    /// First byte, inside the block; aligned to 16 bytes as `base` is.
    at: NonNull<u8>,
    block: Arc<Block>,
}

// SAFETY: the pointer is one into the block, which can be sent and shared and lives as long as the region.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// A region that may be gone: it keeps no memory.
#[derive(Debug)]
pub(crate) struct WeakRegion {
    base: u64,
    bytes: u64,
    block: Weak<Block>,
}

impl WeakRegion {
    /// Returns the region if its memory is still there.
    pub(crate) fn upgrade(&self) -> Option<Region> {
        let block = self.block.upgrade()?;
        Some(Region { base: self.base, bytes: self.bytes, writable: true, at: block.at(), block })
    }

    /// Returns true if it is this region, and not another one at the same address.
    pub(crate) fn is(&self, region: &Region) -> bool {
        let same = std::ptr::eq(self.block.as_ptr(), Arc::as_ptr(&region.block));
        same && (self.base, self.bytes) == (region.base, region.bytes)
    }

    /// Returns true if the memory was freed and no one uses it any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.block.strong_count() == 0
    }
}

impl Region {
    /// Creates a region of `bytes` bytes, the size of the block.
    pub(super) fn new(base: u64, bytes: u64, block: Block) -> Region {
        Region { base, bytes, writable: true, at: block.at(), block: Arc::new(block) }
    }

    /// Returns true if its memory belongs to the caller.
    pub(super) fn is_borrowed(&self) -> bool {
        self.block.is_borrowed()
    }

    /// Returns a handle that does not keep the memory. The region must be whole, not a part of one.
    pub(crate) fn downgrade(&self) -> WeakRegion {
        WeakRegion { base: self.base, bytes: self.bytes, block: Arc::downgrade(&self.block) }
    }

    /// Returns a part of the region. `None` if it is not inside.
    pub(super) fn part(&self, offset: u64, bytes: u64) -> Option<Region> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        if !inside {
            return None;
        }
        // SAFETY: the offset is inside the region.
        let at = unsafe { self.at.add(offset as usize) };
        Some(Region { base: self.base + offset, bytes, at, ..self.clone() })
    }

    /// Returns a pointer to a range that was checked to be inside.
    #[inline(always)]
    fn at(&self, offset: u64, bytes: u64) -> *mut u8 {
        debug_assert!(offset + bytes <= self.bytes);
        // SAFETY: callers check that offset + bytes <= self.bytes, as many bytes as there are from `at` on.
        unsafe { self.at.as_ptr().add(offset as usize) }
    }

    /// Returns the offset of a range of addresses if it is inside.
    #[inline(always)]
    pub(crate) fn offset(&self, address: u64, bytes: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.base);
        (offset < self.bytes && self.bytes - offset >= bytes).then_some(offset)
    }

    /// Loads up to 16 bytes as words; the last word is padded with zeros.
    #[inline(always)]
    pub(crate) fn load(&self, offset: u64, bytes: u64) -> [u32; 4] {
        let mut words = [0; 4];
        let at = self.at(offset, bytes);
        if bytes == 8 && at as usize % 8 == 0 {
            // SAFETY: inside the range, and aligned.
            (words[0], words[1]) = halves(unsafe { AtomicU64::from_ptr(at.cast()) }.load(Relaxed));
        } else if bytes >= 4 {
            for (i, word) in words.iter_mut().take(bytes as usize / 4).enumerate() {
                // SAFETY: inside the range.
                *word = unsafe { load_word(at.add(4 * i)) };
            }
        } else if bytes == 2 {
            // SAFETY: inside the range.
            words[0] = unsafe { u32::from(load_byte(at)) | u32::from(load_byte(at.add(1))) << 8 };
        } else {
            // SAFETY: inside the range.
            words[0] = unsafe { u32::from(load_byte(at)) };
        }
        words
    }

    /// Stores up to 16 bytes from words.
    #[inline(always)]
    pub(crate) fn store(&self, offset: u64, bytes: u64, words: &[u32; 4]) {
        let at = self.at(offset, bytes);
        if bytes == 8 && at as usize % 8 == 0 {
            // SAFETY: as in `load`.
            unsafe { AtomicU64::from_ptr(at.cast()) }.store(double(words[0], words[1]), Relaxed);
        } else if bytes >= 4 {
            for (i, &word) in words.iter().take(bytes as usize / 4).enumerate() {
                // SAFETY: inside the range.
                unsafe { store_word(at.add(4 * i), word) };
            }
        } else {
            for i in 0..bytes as usize {
                // SAFETY: inside the range.
                unsafe { AtomicU8::from_ptr(at.add(i)).store((words[0] >> (8 * i)) as u8, Relaxed) };
            }
        }
    }

    /// Updates 4 aligned bytes with `f` and returns the old value.
    pub(crate) fn update32(&self, offset: u64, f: impl Fn(u32) -> u32) -> u32 {
        // SAFETY: inside the range, and callers check the alignment.
        let word = unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) };
        word.fetch_update(SeqCst, SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
    }

    /// Updates 8 aligned bytes with `f` and returns the old value.
    pub(crate) fn update64(&self, offset: u64, f: impl Fn(u64) -> u64) -> u64 {
        // SAFETY: inside the range, and callers check the alignment.
        let word = unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) };
        word.fetch_update(SeqCst, SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
    }

    /// Loads words; the range must be inside.
    pub(crate) fn load_into(&self, offset: u64, words: &mut [u32]) {
        for (i, word) in words.iter_mut().enumerate() {
            *word = self.load(offset + 4 * i as u64, 4)[0];
        }
    }

    pub(super) fn read(&self, offset: u64, to: &mut [u8]) {
        let at = self.at(offset, to.len() as u64);
        // SAFETY: inside the range; the caller of the public function orders this with kernels that write
        // there.
        unsafe { at.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
    }

    pub(super) fn write(&self, offset: u64, from: &[u8]) {
        let at = self.at(offset, from.len() as u64);
        // SAFETY: as in `read`.
        unsafe { at.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }

    pub(super) fn fill(&self, offset: u64, byte: u8, bytes: usize) {
        // SAFETY: as in `read`.
        unsafe { self.at(offset, bytes as u64).write_bytes(byte, bytes) };
    }

    /// Fills a new region by a function of an offset and its bytes: all of it, or 32 MiB at each end of a larger one, whose
    /// pages in between stay untouched.
    pub(super) fn fill_new(&self, fill: impl Fn(u64, &mut [u8])) {
        const END: u64 = 32 << 20;
        const PART: usize = 1 << 16;
        let mut buffer = vec![0; PART.min(self.bytes as usize)];
        let mut at = 0;
        while at < self.bytes {
            if at == END && self.bytes > 2 * END {
                at = self.bytes - END;
            }
            let part = (self.bytes - at).min(PART as u64);
            let bytes = &mut buffer[..part as usize];
            fill(at, bytes);
            self.write(at, bytes);
            at += part;
        }
    }

    /// Copies to a range that may overlap.
    pub(super) fn copy(&self, offset: u64, to: &Region, at: u64, bytes: usize) {
        // SAFETY: as in `read`, for both ranges; `copy_to` allows overlap.
        unsafe { self.at(offset, bytes as u64).copy_to(to.at(at, bytes as u64), bytes) };
    }
}

/// Splits a 64-bit word into its low and high half; `double` joins them.
fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn double(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// # Safety
/// One readable byte that is written only atomically.
#[inline(always)]
unsafe fn load_byte(at: *mut u8) -> u8 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU8::from_ptr(at) }.load(Relaxed)
}

/// # Safety
/// Four readable bytes that are written only atomically.
#[inline(always)]
unsafe fn load_word(at: *mut u8) -> u32 {
    // SAFETY: the caller's promise, and the alignment is checked.
    unsafe {
        if at as usize % 4 == 0 {
            AtomicU32::from_ptr(at.cast()).load(Relaxed)
        } else if at as usize % 2 == 0 {
            let half = |i: usize| u32::from(AtomicU16::from_ptr(at.add(i).cast()).load(Relaxed));
            half(0) | half(2) << 16
        } else {
            (0..4).fold(0, |word, i| word | u32::from(load_byte(at.add(i))) << (8 * i))
        }
    }
}

/// # Safety
/// Four writable bytes that are used only atomically.
#[inline(always)]
unsafe fn store_word(at: *mut u8, word: u32) {
    // SAFETY: the caller's promise, and the alignment is checked.
    unsafe {
        if at as usize % 4 == 0 {
            AtomicU32::from_ptr(at.cast()).store(word, Relaxed);
        } else {
            for i in 0..4 {
                AtomicU8::from_ptr(at.add(i)).store((word >> (8 * i)) as u8, Relaxed);
            }
        }
    }
}

/// Accesses of a wavefront's lanes that are all inside one region, as nearly all loads and stores are.
pub(crate) struct Span<'a> {
    region: &'a Region,
    /// Offsets of the active lanes.
    offsets: [u32; LANES],
    lanes: u64,
    bytes: u32,
    /// Common alignment of the addresses, up to 8; also that of the pointers, because a region's first byte is aligned as
    /// its address is, to 16 bytes at least.
    aligned: u32,
}

impl Region {
    /// Returns the accesses of `bytes` bytes at offset `start` plus `add` of each lane, which must be at most
    /// `limit`. `None` if they are not all inside.
    #[inline(always)]
    pub(crate) fn span(
        &self,
        start: u64,
        limit: u64,
        add: &[u32; LANES],
        lanes: u64,
        bytes: u32,
    ) -> Option<Span<'_>> {
        let room = self.bytes.checked_sub(start)?.checked_sub(bytes.into())?;
        // `first` plus a lane's `add` fits into 32 bits, because `limit` is at most 2^32 - 1 - `start`.
        let (first, limit) =
            (u32::try_from(start).ok()?, limit.min(room).min(u64::from(u32::MAX) - start) as u32);
        let (mut offsets, mut all, mut beyond) = ([0; LANES], 0, false);
        each_lane!(lanes, |lane| {
            offsets[lane] = first.wrapping_add(add[lane]);
            all |= offsets[lane];
            beyond |= add[lane] > limit;
        });
        (!beyond).then_some(Span {
            region: self,
            offsets,
            lanes,
            bytes,
            aligned: alignment(all | self.base as u32),
        })
    }

    /// Returns the accesses of `bytes` bytes at each lane's address (given as two halves) plus `add`.
    #[inline(always)]
    pub(crate) fn span_of_addresses(
        &self,
        low: &[u32; LANES],
        high: &[u32; LANES],
        add: u64,
        lanes: u64,
        bytes: u32,
    ) -> Option<Span<'_>> {
        let room = self.bytes.checked_sub(bytes.into())?.min(u32::MAX.into());
        let base = self.base.wrapping_sub(add);
        let (mut offsets, mut all, mut beyond) = ([0; LANES], 0, false);
        each_lane!(lanes, |lane| {
            let address = u64::from(low[lane]) | u64::from(high[lane]) << 32;
            let offset = address.wrapping_sub(base);
            offsets[lane] = offset as u32;
            all |= offsets[lane];
            beyond |= offset > room;
        });
        (!beyond).then_some(Span {
            region: self,
            offsets,
            lanes,
            bytes,
            aligned: alignment(all | self.base as u32),
        })
    }
}

/// Returns the alignment, up to 8, of offsets whose bitwise or is `all`.
fn alignment(all: u32) -> u32 {
    1 << (all | 8).trailing_zeros()
}

impl Span<'_> {
    /// Returns the region.
    pub(crate) fn region(&self) -> &Region {
        self.region
    }

    /// Returns the lanes' offsets in the region, the active lanes, and the bytes of each access.
    pub(crate) fn lanes(&self) -> (&[u32; LANES], u64, u32) {
        (&self.offsets, self.lanes, self.bytes)
    }

    /// Returns a pointer to the first byte of an active lane's access.
    #[inline(always)]
    fn at(&self, lane: usize) -> *mut u8 {
        // SAFETY: the constructor of the span has checked that the bytes at the offsets of its lanes are
        // inside.
        unsafe { self.region.at.as_ptr().add(self.offsets[lane] as usize) }
    }

    /// Loads the lanes' values, one register per word; the last word is padded with zeros.
    #[inline(always)]
    pub(crate) fn load(&self, to: &mut [[u32; LANES]]) {
        match (self.bytes, self.aligned) {
            (1, _) => {
                for lane in lanes(self.lanes) {
                    // SAFETY: the byte is inside and is used only atomically.
                    to[0][lane] = unsafe { load_byte(self.at(lane)) }.into();
                }
            }
            (2, 2 | 4 | 8) => {
                for lane in lanes(self.lanes) {
                    // SAFETY: the bytes are inside, aligned, and used only atomically.
                    to[0][lane] = unsafe { AtomicU16::from_ptr(self.at(lane).cast()) }.load(Relaxed).into();
                }
            }
            (4, 4 | 8) => self.load_words::<1>(to),
            (8, 8) => self.load_double(to),
            (8, 4) => self.load_words::<2>(to),
            (12, 4 | 8) => self.load_words::<3>(to),
            (16, 4 | 8) => self.load_words::<4>(to),
            (4, 2) => self.load_halves::<1>(to),
            (8, 2) => self.load_halves::<2>(to),
            (16, 2) => self.load_halves::<4>(to),
            _ => {
                for lane in lanes(self.lanes) {
                    let words = self.region.load(self.offsets[lane].into(), self.bytes.into());
                    to.iter_mut().zip(words).for_each(|(register, word)| register[lane] = word);
                }
            }
        }
    }

    #[inline(always)]
    fn load_words<const N: usize>(&self, to: &mut [[u32; LANES]]) {
        let Some(to) = to.first_chunk_mut::<N>() else { return };
        for lane in lanes(self.lanes) {
            let at = self.at(lane).cast::<u32>();
            for (i, register) in to.iter_mut().enumerate() {
                // SAFETY: N words from there are inside, aligned, and used only atomically.
                register[lane] = unsafe { AtomicU32::from_ptr(at.add(i)) }.load(Relaxed);
            }
        }
    }

    /// Loads words that are aligned as halves are: blocks of some types of weights have an odd number of these.
    #[inline(always)]
    fn load_halves<const N: usize>(&self, to: &mut [[u32; LANES]]) {
        let Some(to) = to.first_chunk_mut::<N>() else { return };
        for lane in lanes(self.lanes) {
            let at = self.at(lane).cast::<u16>();
            for (i, register) in to.iter_mut().enumerate() {
                // SAFETY: N words from there are inside, aligned as halves, and used only atomically.
                let half = |n: usize| u32::from(unsafe { AtomicU16::from_ptr(at.add(n)) }.load(Relaxed));
                register[lane] = half(2 * i) | half(2 * i + 1) << 16;
            }
        }
    }

    #[inline(always)]
    fn load_double(&self, to: &mut [[u32; LANES]]) {
        let Some([low, high]) = to.first_chunk_mut::<2>() else { return };
        for lane in lanes(self.lanes) {
            // SAFETY: the 8 bytes are inside, aligned, and used only atomically.
            let word = unsafe { AtomicU64::from_ptr(self.at(lane).cast()) }.load(Relaxed);
            (low[lane], high[lane]) = halves(word);
        }
    }

    /// Stores the lanes' values.
    #[inline(always)]
    pub(crate) fn store(&self, from: &[[u32; LANES]]) {
        match (self.bytes, self.aligned) {
            (2, 2 | 4 | 8) => {
                for lane in lanes(self.lanes) {
                    // SAFETY: the bytes are inside, aligned, and used only atomically.
                    unsafe { AtomicU16::from_ptr(self.at(lane).cast()) }.store(from[0][lane] as u16, Relaxed);
                }
            }
            (4, 4 | 8) => self.store_words::<1>(from),
            (8, 8) => self.store_double(from),
            (8, 4) => self.store_words::<2>(from),
            (12, 4 | 8) => self.store_words::<3>(from),
            (16, 4 | 8) => self.store_words::<4>(from),
            _ => {
                for lane in lanes(self.lanes) {
                    let mut words = [0; 4];
                    words.iter_mut().zip(from).for_each(|(word, register)| *word = register[lane]);
                    self.region.store(self.offsets[lane].into(), self.bytes.into(), &words);
                }
            }
        }
    }

    #[inline(always)]
    fn store_words<const N: usize>(&self, from: &[[u32; LANES]]) {
        let Some(from) = from.first_chunk::<N>() else { return };
        for lane in lanes(self.lanes) {
            let at = self.at(lane).cast::<u32>();
            for (i, register) in from.iter().enumerate() {
                // SAFETY: as in `load_words`.
                unsafe { AtomicU32::from_ptr(at.add(i)) }.store(register[lane], Relaxed);
            }
        }
    }

    #[inline(always)]
    fn store_double(&self, from: &[[u32; LANES]]) {
        let Some([low, high]) = from.first_chunk::<2>() else { return };
        for lane in lanes(self.lanes) {
            let word = double(low[lane], high[lane]);
            // SAFETY: as in `load_double`.
            unsafe { AtomicU64::from_ptr(self.at(lane).cast()) }.store(word, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
