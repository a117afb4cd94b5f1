//! State shared by all objects of an open device.

use super::events::RunEvents;
use super::session::{HostBlock, Location, Pointer, Session};
use super::staging::{ALIGNMENT, Staging};
use super::thread::DriverThread;
use crate::arch::Profile;
use crate::code::excerpt::Loader;
use crate::code::kernels::Kernels;
use crate::options::HipOptions;
use ggml_core::backend::{DeviceInfo, Stats};
use ggml_core::phase::Deadlines;
use ggml_core::sync::{lock, lock_until};
use ggml_core::{Deadline, Phase, Result};
use std::sync::{Arc, Mutex, MutexGuard};

/// Open device.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The driver thread.
    pub(crate) thread: DriverThread,
    /// Description of the device for reports.
    pub(crate) info: DeviceInfo,
    /// Device properties that kernels rely on.
    pub(crate) profile: Profile,
    /// Kernels of the device.
    pub(crate) kernels: Kernels,
    /// Loader of kernels that are text.
    pub(crate) loader: Option<Loader>,
    /// Options it was opened with.
    pub(crate) options: HipOptions,
    /// True if weights are stored in pinned host memory.
    pub(crate) host_weights: bool,
    /// True if the device's caches keep weights in pinned host memory.
    pub(crate) cached_weights: bool,
    /// Counters.
    pub(crate) stats: Arc<Mutex<Stats>>,
    /// Events of runs.
    pub(crate) events: Arc<RunEvents>,
    /// Unused sets of events for runs that begin ahead.
    pub(crate) ahead: Mutex<Vec<Arc<RunEvents>>>,
    /// Staging memory; `None` once the device is closed.
    pub(crate) staging: Mutex<Option<Staging>>,
}

impl Shared {
    /// Returns the name of the backend.
    pub(crate) fn backend(&self) -> &str {
        &self.info.backend
    }

    /// Returns the deadlines of the phases.
    pub(crate) fn deadlines(&self) -> &Deadlines {
        &self.options.deadlines
    }

    /// Locks the staging memory. A transfer of another thread holds it no longer than its own deadline;
    /// `None` if it did.
    pub(super) fn staging(&self, phase: Phase) -> Option<MutexGuard<'_, Option<Staging>>> {
        lock_until(&self.staging, &Deadline::new(phase, self.deadlines().transfer))
    }

    /// Takes a set of events for a run that begins ahead, if one is left.
    pub(crate) fn acquire_events(&self) -> Option<Arc<RunEvents>> {
        lock(&self.ahead).pop()
    }

    /// Returns a set of events.
    pub(crate) fn release_events(&self, events: &Arc<RunEvents>) {
        lock(&self.ahead).push(events.clone());
    }

    /// Reserves pinned memory for a program's inputs or results, if there is room.
    pub(crate) fn reserve_pinned(self: &Arc<Shared>, bytes: usize) -> Option<PinnedRange> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let mut guard = self.staging(Phase::Prepare)?;
        let ring = guard.as_mut()?;
        let offset = ring.reserve(bytes)?;
        Some(PinnedRange { shared: self.clone(), block: ring.block.clone(), offset, bytes })
    }

    /// Closes the session. Frees everything within the deadline; the rest is left.
    pub(crate) fn close(&self) -> Result<()> {
        if let Some(mut guard) =
            lock_until(&self.staging, &Deadline::new(Phase::Close, self.deadlines().open))
        {
            guard.take();
        }
        self.thread.call(Phase::Close, self.deadlines().open, Session::close)
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

/// Pinned memory of a program; returned when dropped.
#[derive(Debug)]
pub(crate) struct PinnedRange {
    shared: Arc<Shared>,
    block: Arc<HostBlock>,
    offset: usize,
    bytes: usize,
}

impl PinnedRange {
    /// Copies into the range. The caller guarantees that the program's last run is complete, so that the
    /// device does not read the range. Returns false if the data does not fit.
    pub(crate) fn write(&self, at: usize, data: &[u8]) -> bool {
        at.checked_add(data.len()).is_some_and(|end| end <= self.bytes)
            && self.block.write(self.offset + at, data)
    }

    /// Copies data of the program's last run, which is complete, out of the range. Returns false if the range
    /// is exceeded.
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) -> bool {
        at.checked_add(out.len()).is_some_and(|end| end <= self.bytes)
            && self.block.read(self.offset + at, out)
    }

    /// Returns the pointer argument of a kernel that writes `bytes` bytes from `at` on.
    pub(crate) fn pointer(&self, at: usize, bytes: usize) -> Pointer {
        Pointer { address: self.block.address() + (self.offset + at) as u64, bytes }
    }

    /// Returns an end of a copy.
    pub(crate) fn location(&self, at: usize) -> Location {
        Location::Host(self.block.clone(), self.offset + at)
    }
}

impl Drop for PinnedRange {
    fn drop(&mut self) {
        if let Some(mut guard) = self.shared.staging(Phase::Close)
            && let Some(ring) = guard.as_mut()
        {
            ring.release(self.offset, self.bytes);
        }
    }
}
