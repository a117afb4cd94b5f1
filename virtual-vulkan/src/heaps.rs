//! Memory heaps and memory types.

use ash::vk;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of memory heaps: the card's and the host's.
pub(crate) const HEAPS: usize = 2;

/// Returns the memory types, flags and heap, in RADV's order: of a card with a small host-visible window, or of an
/// integrated GPU, which shares the host's memory and all of whose memory the host sees.
pub(crate) fn types(integrated: bool) -> &'static [(vk::MemoryPropertyFlags, u32)] {
    if integrated { &INTEGRATED } else { &DISCRETE }
}

const DISCRETE: [(vk::MemoryPropertyFlags, u32); 3] = [(LOCAL, 0), (HOST, 1), (HOST_CACHED, 1)];

const INTEGRATED: [(vk::MemoryPropertyFlags, u32); 4] = [
    (LOCAL, 0),
    (HOST, 1),
    (vk::MemoryPropertyFlags::from_raw(LOCAL.as_raw() | HOST.as_raw()), 0),
    (HOST_CACHED, 1),
];

const LOCAL: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::DEVICE_LOCAL;

const HOST_CACHED: vk::MemoryPropertyFlags =
    vk::MemoryPropertyFlags::from_raw(HOST.as_raw() | vk::MemoryPropertyFlags::HOST_CACHED.as_raw());

const HOST: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::HOST_VISIBLE.as_raw() | vk::MemoryPropertyFlags::HOST_COHERENT.as_raw(),
);

/// Bytes in use per heap.
#[derive(Debug, Default)]
pub(crate) struct Used([AtomicU64; HEAPS]);

impl Used {
    pub(crate) fn get(&self) -> [u64; HEAPS] {
        std::array::from_fn(|i| self.0[i].load(Ordering::Relaxed))
    }

    /// Reserves bytes of a heap if the sum stays within `limit`.
    pub(crate) fn reserve(&self, heap: usize, bytes: u64, limit: u64) -> Result<(), ()> {
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= limit);
        self.0[heap].fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map(|_| ()).map_err(|_| ())
    }

    /// Releases reserved bytes of a heap.
    pub(crate) fn release(&self, heap: usize, bytes: u64) {
        self.0[heap].fetch_sub(bytes, Ordering::Relaxed);
    }
}
