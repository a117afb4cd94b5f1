//! Device memory: separate allocations with unmapped gaps between them.
//!
//! Device allocations are far apart, in a part of the address space that no process uses, so a wrong address
//! does not hit a neighbouring allocation. Pinned host memory is at its own address, the same for host and
//! device, as in HIP. Addresses are not reused, so a use of freed memory is recognised as one.
//!
//! `map` adds memory of the caller, at any address; `shared` is memory that several devices have. `windows` tells the allocations inside a region apart: kernels
//! see the windows in place of the region. `block` is memory of the host, `region` a range of addresses with the
//! accesses of wavefronts to it.

mod block;
mod freed;
mod limits;
mod map;
mod region;
mod shared;
mod windows;

use crate::fault::{Access, FaultKind, Range, Space};
use crate::random::Noise;
use block::{ALIGN, Block};
use freed::Freed;
pub use limits::Window;
pub(crate) use region::{Region, Span, WeakRegion};
pub use shared::{MemoryFile, SharedMemory};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windows::Windows;

/// First address of device memory, and the minimum gap between two allocations.
const BASE: u64 = 0x0100_0000_0000;
const GAP: u64 = 1 << 32;

#[derive(Debug, Default)]
struct State {
    /// Sorted by address. A launch keeps its view of them: a change meanwhile makes another list.
    regions: Arc<Vec<Region>>,
    /// The regions that kernels see: the same, but the windows of a region in its place if it has some.
    visible: Arc<Vec<Region>>,
    windows: Windows,
    freed: Freed,
    next: u64,
    used: u64,
    /// Number of allocations so far.
    made: u64,
}

/// Memory of a device.
#[derive(Debug)]
pub(crate) struct Memory {
    state: Mutex<State>,
    capacity: u64,
    /// Contents of new allocations; zeros without it.
    noise: Option<Arc<Noise>>,
}

/// The memory visible to a launch.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) regions: Arc<Vec<Region>>,
}

/// Returns the region that contains an address.
fn find(regions: &[Region], address: u64) -> Option<&Region> {
    let after = regions.partition_point(|r| r.base <= address);
    regions[..after].last().filter(|r| address - r.base < r.bytes)
}

impl Memory {
    pub(crate) fn new(capacity: u64) -> Memory {
        Memory { state: Mutex::new(State { next: BASE, ..State::default() }), capacity, noise: None }
    }

    /// Returns memory whose allocations have random contents.
    pub(crate) fn with_noise(capacity: u64, noise: Arc<Noise>) -> Memory {
        Memory { noise: Some(noise), ..Memory::new(capacity) }
    }

    /// Fills a new allocation at an address.
    fn start(&self, state: &State, base: u64, bytes: usize, block: Block) -> Region {
        let region = Region::new(base, bytes as u64, block);
        if let Some(noise) = self.noise.as_ref().filter(|noise| noise.random.memory) {
            region.fill_new(|at, part| noise.fill(state.made << 40 | at, part));
        }
        region
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn view(&self) -> View {
        View { regions: self.state().visible.clone() }
    }

    /// Returns the region that contains a range of addresses, whole, and the offset in it.
    pub(crate) fn whole(&self, address: u64, bytes: u64) -> Option<(Region, u64)> {
        let state = self.state();
        let region = find(&state.regions, address)?;
        Some((region.clone(), region.offset(address, bytes)?))
    }

    /// Returns the free and the total bytes.
    pub(crate) fn available(&self) -> (u64, u64) {
        (self.capacity - self.state().used.min(self.capacity), self.capacity)
    }

    /// Allocates device memory.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, FaultKind> {
        let mut state = self.state();
        let block = self.block(&state, bytes)?;
        let base = reserve(&mut state, bytes);
        let region = self.start(&state, base, bytes, block);
        insert(&mut state, region);
        Ok(base)
    }

    /// Allocates zeroed device memory at an address.
    pub(crate) fn allocate_at(&self, base: u64, bytes: usize) -> Result<(), FaultKind> {
        self.insert_at(base, bytes, |state| self.block(state, bytes))
    }

    /// Inserts a region at a chosen address.
    fn insert_at(
        &self,
        base: u64,
        bytes: usize,
        block: impl FnOnce(&State) -> Result<Block, FaultKind>,
    ) -> Result<(), FaultKind> {
        let range = range(base, bytes);
        if base % ALIGN as u64 != 0 {
            return Err(FaultKind::Misaligned(range, ALIGN as u32));
        }
        if base.checked_add(bytes as u64).is_none() {
            return Err(FaultKind::OutOfMemory(bytes as u64));
        }
        let mut state = self.state();
        if occupied(&state, base, bytes) {
            return Err(FaultKind::Occupied(range));
        }
        let block = block(&state)?;
        insert(&mut state, Region::new(base, bytes as u64, block));
        Ok(())
    }

    /// Allocates pinned host memory at its own address; fails if [`Memory::allocate_at`] has used
    /// that address.
    pub(crate) fn allocate_host(&self, bytes: usize) -> Result<NonNull<u8>, FaultKind> {
        let mut state = self.state();
        let block = self.block(&state, bytes)?;
        let at = block.at();
        if occupied(&state, at.as_ptr() as u64, bytes) {
            return Err(FaultKind::OutOfMemory(bytes as u64));
        }
        let region = self.start(&state, at.as_ptr() as u64, bytes, block);
        insert(&mut state, region);
        Ok(at)
    }

    /// Sets the windows of a region, or with `None` shows all of it again.
    pub(crate) fn set_windows(&self, base: u64, windows: Option<Vec<(u64, u64)>>) -> Result<(), FaultKind> {
        let mut state = self.state();
        let Ok(i) = state.regions.binary_search_by_key(&base, |r| r.base) else {
            return Err(FaultKind::OutOfBounds(range(base, 0)));
        };
        let regions = state.regions.clone();
        match windows {
            Some(windows) => state.windows.set(&regions[i], windows)?,
            None => state.windows.forget(base),
        }
        state.visible = state.windows.visible(&regions);
        Ok(())
    }

    fn block(&self, state: &State, bytes: usize) -> Result<Block, FaultKind> {
        self.check_room(state, bytes)?;
        Block::new(bytes).ok_or(FaultKind::OutOfMemory(bytes as u64))
    }

    fn check_room(&self, state: &State, bytes: usize) -> Result<(), FaultKind> {
        let fits = bytes > 0 && state.used.checked_add(bytes as u64).is_some_and(|sum| sum <= self.capacity);
        if fits { Ok(()) } else { Err(FaultKind::OutOfMemory(bytes as u64)) }
    }

    /// Frees an allocation by the address of its first byte.
    pub(crate) fn free(&self, address: u64) -> Result<(), FaultKind> {
        let mut state = self.state();
        let found = state.regions.binary_search_by_key(&address, |r| r.base);
        let Ok(i) = found else {
            let range = Range { space: Space::Global, access: Access::Write, at: address, bytes: 0 };
            let freed = state.freed.begins_at(address);
            return Err(if freed { FaultKind::FreedMemory(range) } else { FaultKind::OutOfBounds(range) });
        };
        state.windows.forget(address);
        let region = change(&mut state, |regions| regions.remove(i));
        state.used -= if region.is_borrowed() { 0 } else { region.bytes };
        state.freed.add(region.base, region.bytes);
        Ok(())
    }

    /// Returns the fault for an access to unmapped memory.
    pub(crate) fn missing(&self, range: Range) -> FaultKind {
        let state = self.state();
        if state.freed.contains(range.at) {
            FaultKind::FreedMemory(range)
        } else if find(&state.visible, range.at)
            .is_some_and(|region| region.offset(range.at, range.bytes.into()).is_some())
        {
            // It is there, but not for this launch.
            FaultKind::OutsideWindows(range)
        } else {
            FaultKind::OutOfBounds(range)
        }
    }

    fn region(&self, address: u64, bytes: usize, access: Access) -> Result<(Region, u64), FaultKind> {
        let found = self.whole(address, bytes as u64);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        found.ok_or_else(|| self.missing(Range { space: Space::Global, access, at: address, bytes }))
    }

    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> Result<(), FaultKind> {
        let (region, offset) = self.region(address, to.len(), Access::Read)?;
        region.read(offset, to);
        Ok(())
    }

    pub(crate) fn write(&self, address: u64, from: &[u8]) -> Result<(), FaultKind> {
        let (region, offset) = self.region(address, from.len(), Access::Write)?;
        region.write(offset, from);
        Ok(())
    }

    pub(crate) fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<(), FaultKind> {
        let (region, offset) = self.region(address, bytes, Access::Write)?;
        if byte != 0 {
            region.fill(offset, byte, bytes);
            return Ok(());
        }
        // Zeros are not written over zeros: pages of the host are committed only when they are written.
        let mut page = [0; ALIGN];
        for at in (0..bytes).step_by(ALIGN) {
            let (offset, part) = (offset + at as u64, &mut page[..ALIGN.min(bytes - at)]);
            region.read(offset, part);
            if *part != [0; ALIGN][..part.len()] {
                region.fill(offset, 0, part.len());
            }
        }
        Ok(())
    }

    /// Copies between two ranges, which may overlap.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), FaultKind> {
        let (source, s) = self.region(from, bytes, Access::Read)?;
        let (target, t) = self.region(to, bytes, Access::Write)?;
        source.copy(s, &target, t, bytes);
        Ok(())
    }
}

/// Returns the address of a new allocation, far from all others.
fn reserve(state: &mut State, bytes: usize) -> u64 {
    let mut base = state.next;
    while occupied(state, base, bytes) {
        base += GAP;
    }
    state.next = (base + bytes as u64 + 2 * GAP) / GAP * GAP;
    base
}

/// Returns a range of an allocation, for faults.
fn range(at: u64, bytes: usize) -> Range {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    Range { space: Space::Global, access: Access::Write, at, bytes }
}

/// Returns true if an allocation overlaps a range.
fn occupied(state: &State, base: u64, bytes: usize) -> bool {
    let after = state.regions.partition_point(|r| r.base < base.saturating_add(bytes as u64));
    state.regions[..after].last().is_some_and(|r| r.base + r.bytes > base)
}

/// Changes the regions, and what kernels see of them: in place, if no launch has a view of them.
fn change<T>(state: &mut State, change: impl FnOnce(&mut Vec<Region>) -> T) -> T {
    // Without windows, kernels see the same list.
    state.visible = Arc::default();
    let changed = change(Arc::make_mut(&mut state.regions));
    state.visible = state.windows.visible(&state.regions);
    changed
}

fn insert(state: &mut State, region: Region) {
    let (base, bytes) = (region.base, region.bytes);
    let at = state.regions.partition_point(|r| r.base < base);
    state.used += if region.is_borrowed() { 0 } else { bytes };
    state.made += 1;
    change(state, |regions| regions.insert(at, region));
    // The heap may reuse an address that was freed.
    state.freed.take_out(base, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_apart_and_freed_memory_is_known() {
        let memory = Memory::new(1 << 20);
        let (a, b) = (memory.allocate(100).unwrap(), memory.allocate(1000).unwrap());
        assert!(b - a >= GAP && a % 256 == 0);
        memory.write(a + 96, &[1, 2, 3, 4]).unwrap();
        let mut got = [0; 4];
        memory.read(a + 96, &mut got).unwrap();
        assert_eq!(got, [1, 2, 3, 4]);
        assert!(matches!(memory.write(a + 97, &[0; 4]), Err(FaultKind::OutOfBounds(_))));
        memory.free(a).unwrap();
        assert!(matches!(memory.read(a, &mut got), Err(FaultKind::FreedMemory(_))));
        assert!(matches!(memory.free(a), Err(FaultKind::FreedMemory(_))));
        assert!(matches!(memory.free(b + 1), Err(FaultKind::OutOfBounds(_))));
        assert!(matches!(memory.allocate(1 << 20), Err(FaultKind::OutOfMemory(_))));
        assert_eq!(memory.available(), ((1 << 20) - 1000, 1 << 20));
    }

    #[test]
    fn addresses_that_are_chosen() {
        let memory = Memory::new(1 << 30);
        let base = 0xffff_8000_0001_0000;
        memory.allocate_at(base, 0x2000).unwrap();
        memory.write(base + 0x1ffc, &[1, 2, 3, 4]).unwrap();
        assert!(matches!(memory.write(base + 0x1ffd, &[0; 4]), Err(FaultKind::OutOfBounds(_))));
        for (at, bytes) in
            [(base, 1), (base + 0x1000, 0x1000), (base - 0x1000, 0x1001), (base - 0x1000, 0x4000)]
        {
            assert!(matches!(memory.allocate_at(at, bytes), Err(FaultKind::Occupied(_))), "{at:#x}");
        }
        memory.allocate_at(base - 0x1000, 0x1000).unwrap();
        memory.allocate_at(base + 0x2000, 0x1000).unwrap();
        assert!(matches!(memory.allocate_at(base + 0x3004, 4), Err(FaultKind::Misaligned(..))));
        assert!(matches!(
            memory.allocate_at(0u64.wrapping_sub(0x1000), 0x1001),
            Err(FaultKind::OutOfMemory(_))
        ));
        memory.free(base).unwrap();
        memory.allocate_at(base, 0x1000).unwrap();
        // `allocate` skips addresses chosen by `allocate_at`.
        memory.allocate_at(BASE + 0x1000, 0x1000).unwrap();
        assert!(memory.allocate(0x2000).unwrap() > BASE);
    }

    /// Pages are committed only when touched: drivers map a card's whole memory.
    #[test]
    #[cfg(target_os = "linux")]
    fn large_blocks_are_not_touched() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        let memory = Memory::new(4 << 30);
        let before = resident();
        let host = memory.allocate_host(1 << 30).unwrap().as_ptr() as u64;
        let device = memory.allocate(1 << 30).unwrap();
        assert_eq!(host % ALIGN as u64, 0);
        for base in [host, device] {
            let last = base + (1 << 30) - 4;
            memory.write(last, &[1, 2, 3, 4]).unwrap();
            memory.fill(base + 5, 0, (1 << 30) - 6).unwrap();
            let mut got = [9; 4];
            memory.read(last, &mut got).unwrap();
            assert_eq!(got, [0, 0, 0, 4], "all but the last byte is zero");
        }
        assert!(resident() < before + (256 << 20));
    }
}
