//! The bytes of an allocation.
//!
//! Work-groups run in parallel, and so do their loads and stores: every access is atomic (relaxed) in units of its
//! alignment, so a race in a kernel gives some value and no undefined behaviour.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Alignment of allocations: pages, as loaders want it.
pub(super) const ALIGN: usize = 4096;

/// Bytes on the heap that live until the last user is gone.
#[derive(Debug)]
pub(super) struct Block {
    /// What the heap gave; the bytes begin at the first page boundary in it.
    from: NonNull<u8>,
    layout: Layout,
    at: NonNull<u8>,
}

// SAFETY: a block is bytes; all access to them while they are shared is atomic (see `Region`).
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    pub(super) fn new(bytes: usize) -> Option<Block> {
        // Where a large alignment is asked for, the standard library writes the zeros itself: all pages would be touched.
        let layout = Layout::from_size_align(bytes.checked_add(ALIGN)?, 1).ok()?;
        // SAFETY: the layout has at least one byte.
        let from = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let padding = (from.as_ptr() as usize).next_multiple_of(ALIGN) - from.as_ptr() as usize;
        // SAFETY: the padding is less than ALIGN, by which the layout is larger than the bytes.
        let at = unsafe { from.add(padding) };
        Some(Block { from, layout, at })
    }

    pub(super) fn at(&self) -> NonNull<u8> {
        self.at
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and dropped once.
        unsafe { dealloc(self.from.as_ptr(), self.layout) };
    }
}

/// A range of addresses and the bytes behind it.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    block: Arc<Block>,
}

impl Region {
    /// As many bytes as the block was made for.
    pub(super) fn new(base: u64, bytes: u64, block: Block) -> Region {
        Region { base, bytes, block: Arc::new(block) }
    }

    /// Pointer to a range that was checked to be inside.
    #[inline(always)]
    fn at(&self, offset: u64, bytes: u64) -> *mut u8 {
        debug_assert!(offset + bytes <= self.bytes);
        // SAFETY: callers check that offset + bytes <= self.bytes, which is the size of the block.
        unsafe { self.block.at.as_ptr().add(offset as usize) }
    }

    /// Whether a range of addresses is inside, and where.
    #[inline(always)]
    pub(crate) fn offset(&self, address: u64, bytes: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.base);
        (offset < self.bytes && self.bytes - offset >= bytes).then_some(offset)
    }

    /// Up to 16 bytes as words, the last one filled up with zeros.
    #[inline(always)]
    pub(crate) fn load(&self, offset: u64, bytes: u64) -> [u32; 4] {
        let mut words = [0; 4];
        let at = self.at(offset, bytes);
        if bytes >= 4 {
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

    /// Up to 16 bytes from words.
    #[inline(always)]
    pub(crate) fn store(&self, offset: u64, bytes: u64, words: &[u32; 4]) {
        let at = self.at(offset, bytes);
        if bytes >= 4 {
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

    /// Changes 4 aligned bytes; the old value.
    pub(crate) fn update32(&self, offset: u64, f: impl Fn(u32) -> u32) -> u32 {
        // SAFETY: inside the range, and callers check the alignment.
        let word = unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) };
        word.fetch_update(SeqCst, SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
    }

    /// Changes 8 aligned bytes; the old value.
    pub(crate) fn update64(&self, offset: u64, f: impl Fn(u64) -> u64) -> u64 {
        // SAFETY: inside the range, and callers check the alignment.
        let word = unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) };
        word.fetch_update(SeqCst, SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
    }

    pub(super) fn read(&self, offset: u64, to: &mut [u8]) {
        let at = self.at(offset, to.len() as u64);
        // SAFETY: inside the range; the caller of the public function orders this with kernels that write there.
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

    /// Copies to a range that may overlap.
    pub(super) fn copy(&self, offset: u64, to: &Region, at: u64, bytes: usize) {
        // SAFETY: as in `read`, for both ranges; `copy_to` allows overlap.
        unsafe { self.at(offset, bytes as u64).copy_to(to.at(at, bytes as u64), bytes) };
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_at_any_address() {
        let region = Region::new(0x1000, 64, Block::new(64).unwrap());
        region.write(0, &(0..64).collect::<Vec<u8>>());
        for at in 0..40u64 {
            let want = |i: u64| u32::from_le_bytes([0, 1, 2, 3].map(|b| (at + 4 * i + b) as u8));
            assert_eq!(region.load(at, 16), [want(0), want(1), want(2), want(3)]);
            assert_eq!(region.load(at, 2)[0], want(0) & 0xffff);
            assert_eq!(region.load(at, 1)[0], want(0) & 0xff);
        }
        region.store(33, 8, &[0x0403_0201, 0x0807_0605, 0, 0]);
        assert_eq!(region.load(32, 8)[..2], [0x0302_0120, 0x0706_0504]);
    }
}
