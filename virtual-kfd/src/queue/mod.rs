//! Queues: a thread each, which takes packets from the ring as the card's command processor does. A thread for
//! each, because a kernel of one queue may wait for a value that another queue writes.

#![allow(unsafe_code)]

mod aql;
mod pm4;
mod sdma;

use crate::abi::{self, CreateQueue, UpdateQueue};
use crate::inject::{Kind, Point};
use crate::process::{self, Signal};
use crate::ring::{Queue, STOP_LIMIT};
use crate::shared::{Answer, Shared};
use crate::space::Space;
use crate::topology::gpu_id;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use virtual_gpu::FaultKind;

/// Most queues of a process: the doorbells of a page.
const MOST: u32 = 1024;
/// Idle looks at a doorbell that only give the processor away; after them, the thread sleeps.
const EAGER: u32 = 200;

/// Offset in `amd_queue_t` of the index of the next packet to read, which a queue is created with.
const READ_INDEX: u64 = 128;
/// Offset in `amd_queue_t` of the signal that is set when the queue fails.
const INACTIVE_SIGNAL: u64 = 192;

/// State of a packet after it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It is done.
    Done,
    /// It waits for something, or there is none.
    Waits,
    /// The queue takes no more packets.
    Broken,
}

/// Creates a queue and starts its thread.
pub(crate) fn create(shared: &Arc<Shared>, a: &mut CreateQueue) -> Answer {
    let card = shared.card(a.gpu_id)?;
    let is_copy = matches!(a.kind, abi::queue::SDMA | abi::queue::SDMA_XGMI | abi::queue::SDMA_BY_ENGINE);
    let is_known = is_copy && shared.devices[card].card.copy_engines > 0 || a.kind == abi::queue::AQL;
    // A queue without a ring may get one later (`UPDATE_QUEUE`).
    let are_indices = [a.read_pointer, a.write_pointer].iter().all(|&p| p != 0 && p % 8 == 0);
    if !is_known || !is_ring(a.ring, a.ring_bytes) || !are_indices || !is_share(a.percentage, a.priority) {
        return Err(libc::EINVAL);
    }
    let mut state = shared.state();
    let id = (1..MOST).map(|n| (state.next_queue + n - 1) % MOST).find(|id| !state.queues.contains_key(id));
    let id = id.ok_or(libc::ENOSPC)?;
    state.next_queue = (id + 1) % MOST;
    let offset = Space::doorbells(card) + u64::from(id) * 8;
    let doorbell = shared.space.at(offset).as_ptr() as u64;
    // SAFETY: a word of the card's page of doorbells, which lives as long as the space.
    unsafe { process::word64(doorbell) }.store(u64::MAX, Ordering::SeqCst);
    let queue = Arc::new(Queue {
        id,
        card,
        kind: a.kind,
        ring: AtomicU64::new(a.ring),
        bytes: AtomicU64::new(a.ring_bytes.into()),
        read: a.read_pointer,
        write: a.write_pointer,
        doorbell,
        active: AtomicBool::new(a.percentage > 0 && a.ring != 0),
        broken: AtomicBool::new(false),
        announced: AtomicU64::new(0),
        ended: AtomicBool::new(false),
        busy: Mutex::default(),
        abandoned: Mutex::new(false),
        fault_of: Mutex::new(None),
        delayed: Mutex::new(None),
        progress: Mutex::new((u64::MAX, 0)),
        threads: OnceLock::new(),
    });
    (a.queue_id, a.doorbell_offset) = (id, offset);
    shared.log(|| format!("  {queue:x?}"));
    shared.record.count("queue", if is_copy { "copies" } else { "packets" });
    let (for_thread, of_thread) = (shared.clone(), queue.clone());
    std::thread::Builder::new()
        .name(format!("virtual-kfd-{id}"))
        .spawn(move || of_thread.run(&for_thread))
        .map_err(|_| libc::ENOMEM)?;
    state.queues.insert(id, queue);
    Ok(())
}

impl Queue {
    /// Processes packets until the queue ends.
    fn run(&self, shared: &Shared) {
        let mut idle = 0u32;
        loop {
            {
                let _busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
                if self.ended.load(Ordering::SeqCst) {
                    return;
                }
                let runs = self.active.load(Ordering::SeqCst) && !self.broken.load(Ordering::SeqCst);
                let step = if !runs {
                    Step::Waits
                } else if self.kind == abi::queue::AQL {
                    self.packet(shared)
                } else {
                    self.command(shared)
                };
                match step {
                    Step::Done => {
                        idle = 0;
                        continue;
                    }
                    Step::Broken => self.broken.store(true, Ordering::SeqCst),
                    Step::Waits => {}
                }
            }
            idle = idle.saturating_add(1);
            if idle < EAGER {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(if idle < 10 * EAGER { 50 } else { 500 }));
            }
        }
    }

    /// Returns the address of the `amd_queue_t` of a queue of packets.
    fn queue(&self) -> u64 {
        self.read.wrapping_sub(READ_INDEX)
    }

    /// Counts a packet or command, once however often it is looked at; returns the fault for it.
    fn injected(&self, shared: &Shared, index: u64, point: Point) -> Option<Kind> {
        let mut last = self.fault_of.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some((of, kind)) if of == index => kind,
            _ => {
                let kind = shared.injector.next(|p| *p == point);
                if let Some(kind) = kind {
                    shared.log(|| format!("queue {}: injected {kind:?} at {point:?}", self.id));
                    shared.record.count("injected", &format!("{point:?} {kind:?}"));
                }
                *last = Some((index, kind));
                kind
            }
        }
    }

    /// Returns true if the interrupt of the packet that was counted last is lost.
    fn is_lost(&self) -> bool {
        matches!(*self.fault_of.lock().unwrap_or_else(PoisonError::into_inner), Some((_, Some(Kind::Lost))))
    }

    /// Returns true until the time of a delay that begins with the first call for a packet has passed.
    fn is_delayed(&self, packet: u64, by: Duration) -> bool {
        let mut delayed = self.delayed.lock().unwrap_or_else(PoisonError::into_inner);
        match *delayed {
            Some((of, until)) if of == packet => Instant::now() < until,
            _ => {
                *delayed = Some((packet, Instant::now() + by));
                true
            }
        }
    }

    /// Raises the interrupt of a signal's event.
    ///
    /// # Safety The signal is live, or its mailbox was read while it was.
    unsafe fn interrupt(&self, shared: &Shared, mailbox: Option<(u64, u32)>) {
        if let Some((mailbox, event)) = mailbox {
            // SAFETY: the mailbox is a slot of the runtime's page of events, which lives as long as it does.
            unsafe { process::word64(mailbox) }.store(event.into(), Ordering::Release);
            shared.record.count("interrupt", "signal");
            shared.interrupt(event);
        }
    }

    /// Reports a fault of a kernel or a copy as the card's interrupt handlers do.
    fn fault(&self, shared: &Shared, fault: &FaultKind) -> Step {
        let abandoned = self.abandoned();
        match fault {
            _ if *abandoned => {}
            FaultKind::OutOfBounds(r) | FaultKind::FreedMemory(r)
                if r.space == virtual_gpu::Space::Global =>
            {
                shared.page_fault(self.card, r.at & !4095);
            }
            _ if self.kind == abi::queue::AQL => self.report(shared, fault),
            _ => shared.reset(self.card),
        }
        Step::Broken
    }

    /// Writes the error of a queue to its inactive signal.
    fn report(&self, shared: &Shared, fault: &FaultKind) {
        // Codes of the trap handler and of the packet processor, as ROCR-Runtime's `DynamicQueueEventsHandler` reads
        // them.
        let code: i64 = match fault {
            FaultKind::IllegalInstruction(_) => 0x4000_0000,
            FaultKind::InvalidLaunch(_) => 2,
            _ => 0x2000_0000,
        };
        shared.record.count("fault", "queue");
        // SAFETY: the read index of an AQL queue lies in its `amd_queue_t`, which lives until it is destroyed; the
        // signal lives as long.
        unsafe {
            let signal = Signal(process::word64(self.queue() + INACTIVE_SIGNAL).load(Ordering::Relaxed));
            if signal.0 != 0 {
                let mailbox = signal.mailbox();
                signal.set(code);
                self.interrupt(shared, mailbox);
            }
        }
    }
}

/// Returns true for a ring that a queue may have. One without a ring may get it later (`UPDATE_QUEUE`).
fn is_ring(ring: u64, bytes: u32) -> bool {
    let is_size = bytes.is_power_of_two() && bytes >= 256;
    ring % 256 == 0 && (is_size || bytes == 0)
}

/// Returns true for a share of a card in percent, in its lowest byte, and a priority.
fn is_share(percentage: u32, priority: u32) -> bool {
    percentage & 0xff <= 100 && priority <= 15
}

impl Shared {
    /// Ends a queue.
    pub(crate) fn destroy_queue(&self, id: u32) -> Answer {
        let queue = self.state().queues.remove(&id).ok_or(libc::EINVAL)?;
        // As the kernel answers when a queue cannot be taken from the card.
        if queue.stop() { Ok(()) } else { Err(libc::ETIME) }
    }

    /// Changes a queue's ring and share; without one of them, it stands still.
    pub(crate) fn update_queue(&self, a: &mut UpdateQueue) -> Answer {
        if !is_ring(a.ring, a.ring_bytes) || !is_share(a.percentage, a.priority) {
            return Err(libc::EINVAL);
        }
        let queue = self.state().queues.get(&a.queue_id).cloned().ok_or(libc::EINVAL)?;
        let active = a.percentage > 0 && a.ring != 0;
        queue.active.store(false, Ordering::SeqCst);
        // Not while a packet runs.
        let until = Instant::now() + STOP_LIMIT;
        loop {
            match queue.busy.try_lock() {
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return Err(libc::ETIME),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
                _between_packets => {
                    queue.ring.store(a.ring, Ordering::SeqCst);
                    queue.bytes.store(a.ring_bytes.into(), Ordering::SeqCst);
                    queue.active.store(active, Ordering::SeqCst);
                    break;
                }
            }
        }
        self.log(|| format!("  queue {} of card {}: {}%", a.queue_id, gpu_id(queue.card), a.percentage));
        Ok(())
    }
}
