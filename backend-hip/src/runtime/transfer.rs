//! Transfers into and out of memory.
//!
//! Copies between host and device go through a ring of pinned host memory that is allocated when the device
//! is opened. The driver never sees pageable memory or a file's pages as source or destination of a copy.
//! Each slot of the ring has an event, which is polled until a deadline before the slot is reused.

use super::copies;
use super::memory::Memory;
use super::session::{Location, Session, WORD};
use super::shared::Shared;
use super::staging::{SLOTS, Staging};
use ggml_core::sync::lock;
use ggml_core::{Deadline, Error, Phase, Result};
use std::time::{Duration, Instant};

/// Transfer in several steps that share one deadline. Time that a step waits behind other work does not
/// count.
struct Transfer<'a> {
    shared: &'a Shared,
    phase: Phase,
    spent: Duration,
}

impl Transfer<'_> {
    fn step(&mut self, job: impl FnOnce(&mut Session) -> Result<()> + Send + 'static) -> Result<()> {
        let limit = self.shared.deadlines().transfer;
        self.spent += self.shared.thread.call_after(self.phase, limit, self.spent, move |session| {
            let start = Instant::now();
            job(session)?;
            Ok(start.elapsed())
        })?;
        Ok(())
    }

    /// Waits for all started work.
    fn drain(&mut self, ring: &Staging) -> Result<()> {
        let event = ring.events[0];
        self.step(move |session| {
            session.record(event)?;
            session.wait(event)
        })
    }
}

/// Returns how a range of device memory at an offset is divided into chunks: the offset of each chunk within
/// a word of its slot, and its size in bytes. Chunks have the same offset within a word on both sides, so
/// that whole words can be copied.
fn chunks_of(ring: &Staging, offset: usize) -> (usize, usize) {
    let skew = offset % WORD;
    (skew, ring.slot_bytes - if skew == 0 { 0 } else { WORD })
}

impl Shared {
    /// Copies bytes to memory and waits until they are there.
    pub(crate) fn upload(&self, phase: Phase, to: &Memory, offset: usize, data: &[u8]) -> Result<()> {
        self.transfer(phase, |ring, transfer| {
            if let Some(block) = to.pinned() {
                transfer.drain(ring)?;
                block.write(offset, data);
                return Ok(());
            }
            let (skew, room) = chunks_of(ring, offset);
            for (i, chunk) in data.chunks(room).enumerate() {
                let (event, at) = (ring.events[i % SLOTS], i % SLOTS * ring.slot_bytes + skew);
                if i >= SLOTS {
                    transfer.step(move |s| s.wait(event))?;
                }
                ring.block.write(at, chunk);
                let from = Location::Host(ring.block.clone(), at);
                let (to, bytes) = (to.location(offset + i * room), chunk.len());
                transfer.step(move |s| {
                    s.upload(&to, &from, bytes)?;
                    s.record(event)
                })?;
            }
            transfer.drain(ring)
        })?;
        lock(&self.stats).uploaded_bytes += data.len() as u64;
        Ok(())
    }

    /// Copies bytes from memory, after all started work.
    pub(crate) fn download(&self, phase: Phase, from: &Memory, offset: usize, out: &mut [u8]) -> Result<()> {
        self.transfer(phase, |ring, transfer| {
            if let Some(block) = from.pinned() {
                transfer.drain(ring)?;
                block.read(offset, out);
                return Ok(());
            }
            let (skew, room) = chunks_of(ring, offset);
            let total = out.len();
            let chunks = total.div_ceil(room);
            let range = |i: usize| (i * room, ((i + 1) * room).min(total));
            let mut started = 0;
            for i in 0..chunks {
                // Copies run ahead of the reads by all slots of the ring.
                while started < chunks.min(i + SLOTS) {
                    let (begin, end) = range(started);
                    // Whole words, including the bytes around the range.
                    let bytes = (skew + end - begin).next_multiple_of(WORD);
                    let (from, event) = (from.location(offset + begin - skew), ring.events[started % SLOTS]);
                    let to = Location::Host(ring.block.clone(), started % SLOTS * ring.slot_bytes);
                    transfer.step(move |s| {
                        s.copy(&to, &from, bytes)?;
                        s.record(event)
                    })?;
                    started += 1;
                }
                let event = ring.events[i % SLOTS];
                transfer.step(move |s| s.wait(event))?;
                let (begin, end) = range(i);
                ring.block.read(i % SLOTS * ring.slot_bytes + skew, &mut out[begin..end]);
            }
            Ok(())
        })
    }

    /// Runs a transfer with exclusive use of the ring.
    fn transfer(
        &self,
        phase: Phase,
        work: impl FnOnce(&Staging, &mut Transfer<'_>) -> Result<()>,
    ) -> Result<()> {
        self.thread.monitor().check(phase)?;
        let waited = Deadline::new(phase, self.deadlines().transfer);
        let guard = self.staging(phase).ok_or_else(|| waited.missed(self.backend(), None))?;
        let ring = guard.as_ref().ok_or_else(|| Error::argument("device", "closed", "open"))?;
        let mut transfer = Transfer { shared: self, phase, spent: Duration::ZERO };
        let result = work(ring, &mut transfer);
        if matches!(result, Err(Error::Timeout { .. })) {
            copies::record_timeout(self.backend());
        }
        if let Err(error) = &result
            && !self.thread.monitor().is_given_up()
            && transfer.drain(ring).is_err()
        {
            // Started copies may still write to the ring.
            self.thread.monitor().give_up(error);
        }
        result
    }
}
