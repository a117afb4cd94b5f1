//! Memory of the card and of the host, and buffers in it.

use crate::card::Shared;
use crate::heaps::types;
use crate::reply::{Reply, unknown};
use crate::table::lock;
use ash::vk;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock};
use virtual_gpu::{Gpu, MemoryFile};

/// An allocation.
pub(crate) struct Memory {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Host address, if the memory is host-visible.
    pub(crate) host: Option<u64>,
    /// MemoryFile for other drivers of the card, if the memory was allocated for export.
    exported: Option<MemoryFile>,
    heap: usize,
    card: Arc<Shared>,
    gpu: Arc<Gpu>,
}

/// Use of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Users {
    /// This driver.
    One,
    /// Other drivers of the card too.
    Several,
}

impl Memory {
    /// Allocates memory of a type; an error if its heap is exhausted.
    pub(crate) fn new(
        card: &Arc<Shared>,
        gpu: &Arc<Gpu>,
        bytes: u64,
        kind: u32,
        users: Users,
    ) -> Reply<Memory> {
        let &(flags, heap) =
            types(card.options.model.is_integrated()).get(kind as usize).ok_or(vk::Result::ERROR_UNKNOWN)?;
        let none = |local: bool| match local {
            true => vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
            false => vk::Result::ERROR_OUT_OF_HOST_MEMORY,
        };
        let size = usize::try_from(bytes).map_err(|_| none(heap == 0))?;
        card.reserve(heap as usize, bytes).map_err(|()| none(heap == 0))?;
        let visible = flags.contains(vk::MemoryPropertyFlags::HOST_VISIBLE);
        let number = |at: NonNull<u8>| at.as_ptr() as u64;
        let made = match (users, visible) {
            (Users::Several, _) => gpu
                .allocate_shared(size)
                .map(|shared| (shared.address, visible.then(|| number(shared.host)), Some(shared.file))),
            (Users::One, true) => gpu.allocate_host(size).map(|at| (number(at), Some(number(at)), None)),
            (Users::One, false) => gpu.allocate(size).map(|address| (address, None, None)),
        };
        let (address, host, exported) = made.map_err(|_| {
            card.release(heap as usize, bytes);
            none(heap == 0)
        })?;
        let (card, gpu) = (card.clone(), gpu.clone());
        Ok(Memory { address, bytes, host, exported, heap: heap as usize, card, gpu })
    }

    /// Returns the memory's file for another driver of the card.
    pub(crate) fn export(&self) -> Reply<MemoryFile> {
        let file = self.exported.as_ref().ok_or(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE)?;
        file.try_clone().map_err(|_| vk::Result::ERROR_TOO_MANY_OBJECTS)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.card.release(self.heap, self.bytes);
        // Allocated and freed exactly once, so this cannot fail; drop could not report an error anyway.
        let _ = self.gpu.free(self.address);
    }
}

/// A buffer.
pub(crate) struct Buffer {
    pub(crate) bytes: u64,
    /// Address of the first byte, and the memory that contains it.
    bound: OnceLock<(u64, Arc<Memory>)>,
}

impl Buffer {
    pub(crate) fn new(bytes: u64) -> Buffer {
        Buffer { bytes, bound: OnceLock::new() }
    }

    /// Binds memory to the buffer; allowed once.
    pub(crate) fn bind(&self, memory: Arc<Memory>, offset: u64) -> Reply {
        let inside = offset.checked_add(self.bytes).is_some_and(|end| end <= memory.bytes);
        if !inside {
            return Err(unknown("range of memory", offset));
        }
        let bound = (memory.address + offset, memory);
        self.bound.set(bound).map_err(|_| unknown("unbound buffer", offset))
    }

    /// Returns address and size of a range, if the buffer has memory and contains the range. `WHOLE_SIZE` is
    /// the remainder.
    pub(crate) fn range(&self, offset: u64, bytes: u64) -> Reply<(u64, u64)> {
        let bytes = if bytes == vk::WHOLE_SIZE { self.bytes.saturating_sub(offset) } else { bytes };
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        match self.bound.get() {
            Some((address, _)) if inside => Ok((address + offset, bytes)),
            _ => Err(unknown("range of a buffer", offset)),
        }
    }
}

/// Memory at addresses with a fixed upper half that shaders assume: descriptor sets, push constants, grid
/// sizes.
pub(crate) struct HighMemory {
    gpu: Arc<Gpu>,
    next: Mutex<u64>,
}

/// A block of [`HighMemory`], freed on drop.
#[derive(Debug)]
pub(crate) struct HighBlock {
    gpu: Arc<Gpu>,
    pub(crate) address: u64,
}

impl HighMemory {
    /// Upper half of these addresses in RADV's code.
    const UPPER: u64 = 0xffff_8000 << 32;
    /// Maximum bytes of this memory.
    pub(crate) const BYTES: u64 = 1 << 30;
    /// Unmapped bytes between two blocks.
    const GAP: u64 = 1 << 12;

    pub(crate) fn new(gpu: &Arc<Gpu>) -> HighMemory {
        HighMemory { gpu: gpu.clone(), next: Mutex::new(Self::GAP) }
    }

    /// Allocates zeroed memory.
    pub(crate) fn allocate(&self, bytes: u64) -> Reply<HighBlock> {
        let exhausted = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
        let mut next = lock(&self.next);
        let size = bytes.max(4).next_multiple_of(Self::GAP);
        // Wraps around after the last address: the oldest blocks are normally free by then; otherwise the
        // call fails.
        if *next + size + Self::GAP > 1 << 32 {
            *next = Self::GAP;
        }
        let address = Self::UPPER | *next;
        self.gpu.allocate_at(address, size as usize).map_err(|_| exhausted)?;
        *next += size + Self::GAP;
        Ok(HighBlock { gpu: self.gpu.clone(), address })
    }
}

impl Drop for HighBlock {
    fn drop(&mut self) {
        let _ = self.gpu.free(self.address);
    }
}
