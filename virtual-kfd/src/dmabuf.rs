//! Memory as a descriptor (a dmabuf of the kernel): another process imports it, or the runtime itself, through libdrm.
//!
//! Such a descriptor is one of the space's file. Its position is the offset of the memory; a record before the memory
//! describes it. A lock on the record, which the system drops with the last duplicate of the descriptor in any process,
//! says whether freed memory is still in use.

#![allow(unsafe_code)]

use crate::abi::{ExportDmabuf, GetDmabufInfo, ImportDmabuf, memory};
use crate::driver::{Answer, Driver, Shared};
use crate::memory::{Allocation, Backing, PAGE};

use crate::space::{BYTES, FIRST, LARGE_PAGE, Space, errno};
use crate::topology::gpu_id;
use bytemuck::{Pod, Zeroable};
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::NonNull;

/// Bytes from a record to its memory.
pub(crate) const BEFORE: u64 = PAGE;
/// Bytes from a record to the description that a runtime keeps with its memory.
const DESCRIPTION: u64 = 64;
/// Bytes of such a description: libdrm's `struct amdgpu_bo_metadata`.
pub const DESCRIPTION_BYTES: usize = 280;
/// First word of a record.
const MAGIC: u64 = u64::from_le_bytes(*b"kfd part");

/// Description of exported memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Record {
    magic: u64,
    bytes: u64,
    gpu_id: u32,
    flags: u32,
}

/// Returns the lock of the record of memory.
pub(crate) fn lock(kind: c_int, offset: u64) -> libc::flock {
    // SAFETY: a structure of numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    (lock.l_start, lock.l_len) = ((offset - BEFORE) as libc::off_t, BEFORE as libc::off_t);
    lock
}

/// What a descriptor stands for. It keeps a duplicate, and so the memory.
#[derive(Debug)]
pub(crate) struct Part {
    file: OwnedFd,
    offset: u64,
    record: Record,
}

impl Part {
    /// Reads what a descriptor of any process's machine stands for.
    ///
    /// # Errors `EBADF` for a number that is no descriptor, `EINVAL` for another descriptor.
    fn of(fd: c_int) -> Result<Part, i32> {
        let file = duplicate(fd)?;
        let own = file.as_raw_fd();
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
        Ok(Part { file, offset, record })
    }

    fn description_at(&self) -> libc::off_t {
        (self.offset - BEFORE + DESCRIPTION) as libc::off_t
    }

    /// Returns a descriptor of the same.
    fn duplicate(&self) -> Result<OwnedFd, i32> {
        duplicate(self.file.as_raw_fd())
    }
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
    part: Part,
    bytes: usize,
}

// SAFETY: bytes of a shared file; all access is that of `Space`.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl Foreign {
    fn new(part: Part) -> Result<Foreign, i32> {
        let bytes = usize::try_from(part.record.bytes).map_err(|_| libc::ENOMEM)?;
        // A file that is shorter than its record says would end the process at the first access.
        let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: a valid descriptor; the result says whether the structure was written.
        let found = unsafe { libc::fstat(part.file.as_raw_fd(), status.as_mut_ptr()) } == 0;
        // SAFETY: written if found.
        if !found || unsafe { status.assume_init() }.st_size as u64 != BYTES {
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

impl Shared {
    /// Returns a descriptor of memory.
    pub(crate) fn export_dmabuf(&self, a: &mut ExportDmabuf) -> Answer {
        let state = self.state();
        let allocation = state.allocations.get(&a.handle).ok_or(libc::EINVAL)?;
        let offset = match &allocation.backing {
            Backing::Space(offset) | Backing::Imported(offset, _) => *offset,
            Backing::Foreign(foreign) => {
                a.fd = foreign.part.duplicate()?.into_raw_fd() as u32;
                return Ok(());
            }
            Backing::Process(_) => return Err(libc::EINVAL),
        };
        if !matches!(allocation.flags & memory::KINDS, memory::VRAM | memory::GTT) {
            return Err(libc::EINVAL);
        }
        let (bytes, flags, gpu_id) = (allocation.bytes, allocation.flags, gpu_id(allocation.card));
        let fd = self.space.export(offset, Record { magic: MAGIC, bytes, gpu_id, flags })?;
        a.fd = fd.into_raw_fd() as u32;
        Ok(())
    }

    /// Describes what a descriptor stands for.
    pub(crate) fn describe_export(&self, a: &mut GetDmabufInfo) -> Answer {
        let record = Part::of(a.fd as c_int)?.record;
        self.card(record.gpu_id)?;
        (a.bytes, a.gpu_id, a.flags, a.metadata_bytes) = (record.bytes, record.gpu_id, record.flags, 0);
        Ok(())
    }

    /// Makes memory of a descriptor an allocation of this process.
    pub(crate) fn import_dmabuf(&self, a: &mut ImportDmabuf) -> Answer {
        let card = self.card(a.gpu_id)?;
        a.handle = self.import(a.fd as c_int, card, a.address)?;
        Ok(())
    }

    fn import(&self, fd: c_int, card: usize, address: u64) -> Result<u64, i32> {
        let part = Part::of(fd)?;
        let Record { bytes, flags, .. } = part.record;
        if address % PAGE != 0 || address.checked_add(bytes).is_none() {
            return Err(libc::EINVAL);
        }
        let backing = if self.space.is_file_of(part.file.as_raw_fd()) {
            Backing::Imported(part.offset, part)
        } else {
            Backing::Foreign(Foreign::new(part)?)
        };
        let allocation = Allocation::new(address, bytes, flags, backing, card);
        self.log(|| format!("  imported: {allocation:x?}"));
        Ok(self.state().add(allocation))
    }
}

/// A buffer as libdrm imports it from a descriptor: memory without an address, which it gets of the caller. It is freed
/// when it is dropped.
#[derive(Debug)]
pub struct Buffer<'a> {
    driver: &'a Driver,
    handle: u64,
    card: usize,
    bytes: u64,
}

impl Driver {
    /// Imports memory of a descriptor (`EXPORT_DMABUF`) for a card.
    ///
    /// # Errors A number of errno: `EINVAL` for a descriptor that is none of memory.
    pub fn import(&self, fd: c_int, card: usize) -> Result<Buffer<'_>, i32> {
        if card >= self.shared.devices.len() {
            return Err(libc::EINVAL);
        }
        let handle = self.shared.import(fd, card, 0)?;
        let bytes = self.shared.state().allocations.get(&handle).map_or(0, |a| a.bytes);
        Ok(Buffer { driver: self, handle, card, bytes })
    }
}

impl Buffer<'_> {
    /// Bytes of the memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the offset at which a descriptor of [`Driver::open`] shows the memory; `None` for memory of another
    /// process.
    pub fn offset(&self) -> Option<u64> {
        match self.driver.shared.state().allocations.get(&self.handle)?.backing {
            Backing::Space(offset) | Backing::Imported(offset, _) => Some(offset),
            Backing::Process(_) | Backing::Foreign(_) => None,
        }
    }

    /// Returns where the memory is in this process, as long as the buffer lives.
    pub fn host(&self) -> Option<NonNull<u8>> {
        let shared = &self.driver.shared;
        shared.state().allocations.get(&self.handle)?.at(&shared.space).ok()
    }

    /// Runs something with the descriptor of the memory.
    fn with_part<T>(&self, run: impl FnOnce(&Part) -> Result<T, i32>) -> Result<T, i32> {
        match &self.driver.shared.state().allocations.get(&self.handle).ok_or(libc::EINVAL)?.backing {
            Backing::Imported(_, part) => run(part),
            Backing::Foreign(foreign) => run(&foreign.part),
            Backing::Space(_) | Backing::Process(_) => Err(libc::EINVAL),
        }
    }

    /// Returns the description that was stored last with the memory, by any process; at first, zeros.
    ///
    /// # Errors A number of errno.
    pub fn description(&self) -> Result<[u8; DESCRIPTION_BYTES], i32> {
        self.with_part(|part| {
            let mut bytes = [0; DESCRIPTION_BYTES];
            let (fd, to) = (part.file.as_raw_fd(), bytes.as_mut_ptr().cast());
            // SAFETY: a valid descriptor, and as many bytes to write.
            let read = unsafe { libc::pread(fd, to, bytes.len(), part.description_at()) };
            if read == bytes.len() as isize { Ok(bytes) } else { Err(errno()) }
        })
    }

    /// Stores a description with the memory.
    ///
    /// # Errors A number of errno.
    pub fn describe(&self, bytes: &[u8; DESCRIPTION_BYTES]) -> Result<(), i32> {
        self.with_part(|part| {
            let (fd, from) = (part.file.as_raw_fd(), bytes.as_ptr().cast());
            // SAFETY: a valid descriptor, and as many bytes to read.
            let written = unsafe { libc::pwrite(fd, from, bytes.len(), part.description_at()) };
            if written == bytes.len() as isize { Ok(()) } else { Err(errno()) }
        })
    }

    /// Makes a part of the memory known to the card at an address.
    ///
    /// # Errors A number of errno: `EINVAL` for a part that is none, or an address that is taken.
    pub fn map(&self, offset: u64, bytes: u64, address: u64) -> Result<(), i32> {
        let shared = &self.driver.shared;
        let mut state = shared.state();
        let crate::driver::State { allocations, shared: ranges, .. } = &mut *state;
        let allocation = allocations.get_mut(&self.handle).ok_or(libc::EINVAL)?;
        let is_part = offset.checked_add(bytes).is_some_and(|end| end <= allocation.bytes);
        if !is_part || bytes == 0 || [offset, bytes, address].iter().any(|n| n % PAGE != 0) || address == 0 {
            return Err(libc::EINVAL);
        }
        let end = address.checked_add(bytes).ok_or(libc::EINVAL)?;
        shared.replace_shared(&mut ranges[self.card], self.card, address, end - address);
        let first = allocation.at(&shared.space)?;
        // SAFETY: inside the memory, which is mapped as long as the allocation; `free` removes it from the card before.
        let mapped =
            unsafe { shared.devices[self.card].gpu.map(address, first.add(offset as usize), bytes as usize) };
        mapped.map_err(|_| libc::EINVAL)?;
        allocation.windows.push((self.card, address));
        Ok(())
    }

    /// Removes the part that is known at an address from the card.
    ///
    /// # Errors `EINVAL` if there is none.
    pub fn unmap(&self, address: u64) -> Result<(), i32> {
        let shared = &self.driver.shared;
        let mut state = shared.state();
        let allocation = state.allocations.get_mut(&self.handle).ok_or(libc::EINVAL)?;
        let known = allocation.windows.iter().position(|w| *w == (self.card, address)).ok_or(libc::EINVAL)?;
        allocation.windows.remove(known);
        let device = &shared.devices[self.card];
        device.code.invalidate(Some(address));
        device.gpu.free(address).map_err(|_| libc::EINVAL)
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let _ = self.driver.shared.free(self.handle);
    }
}
