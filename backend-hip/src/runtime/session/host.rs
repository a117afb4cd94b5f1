//! Host memory that the driver sees: pinned blocks, and images of code objects.

use crate::driver::Address;
use std::ptr::NonNull;

/// Pinned host memory. It is freed by the session, when nobody else holds it.
#[derive(Debug)]
pub(crate) struct HostBlock {
    pub(super) address: NonNull<u8>,
    pub(super) bytes: usize,
}

// SAFETY: the block is memory of the process that any thread may use; it is freed only by a session that holds the
// last handle. Who may touch which part when is arranged by the callers of `read` and `write`.
unsafe impl Send for HostBlock {}
// SAFETY: as above; `read` and `write` go through raw pointers and make no references into the block.
unsafe impl Sync for HostBlock {}

impl HostBlock {
    /// Size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies into the block. `false` if it does not fit. Two threads must not touch the same bytes at a time; the
    /// device must not read them before the copy that is to send them is asked for.
    pub(crate) fn write(&self, offset: usize, data: &[u8]) -> bool {
        if !self.holds(offset, data.len()) {
            return false;
        }
        // SAFETY: the range is within the block, which is live as long as this handle, and `data` is no part of it:
        // no reference into the block is ever made.
        unsafe { self.address.as_ptr().add(offset).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        true
    }

    /// Copies out of the block. `false` if the range is not within.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) -> bool {
        if !self.holds(offset, out.len()) {
            return false;
        }
        // SAFETY: as in `write`.
        unsafe { self.address.as_ptr().add(offset).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        true
    }

    /// Address on the device.
    pub(crate) fn address(&self) -> Address {
        self.address.as_ptr() as usize as Address
    }

    fn holds(&self, offset: usize, bytes: usize) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }
}

/// A copy of a code object that begins at a page, as in a mapped file: what every runtime has seen.
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
