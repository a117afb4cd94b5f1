//! Descriptors of memory (dmabufs of the kernel), of this process's machine or of another's.
//!
//! A descriptor of memory is a duplicate of the descriptor of the space's file, whose position is the memory's offset. The
//! page before the memory holds a [`Record`] that describes it. Each descriptor holds a lock on that page; the system drops
//! it with the last duplicate in any process. So the lock says whether freed memory is still in use.
//!
//! A file in memory (memfd) without such a record stands for memory of another driver of the card, such as a Vulkan driver's:
//! all of the file, from its beginning.

#![allow(unsafe_code)]

use crate::abi::memory::VRAM;
use crate::space::{BEFORE, BYTES, FIRST, LARGE_PAGE, MAGIC, PAGE, Record, Space, errno};
use crate::topology::gpu_id;
use bytemuck::Zeroable;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// Bytes from a record to the description that a runtime keeps with its memory.
const DESCRIPTION: u64 = 64;

/// Memory of a descriptor. It keeps a duplicate, and so the memory.
#[derive(Debug)]
pub(crate) struct Exported {
    pub(crate) file: OwnedFd,
    pub(crate) offset: u64,
    pub(crate) record: Record,
}

impl Exported {
    /// Reads the memory that a descriptor of any process's machine stands for.
    ///
    /// # Errors `EBADF` for a number that is no descriptor, `EINVAL` for another descriptor.
    pub(crate) fn of(fd: c_int) -> Result<Exported, i32> {
        let file = duplicate(fd)?;
        let own = file.as_raw_fd();
        if let Some(record) = whole(own) {
            return Ok(Exported { file, offset: 0, record });
        }
        let offset = Space::position(own).filter(|at| *at >= FIRST && at % LARGE_PAGE == 0);
        let offset = offset.ok_or(libc::EINVAL)?;
        let mut record = Record::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut record);
        let at = (offset - BEFORE) as libc::off_t;
        // SAFETY: a valid descriptor, and as many bytes to write as it says.
        let read = unsafe { libc::pread(own, bytes.as_mut_ptr().cast(), bytes.len(), at) };
        let fits = |r: &Record| r.bytes > 0 && r.bytes % PAGE == 0 && r.bytes <= BYTES - offset;
        if read != bytes.len() as isize || record.magic != MAGIC || !fits(&record) {
            return Err(libc::EINVAL);
        }
        Ok(Exported { file, offset, record })
    }

    /// Returns the position of the description in the file; `None` for memory of another driver, which has none.
    pub(crate) fn description_at(&self) -> Option<libc::off_t> {
        Some((self.offset.checked_sub(BEFORE)? + DESCRIPTION) as libc::off_t)
    }

    /// Returns a descriptor of the same.
    pub(crate) fn duplicate(&self) -> Result<OwnedFd, i32> {
        duplicate(self.file.as_raw_fd())
    }
}

/// Describes the memory of another driver: a file in memory that is no space of this driver's.
fn whole(fd: c_int) -> Option<Record> {
    // SAFETY: any number is allowed, and nothing changes.
    let in_memory = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) } >= 0;
    let bytes = size(fd).filter(|&bytes| bytes > 0 && bytes != BYTES && bytes % PAGE == 0);
    let of_first_card = |bytes| Record { magic: MAGIC, bytes, gpu_id: gpu_id(0), flags: VRAM };
    bytes.filter(|_| in_memory).map(of_first_card)
}

/// Returns the size of a file.
fn size(fd: c_int) -> Option<u64> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: any number is allowed; the result says whether the structure was written.
    let found = unsafe { libc::fstat(fd, status.as_mut_ptr()) } == 0;
    // SAFETY: written if found.
    found.then(|| unsafe { status.assume_init() }.st_size as u64)
}

fn duplicate(fd: c_int) -> Result<OwnedFd, i32> {
    // SAFETY: any number is allowed; the result is checked.
    let own = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if own < 0 {
        return Err(errno());
    }
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(own) })
}

/// Memory of another process's machine, in this process.
#[derive(Debug)]
pub(crate) struct Foreign {
    at: NonNull<u8>,
    pub(crate) part: Exported,
    bytes: usize,
}

// SAFETY: bytes of a shared file; all access is that of `Space`.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl Foreign {
    pub(crate) fn new(part: Exported) -> Result<Foreign, i32> {
        let bytes = usize::try_from(part.record.bytes).map_err(|_| libc::ENOMEM)?;
        // A file that is shorter than its record says would end the process at the first access.
        let expected = if part.offset == 0 { part.record.bytes } else { BYTES };
        if size(part.file.as_raw_fd()) != Some(expected) {
            return Err(libc::EINVAL);
        }
        // SAFETY: a new mapping at an address that the system chooses; the result is checked.
        let at = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let (fd, offset) = (part.file.as_raw_fd(), part.offset as libc::off_t);
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, offset)
        };
        if at == libc::MAP_FAILED {
            return Err(errno());
        }
        Ok(Foreign { at: NonNull::new(at.cast()).ok_or(libc::ENOMEM)?, part, bytes })
    }

    /// Returns its first byte.
    pub(crate) fn at(&self) -> NonNull<u8> {
        self.at
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size. `free` has removed it from all cards, and waited for launches.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
