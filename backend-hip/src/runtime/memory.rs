//! Device memory and pinned host memory.
//!
//! Each allocation of this library is one allocation of the driver. Callers make few and large ones, in which
//! tensors have offsets.

use super::session::{BlockId, HostBlock, Location, Session};
use super::shared::Shared;
use crate::driver::codes::is_fatal;
use crate::driver::{Address, Coherence};
use crate::options::HostWeights;
use ggml_core::backend::{Buffer, DeviceMemory, Usage};
use ggml_core::exported::ExportedMemory;
use ggml_core::{Error, Phase, Result};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// Fill byte of uninitialised memory: every float type reads it as NaN.
const POISON: u8 = 0xff;

/// Memory behind a [`Buffer`].
#[derive(Debug)]
pub(crate) struct Memory {
    shared: Arc<Shared>,
    block: Block,
}

/// Underlying allocation.
#[derive(Debug)]
enum Block {
    Device(BlockId),
    /// `None` only while it is being dropped.
    Host(Option<Arc<HostBlock>>),
}

impl DeviceMemory for Memory {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let limit = self.shared.deadlines().allocate;
        match &mut self.block {
            Block::Device(block) => {
                let block = *block;
                self.shared.thread.post(Phase::Close, limit, move |session| {
                    if let Err(error) = session.free(block) {
                        tracing::warn!(target: "diptych::hip", "memory was not freed: {error}");
                    }
                });
            }
            Block::Host(block) => {
                let block = block.take();
                let limit = pinning_limit(limit, block.as_ref().map_or(0, |block| block.bytes()));
                self.shared.thread.post(Phase::Close, limit, move |session| {
                    // The session is the only holder after this.
                    drop(block);
                    if let Err(error) = session.free_unused_host() {
                        tracing::warn!(target: "diptych::hip", "pinned memory was not freed: {error}");
                    }
                });
            }
        }
    }
}

impl Memory {
    /// Creates device memory.
    pub(crate) fn device(shared: &Arc<Shared>, block: BlockId) -> Memory {
        Memory { shared: shared.clone(), block: Block::Device(block) }
    }

    /// Creates pinned host memory.
    pub(crate) fn host(shared: &Arc<Shared>, block: Arc<HostBlock>) -> Memory {
        Memory { shared: shared.clone(), block: Block::Host(Some(block)) }
    }

    /// Returns the memory of a buffer of this device.
    pub(crate) fn of<'a>(buffer: &'a Buffer, shared: &Arc<Shared>) -> Result<&'a Memory> {
        let own = buffer.downcast::<Memory>().filter(|m| Arc::ptr_eq(&m.shared, shared));
        own.ok_or_else(|| Error::argument("buffer", "of another backend", "one of this backend"))
    }

    /// Returns the address on the device.
    pub(crate) fn address(&self) -> Address {
        match &self.block {
            Block::Device(block) => block.address(),
            Block::Host(block) => block.as_ref().map_or(0, |b| b.address()),
        }
    }

    /// Returns the block if it is pinned host memory.
    pub(super) fn pinned(&self) -> Option<&Arc<HostBlock>> {
        match &self.block {
            Block::Host(block) => block.as_ref(),
            Block::Device(_) => None,
        }
    }

    /// Returns an end of a copy.
    pub(crate) fn location(&self, offset: usize) -> Location {
        match &self.block {
            Block::Host(Some(block)) => Location::Host(block.clone(), offset),
            Block::Host(None) => Location::Nowhere,
            Block::Device(block) => Location::Device(*block, offset),
        }
    }
}

/// Returns the deadline of a call that pins or unpins host memory, from the deadline of an allocation: the
/// runtime clears and pins memory page by page, so the whole memory of a machine takes longer than any other
/// allocation.
fn pinning_limit(limit: Duration, bytes: usize) -> Duration {
    limit.saturating_add(Duration::from_secs(bytes as u64 >> 30))
}

/// Maps memory that the card's other driver exported.
pub(crate) fn import(
    shared: &Arc<Shared>,
    memory: ExportedMemory,
    bytes: usize,
    usage: Usage,
) -> Result<Buffer> {
    let (thread, limit) = (&shared.thread, shared.deadlines().allocate);
    thread.monitor().check(Phase::Allocate)?;
    let block = thread.call(Phase::Allocate, limit, move |session| session.import(memory, bytes))?;
    Ok(Buffer::new(Arc::new(Memory::device(shared, block)), bytes, usage))
}

/// Waits for all work that was started.
pub(crate) fn drain(shared: &Shared) -> Result<()> {
    let events = shared.events.clone();
    let limit = shared.deadlines().compute;
    shared.thread.call(Phase::Compute, limit, move |session| events.drain(session))
}

/// Device memory that weights leave to caches and intermediate results, on a device that shares the host's memory.
const LEFT: u64 = 1 << 30;

/// True if weights are stored in host memory: unless the user asks for that, only those that the device's own part of the
/// memory does not hold. The device's caches always keep that part, and a processor whose firmware reserves most of the
/// memory for the device has little else.
fn is_for_host(shared: &Shared, bytes: usize) -> Result<bool> {
    if !shared.host_weights || shared.options.asks_for_host_weights() {
        return Ok(shared.host_weights);
    }
    let limit = shared.deadlines().allocate;
    let free = shared.thread.call(Phase::Allocate, limit, |session| Ok(session.free_memory()))?;
    let needed = (bytes as u64).saturating_add(LEFT);
    Ok(bytes as u64 > shared.info.limits.max_allocation || free.is_none_or(|free| free < needed))
}

/// Allocates memory with one call of the driver.
pub(crate) fn allocate(shared: &Arc<Shared>, bytes: usize, usage: Usage) -> Result<Buffer> {
    let (thread, limit) = (&shared.thread, shared.deadlines().allocate);
    thread.monitor().check(Phase::Allocate)?;
    let host_weights = usage == Usage::Weights && is_for_host(shared, bytes)?;
    if usage == Usage::Staging || host_weights {
        let cached = host_weights && shared.cached_weights;
        let coherence = if cached { Coherence::AtLaunches } else { Coherence::Always };
        let allocate = move |session: &mut Session| session.allocate_host(bytes, coherence);
        match thread.call(Phase::Allocate, pinning_limit(limit, bytes), allocate) {
            Ok(block) => return Ok(Buffer::new(Arc::new(Memory::host(shared, block)), bytes, usage)),
            // If the host cannot pin the memory, the device may still have room.
            Err(error @ Error::OutOfMemory { .. })
                if host_weights && shared.options.host_weights == HostWeights::Auto =>
            {
                tracing::warn!(target: "diptych::hip", "weights are stored in device memory: {error}");
            }
            Err(error) => return Err(error),
        }
    }
    if bytes as u64 > shared.info.limits.max_allocation {
        return Err(Error::OutOfMemory {
            backend: shared.backend().into(),
            asked: bytes as u64,
            free: shared.info.memory,
            heap: "device memory".into(),
            driver: None,
        });
    }
    let fill = match usage {
        Usage::State => Some(0),
        _ => shared.options.poison_memory.then_some(POISON),
    };
    let events = shared.events.clone();
    let block = thread.call(Phase::Allocate, limit, move |session| {
        let block = session.allocate(bytes)?;
        let Some(byte) = fill.filter(|_| bytes > 0) else { return Ok(block) };
        if let Err(error) = session.fill(&Location::Device(block, 0), byte, bytes) {
            if !is_fatal(&error) {
                session.free(block)?;
            }
            return Err(error);
        }
        // If waiting fails, the device may still be writing: the session holds the block and frees it when it
        // closes.
        events.drain(session)?;
        Ok(block)
    })?;
    Ok(Buffer::new(Arc::new(Memory::device(shared, block)), bytes, usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 60 GiB of weights in host memory at 1 GB/s.
    #[test]
    fn pinning_takes_longer_for_more_memory() {
        let limit = Duration::from_secs(30);
        assert_eq!(pinning_limit(limit, 60 << 30), Duration::from_secs(90));
        assert_eq!(pinning_limit(limit, (1 << 30) - 1), limit);
        assert_eq!(pinning_limit(Duration::MAX, usize::MAX), Duration::MAX);
    }
}
