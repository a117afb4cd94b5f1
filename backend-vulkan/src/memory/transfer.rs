//! Copies between host and device, and on the device.
//!
//! Data goes through a ring of slots in host-visible memory. A slot is reused when the timeline has reached
//! the last submission that used it. The ring is allocated on first use: never, where the host can access the
//! device's memory.

use crate::deadline::guarded;
use crate::raw::buffer::Buffer;
use crate::raw::commands::{CommandPool, Commands, Holder, Recorder};
use crate::raw::device::Device;
use crate::raw::heaps::Side;
use crate::raw::memory::MemoryPool;
use ggml_core::sync::lock_until;
use ggml_core::{Deadline, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Slots of the ring.
const SLOTS: usize = 4;

/// Bytes of a slot.
const SLOT_BYTES: usize = 2 << 20;

/// Transfers of one device.
pub(crate) struct Transfers {
    device: Arc<Device>,
    pool: Arc<MemoryPool>,
    ring: Mutex<Ring>,
    recordings: AtomicU64,
    submissions: AtomicU64,
}

#[derive(Default)]
struct Ring {
    commands: Option<Arc<CommandPool>>,
    staging: Option<Arc<Buffer>>,
    slots: [Option<Commands>; SLOTS],
    next: usize,
}

impl Transfers {
    /// Creates the transfers of a device.
    pub(crate) fn new(device: &Arc<Device>, pool: &Arc<MemoryPool>) -> Transfers {
        Transfers {
            device: device.clone(),
            pool: pool.clone(),
            ring: Mutex::default(),
            recordings: AtomicU64::new(0),
            submissions: AtomicU64::new(0),
        }
    }

    /// Returns the numbers of recordings and submissions so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.recordings.load(Ordering::Relaxed), self.submissions.load(Ordering::Relaxed))
    }

    /// Copies data from the host to the device. The data has been copied out of `data` on return; the copies
    /// are ordered before everything submitted later.
    pub(crate) fn upload(
        &self,
        to: &Arc<Buffer>,
        offset: u64,
        data: &[u8],
        deadline: &Deadline,
    ) -> Result<()> {
        let mut ring = self.ring(deadline)?;
        let staging = self.staging(&mut ring, deadline)?;
        for (i, chunk) in data.chunks(SLOT_BYTES).enumerate() {
            let (slot, at) = self.slot(&mut ring, deadline)?;
            staging.write(at, chunk)?;
            let begin = offset + (i * SLOT_BYTES) as u64;
            self.submit(&mut ring, slot, deadline, &[to], |recorder| {
                recorder.copy((&staging, at), (to, begin), chunk.len() as u64)
            })?;
        }
        Ok(())
    }

    /// Copies data from the device to the host, after everything submitted before.
    pub(crate) fn download(
        &self,
        from: &Arc<Buffer>,
        offset: u64,
        out: &mut [u8],
        deadline: &Deadline,
    ) -> Result<()> {
        let mut ring = self.ring(deadline)?;
        let staging = self.staging(&mut ring, deadline)?;
        let mut begin = offset;
        // Up to one copy per slot is in flight at a time.
        for round in out.chunks_mut(SLOTS * SLOT_BYTES) {
            let mut pending = Vec::new();
            for chunk in round.chunks_mut(SLOT_BYTES) {
                let (slot, at) = self.slot(&mut ring, deadline)?;
                let (len, source) = (chunk.len() as u64, begin);
                let value = self.submit(&mut ring, slot, deadline, &[from], |recorder| {
                    recorder.copy((from, source), (&staging, at), len)
                })?;
                begin += len;
                pending.push((value, at, chunk));
            }
            for (value, at, chunk) in pending {
                self.device.wait(value, deadline)?;
                staging.read(at, chunk)?;
            }
        }
        Ok(())
    }

    /// Copies data on the device.
    pub(crate) fn copy(
        &self,
        from: (&Arc<Buffer>, u64),
        to: (&Arc<Buffer>, u64),
        bytes: u64,
        deadline: &Deadline,
    ) -> Result<()> {
        let mut ring = self.ring(deadline)?;
        let (slot, _) = self.slot(&mut ring, deadline)?;
        let used = [from.0, to.0];
        self.submit(&mut ring, slot, deadline, &used, |recorder| recorder.copy(from, to, bytes)).map(|_| ())
    }

    /// Fills a whole buffer with a word.
    pub(crate) fn fill(&self, buffer: &Arc<Buffer>, word: u32, deadline: &Deadline) -> Result<()> {
        let mut ring = self.ring(deadline)?;
        let (slot, _) = self.slot(&mut ring, deadline)?;
        self.submit(&mut ring, slot, deadline, &[buffer], |recorder| {
            recorder.fill(buffer, 0, buffer.bytes(), word)
        })
        .map(|_| ())
    }

    /// Passes exported buffers to the card's other driver or takes them back. Returns the value that the timeline
    /// reaches when everything submitted until then is complete.
    pub(crate) fn pass(&self, buffers: &[Arc<Buffer>], to: Holder, deadline: &Deadline) -> Result<u64> {
        let mut ring = self.ring(deadline)?;
        let (slot, _) = self.slot(&mut ring, deadline)?;
        let used: Vec<&Arc<Buffer>> = buffers.iter().collect();
        self.submit(&mut ring, slot, deadline, &used, |recorder| recorder.pass(buffers, to))
    }

    /// Releases buffers that finished transfers still hold.
    pub(crate) fn release(&self) {
        if let Ok(mut ring) = self.ring.try_lock() {
            ring.slots.iter_mut().flatten().for_each(Commands::release);
        }
    }

    /// Locks the ring, which another thread's transfer may hold for a while.
    fn ring(&self, deadline: &Deadline) -> Result<MutexGuard<'_, Ring>> {
        lock_until(&self.ring, deadline).ok_or_else(|| deadline.missed(&self.device.name, None))
    }

    fn staging(&self, ring: &mut Ring, deadline: &Deadline) -> Result<Arc<Buffer>> {
        if let Some(staging) = &ring.staging {
            return Ok(staging.clone());
        }
        let pool = self.pool.clone();
        let staging = guarded(&self.device.name, *deadline, move || {
            Buffer::new(&pool, (SLOTS * SLOT_BYTES) as u64, Side::Host, "staging ring")
        })?;
        ring.staging = Some(staging.clone());
        Ok(staging)
    }

    /// Returns a slot that the device no longer uses, and its offset in the staging buffer.
    fn slot(&self, ring: &mut Ring, deadline: &Deadline) -> Result<(usize, u64)> {
        let slot = ring.next;
        if let Some(commands) = &ring.slots[slot] {
            self.device.wait(commands.last_use(), deadline)?;
        }
        ring.next = (slot + 1) % SLOTS;
        Ok((slot, (slot * SLOT_BYTES) as u64))
    }

    fn submit(
        &self,
        ring: &mut Ring,
        slot: usize,
        deadline: &Deadline,
        used: &[&Arc<Buffer>],
        record: impl FnOnce(&mut Recorder<'_>) -> Result<()>,
    ) -> Result<u64> {
        let phase = deadline.phase();
        let pool = match &ring.commands {
            Some(pool) => pool.clone(),
            None => ring.commands.insert(CommandPool::new(&self.device, phase)?).clone(),
        };
        let mut recorder = match ring.slots[slot].take() {
            Some(finished) => pool.reuse(finished, phase)?,
            None => pool.record(phase)?,
        };
        record(&mut recorder)?;
        let mut commands = recorder.finish()?;
        let submitted = commands.submit(deadline);
        ring.slots[slot] = Some(commands);
        self.recordings.fetch_add(1, Ordering::Relaxed);
        let value = submitted?;
        self.submissions.fetch_add(1, Ordering::Relaxed);
        used.iter().for_each(|buffer| buffer.used(value));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device;
    use crate::options::{MemoryBudget, VulkanOptions};
    use crate::raw::commands::Scope;
    use crate::raw::device::Purpose;
    use ggml_core::{Error, Phase};
    use std::time::Duration;

    /// Returns the transfers of the best device; `None` with a message if there is no device.
    fn transfers() -> Option<Transfers> {
        match device::open(&VulkanOptions::default(), Purpose::Compute) {
            Ok((device, _)) => {
                let pool = MemoryPool::new(&device, MemoryBudget::Reported).unwrap();
                Some(Transfers::new(&device, &pool))
            }
            Err(Error::Unavailable { reason, .. }) => {
                eprintln!("skipped: {reason}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn deadline() -> Deadline {
        Deadline::new(Phase::Upload, Duration::from_secs(60))
    }

    #[test]
    fn the_host_may_read_what_a_transfer_wrote() {
        let Some(transfers) = transfers() else { return };
        let buffer = || Buffer::new(&transfers.pool, 64, Side::Device, "test").unwrap();
        let (a, b) = (buffer(), buffer());
        transfers.upload(&a, 0, &[1; 64], &deadline()).unwrap();
        transfers.copy((&a, 0), (&b, 0), 64, &deadline()).unwrap();
        transfers.fill(&a, 2, &deadline()).unwrap();
        transfers.download(&b, 0, &mut [0; 64], &deadline()).unwrap();
        let ring = transfers.ring(&deadline()).unwrap();
        let last: Vec<_> = ring.slots.iter().flatten().map(|c| c.barriers().last().copied()).collect();
        assert_eq!(last, [Some((Scope::Device, Scope::Host)); SLOTS]);
    }

    #[test]
    fn a_transfer_that_cannot_be_recorded_occupies_no_slot() {
        let Some(transfers) = transfers() else { return };
        let buffer = Buffer::new(&transfers.pool, 64, Side::Device, "test").unwrap();
        for _ in 0..3 * SLOTS {
            transfers.fill(&buffer, 7, &deadline()).unwrap();
            let overlapping = transfers.copy((&buffer, 0), (&buffer, 8), 32, &deadline());
            assert!(matches!(overlapping, Err(Error::InvalidArgument { .. })), "{overlapping:?}");
        }
        let ring = transfers.ring(&deadline()).unwrap();
        let created = ring.commands.as_ref().map(|pool| pool.created());
        assert!(
            created.is_some_and(|created| created <= SLOTS),
            "{created:?} command buffers for {SLOTS} slots"
        );
    }
}
