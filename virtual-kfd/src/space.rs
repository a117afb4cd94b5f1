//! The bytes behind all memory of the machine: one sparse file in memory, mapped once. The runtime maps parts of
//! the same file (its descriptors of `/dev/kfd` and of render nodes are duplicates of this one), so both see the
//! same bytes at different addresses.

#![allow(unsafe_code)]

use crate::process;
use bytemuck::{Pod, Zeroable};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Bytes of the file. Offsets are not used again: a kernel that outlives its memory hits no other.
pub(crate) const BYTES: u64 = 8 << 40;
/// Doorbells of the n-th card begin at (n + 1) times this offset: the thunk splits offsets at bit 32.
const DOORBELLS: u64 = 1 << 32;
/// First offset of other memory.
pub(crate) const FIRST: u64 = 64 << 32;
/// Bytes of a page of doorbells.
pub(crate) const DOORBELL_BYTES: u64 = 8192;
/// Alignment of memory, and the gap after it.
pub(crate) const LARGE_PAGE: u64 = 2 << 20;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
/// Bytes from a record to its memory.
pub(crate) const BEFORE: u64 = PAGE;
/// First word of a record.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"kfd part");

/// Description of exported memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Record {
    pub(crate) magic: u64,
    pub(crate) bytes: u64,
    pub(crate) gpu_id: u32,
    pub(crate) flags: u32,
}

/// Returns the lock of the record of memory.
fn lock(kind: c_int, offset: u64) -> libc::flock {
    // SAFETY: a structure of numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    (lock.l_start, lock.l_len) = ((offset - BEFORE) as libc::off_t, BEFORE as libc::off_t);
    lock
}

/// The file and its mapping, until the process ends.
#[derive(Debug)]
pub(crate) struct Space {
    file: OwnedFd,
    base: NonNull<u8>,
    next: AtomicU64,
}

// SAFETY: the mapping is bytes of a shared file; all access through it is by `Gpu`, atomic, or by volatile and atomic
// words in `process`.
unsafe impl Send for Space {}
// SAFETY: as above.
unsafe impl Sync for Space {}

impl Space {
    /// Creates the file and maps it.
    pub(crate) fn new() -> io::Result<Space> {
        // SAFETY: a constant string; the result is checked.
        let file = unsafe { libc::memfd_create(c"virtual-kfd".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: a valid descriptor; the result is checked.
        if unsafe { libc::ftruncate(file.as_raw_fd(), BYTES as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new mapping at an address that the kernel chooses; the result is checked.
        let base = unsafe {
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
            libc::mmap(std::ptr::null_mut(), BYTES as usize, protection, flags, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Space { file, base, next: AtomicU64::new(FIRST) })
    }

    /// Returns the offset of a card's doorbells.
    pub(crate) fn doorbells(index: usize) -> u64 {
        (index as u64 + 1) * DOORBELLS
    }

    /// Returns the offset of new, zeroed memory; `None` if there is none left.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<u64> {
        let bytes = bytes.checked_next_multiple_of(LARGE_PAGE)?.checked_add(LARGE_PAGE)?;
        let fits = |next: u64| next.checked_add(bytes).filter(|&end| end <= BYTES);
        self.next.fetch_update(SeqCst, SeqCst, fits).ok()
    }

    /// Returns the address of an offset in this process.
    pub(crate) fn at(&self, offset: u64) -> NonNull<u8> {
        debug_assert!(offset < BYTES);
        // SAFETY: offsets come from `doorbells` and `reserve`, inside the mapping, which is never unmapped.
        unsafe { self.base.add(offset as usize) }
    }

    /// Gives the memory of a range back to the system; it reads as zeros then.
    pub(crate) fn release(&self, offset: u64, bytes: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a valid descriptor. A failure leaves the bytes in use, which is harmless.
        unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset as libc::off_t, bytes as libc::off_t) };
    }

    /// Returns true if a descriptor is one of the file.
    pub(crate) fn is_file_of(&self, fd: c_int) -> bool {
        identity(fd).is_some_and(|of| Some(of) == identity(self.file.as_raw_fd()))
    }

    /// Opens the file anew, at a position that says what the descriptor stands for: its duplicates have the same one.
    ///
    /// # Errors A number of errno.
    pub(crate) fn descriptor(&self, position: u64) -> Result<OwnedFd, i32> {
        let path = format!("/proc/self/fd/{}\0", self.file.as_raw_fd());
        let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_LARGEFILE;
        // SAFETY: a string with an end; the result is checked.
        let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) } as c_int;
        if fd < 0 {
            return Err(errno());
        }
        // SAFETY: a new descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: a valid descriptor; the result is checked.
        let at = unsafe { libc::lseek(fd.as_raw_fd(), position as libc::off_t, libc::SEEK_SET) };
        if at < 0 { Err(errno()) } else { Ok(fd) }
    }

    /// Returns the position of a descriptor, if it has one.
    pub(crate) fn position(fd: c_int) -> Option<u64> {
        // SAFETY: any number is allowed, and nothing changes.
        u64::try_from(unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }).ok()
    }

    /// Returns true while a descriptor from [`Space::export`] of the memory at an offset, or a duplicate, is open in
    /// any process.
    pub(crate) fn is_exported(&self, offset: u64) -> bool {
        let mut lock = lock(libc::F_WRLCK, offset);
        // SAFETY: a valid descriptor and structure.
        let done = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        done == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
    }

    /// Returns a descriptor that stands for memory of the space: its position is the memory's offset, and a lock before
    /// the memory holds as long as one of its duplicates is open.
    ///
    /// # Errors A number of errno.
    pub(crate) fn export(&self, offset: u64, record: Record) -> Result<OwnedFd, i32> {
        let fd = self.descriptor(offset)?;
        let lock = lock(libc::F_RDLCK, offset);
        // SAFETY: a valid descriptor and structure.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } != 0 {
            return Err(errno());
        }
        // SAFETY: `reserve` leaves a gap before all memory.
        unsafe { process::write(self.at(offset - BEFORE).as_ptr() as u64, record) };
        Ok(fd)
    }
}

/// Returns the errno of the last call.
pub(crate) fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Returns the numbers by which the system knows the file of a descriptor.
fn identity(fd: c_int) -> Option<(libc::dev_t, libc::ino_t)> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: any number is allowed; the result says whether the structure was written.
    let found = unsafe { libc::fstat(fd, status.as_mut_ptr()) } == 0;
    // SAFETY: written if found.
    found.then(|| unsafe { status.assume_init() }).map(|s| (s.st_dev, s.st_ino))
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size. Devices that know parts of it are dropped before (see `Driver`).
        unsafe { libc::munmap(self.base.as_ptr().cast(), BYTES as usize) };
    }
}
