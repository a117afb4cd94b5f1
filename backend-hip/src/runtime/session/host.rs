//! Host memory that the driver accesses: pinned blocks, and images of code objects.

use crate::driver::Address;
use std::ptr::NonNull;

/// Pinned host memory. The session frees it once it holds the only handle.
#[derive(Debug)]
pub(crate) struct HostBlock {
    pub(super) address: NonNull<u8>,
    pub(super) bytes: usize,
}

// SAFETY: the block is memory of the process that any thread may use; it is freed only by a session that
// holds the last handle. The callers of `read` and `write` coordinate the accesses to its parts.
unsafe impl Send for HostBlock {}
// SAFETY: as above; `read` and `write` use raw pointers and create no references into the block.
unsafe impl Sync for HostBlock {}

impl HostBlock {
    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies into the block. Returns false if the data does not fit. Two threads must not access the same
    /// bytes at the same time; the device must not read them before the copy that sends them is requested.
    pub(crate) fn write(&self, offset: usize, data: &[u8]) -> bool {
        if !self.holds(offset, data.len()) {
            return false;
        }
        // SAFETY: the range is within the block, which is live as long as this handle, and `data` does not
        // overlap it: no reference into the block is ever created.
        unsafe { self.address.as_ptr().add(offset).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        true
    }

    /// Copies out of the block. Returns false if the range is not within it.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) -> bool {
        if !self.holds(offset, out.len()) {
            return false;
        }
        // SAFETY: as in `write`.
        unsafe { self.address.as_ptr().add(offset).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        true
    }

    /// Returns the address on the device.
    pub(crate) fn address(&self) -> Address {
        self.address.as_ptr() as usize as Address
    }

    fn holds(&self, offset: usize, bytes: usize) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }
}

/// Copy of a code object, aligned to a page as in a mapped file, which is what runtimes usually see.
#[derive(Debug)]
pub(super) struct Image {
    bytes: Vec<u8>,
    start: usize,
}

impl Image {
    const PAGE: usize = 4096;

    pub(super) fn new(image: &[u8]) -> Image {
        let mut bytes: Vec<u8> = Vec::with_capacity(image.len() + Image::PAGE);
        let start = bytes.as_ptr().align_offset(Image::PAGE).min(Image::PAGE);
        bytes.resize(start, 0);
        bytes.extend_from_slice(image);
        Image { bytes, start }
    }

    pub(super) fn get(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}
