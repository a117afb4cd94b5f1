//! Device memory: allocations at addresses of their own, with nothing between them.
//!
//! Device allocations lie far apart in a part of the address space that no process uses, so that an address computed
//! wrongly does not fall into a neighbour. Pinned host memory is at its own address, the same for host and device, as
//! HIP has it. Addresses are not used twice, so that the use of freed memory is seen for what it is.
//!
//! Work-groups run in parallel, and so do their loads and stores: every access is atomic (relaxed) in units of its
//! alignment, so a race in a kernel gives some value and no undefined behaviour.

#![allow(unsafe_code)]

use crate::fault::{Access, FaultKind, Range, Space};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// First address of device memory and the least gap between two allocations.
const BASE: u64 = 0x0100_0000_0000;
const GAP: u64 = 1 << 32;
/// Alignment of allocations: pages, as loaders want it.
const ALIGN: usize = 4096;
/// How many freed ranges are remembered.
const REMEMBERED: usize = 4096;

/// Bytes on the heap that live until the last user is gone.
#[derive(Debug)]
struct Block {
    /// What the heap gave; the bytes begin at the first page boundary in it.
    from: NonNull<u8>,
    layout: Layout,
    at: NonNull<u8>,
}

// SAFETY: a block is bytes; all access to them while they are shared is atomic (see `Region`).
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn new(bytes: usize) -> Option<Block> {
        // Where a large alignment is asked for, the standard library writes the zeros itself: all pages would be touched.
        let layout = Layout::from_size_align(bytes.checked_add(ALIGN)?, 1).ok()?;
        // SAFETY: the layout has at least one byte.
        let from = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let padding = (from.as_ptr() as usize).next_multiple_of(ALIGN) - from.as_ptr() as usize;
        // SAFETY: the padding is less than ALIGN, by which the layout is larger than the bytes.
        let at = unsafe { from.add(padding) };
        Some(Block { from, layout, at })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and dropped once.
        unsafe { dealloc(self.from.as_ptr(), self.layout) };
    }
}

/// A range of addresses and the bytes behind it.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    block: Arc<Block>,
}

impl Region {
    /// Pointer to a range that was checked to be inside.
    #[inline(always)]
    fn at(&self, offset: u64, bytes: u64) -> *mut u8 {
        debug_assert!(offset + bytes <= self.bytes);
        // SAFETY: callers check that offset + bytes <= self.bytes, which is the size of the block.
        unsafe { self.block.at.as_ptr().add(offset as usize) }
    }

    /// Whether a range of addresses is inside, and where.
    #[inline(always)]
    pub(crate) fn offset(&self, address: u64, bytes: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.base);
        (offset < self.bytes && self.bytes - offset >= bytes).then_some(offset)
    }

    /// Up to 16 bytes as words, the last one filled up with zeros.
    #[inline(always)]
    pub(crate) fn load(&self, offset: u64, bytes: u64) -> [u32; 4] {
        let mut words = [0; 4];
        let at = self.at(offset, bytes);
        if bytes >= 4 {
            for (i, word) in words.iter_mut().take(bytes as usize / 4).enumerate() {
                // SAFETY: inside the range.
                *word = unsafe { load_word(at.add(4 * i)) };
            }
        } else if bytes == 2 {
            // SAFETY: inside the range.
            words[0] = unsafe { u32::from(load_byte(at)) | u32::from(load_byte(at.add(1))) << 8 };
        } else {
            // SAFETY: inside the range.
            words[0] = unsafe { u32::from(load_byte(at)) };
        }
        words
    }

    /// Up to 16 bytes from words.
    #[inline(always)]
    pub(crate) fn store(&self, offset: u64, bytes: u64, words: &[u32; 4]) {
        let at = self.at(offset, bytes);
        if bytes >= 4 {
            for (i, &word) in words.iter().take(bytes as usize / 4).enumerate() {
                // SAFETY: inside the range.
                unsafe { store_word(at.add(4 * i), word) };
            }
        } else {
            for i in 0..bytes as usize {
                // SAFETY: inside the range.
                unsafe { AtomicU8::from_ptr(at.add(i)).store((words[0] >> (8 * i)) as u8, Relaxed) };
            }
        }
    }

    /// Changes 4 aligned bytes; the old value.
    pub(crate) fn update32(&self, offset: u64, f: impl Fn(u32) -> u32) -> u32 {
        // SAFETY: inside the range, and callers check the alignment.
        let word = unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) };
        word.fetch_update(SeqCst, SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
    }

    /// Changes 8 aligned bytes; the old value.
    pub(crate) fn update64(&self, offset: u64, f: impl Fn(u64) -> u64) -> u64 {
        // SAFETY: inside the range, and callers check the alignment.
        let word = unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) };
        word.fetch_update(SeqCst, SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
    }

    fn read(&self, offset: u64, to: &mut [u8]) {
        let at = self.at(offset, to.len() as u64);
        // SAFETY: inside the range; the caller of the public function orders this with kernels that write there.
        unsafe { at.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
    }

    fn write(&self, offset: u64, from: &[u8]) {
        let at = self.at(offset, from.len() as u64);
        // SAFETY: as in `read`.
        unsafe { at.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }
}

/// # Safety
/// One readable byte that is written only atomically.
#[inline(always)]
unsafe fn load_byte(at: *mut u8) -> u8 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU8::from_ptr(at) }.load(Relaxed)
}

/// # Safety
/// Four readable bytes that are written only atomically.
#[inline(always)]
unsafe fn load_word(at: *mut u8) -> u32 {
    // SAFETY: the caller's promise, and the alignment is checked.
    unsafe {
        if at as usize % 4 == 0 {
            AtomicU32::from_ptr(at.cast()).load(Relaxed)
        } else if at as usize % 2 == 0 {
            let half = |i: usize| u32::from(AtomicU16::from_ptr(at.add(i).cast()).load(Relaxed));
            half(0) | half(2) << 16
        } else {
            (0..4).fold(0, |word, i| word | u32::from(load_byte(at.add(i))) << (8 * i))
        }
    }
}

/// # Safety
/// Four writable bytes that are used only atomically.
#[inline(always)]
unsafe fn store_word(at: *mut u8, word: u32) {
    // SAFETY: the caller's promise, and the alignment is checked.
    unsafe {
        if at as usize % 4 == 0 {
            AtomicU32::from_ptr(at.cast()).store(word, Relaxed);
        } else {
            for i in 0..4 {
                AtomicU8::from_ptr(at.add(i)).store((word >> (8 * i)) as u8, Relaxed);
            }
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Sorted by address; replaced, not changed, so that a launch has its own view.
    regions: Arc<Vec<Region>>,
    freed: Vec<(u64, u64)>,
    next: u64,
    used: u64,
}

/// All memory of a device.
#[derive(Debug)]
pub(crate) struct Memory {
    state: Mutex<State>,
    capacity: u64,
}

/// The memory that a launch sees.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) regions: Arc<Vec<Region>>,
}

impl View {
    /// The region that holds an address.
    pub(crate) fn find(&self, address: u64) -> Option<&Region> {
        let after = self.regions.partition_point(|r| r.base <= address);
        self.regions[..after].last().filter(|r| address - r.base < r.bytes)
    }
}

impl Memory {
    pub(crate) fn new(capacity: u64) -> Memory {
        Memory { state: Mutex::new(State { next: BASE, ..State::default() }), capacity }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn view(&self) -> View {
        View { regions: self.state().regions.clone() }
    }

    /// Bytes that are free, and all.
    pub(crate) fn available(&self) -> (u64, u64) {
        (self.capacity - self.state().used.min(self.capacity), self.capacity)
    }

    /// Device memory, filled with zeros.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, FaultKind> {
        let mut state = self.state();
        let block = self.block(&state, bytes)?;
        let mut base = state.next;
        while occupied(&state, base, bytes) {
            base += GAP;
        }
        state.next = (base + bytes as u64 + 2 * GAP) / GAP * GAP;
        insert(&mut state, base, bytes, block);
        Ok(base)
    }

    /// Device memory at an address, filled with zeros.
    pub(crate) fn allocate_at(&self, base: u64, bytes: usize) -> Result<(), FaultKind> {
        let range = Range {
            space: Space::Global,
            access: Access::Write,
            at: base,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        };
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
        let block = self.block(&state, bytes)?;
        insert(&mut state, base, bytes, block);
        Ok(())
    }

    /// Pinned host memory, filled with zeros, at its own address, which nobody has who chose one.
    pub(crate) fn allocate_host(&self, bytes: usize) -> Result<NonNull<u8>, FaultKind> {
        let mut state = self.state();
        let block = self.block(&state, bytes)?;
        let at = block.at;
        if occupied(&state, at.as_ptr() as u64, bytes) {
            return Err(FaultKind::OutOfMemory(bytes as u64));
        }
        insert(&mut state, at.as_ptr() as u64, bytes, block);
        Ok(at)
    }

    fn block(&self, state: &State, bytes: usize) -> Result<Block, FaultKind> {
        let fits = bytes > 0 && state.used.checked_add(bytes as u64).is_some_and(|sum| sum <= self.capacity);
        fits.then(|| Block::new(bytes)).flatten().ok_or(FaultKind::OutOfMemory(bytes as u64))
    }

    /// Gives an allocation back. Its address must be that of its first byte.
    pub(crate) fn free(&self, address: u64) -> Result<(), FaultKind> {
        let mut state = self.state();
        let found = state.regions.binary_search_by_key(&address, |r| r.base);
        let Ok(i) = found else {
            let range = Range { space: Space::Global, access: Access::Write, at: address, bytes: 0 };
            let freed = state.freed.iter().any(|f| f.0 == address);
            return Err(if freed { FaultKind::FreedMemory(range) } else { FaultKind::OutOfBounds(range) });
        };
        let mut regions = state.regions.to_vec();
        let region = regions.remove(i);
        state.regions = Arc::new(regions);
        state.used -= region.bytes;
        if state.freed.len() == REMEMBERED {
            state.freed.remove(0);
        }
        state.freed.push((region.base, region.bytes));
        Ok(())
    }

    /// What an access to memory that is not there has run into.
    pub(crate) fn missing(&self, range: Range) -> FaultKind {
        let state = self.state();
        let near = |&(base, bytes): &(u64, u64)| range.at.wrapping_sub(base) < bytes;
        if state.freed.iter().any(near) {
            FaultKind::FreedMemory(range)
        } else {
            FaultKind::OutOfBounds(range)
        }
    }

    fn region(&self, address: u64, bytes: usize, access: Access) -> Result<(Region, u64), FaultKind> {
        let view = self.view();
        let found = view.find(address).and_then(|r| Some((r.clone(), r.offset(address, bytes as u64)?)));
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
        // SAFETY: inside the range; ordered as in `Region::write`.
        unsafe { region.at(offset, bytes as u64).write_bytes(byte, bytes) };
        Ok(())
    }

    /// Copies between two ranges, which may overlap.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), FaultKind> {
        let (source, s) = self.region(from, bytes, Access::Read)?;
        let (target, t) = self.region(to, bytes, Access::Write)?;
        // SAFETY: inside the ranges; `copy` allows overlap.
        unsafe { source.at(s, bytes as u64).copy_to(target.at(t, bytes as u64), bytes) };
        Ok(())
    }
}

/// Whether an allocation lies in a range.
fn occupied(state: &State, base: u64, bytes: usize) -> bool {
    let after = state.regions.partition_point(|r| r.base < base.saturating_add(bytes as u64));
    state.regions[..after].last().is_some_and(|r| r.base + r.bytes > base)
}

fn insert(state: &mut State, base: u64, bytes: usize, block: Block) {
    let mut regions = state.regions.to_vec();
    let at = regions.partition_point(|r| r.base < base);
    let bytes = bytes as u64;
    regions.insert(at, Region { base, bytes, block: Arc::new(block) });
    state.regions = Arc::new(regions);
    state.used += bytes;
    // The heap may use an address again that was freed.
    state.freed.retain(|&(b, n)| b + n <= base || b >= base + bytes);
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
        // What was chosen where the next one would lie is left alone.
        memory.allocate_at(BASE + 0x1000, 0x1000).unwrap();
        assert!(memory.allocate(0x2000).unwrap() > BASE);
    }

    /// Memory is taken when it is touched: drivers map a card's whole memory.
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
            memory.write(base + (1 << 30) - 4, &[1, 2, 3, 4]).unwrap();
        }
        assert!(resident() < before + (256 << 20));
    }

    #[test]
    fn words_at_any_address() {
        let memory = Memory::new(1 << 20);
        let a = memory.allocate(64).unwrap();
        memory.write(a, &(0..64).collect::<Vec<u8>>()).unwrap();
        let view = memory.view();
        let region = view.find(a + 5).unwrap();
        for at in 0..40u64 {
            let want = |i: u64| u32::from_le_bytes([0, 1, 2, 3].map(|b| (at + 4 * i + b) as u8));
            assert_eq!(region.load(at, 16), [want(0), want(1), want(2), want(3)]);
            assert_eq!(region.load(at, 2)[0], want(0) & 0xffff);
            assert_eq!(region.load(at, 1)[0], want(0) & 0xff);
        }
        region.store(33, 8, &[0x0403_0201, 0x0807_0605, 0, 0]);
        assert_eq!(region.load(32, 8)[..2], [0x0302_0120, 0x0706_0504]);
    }
}
