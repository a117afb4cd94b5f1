//! Reference-counted bytes of a mapped file or of memory.
//!
//! A [`MappedBytes`] is a window on bytes that other handles may share. Cloning and slicing copy nothing, and
//! the map (or the memory) is freed with its last window. The CPU backend reads weights from a file through
//! it.
//!
//! The calls that map a file, drop its pages and ask which are there are the only `unsafe` code here.

use crate::error::{Error, Result};
use memmap2::Mmap;
use std::fs::File;
use std::io::Read;
use std::ops::{Bound, Deref, RangeBounds};
use std::path::Path;
use std::sync::Arc;

/// Alignment in bytes of memory that [`MappedBytes`] copies into, a power of two.
const ALIGNMENT: usize = 64;

/// A window on shared, read-only bytes.
///
/// It dereferences to `[u8]`. A mapped file starts at a page boundary and bytes copied from a `Vec` or slice
/// at a multiple of 64, so that an aligned file offset is an aligned address in both cases. An `Arc<[u8]>` is
/// used without a copy, at its own alignment.
#[derive(Clone)]
pub struct MappedBytes {
    owner: Owner,
    start: usize,
    len: usize,
}

#[derive(Clone)]
enum Owner {
    Map(Arc<MappedFile>),
    Memory(Arc<[u8]>),
}

struct MappedFile {
    map: Mmap,
    /// The file, whose length can change.
    file: File,
}

impl MappedBytes {
    /// Maps a regular file for reading.
    ///
    /// The file must not be truncated or written in place while a window on it exists: the operating system
    /// would kill the process (SIGBUS) or the bytes would change under the reader. Replacing the file by
    /// renaming another file to its name, as [`GgufWriter`](crate::gguf::GgufWriter) does, is safe. Use
    /// [`MappedBytes::read`] for a file that others may write to.
    ///
    /// # Errors
    /// [`Error::Io`] if the file does not exist, cannot be read, is no regular file or cannot be mapped.
    pub fn map(path: &Path) -> Result<MappedBytes> {
        let io = |e: std::io::Error| Error::io(path, e);
        let file = open_regular(path).map_err(io)?;
        // SAFETY: the map is read-only and private to this process's handles. The bytes stay valid for the
        // lifetime of the map unless another process truncates or rewrites the file in place. This function's
        // documentation forbids that, and no code in this library writes to an existing file (writers
        // rename).
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        let len = map.len();
        Ok(MappedBytes { owner: Owner::Map(Arc::new(MappedFile { map, file })), start: 0, len })
    }

    /// Reads a regular file into memory. It takes as much memory as the file is long, and no later change of the
    /// file matters.
    ///
    /// # Errors
    /// [`Error::Io`] if the file does not exist, cannot be read or is no regular file.
    pub fn read(path: &Path) -> Result<MappedBytes> {
        let read = || {
            let mut file = open_regular(path)?;
            let len = usize::try_from(file.metadata()?.len()).map_err(std::io::Error::other)?;
            MappedBytes::in_memory(len, |to| file.read_exact(to))
        };
        read().map_err(|e| Error::io(path, e))
    }

    /// Returns aligned memory, filled by a function.
    fn in_memory<E>(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<MappedBytes, E> {
        // Extra bytes, so that the start can move to an aligned address.
        let mut memory: Arc<[u8]> = std::iter::repeat_n(0, len + ALIGNMENT - 1).collect();
        let start = memory.as_ptr().addr().wrapping_neg() % ALIGNMENT;
        // The new memory is not shared yet, and the start moves by less than the extra bytes.
        if let Some(to) = Arc::get_mut(&mut memory).and_then(|m| m.get_mut(start..start + len)) {
            fill(to)?;
        }
        Ok(MappedBytes { owner: Owner::Memory(memory), start, len })
    }

    /// Checks that a mapped file is as long as it was. Reading what a shorter file does not have any more would
    /// end the process. A file can still become shorter after the check.
    ///
    /// # Errors
    /// [`std::io::ErrorKind::UnexpectedEof`] if it is shorter; errors of the file system.
    pub fn check_length(&self) -> std::io::Result<()> {
        let Owner::Map(mapped) = &self.owner else { return Ok(()) };
        match mapped.file.metadata()?.len() < mapped.map.len() as u64 {
            true => Err(std::io::Error::new(
                std::io::ErrorKind::UnexpectedEof,
                "the file became shorter while it was in use",
            )),
            false => Ok(()),
        }
    }

    /// Returns a smaller window on the same bytes, which also keeps them alive.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the range is not within this window.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<MappedBytes> {
        let outside =
            || Error::argument("range of bytes", "outside", format!("a range within {} bytes", self.len));
        let start = match range.start_bound() {
            Bound::Included(&s) => s,
            Bound::Excluded(&s) => s.checked_add(1).ok_or_else(outside)?,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&e) => e.checked_add(1).ok_or_else(outside)?,
            Bound::Excluded(&e) => e,
            Bound::Unbounded => self.len,
        };
        if start > end || end > self.len {
            return Err(outside());
        }
        Ok(MappedBytes { owner: self.owner.clone(), start: self.start + start, len: end - start })
    }

    /// Reads the bytes of a mapped file into memory, so that nothing waits for the file when they are used.
    /// Returns false if the system does not do that: for bytes that are no mapped file, a file that became shorter, or
    /// without `MADV_POPULATE_READ` (Linux 5.14), where reading only begins.
    pub fn populate(&self) -> bool {
        let Owner::Map(mapped) = &self.owner else { return false };
        advised(&mapped.map, self.start, self.len)
    }

    /// Lets the system read a mapped file only where it is asked to (`true`, with [`MappedBytes::populate`]), or around
    /// the bytes that are used, as it does by default. It holds for the whole file.
    pub fn read_on_demand(&self, on_demand: bool) {
        let Owner::Map(mapped) = &self.owner else { return };
        ordered(&mapped.map, on_demand);
    }

    /// Gives the memory of a mapped file's bytes back to the system, also that of the page cache where no other process
    /// uses it. They are read from the file again when they are used again. Pages that lie within them in part only
    /// stay. Without effect on systems other than Linux.
    pub fn give_back(&self) {
        let Owner::Map(mapped) = &self.owner else { return };
        let page = page_bytes();
        let (from, to) = (self.start.next_multiple_of(page), (self.start + self.len) / page * page);
        if from < to {
            forget(mapped, from, to - from);
        }
    }

    /// Returns how many bytes of a mapped file are in memory, in whole pages, mapped or in the page cache. `None` where
    /// the system does not tell.
    pub fn resident(&self) -> Option<usize> {
        let Owner::Map(mapped) = &self.owner else { return None };
        let from = self.start / page_bytes() * page_bytes();
        resident(&mapped.map, from, self.start + self.len - from)
    }

    /// True if the bytes belong to a mapped file.
    pub fn is_mapped(&self) -> bool {
        matches!(self.owner, Owner::Map(_))
    }
}

/// Returns the bytes of a page.
#[cfg(target_os = "linux")]
fn page_bytes() -> usize {
    // SAFETY: the call takes no pointer.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })
        .ok()
        .filter(|page| *page > 0)
        .unwrap_or(65536)
}

#[cfg(not(target_os = "linux"))]
fn page_bytes() -> usize {
    65536
}

#[cfg(unix)]
fn ordered(map: &Mmap, on_demand: bool) {
    use memmap2::Advice::{Normal, Random};
    // A hint, without which the system reads more than it has to.
    let _ = map.advise(if on_demand { Random } else { Normal });
}

#[cfg(not(unix))]
fn ordered(_: &Mmap, _: bool) {}

#[cfg(target_os = "linux")]
fn advised(map: &Mmap, from: usize, len: usize) -> bool {
    // The first starts reading of everything at once, the second waits for it page by page.
    let _ = map.advise_range(memmap2::Advice::WillNeed, from, len);
    map.advise_range(memmap2::Advice::PopulateRead, from, len).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn advised(_: &Mmap, _: usize, _: usize) -> bool {
    false
}

#[cfg(target_os = "linux")]
fn forget(mapped: &MappedFile, from: usize, len: usize) {
    use std::os::fd::AsRawFd;
    // Both are hints: if one is refused, memory stays in use, and the system takes it back later.
    // SAFETY: the map is read-only and of a file, so its pages are never changed in memory, and a page that is
    // dropped is read from the file again, with the same bytes.
    let _ = unsafe { mapped.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, from, len) };
    if let (Ok(from), Ok(len)) = (libc::off_t::try_from(from), libc::off_t::try_from(len)) {
        // SAFETY: the descriptor is that of an open file, and the call takes no pointer.
        let _ = unsafe { libc::posix_fadvise(mapped.file.as_raw_fd(), from, len, libc::POSIX_FADV_DONTNEED) };
    }
}

#[cfg(not(target_os = "linux"))]
fn forget(_: &MappedFile, _: usize, _: usize) {}

#[cfg(target_os = "linux")]
fn resident(map: &Mmap, from: usize, len: usize) -> Option<usize> {
    let mut pages = vec![0u8; len.div_ceil(page_bytes())];
    let start = map.get(from..from + len)?.as_ptr();
    // SAFETY: `start` is a multiple of a page within the map, `len` bytes from it on are mapped, and the vector has a
    // byte for each of their pages.
    let failed = unsafe { libc::mincore(start.cast_mut().cast(), len, pages.as_mut_ptr()) } != 0;
    (!failed).then(|| pages.iter().filter(|here| **here & 1 == 1).count() * page_bytes())
}

#[cfg(not(target_os = "linux"))]
fn resident(_: &Mmap, _: usize, _: usize) -> Option<usize> {
    None
}

/// Opens a regular file for reading.
fn open_regular(path: &Path) -> std::io::Result<File> {
    // Checked before opening, because opening a pipe would block until it has a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    File::open(path)
}

impl Deref for MappedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.owner {
            Owner::Map(mapped) => &mapped.map,
            Owner::Memory(bytes) => bytes,
        };
        // Always in range: `slice` returns no window outside the owner.
        all.get(self.start..self.start + self.len).unwrap_or_default()
    }
}

impl AsRef<[u8]> for MappedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Arc<[u8]>> for MappedBytes {
    fn from(bytes: Arc<[u8]>) -> MappedBytes {
        let len = bytes.len();
        MappedBytes { owner: Owner::Memory(bytes), start: 0, len }
    }
}

impl From<&[u8]> for MappedBytes {
    fn from(bytes: &[u8]) -> MappedBytes {
        let copied = MappedBytes::in_memory(bytes.len(), |to| {
            to.copy_from_slice(bytes);
            Ok::<(), std::convert::Infallible>(())
        });
        copied.unwrap_or_else(|never| match never {})
    }
}

impl From<Vec<u8>> for MappedBytes {
    fn from(bytes: Vec<u8>) -> MappedBytes {
        MappedBytes::from(bytes.as_slice())
    }
}

impl PartialEq for MappedBytes {
    fn eq(&self, other: &MappedBytes) -> bool {
        **self == **other
    }
}

impl Eq for MappedBytes {}

impl std::fmt::Debug for MappedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let from = if self.is_mapped() { "mapped" } else { "memory" };
        write!(f, "MappedBytes({from}, {}..{})", self.start, self.start + self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_stay_within_and_keep_the_bytes() {
        let all = MappedBytes::from((0..100u8).collect::<Vec<_>>());
        assert_eq!(all.as_ptr().addr() % ALIGNMENT, 0);
        let part = all.slice(10..20).unwrap();
        let inner = part.slice(2..=3).unwrap();
        drop((all, part.clone()));
        assert_eq!(&*inner, &[12, 13]);
        assert_eq!(&*part.slice(..).unwrap(), &*part);
        assert_eq!(part.slice(10..).unwrap().len(), 0);
        for (from, to) in [(0, 11), (11, 11), (5, 4), (0, usize::MAX), (usize::MAX, usize::MAX)] {
            assert!(matches!(part.slice(from..to), Err(Error::InvalidArgument { .. })), "{from}..{to}");
        }
        assert!(part.slice(..=usize::MAX).is_err());
    }

    #[test]
    fn only_regular_files_are_mapped() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(MappedBytes::map(dir.path()), Err(Error::Io { .. })));
        assert!(matches!(MappedBytes::map(&dir.path().join("none")), Err(Error::Io { .. })));
        let file = dir.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert_eq!(MappedBytes::map(&file).unwrap().len(), 0);
        std::fs::write(&file, b"abc").unwrap();
        let bytes = MappedBytes::map(&file).unwrap();
        assert!(bytes.is_mapped());
        assert_eq!(bytes, MappedBytes::from(Arc::<[u8]>::from(*b"abc")));
    }

    /// A file that became shorter is an error where it is checked, and does not matter once it has been read.
    #[test]
    fn a_file_that_shrinks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        let (mapped, read) = (MappedBytes::map(&path).unwrap(), MappedBytes::read(&path).unwrap());
        assert!(mapped.slice(..10).unwrap().check_length().is_ok() && read.as_ptr().addr() % ALIGNMENT == 0);
        File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
        let error = mapped.slice(..10).unwrap().check_length().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
        assert!(read.check_length().is_ok());
        assert_eq!(&*read, &[7; 10_000]);
    }
}
