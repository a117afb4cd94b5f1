//! The state of a machine: cards, allocations, queues, events.

use crate::allocation::{Allocation, Orphan};
use crate::card::Card;
use crate::events::{Events, Report};
use crate::inject::Injector;
use crate::ranges::Ranges;
use crate::record::Record;
use crate::ring::Queue;
use crate::slots::Slots;
use crate::smi::{Listeners, Smi};
use crate::space::Space;
use crate::topology::gpu_id;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use virtual_gpu::{Gpu, PacketCode};

/// Nothing, or a number of errno.
pub(crate) type Answer = Result<(), i32>;

/// Longest wait for launches that use memory of the process when it is unmapped. A kernel that goes on after it is
/// a hang, which touches no other memory than before.
const UNMAP_LIMIT: Duration = Duration::from_secs(10);
/// `GET_CLOCK_COUNTERS` counts 100 million a second.
pub(crate) const FREQUENCY: u64 = 100_000_000;

/// A card of the machine.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) card: Card,
    pub(crate) gpu: Gpu,
    pub(crate) code: PacketCode,
    pub(crate) in_flight: InFlight,
}

/// Launches and copies that have begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    state: Mutex<(u64, BTreeSet<u64>)>,
    ended: Condvar,
}

/// One of them, until it is dropped.
pub(crate) struct Flight<'a>(&'a InFlight, u64);

impl InFlight {
    fn state(&self) -> MutexGuard<'_, (u64, BTreeSet<u64>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins one.
    pub(crate) fn begin(&self) -> Flight<'_> {
        let mut state = self.state();
        state.0 += 1;
        let number = state.0;
        state.1.insert(number);
        Flight(self, number)
    }

    /// Waits until all that have begun have ended, for a limited time; false if one goes on.
    pub(crate) fn wait(&self) -> bool {
        let (mut state, until) = (self.state(), Instant::now() + UNMAP_LIMIT);
        let last = state.0;
        while state.1.first().is_some_and(|&first| first <= last) {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            state = self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.state().1.remove(&self.1);
        self.0.ended.notify_all();
    }
}

/// State under one lock.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    pub(crate) next_handle: u64,
    /// Bytes that the program asked for, by address.
    pub(crate) asked: BTreeMap<u64, u64>,
    /// Freed memory that descriptors still stand for.
    pub(crate) exported: Vec<Orphan>,
    /// Bytes in use of each card.
    pub(crate) used: Vec<u64>,
    /// Shared virtual memory of each card.
    pub(crate) shared: Vec<Ranges>,
    pub(crate) queues: BTreeMap<u32, Arc<Queue>>,
    /// Page of slots of events.
    pub(crate) slots: Option<Slots>,
    pub(crate) next_queue: u32,
}

/// All of the driver that queues' threads use, too. Fields are dropped in this order: devices know parts of the
/// space.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) devices: Vec<Device>,
    pub(crate) state: Mutex<State>,
    pub(crate) events: Events,
    pub(crate) injector: Injector,
    pub(crate) record: Record,
    pub(crate) minor: u32,
    pub(crate) svm: bool,
    pub(crate) start: Instant,
    /// Management tools, by card.
    pub(crate) smi: Vec<Listeners>,
    pub(crate) space: Space,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the index of a card.
    pub(crate) fn card(&self, id: u32) -> Result<usize, i32> {
        (0..self.devices.len()).find(|&i| gpu_id(i) == id).ok_or(libc::EINVAL)
    }

    /// Returns the time in ticks of [`FREQUENCY`].
    pub(crate) fn clock(&self) -> u64 {
        1 + self.start.elapsed().as_nanos() as u64 / (1_000_000_000 / FREQUENCY)
    }

    pub(crate) fn log(&self, line: impl FnOnce() -> String) {
        self.record.log(line);
    }

    /// Reports an access of a card to a page that is not mapped.
    pub(crate) fn page_fault(&self, card: usize, address: u64) {
        self.log(|| format!("page fault of card {card} at {address:#x}"));
        self.record.count("fault", "page");
        self.inform(card, Smi::PageFault);
        self.events.fault(Report::PageFault { address, gpu_id: gpu_id(card) });
    }

    /// Reports the reset of a card.
    pub(crate) fn reset(&self, card: usize) {
        self.log(|| format!("reset of card {card}"));
        self.record.count("fault", "reset");
        self.inform(card, Smi::BeforeReset);
        if self.state().queues.values().any(|queue| queue.card == card) {
            self.inform(card, Smi::QueuesEvicted);
        }
        self.events.fault(Report::Reset { gpu_id: gpu_id(card) });
        self.inform(card, Smi::AfterReset);
    }
}
