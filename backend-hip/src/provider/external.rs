//! Memory that the card's other driver exported: the calls, which HIP and CUDA's driver share, and their structures.

use super::ffi::{Handle, check, handle};
use crate::driver::codes::NOT_SUPPORTED;
use crate::driver::{Address, External, Reply};
use ggml_core::exported::ExportedMemory;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

/// `hipExternalMemoryHandleTypeOpaqueFd`, `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
pub(crate) const OPAQUE_FD: c_int = 1;

/// `hipExternalMemoryHandleDesc`, `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`. HIP up to 5.7 has no reserved words.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct HandleDescription {
    pub(crate) kind: c_int,
    pub(crate) handle: Descriptor,
    pub(crate) size: u64,
    pub(crate) flags: c_uint,
    pub(crate) reserved: [c_uint; 16],
}

/// The union of handles, as large as two pointers, with the file descriptor at its beginning.
#[repr(C, align(8))]
#[derive(Debug, Default)]
pub(crate) struct Descriptor {
    pub(crate) fd: c_int,
    pub(crate) rest: [c_int; 3],
}

/// `hipExternalMemoryBufferDesc`, `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct BufferDescription {
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) flags: c_uint,
    pub(crate) reserved: [c_uint; 16],
}

/// The functions, of either driver.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) import: Option<unsafe extern "C" fn(*mut Handle, *const HandleDescription) -> c_int>,
    pub(super) map: Option<unsafe extern "C" fn(*mut *mut c_void, Handle, *const BufferDescription) -> c_int>,
    pub(super) destroy: Option<unsafe extern "C" fn(Handle) -> c_int>,
    /// True if the driver closes the descriptor of memory that it imported, as CUDA's does. AMD's leaves it to the
    /// caller.
    pub(super) takes_descriptor: bool,
}

impl Functions {
    /// Imports memory, and maps all of it.
    #[cfg(unix)]
    pub(super) fn import(self, memory: ExportedMemory) -> Reply<(External, Address)> {
        use std::os::fd::{AsRawFd as _, IntoRawFd as _};
        let (Some(import), Some(map), Some(_)) = (self.import, self.map, self.destroy) else {
            return Err(NOT_SUPPORTED);
        };
        let size = memory.bytes();
        let descriptor = memory.into_descriptor();
        let handle_of = Descriptor { fd: descriptor.as_raw_fd(), rest: [0; 3] };
        let wanted = HandleDescription { kind: OPAQUE_FD, handle: handle_of, size, ..Default::default() };
        let mut external = null_mut();
        // SAFETY: writes one handle and reads the structure; the descriptor is open.
        check(unsafe { import(&mut external, &wanted) })?;
        if self.takes_descriptor {
            // The driver owns it from now on.
            let _ = descriptor.into_raw_fd();
        }
        let external = External(external as usize as u64);
        let (whole, mut address) = (BufferDescription { size, ..Default::default() }, null_mut());
        // SAFETY: writes one address and reads the structure; the memory was imported above with this size.
        if let Err(code) = check(unsafe { map(&mut address, handle(external.0), &whole) }) {
            // SAFETY: the memory was imported above, and nothing is mapped.
            let _ = unsafe { self.release(external) };
            return Err(code);
        }
        Ok((external, address as usize as Address))
    }

    /// Returns that descriptors of this system's files do not exist.
    #[cfg(not(unix))]
    pub(super) fn import(self, _memory: ExportedMemory) -> Reply<(External, Address)> {
        let _ = (self.import, self.map, self.takes_descriptor, null_mut::<c_void>(), check, OPAQUE_FD);
        Err(NOT_SUPPORTED)
    }

    /// Ends the use of imported memory.
    ///
    /// # Safety
    /// The memory was imported and is neither used nor released.
    pub(super) unsafe fn release(self, external: External) -> Reply<()> {
        let destroy = self.destroy.ok_or(NOT_SUPPORTED)?;
        // SAFETY: the caller's promise.
        check(unsafe { destroy(handle(external.0)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// Compares with the layout of cuda.h and hip_runtime_api.h on 64-bit systems.
    #[test]
    fn structures_have_the_layout_of_the_headers() {
        assert_eq!(
            [
                offset_of!(HandleDescription, handle),
                offset_of!(HandleDescription, size),
                offset_of!(HandleDescription, flags),
                size_of::<HandleDescription>(),
                offset_of!(BufferDescription, size),
                offset_of!(BufferDescription, flags),
                size_of::<BufferDescription>(),
            ],
            [8, 24, 32, 104, 8, 16, 88]
        );
    }
}
