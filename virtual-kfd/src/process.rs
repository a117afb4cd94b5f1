//! The memory of the process, as the kernel and the card access it: arguments of ioctls, rings, signals.
//!
//! Addresses come from the runtime. As on a real machine, a wrong one is a fault of the process.

#![allow(unsafe_code)]

use bytemuck::Pod;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Reads a value.
///
/// # Safety The address is that of readable memory of the value's size.
pub(crate) unsafe fn read<T: Pod>(address: u64) -> T {
    // SAFETY: the caller's promise; any bytes are a valid value.
    unsafe { (address as *const T).read_unaligned() }
}

/// Writes a value.
///
/// # Safety The address is that of writable memory of the value's size.
pub(crate) unsafe fn write<T: Pod>(address: u64, value: T) {
    // SAFETY: the caller's promise.
    unsafe { (address as *mut T).write_unaligned(value) };
}

/// Reads an array.
///
/// # Safety As [`read`], for each value.
pub(crate) unsafe fn read_array<T: Pod>(address: u64, count: usize) -> Vec<T> {
    // SAFETY: the caller's promise.
    (0..count).map(|i| unsafe { read(address + (i * size_of::<T>()) as u64) }).collect()
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident: $atomic:ident, $kind:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety The address is aligned and stays that of writable memory as long as the reference is used.
        pub(crate) unsafe fn $name<'a>(address: u64) -> &'a $atomic {
            // SAFETY: the caller's promise; others access the word by atomic instructions or as the card does.
            unsafe { $atomic::from_ptr(address as *mut $kind) }
        }
    )*};
}

words! {
    /// Returns a word of 16 bits.
    word16: AtomicU16, u16;
    /// Returns a word of 32 bits.
    word32: AtomicU32, u32;
    /// Returns a word of 64 bits.
    word64: AtomicU64, u64;
    /// Returns a signed word of 64 bits.
    signed64: AtomicI64, i64;
}

/// A signal of HSA (`amd_signal_t`).
///
/// Source: `amd_hsa_signal.h` of ROCR-Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signal(pub(crate) u64);

impl Signal {
    /// Returns the value.
    ///
    /// # Safety It is a live signal.
    pub(crate) unsafe fn value(self) -> i64 {
        // SAFETY: the caller's promise.
        unsafe { signed64(self.0 + 8) }.load(Ordering::Acquire)
    }

    /// Sets the value.
    ///
    /// # Safety It is a live signal.
    pub(crate) unsafe fn set(self, value: i64) {
        // SAFETY: the caller's promise.
        unsafe { signed64(self.0 + 8) }.store(value, Ordering::Release);
    }

    /// Writes the times of a command and counts the value down by one: the runtime may free or reuse the
    /// signal from then on.
    ///
    /// # Safety It is a live signal.
    pub(crate) unsafe fn complete(self, start: u64, end: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            word64(self.0 + 32).store(start, Ordering::Relaxed);
            word64(self.0 + 40).store(end, Ordering::Relaxed);
            signed64(self.0 + 8).fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Returns where the event's number is written, and the number; `None` if nobody sleeps on the signal.
    ///
    /// # Safety It is a live signal.
    pub(crate) unsafe fn mailbox(self) -> Option<(u64, u32)> {
        // SAFETY: the caller's promise.
        let (mailbox, event) = unsafe { (read::<u64>(self.0 + 16), read::<u32>(self.0 + 24)) };
        (mailbox != 0).then_some((mailbox, event))
    }
}
