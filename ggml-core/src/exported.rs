//! Device memory on its way from one driver of a card to the other.

#[cfg(unix)]
use std::os::fd::OwnedFd;

/// Memory that a driver exported. It is freed when neither driver uses it any more.
#[derive(Debug)]
pub struct ExportedMemory {
    #[cfg(unix)]
    descriptor: OwnedFd,
    bytes: u64,
}

impl ExportedMemory {
    /// Wraps the file descriptor of an allocation of `bytes` bytes, which begins with the exported memory
    /// (`VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT`).
    #[cfg(unix)]
    pub fn new(descriptor: OwnedFd, bytes: u64) -> ExportedMemory {
        ExportedMemory { descriptor, bytes }
    }

    /// Returns the bytes of the whole allocation.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the file descriptor.
    #[cfg(unix)]
    pub fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }
}
