//! Memory that several devices have: pages of a file without a name, mapped by each.

#![allow(unsafe_code)]

use super::block::Block;
use super::{Memory, insert, reserve};
use crate::fault::FaultKind;
use crate::memory::Region;
use std::ptr::NonNull;

/// File behind shared memory.
#[cfg(target_os = "linux")]
pub type MemoryFile = std::os::fd::OwnedFd;

/// File behind shared memory, which exists on Linux only.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
#[allow(missing_docs, reason = "there is no value of it")]
pub enum MemoryFile {}

#[cfg(not(target_os = "linux"))]
#[allow(missing_docs, reason = "there is no value of it")]
impl MemoryFile {
    pub fn try_clone(&self) -> std::io::Result<MemoryFile> {
        match *self {}
    }

    pub fn into_raw_fd(self) -> i32 {
        match self {}
    }
}

/// Device memory that other devices can map.
#[derive(Debug)]
pub struct SharedMemory {
    /// Address on the device.
    pub address: u64,
    /// Address on the host.
    pub host: NonNull<u8>,
    /// The file, for other devices.
    pub file: MemoryFile,
}

#[cfg(target_os = "linux")]
mod pages {
    use super::MemoryFile;
    use memmap2::{MmapOptions, MmapRaw};
    use std::fs::File;
    use std::os::fd::FromRawFd as _;

    /// Creates a file of zeros that exists only in memory, and maps it.
    pub(super) fn create(bytes: usize) -> Option<(MmapRaw, MemoryFile)> {
        // SAFETY: the name is a C string, which the call copies.
        let descriptor = unsafe { libc::memfd_create(c"device memory".as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return None;
        }
        // SAFETY: the descriptor was opened above, and no other code has it.
        let file = unsafe { File::from_raw_fd(descriptor) };
        // Whole pages, as drivers import.
        file.set_len(bytes.checked_next_multiple_of(4096)? as u64).ok()?;
        Some((MmapOptions::new().len(bytes).map_raw(&file).ok()?, file.into()))
    }

    /// Maps a file that has at least `bytes` bytes.
    pub(super) fn map(file: MemoryFile, bytes: usize) -> Option<MmapRaw> {
        let file = File::from(file);
        let long_enough = bytes > 0 && file.metadata().is_ok_and(|data| data.len() >= bytes as u64);
        long_enough.then(|| MmapOptions::new().len(bytes).map_raw(&file).ok()).flatten()
    }
}

#[cfg(not(target_os = "linux"))]
mod pages {
    use super::MemoryFile;
    use memmap2::MmapRaw;

    pub(super) fn create(_bytes: usize) -> Option<(MmapRaw, MemoryFile)> {
        None
    }

    pub(super) fn map(file: MemoryFile, _bytes: usize) -> Option<MmapRaw> {
        match file {}
    }
}

impl Memory {
    /// Allocates device memory that other devices can map.
    pub(crate) fn allocate_shared(&self, bytes: usize) -> Result<SharedMemory, FaultKind> {
        let mut state = self.state();
        self.check_room(&state, bytes)?;
        let made = pages::create(bytes).and_then(|(map, file)| Some((Block::of_file(map)?, file)));
        let (block, file) = made.ok_or(FaultKind::OutOfMemory(bytes as u64))?;
        let (host, address) = (block.at(), reserve(&mut state, bytes));
        let region = self.start(&state, address, bytes, block);
        insert(&mut state, region);
        Ok(SharedMemory { address, host, file })
    }

    /// Maps memory of another device, and returns its address on this one. Its contents stay.
    pub(crate) fn import(&self, file: MemoryFile, bytes: usize) -> Result<u64, FaultKind> {
        let block =
            pages::map(file, bytes).and_then(Block::imported).ok_or(FaultKind::OutOfMemory(bytes as u64))?;
        let mut state = self.state();
        let address = reserve(&mut state, bytes);
        insert(&mut state, Region::new(address, bytes as u64, block));
        Ok(address)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn two_devices_have_one_memory() {
        let (a, b) = (Memory::new(1 << 20), Memory::new(4096));
        let own = a.allocate_shared(10_000).unwrap();
        assert_eq!(a.available(), ((1 << 20) - 10_000, 1 << 20));
        let copy = own.file.try_clone().unwrap();
        let there = b.import(own.file, 9_000).unwrap();
        assert_eq!(b.available(), (4096, 4096), "it is counted where it was made");
        let mut read = [9; 4];
        b.read(there + 8996, &mut read).unwrap();
        assert_eq!(read, [0; 4]);
        a.write(own.address + 8996, &[1, 2, 3, 4]).unwrap();
        b.read(there + 8996, &mut read).unwrap();
        assert_eq!(read, [1, 2, 3, 4]);
        b.write(there, &[5; 4]).unwrap();
        a.free(own.address).unwrap();
        b.read(there, &mut read).unwrap();
        assert_eq!(read, [5; 4], "memory lives as long as one device has it");
        assert!(matches!(b.read(there + 8997, &mut read), Err(FaultKind::OutOfBounds(_))));
        assert!(matches!(b.import(copy, 12_289), Err(FaultKind::OutOfMemory(12_289))), "more than there is");
        b.free(there).unwrap();
        assert!(matches!(b.read(there, &mut read), Err(FaultKind::FreedMemory(_))));
        assert!(matches!(a.allocate_shared(0), Err(FaultKind::OutOfMemory(0))));
        assert!(matches!(a.allocate_shared(2 << 20), Err(FaultKind::OutOfMemory(_))));
    }
}
