//! Device memory and the way of bytes into and out of it.
//!
//! One allocation of this library is one allocation of the driver, and callers make few and large ones; tensors are
//! offsets in them. Copies between host and device go through a ring of pinned host memory that is allocated when the
//! device is opened: the driver never sees pageable memory or a file's pages as an end of a copy. Each part of the ring
//! has an event, which is polled until a deadline before the part is used again.

use crate::driver::Address;
use crate::session::{BlockId, EventId, HostBlock, Place, Session};
use crate::thread::{DriverThread, lock, lock_within};
use ggml_core::backend::{Buffer, DeviceMemory};
use ggml_core::phase::Deadlines;
use ggml_core::{Error, Phase, Result};
use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Alignment of tensors in an arena.
pub(crate) const ALIGNMENT: usize = 256;

/// Parts of the ring.
const SLOTS: usize = 4;

/// What everything that holds memory of the device shares.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The driver thread.
    pub(crate) thread: DriverThread,
    /// Deadlines.
    pub(crate) deadlines: Deadlines,
    /// Counters.
    pub(crate) stats: Arc<Mutex<ggml_core::backend::Stats>>,
    staging: Mutex<Option<Staging>>,
}

/// Pinned host memory: the ring, then a part that programs take their inputs' places from.
#[derive(Debug)]
struct Staging {
    block: Arc<HostBlock>,
    slot_bytes: usize,
    events: [EventId; SLOTS],
    /// Free ranges of the programs' part, by offset.
    free: Vec<(usize, usize)>,
}

/// What a session opens beside itself.
pub(crate) struct StagingParts {
    block: Arc<HostBlock>,
    events: [EventId; SLOTS],
    slot_bytes: usize,
}

impl StagingParts {
    /// Allocates the ring. An eighth of it more is for the inputs of programs.
    pub(crate) fn open(session: &mut Session, bytes: usize) -> Result<StagingParts> {
        let slot_bytes = (bytes / SLOTS).max(1 << 12).next_multiple_of(ALIGNMENT);
        let inputs = (slot_bytes / 2).next_multiple_of(ALIGNMENT);
        let total = slot_bytes.checked_mul(SLOTS).and_then(|ring| ring.checked_add(inputs));
        let total =
            total.ok_or_else(|| Error::argument_said("staging_bytes", format!("{bytes} is absurd")))?;
        let block = session.allocate_host(total)?;
        let mut event = || session.create_event(false);
        Ok(StagingParts { block, events: [event()?, event()?, event()?, event()?], slot_bytes })
    }
}

/// Memory behind a [`Buffer`].
#[derive(Debug)]
pub(crate) struct Memory {
    shared: Arc<Shared>,
    kind: Kind,
}

/// A transfer in several steps that share one deadline. Time that a step waits behind other work does not count.
struct Transfer<'a> {
    shared: &'a Shared,
    phase: Phase,
    spent: Duration,
}

impl Transfer<'_> {
    fn step(&mut self, job: impl FnOnce(&mut Session) -> Result<()> + Send + 'static) -> Result<()> {
        let limit = self.shared.deadlines.transfer;
        self.spent += self.shared.thread.call_after(self.phase, limit, self.spent, move |session| {
            let start = Instant::now();
            job(session)?;
            Ok(start.elapsed())
        })?;
        Ok(())
    }

    /// Waits for everything that was started.
    fn drain(&mut self, ring: &Staging) -> Result<()> {
        let event = ring.events[0];
        self.step(move |session| {
            session.record(event)?;
            session.wait(event)
        })
    }
}

#[derive(Debug)]
enum Kind {
    Device(BlockId),
    /// `None` only while it is dropped.
    Host(Option<Arc<HostBlock>>),
}

impl DeviceMemory for Memory {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let limit = self.shared.deadlines.allocate;
        match &mut self.kind {
            Kind::Device(block) => {
                let block = *block;
                self.shared.thread.post(Phase::Close, limit, move |session| {
                    if let Err(error) = session.free(block) {
                        tracing::warn!(target: "diptych::hip", "memory was not freed: {error}");
                    }
                });
            }
            Kind::Host(block) => {
                let block = block.take();
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
    /// Device memory.
    pub(crate) fn device(shared: &Arc<Shared>, block: BlockId) -> Memory {
        Memory { shared: shared.clone(), kind: Kind::Device(block) }
    }

    /// Pinned host memory.
    pub(crate) fn host(shared: &Arc<Shared>, block: Arc<HostBlock>) -> Memory {
        Memory { shared: shared.clone(), kind: Kind::Host(Some(block)) }
    }

    /// The memory of a buffer of this device.
    pub(crate) fn of<'a>(buffer: &'a Buffer, shared: &Arc<Shared>) -> Result<&'a Memory> {
        let own = buffer.downcast::<Memory>().filter(|m| Arc::ptr_eq(&m.shared, shared));
        own.ok_or_else(|| Error::argument_said("buffer", "belongs to another backend"))
    }

    /// Address on the device.
    pub(crate) fn address(&self) -> Address {
        match &self.kind {
            Kind::Device(block) => block.address(),
            Kind::Host(block) => block.as_ref().map_or(0, |b| b.address()),
        }
    }

    /// One end of a copy.
    pub(crate) fn place(&self, offset: usize) -> Place {
        match &self.kind {
            Kind::Host(Some(block)) => Place::Host(block.clone(), offset),
            Kind::Host(None) => Place::Nowhere,
            Kind::Device(block) => Place::Device(*block, offset),
        }
    }
}

impl Shared {
    /// Takes over what a session opened.
    pub(crate) fn new(
        thread: DriverThread,
        deadlines: Deadlines,
        stats: Arc<Mutex<ggml_core::backend::Stats>>,
        parts: StagingParts,
    ) -> Shared {
        let StagingParts { block, events, slot_bytes } = parts;
        let begin = slot_bytes * SLOTS;
        let free = vec![(begin, block.bytes() - begin)];
        Shared {
            thread,
            deadlines,
            stats,
            staging: Mutex::new(Some(Staging { block, slot_bytes, events, free })),
        }
    }

    fn timeout(&self, phase: Phase) -> Error {
        let backend = self.thread.monitor().backend.clone();
        Error::Timeout { backend, phase, node: None, after: self.deadlines.of(phase) }
    }

    /// Copies bytes to a place and waits until they are there.
    pub(crate) fn upload(&self, phase: Phase, to: &Memory, offset: usize, data: &[u8]) -> Result<()> {
        self.transfer(phase, |ring, transfer| {
            if let Kind::Host(Some(block)) = &to.kind {
                transfer.drain(ring)?;
                block.write(offset, data);
                return Ok(());
            }
            for (i, chunk) in data.chunks(ring.slot_bytes).enumerate() {
                let (event, at) = (ring.events[i % SLOTS], i % SLOTS * ring.slot_bytes);
                if i >= SLOTS {
                    transfer.step(move |s| s.wait(event))?;
                }
                ring.block.write(at, chunk);
                let from = Place::Host(ring.block.clone(), at);
                let (to, bytes) = (to.place(offset + i * ring.slot_bytes), chunk.len());
                transfer.step(move |s| {
                    s.copy(&to, &from, bytes)?;
                    s.record(event)
                })?;
            }
            transfer.drain(ring)
        })?;
        lock(&self.stats).uploaded_bytes += data.len() as u64;
        Ok(())
    }

    /// Copies bytes from a place, after everything that was started.
    pub(crate) fn download(&self, phase: Phase, from: &Memory, offset: usize, out: &mut [u8]) -> Result<()> {
        self.transfer(phase, |ring, transfer| {
            if let Kind::Host(Some(block)) = &from.kind {
                transfer.drain(ring)?;
                block.read(offset, out);
                return Ok(());
            }
            let total = out.len();
            let chunks = total.div_ceil(ring.slot_bytes);
            let part = |i: usize| (i * ring.slot_bytes, ((i + 1) * ring.slot_bytes).min(total));
            let mut started = 0;
            for i in 0..chunks {
                // Copies run ahead of the reading by all parts of the ring.
                while started < chunks.min(i + SLOTS) {
                    let (begin, end) = part(started);
                    let (from, event) = (from.place(offset + begin), ring.events[started % SLOTS]);
                    let to = Place::Host(ring.block.clone(), started % SLOTS * ring.slot_bytes);
                    transfer.step(move |s| {
                        s.copy(&to, &from, end - begin)?;
                        s.record(event)
                    })?;
                    started += 1;
                }
                let event = ring.events[i % SLOTS];
                transfer.step(move |s| s.wait(event))?;
                let (begin, end) = part(i);
                ring.block.read(i % SLOTS * ring.slot_bytes, &mut out[begin..end]);
            }
            Ok(())
        })
    }

    /// Does a transfer with the ring, which nobody else uses meanwhile.
    fn transfer(
        &self,
        phase: Phase,
        work: impl FnOnce(&Staging, &mut Transfer<'_>) -> Result<()>,
    ) -> Result<()> {
        self.thread.monitor().check(phase)?;
        // Another thread's transfer ends within its own deadline.
        let guard = lock_within(&self.staging, self.deadlines.transfer).ok_or_else(|| self.timeout(phase))?;
        let Some(ring) = guard.as_ref() else { return Err(Error::argument_said("device", "is closed")) };
        let mut transfer = Transfer { shared: self, phase, spent: Duration::ZERO };
        let result = work(ring, &mut transfer);
        if let Err(error) = &result
            && !self.thread.monitor().is_given_up()
            && transfer.drain(ring).is_err()
        {
            // Copies that were started may still write to the ring.
            self.thread.monitor().give_up(error);
        }
        result
    }

    /// A range of pinned memory for a program's inputs, where there is room.
    pub(crate) fn take_inputs(self: &Arc<Shared>, bytes: usize) -> Option<InputRange> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let mut guard = lock_within(&self.staging, self.deadlines.transfer)?;
        let ring = guard.as_mut()?;
        let found = ring.free.iter().position(|&(_, size)| size >= bytes)?;
        let (offset, size) = ring.free[found];
        ring.free[found] = (offset + bytes, size - bytes);
        ring.free.retain(|&(_, size)| size > 0);
        Some(InputRange { shared: self.clone(), block: ring.block.clone(), offset, bytes })
    }

    /// Closes the session. Frees everything, within the deadline; what does not come back in time is left.
    pub(crate) fn close(&self) -> Result<()> {
        if let Some(mut guard) = lock_within(&self.staging, self.deadlines.open) {
            guard.take();
        }
        self.thread.call(Phase::Close, self.deadlines.open, Session::close)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.thread.monitor().is_given_up() {
            return;
        }
        if let Err(error) = self.close() {
            tracing::warn!(target: "diptych::hip", "the device was not closed: {error}");
        }
    }
}

/// Pinned memory of a program; given back when dropped.
#[derive(Debug)]
pub(crate) struct InputRange {
    shared: Arc<Shared>,
    block: Arc<HostBlock>,
    offset: usize,
    bytes: usize,
}

impl InputRange {
    /// Copies into the range. The program's last run is complete, so nobody reads it.
    pub(crate) fn write(&self, at: usize, data: &[u8]) -> bool {
        at.checked_add(data.len()).is_some_and(|end| end <= self.bytes)
            && self.block.write(self.offset + at, data)
    }

    /// One end of a copy.
    pub(crate) fn place(&self, at: usize) -> Place {
        Place::Host(self.block.clone(), self.offset + at)
    }
}

impl Drop for InputRange {
    fn drop(&mut self) {
        let Some(mut guard) = lock_within(&self.shared.staging, self.shared.deadlines.transfer) else {
            return;
        };
        let Some(ring) = guard.as_mut() else { return };
        ring.free.push((self.offset, self.bytes));
        ring.free.sort_unstable();
        // Neighbours become one.
        let mut merged: Vec<(usize, usize)> = Vec::new();
        for &(offset, bytes) in &ring.free {
            match merged.last_mut() {
                Some((begin, size)) if *begin + *size == offset => *size += bytes,
                _ => merged.push((offset, bytes)),
            }
        }
        ring.free = merged;
    }
}
