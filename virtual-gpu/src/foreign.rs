//! A device that serves a runtime: memory of the caller, the allocations inside it, and the addresses that a kernel driver
//! tells the runtime.

#![allow(unsafe_code)]

use crate::fault::Result;
use crate::gpu::Gpu;
use crate::isa::operand::{PRIVATE_APERTURE, SHARED_APERTURE};
use std::ptr::NonNull;

impl Gpu {
    /// Returns the upper 32 bits of the addresses through which FLAT instructions access LDS and scratch, in this order.
    /// A kernel driver passes them to the runtime as the bases of the two apertures; the lower bits are offsets.
    pub const fn apertures() -> (u32, u32) {
        (SHARED_APERTURE, PRIVATE_APERTURE)
    }

    /// Makes `bytes` bytes of the caller's memory from `at` on known to kernels and copies at `address`, until
    /// [`Gpu::free`] of that address. `at` and `address` are multiples of 4096 and need not be equal. The memory does not
    /// count against [`crate::Options::memory`].
    ///
    /// Kernels access it atomically, in units of up to 8 bytes. The host may do the same at any time. [`Gpu::read`],
    /// [`Gpu::write`], [`Gpu::fill`] and [`Gpu::copy`] are not atomic: nobody else writes what they read, or accesses what
    /// they write.
    ///
    /// # Safety
    /// The bytes are readable and writable until [`Gpu::free`] has returned **and** all launches and copies that began
    /// before have ended: these use the memory that was known at their beginning. Until then no reference of the host's to
    /// these bytes is used, unless to atomics or cells.
    ///
    /// # Errors [`crate::FaultKind::Misaligned`]; [`crate::FaultKind::Occupied`] if an allocation overlaps the range;
    /// [`crate::FaultKind::OutOfMemory`] for 0 bytes or a range beyond the last address.
    pub unsafe fn map(&self, address: u64, at: NonNull<u8>, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        Ok(unsafe { self.memory.map(address, at, bytes) }?)
    }

    /// Sets the windows of the allocation or mapping that begins at `base`: the ranges (offset and bytes) of it that
    /// kernels may access. An access outside them, or across the end of one, is [`crate::FaultKind::OutOfBounds`]. A
    /// runtime that divides its memory itself has overruns between its own allocations reported in this way. `None` lets
    /// kernels access all of it again, as at the beginning.
    ///
    /// Launches that began before are not affected; neither are copies and the code that packets launch. Memory without
    /// windows costs nothing. Windows end when the memory is freed.
    ///
    /// # Errors [`crate::FaultKind::OutOfBounds`] if nothing begins at `base`, or for a window beyond the end;
    /// [`crate::FaultKind::Misaligned`] for an offset that is no multiple of 16; [`crate::FaultKind::Occupied`] for a
    /// window that overlaps another. The windows are then as before.
    pub fn set_windows(&self, base: u64, windows: Option<Vec<(u64, u64)>>) -> Result<()> {
        Ok(self.memory.set_windows(base, windows)?)
    }
}
