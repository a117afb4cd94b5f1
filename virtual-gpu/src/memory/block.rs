//! Memory of the host that regions consist of: of this device, of another one, or of the caller.

#![allow(unsafe_code)]

use memmap2::MmapRaw;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Alignment of allocations: pages, as loaders require.
pub(super) const ALIGN: usize = 4096;

/// Memory that lives until its last user is dropped.
#[derive(Debug)]
pub(super) struct Block {
    /// First byte, at a page boundary.
    at: NonNull<u8>,
    owner: Owner,
}

#[derive(Debug)]
enum Owner {
    /// Pointer from the heap; the bytes begin at the first page boundary after it.
    Heap(NonNull<u8>, Layout),
    /// Pages of a file, which other devices may map too.
    File {
        /// Unmapped on drop.
        _pages: MmapRaw,
        /// True if another device made the file.
        imported: bool,
    },
    Caller,
}

// SAFETY: a block consists of bytes; all accesses to them while they are shared are atomic (see `Region`).
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates zeros. Pages of the host are committed when they are first written.
    pub(super) fn new(bytes: usize) -> Option<Block> {
        // With a large alignment, the standard library writes the zeros itself, which would touch all pages.
        let layout = Layout::from_size_align(bytes.checked_add(ALIGN)?, 1).ok()?;
        // SAFETY: the layout has at least one byte.
        let from = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let padding = (from.as_ptr() as usize).next_multiple_of(ALIGN) - from.as_ptr() as usize;
        // SAFETY: the padding is less than ALIGN, and the layout is ALIGN bytes larger than `bytes`.
        let at = unsafe { from.add(padding) };
        Some(Block { at, owner: Owner::Heap(from, layout) })
    }

    /// Takes the pages of a file that this device made.
    pub(super) fn of_file(pages: MmapRaw) -> Option<Block> {
        let at = NonNull::new(pages.as_mut_ptr())?;
        Some(Block { at, owner: Owner::File { _pages: pages, imported: false } })
    }

    /// Takes the pages of a file that another device made.
    pub(super) fn imported(pages: MmapRaw) -> Option<Block> {
        let at = NonNull::new(pages.as_mut_ptr())?;
        Some(Block { at, owner: Owner::File { _pages: pages, imported: true } })
    }

    /// Describes memory of the caller from a page boundary on.
    ///
    /// # Safety
    /// As many bytes as the block's region has are readable and writable until the block is dropped, or until no one
    /// uses it any more.
    pub(super) unsafe fn borrowed(at: NonNull<u8>) -> Block {
        Block { at, owner: Owner::Caller }
    }

    pub(super) fn at(&self) -> NonNull<u8> {
        self.at
    }

    /// Returns true if the memory belongs to the caller or to another device.
    pub(super) fn is_borrowed(&self) -> bool {
        matches!(self.owner, Owner::Caller | Owner::File { imported: true, .. })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Owner::Heap(from, layout) = self.owner {
            // SAFETY: allocated in `new` with this layout, and dropped once.
            unsafe { dealloc(from.as_ptr(), layout) };
        }
    }
}
