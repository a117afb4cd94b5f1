//! Memory as a descriptor (a dmabuf of the kernel): another process imports it, or the runtime itself, through libdrm.

#![allow(unsafe_code)]

use crate::abi::{ExportDmabuf, GetDmabufInfo, ImportDmabuf, memory};
use crate::allocation::{Allocation, Backing};
use crate::driver::Driver;
use crate::exported::{Exported, Foreign};
use crate::shared::{Answer, Shared, State};
use crate::space::{MAGIC, PAGE, Record, errno};
use crate::topology::gpu_id;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::ptr::NonNull;

/// Bytes of such a description: libdrm's `struct amdgpu_bo_metadata`.
pub const DESCRIPTION_BYTES: usize = 280;

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

    /// Describes the memory of a descriptor.
    pub(crate) fn describe_export(&self, a: &mut GetDmabufInfo) -> Answer {
        let record = Exported::of(a.fd as c_int)?.record;
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
        let part = Exported::of(fd)?;
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
    fn with_exported<T>(&self, run: impl FnOnce(&Exported) -> Result<T, i32>) -> Result<T, i32> {
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
        self.with_exported(|part| {
            let mut bytes = [0; DESCRIPTION_BYTES];
            let (fd, to) = (part.file.as_raw_fd(), bytes.as_mut_ptr().cast());
            let Some(at) = part.description_at() else { return Ok(bytes) };
            // SAFETY: a valid descriptor, and as many bytes to write.
            let read = unsafe { libc::pread(fd, to, bytes.len(), at) };
            if read == bytes.len() as isize { Ok(bytes) } else { Err(errno()) }
        })
    }

    /// Stores a description with the memory.
    ///
    /// # Errors A number of errno.
    pub fn describe(&self, bytes: &[u8; DESCRIPTION_BYTES]) -> Result<(), i32> {
        self.with_exported(|part| {
            let (fd, from) = (part.file.as_raw_fd(), bytes.as_ptr().cast());
            let at = part.description_at().ok_or(libc::EINVAL)?;
            // SAFETY: a valid descriptor, and as many bytes to read.
            let written = unsafe { libc::pwrite(fd, from, bytes.len(), at) };
            if written == bytes.len() as isize { Ok(()) } else { Err(errno()) }
        })
    }

    /// Makes a part of the memory known to the card at an address.
    ///
    /// # Errors A number of errno: `EINVAL` for a part that is none, or an address that is taken.
    pub fn map(&self, offset: u64, bytes: u64, address: u64) -> Result<(), i32> {
        let shared = &self.driver.shared;
        let mut state = shared.state();
        let State { allocations, shared: ranges, .. } = &mut *state;
        let allocation = allocations.get_mut(&self.handle).ok_or(libc::EINVAL)?;
        let is_part = offset.checked_add(bytes).is_some_and(|end| end <= allocation.bytes);
        if !is_part || bytes == 0 || [offset, bytes, address].iter().any(|n| n % PAGE != 0) || address == 0 {
            return Err(libc::EINVAL);
        }
        let end = address.checked_add(bytes).ok_or(libc::EINVAL)?;
        shared.replace_shared(&mut ranges[self.card], self.card, address, end - address);
        let first = allocation.at(&shared.space)?;
        let gpu = &shared.devices[self.card].gpu;
        // SAFETY: inside the memory, which is mapped as long as the allocation; `free` removes it from the card before.
        let mapped = unsafe { gpu.map(address, first.add(offset as usize), bytes as usize) };
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
