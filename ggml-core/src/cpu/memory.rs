//! Host memory as device memory: allocations of this backend and memory maps, accessed through pointers.
//!
//! # Protocol
//!
//! No Rust reference to the bytes outlives a call. Every access to them
//!
//! 1. passes the memory's [`Gate`] with the wanted access and holds it until done ([`Held`]);
//! 2. stays within the memory (ranges are checked here, or by [`HostMemory::window`] when a program is
//!    prepared);
//! 3. never writes to a memory map (see [`HostMemory::check_writable`]).
//!
//! So a writer has exclusive access to the bytes, and there is no writer while others read. Within a
//! program's run, the threads of the pool share the program's access; [`super::window`] divides an output
//! among them.

use super::gate::{Access, Gate};
use super::window::Window;
use super::{NAME, SharedStats, host};
use crate::backend::{Buffer, DeviceMemory, check_range};
use crate::deadline::Deadline;
use crate::error::{Error, Phase, Result};
use crate::mapped::MappedBytes;
use crate::tensor::Tensor;
use std::alloc::Layout;
use std::any::Any;
use std::ptr::NonNull;
use std::time::Duration;

/// Alignment of allocations in bytes: a cache line, and the widest vector.
pub(super) const ALIGNMENT: usize = 64;

/// Size in bytes from which an allocation is compared with the available memory first.
const LARGE: usize = 1 << 30;

/// Memory of the `cpu` backend.
#[derive(Debug)]
pub(super) struct HostMemory {
    bytes: Bytes,
    gate: Gate,
}

#[derive(Debug)]
enum Bytes {
    Own(Allocation),
    Mapped(MappedBytes),
}

/// Zeroed memory from the allocator.
#[derive(Debug)]
struct Allocation {
    /// Beginning of what was allocated, and the first aligned byte of it.
    base: NonNull<u8>,
    at: NonNull<u8>,
    layout: Layout,
    len: usize,
    stats: SharedStats,
}

// SAFETY: the pointer owns its memory like a Box; every access follows the protocol of this module.
unsafe impl Send for Allocation {}
// SAFETY: as above; concurrent accesses are excluded by the gate.
unsafe impl Sync for Allocation {}

impl Allocation {
    fn new(len: usize, stats: SharedStats) -> Option<Allocation> {
        // The allocator would write zeros into memory of a larger alignment. Without one it gets pages that are zero
        // already, so that the part of a long cache that is never used takes no memory.
        let layout = Layout::from_size_align(len.checked_add(ALIGNMENT)?, align_of::<u64>()).ok()?;
        // SAFETY: the layout has a size of at least one byte.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        // SAFETY: the next aligned byte is less than `ALIGNMENT` bytes away, and `len` bytes follow it.
        let at = unsafe { base.add(base.as_ptr().addr().wrapping_neg() % ALIGNMENT) };
        stats.change(|s| {
            s.driver_allocations += 1;
            s.allocated_bytes += len as u64;
        });
        Some(Allocation { base, at, layout, len, stats })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`, and freed only here.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
        self.stats.change(|s| s.allocated_bytes = s.allocated_bytes.saturating_sub(self.len as u64));
    }
}

impl DeviceMemory for HostMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl HostMemory {
    /// Allocates zeroed memory, aligned to [`ALIGNMENT`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocation fails or exceeds the available memory.
    pub(super) fn allocate(bytes: usize, stats: &SharedStats) -> Result<HostMemory> {
        // An operating system that overcommits memory kills the process while the zeros are written.
        let promised = bytes >= LARGE && host::obtainable_memory().is_some_and(|free| bytes as u64 > free);
        let own = if promised { None } else { Allocation::new(bytes, stats.clone()) };
        let own = own.ok_or_else(|| host::out_of_memory(bytes))?;
        Ok(HostMemory { bytes: Bytes::Own(own), gate: Gate::default() })
    }

    /// Wraps shared bytes, read-only.
    pub(super) fn mapped(bytes: MappedBytes) -> HostMemory {
        HostMemory { bytes: Bytes::Mapped(bytes), gate: Gate::default() }
    }

    /// Returns the memory of a buffer.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the buffer belongs to another backend.
    pub(super) fn of(buffer: &Buffer) -> Result<&HostMemory> {
        buffer
            .downcast()
            .ok_or_else(|| Error::argument("buffer", "another backend's", "a buffer of this one"))
    }

    /// Returns the size in bytes.
    pub(super) fn len(&self) -> usize {
        match &self.bytes {
            Bytes::Own(own) => own.len,
            Bytes::Mapped(bytes) => bytes.len(),
        }
    }

    /// True if it may be written.
    pub(super) fn writable(&self) -> bool {
        matches!(self.bytes, Bytes::Own(_))
    }

    /// Returns the window of a tensor at `offset`, if it is within this memory and aligned for its type.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] otherwise.
    pub(super) fn window(&self, offset: usize, tensor: &Tensor) -> Result<Window> {
        let wrong = |found: String, expected: String| {
            Error::argument(format!("storage of {}", tensor.describe()), found, expected)
        };
        let too_large = || wrong(format!("strides {:?}", tensor.nb), "a size that can be addressed".into());
        let span = checked_span(tensor).ok_or_else(too_large)?;
        self.check(offset, span).map_err(|_| {
            wrong(format!("{span} bytes at offset {offset}"), format!("a range within {} bytes", self.len()))
        })?;
        // SAFETY: within the memory, by the check above.
        let at = unsafe { self.start().add(offset) };
        let align = element_alignment(tensor);
        if !at.as_ptr().addr().is_multiple_of(align) || tensor.nb.iter().any(|nb| !nb.is_multiple_of(align)) {
            let found = format!("address {:?}, strides {:?}", at, tensor.nb);
            return Err(wrong(found, format!("multiples of {align} bytes")));
        }
        Ok(Window::new(at, span, tensor))
    }

    /// Copies bytes to the caller.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] outside of the memory, [`Error::Timeout`] if a program holds the memory too
    /// long.
    pub(super) fn read(&self, offset: usize, out: &mut [u8], limit: Duration) -> Result<()> {
        self.check(offset, out.len())?;
        let _held = Held::one(self, Access::Read, &Deadline::new(Phase::Readback, limit))?;
        // SAFETY: the range is within the memory, no writer holds the gate, and `out` is an exclusive
        // reference.
        unsafe {
            self.start().add(offset).copy_to_nonoverlapping(NonNull::from(&mut *out).cast(), out.len())
        };
        Ok(())
    }

    /// Copies bytes from the caller.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] outside of the memory or for a memory map, [`Error::Timeout`] if a program
    /// holds it too long.
    pub(super) fn write(&self, offset: usize, data: &[u8], limit: Duration) -> Result<()> {
        self.check(offset, data.len())?;
        self.check_writable()?;
        let _held = Held::one(self, Access::Write, &Deadline::new(Phase::Upload, limit))?;
        // SAFETY: the range is within writable memory, and this thread holds the gate exclusively.
        unsafe { self.start().add(offset).copy_from_nonoverlapping(NonNull::from(data).cast(), data.len()) };
        Ok(())
    }

    /// Copies bytes from one memory to another, or within one. The ranges must not overlap.
    ///
    /// # Errors
    /// As [`HostMemory::read`] and [`HostMemory::write`]; [`Error::InvalidArgument`] for ranges that overlap.
    pub(super) fn copy(
        from: (&Self, usize),
        to: (&Self, usize),
        bytes: usize,
        limit: Duration,
    ) -> Result<()> {
        from.0.check(from.1, bytes)?;
        to.0.check(to.1, bytes)?;
        to.0.check_writable()?;
        let same = std::ptr::eq(from.0, to.0);
        if same && from.1.abs_diff(to.1) < bytes {
            let found = format!("{bytes} bytes from offset {} to {}", from.1, to.1);
            return Err(Error::argument("copy within a buffer", found, "ranges that do not overlap"));
        }
        let mut wanted = vec![(to.0, Access::Write)];
        if !same {
            wanted.push((from.0, Access::Read));
            wanted.sort_by_key(|(memory, _)| std::ptr::from_ref::<HostMemory>(memory).addr());
        }
        let deadline = Deadline::new(Phase::Upload, limit);
        let mut held = Vec::new();
        for (memory, access) in wanted {
            held.push(Held::one(memory, access, &deadline)?);
        }
        // SAFETY: both ranges are within their memories and do not overlap, and both gates are held.
        unsafe { from.0.start().add(from.1).copy_to_nonoverlapping(to.0.start().add(to.1), bytes) };
        Ok(())
    }

    /// Returns an error for a memory map.
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.writable() {
            return Ok(());
        }
        Err(Error::argument("buffer", "a memory map", "memory that can be written"))
    }

    fn check(&self, offset: usize, len: usize) -> Result<()> {
        check_range(offset, len, self.len())
    }

    fn start(&self) -> NonNull<u8> {
        match &self.bytes {
            Bytes::Own(own) => own.at,
            // Only read: `write`, `copy` and `check_writable` prevent writes to a map.
            Bytes::Mapped(bytes) => NonNull::from(&**bytes).cast(),
        }
    }
}

/// Returns [`Tensor::span_bytes`], or `None` on overflow.
fn checked_span(t: &Tensor) -> Option<usize> {
    let row = t.ne[0].div_ceil(t.dtype.block());
    let mut span = row.checked_sub(1)?.checked_mul(t.nb[0])?.checked_add(t.dtype.block_bytes())?;
    for d in 1..4 {
        span = t.ne[d].checked_sub(1)?.checked_mul(t.nb[d])?.checked_add(span)?;
    }
    isize::try_from(span).ok()?;
    Some(span)
}

/// Returns the alignment of the Rust type as which kernels read the elements; blocks are read as bytes.
fn element_alignment(t: &Tensor) -> usize {
    if t.dtype.is_quantized() { 1 } else { t.dtype.block_bytes() }
}

/// Access granted by the gate of a memory; it ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Held<'a> {
    memory: &'a HostMemory,
    access: Access,
}

impl<'a> Held<'a> {
    /// Waits for access to a memory.
    ///
    /// # Errors
    /// [`Error::Timeout`] after the deadline.
    pub(super) fn one(memory: &'a HostMemory, access: Access, deadline: &Deadline) -> Result<Held<'a>> {
        if memory.gate.enter(access, deadline) {
            return Ok(Held { memory, access });
        }
        Err(deadline.missed(NAME, None))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.memory.gate.leave(self.access);
    }
}

/// Memories of a program, each with its kind of access.
#[derive(Debug, Default)]
pub(super) struct MemorySet {
    /// Sorted by address, so that two programs cannot deadlock.
    wanted: Vec<(Buffer, Access)>,
}

impl MemorySet {
    /// Adds a memory, or upgrades the access to one that is already there.
    pub(super) fn add(&mut self, buffer: &Buffer, access: Access) -> Result<()> {
        let address =
            |b: &Buffer| HostMemory::of(b).map(|m| std::ptr::from_ref(m).addr()).unwrap_or_default();
        HostMemory::of(buffer)?;
        match self.wanted.binary_search_by_key(&address(buffer), |(b, _)| address(b)) {
            Ok(i) => self.wanted[i].1 = self.wanted[i].1.max(access),
            Err(i) => self.wanted.insert(i, (buffer.clone(), access)),
        }
        Ok(())
    }

    /// Waits for access to all memories; dropping the result ends it. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::Timeout`] after the deadline.
    pub(super) fn hold(&self, deadline: &Deadline) -> Result<HeldSet<'_>> {
        let mut held = HeldSet { set: self, count: 0 };
        for (buffer, access) in &self.wanted {
            if !HostMemory::of(buffer)?.gate.enter(*access, deadline) {
                return Err(deadline.missed(NAME, None));
            }
            held.count += 1;
        }
        Ok(held)
    }
}

/// Granted access to the memories of a [`MemorySet`].
#[derive(Debug)]
pub(super) struct HeldSet<'a> {
    set: &'a MemorySet,
    count: usize,
}

impl Drop for HeldSet<'_> {
    fn drop(&mut self) {
        for (buffer, access) in &self.set.wanted[..self.count] {
            if let Ok(memory) = HostMemory::of(buffer) {
                memory.gate.leave(*access);
            }
        }
    }
}
