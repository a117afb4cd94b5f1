//! Copies and fills of the session's memory.

use super::{BlockId, HostBlock, Pointer, Session};
use crate::code::kernels::Kernel;
use crate::driver::codes::Call;
use crate::driver::{Address, Direction, Shape};
use crate::op::copy;
use ggml_core::{Error, Result};
use std::sync::Arc;

/// Size of a word of the copying kernel in bytes. Allocations of device memory consist of whole words.
pub(crate) const WORD: usize = 4;

/// Maximum number of words per launch of the copying kernel.
const MOST_WORDS: usize = 1 << 28;

/// Source or destination of a copy: memory and an offset in bytes.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    /// Device memory.
    Device(BlockId, usize),
    /// Pinned host memory.
    Host(Arc<HostBlock>, usize),
    /// Freed memory; every copy is refused.
    Nowhere,
}

impl Location {
    /// Returns the location `bytes` bytes further on.
    fn after(&self, bytes: usize) -> Location {
        match self {
            Location::Device(block, offset) => Location::Device(*block, offset.saturating_add(bytes)),
            Location::Host(block, offset) => Location::Host(block.clone(), offset.saturating_add(bytes)),
            Location::Nowhere => Location::Nowhere,
        }
    }
}

/// Rounds bytes up to whole words of the copying kernel.
pub(super) fn whole_words(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(WORD).unwrap_or(bytes)
}

impl Session {
    /// Returns the address of a range if it is within one allocation of this session, and true if that is
    /// host memory.
    fn range(&self, location: &Location, bytes: usize) -> Result<(Address, bool)> {
        let (base, offset, size, host) = match location {
            Location::Nowhere => (0, 0, None, false),
            Location::Device(block, offset) => {
                (block.0, *offset, self.blocks.get(&block.0).copied().map(whole_words), false)
            }
            Location::Host(block, offset) => {
                let own = self.host.iter().any(|b| Arc::ptr_eq(b, block));
                (block.address(), *offset, own.then_some(block.bytes), true)
            }
        };
        let within = size.is_some_and(|size| offset.checked_add(bytes).is_some_and(|end| end <= size));
        if within {
            Ok((base + offset as u64, host))
        } else {
            let found = format!("{bytes} bytes at offset {offset}");
            Err(Error::argument("memory range", found, "a range in one allocation"))
        }
    }

    /// Selects a kernel for copies between host and device from now on.
    pub(crate) fn use_copier(&mut self, kernel: Kernel) -> Result<()> {
        self.function(&kernel)?;
        self.copier = Some(Arc::new(kernel));
        Ok(())
    }

    /// Starts a copy from pinned memory whose contents stay unchanged until the copy is complete. So if a
    /// kernel copies words, the remaining bytes at both ends can be written one by one.
    pub(crate) fn upload(&mut self, to: &Location, from: &Location, bytes: usize) -> Result<()> {
        let ((to_at, _), (from_at, _)) = (self.range(to, bytes)?, self.range(from, bytes)?);
        let Location::Host(block, offset) = from else { return self.copy(to, from, bytes) };
        let skew = (to_at % WORD as u64) as usize;
        if self.copier.is_none() || from_at % WORD as u64 != skew as u64 {
            return self.copy(to, from, bytes);
        }
        let head = ((WORD - skew) % WORD).min(bytes);
        let tail = (bytes - head) % WORD;
        for at in (0..head).chain(bytes - tail..bytes) {
            let mut byte = [0];
            block.read(offset + at, &mut byte);
            self.fill(&to.after(at), byte[0], 1)?;
        }
        self.copy(&to.after(head), &from.after(head), bytes - head - tail)
    }

    /// Starts a copy.
    pub(crate) fn copy(&mut self, to: &Location, from: &Location, bytes: usize) -> Result<()> {
        let ((to, to_host), (from, from_host)) = (self.range(to, bytes)?, self.range(from, bytes)?);
        if bytes == 0 {
            return Ok(());
        }
        let direction = match (from_host, to_host) {
            (true, false) => Direction::HostToDevice,
            (false, true) => Direction::DeviceToHost,
            (false, false) => Direction::DeviceToDevice,
            (true, true) => Direction::HostToHost,
        };
        let words = [to, from, bytes as u64].iter().all(|n| n % WORD as u64 == 0);
        if let Some(copier) = self.copier.clone().filter(|_| from_host != to_host && words) {
            return self.copy_words(&copier, to, from, bytes);
        }
        let stream = self.stream;
        // SAFETY: both ranges were checked and stay allocated: device memory is freed by this thread through
        // `hipFree`, which waits for the device; pinned memory is freed when it has no other holder and the
        // stream is drained (`close`).
        self.call(Call::Copy, |d| unsafe { d.copy(to, from, bytes, direction, stream) })
    }

    fn copy_words(&mut self, copier: &Kernel, to: Address, from: Address, bytes: usize) -> Result<()> {
        for begin in (0..bytes).step_by(MOST_WORDS * WORD) {
            let bytes = (bytes - begin).min(MOST_WORDS * WORD);
            let launch = copy::of_words((bytes / WORD) as u32);
            let shape = Shape { grid: launch.grid, block: launch.block, lds_bytes: launch.lds_bytes };
            let pointers = [from, to].map(|at| Pointer { address: at + begin as u64, bytes });
            let ready = self.prepare_launch(copier, shape, (&pointers, 1), &launch.params)?;
            self.launch(&ready)?;
        }
        Ok(())
    }

    /// Starts filling device memory with a byte.
    pub(crate) fn fill(&mut self, to: &Location, byte: u8, bytes: usize) -> Result<()> {
        let (to, _) = self.range(to, bytes)?;
        let stream = self.stream;
        // SAFETY: the range was checked, the stream is this session's.
        self.call(Call::Fill, |d| unsafe { d.fill(to, byte, bytes, stream) })
    }
}
