//! Ranges of the process's memory that a card may access at the process's own addresses.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ptr::NonNull;
use virtual_gpu::Gpu;

/// Ranges that one card may access: first address and the one after the last.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Returns true if a range is inside of one.
    pub(crate) fn contain(&self, begin: u64, end: u64) -> bool {
        self.0.range(..=begin).next_back().is_some_and(|(_, &known)| known >= end)
    }

    /// Removes all that overlap a range from a card, and returns the union with it.
    pub(crate) fn remove(&mut self, gpu: &Gpu, begin: u64, end: u64) -> (u64, u64) {
        let overlapping: Vec<(u64, u64)> =
            self.0.range(..end).filter(|&(_, &known)| known > begin).map(|(&a, &b)| (a, b)).collect();
        for &(from, _) in &overlapping {
            self.0.remove(&from);
            // It was mapped by `add`, once.
            let _ = gpu.free(from);
        }
        overlapping.into_iter().fold((begin, end), |all, one| (all.0.min(one.0), all.1.max(one.1)))
    }

    /// Lets a card access a range.
    pub(crate) fn add(&mut self, gpu: &Gpu, begin: u64, end: u64) -> Result<(), i32> {
        if self.contain(begin, end) {
            return Ok(());
        }
        let (begin, end) = self.remove(gpu, begin, end);
        let at = NonNull::new(begin as *mut u8).ok_or(libc::EINVAL)?;
        // SAFETY: the runtime promises that the range is memory of the process as long as it lets cards access it, and
        // that it waits for kernels that use it before it frees it.
        unsafe { gpu.map(begin, at, (end - begin) as usize) }.map_err(|_| libc::EINVAL)?;
        self.0.insert(begin, end);
        Ok(())
    }
}
