//! Allocations: what is behind each, and which cards know it.

use crate::abi::memory;
use crate::exported::{Exported, Foreign};
use crate::space::Space;
use std::ptr::NonNull;

/// Bytes behind an allocation.
#[derive(Debug)]
pub(crate) enum Backing {
    /// Offset in the space.
    Space(u64),
    /// Address in the process.
    Process(u64),
    /// An offset in the space, and the descriptor through which it was imported.
    Imported(u64, Exported),
    /// Memory of another process's machine.
    Foreign(Foreign),
}

/// An allocation.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// Address for cards.
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Flags that it was allocated with.
    pub(crate) flags: u32,
    pub(crate) backing: Backing,
    /// Card that it belongs to.
    pub(crate) card: usize,
    /// Cards that know it.
    pub(crate) mapped: Vec<usize>,
    /// Further addresses by which cards know it.
    pub(crate) windows: Vec<(usize, u64)>,
}

/// Freed memory of a card that descriptors still stand for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orphan {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) card: usize,
    /// Bytes that it counts for on its card.
    pub(crate) used: u64,
}

impl Allocation {
    pub(crate) fn new(address: u64, bytes: u64, flags: u32, backing: Backing, card: usize) -> Allocation {
        let (mapped, windows) = (Vec::new(), Vec::new());
        Allocation { address, bytes, flags, backing, card, mapped, windows }
    }

    /// Returns its kind, one of [`memory`].
    pub(crate) fn kind(&self) -> u32 {
        self.flags & memory::KINDS
    }

    /// Returns where its bytes are in this process.
    pub(crate) fn at(&self, space: &Space) -> Result<NonNull<u8>, i32> {
        match &self.backing {
            Backing::Space(offset) | Backing::Imported(offset, _) => Ok(space.at(*offset)),
            Backing::Process(address) => NonNull::new(*address as *mut u8).ok_or(libc::EINVAL),
            Backing::Foreign(foreign) => Ok(foreign.at()),
        }
    }
}
