//! A queue: its ring, its indices, and how it ends.

use crate::inject::Kind;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Longest wait for the packet that runs when a queue is destroyed.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(5);

/// A queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) id: u32,
    pub(crate) card: usize,
    pub(crate) kind: u32,
    pub(crate) ring: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Address of the index of the next packet to read.
    pub(crate) read: u64,
    /// Address of the index after the last packet that was written.
    pub(crate) write: u64,
    /// Address of the doorbell.
    pub(crate) doorbell: u64,
    /// True while it has a share of the card.
    pub(crate) active: AtomicBool,
    /// True after a fault: the card takes no more packets.
    pub(crate) broken: AtomicBool,
    /// Packets that the doorbell announced so far.
    pub(crate) announced: AtomicU64,
    /// True when the queue ends: its thread takes no more packets.
    pub(crate) ended: AtomicBool,
    /// Held while a packet is processed.
    pub(crate) busy: Mutex<()>,
    /// Held while a packet is completed. True after the runtime was answered that the queue has ended, with a packet that still
    /// runs: ring, indices and signals are its own again, and nobody completes the packet.
    pub(crate) abandoned: Mutex<bool>,
    /// Packet or command that was counted last, by its index, and the fault for it.
    pub(crate) fault_of: Mutex<Option<(u64, Option<Kind>)>>,
    /// Packet that a fault delays, and until when.
    pub(crate) delayed: Mutex<Option<(u64, Instant)>>,
    /// Packet with a buffer of commands that waits for a value, and how many of its words are done.
    pub(crate) progress: Mutex<(u64, usize)>,
    /// Threads of its kernels. Each queue has its own: a kernel that waits for one of another queue must not keep the
    /// threads from that.
    pub(crate) threads: OnceLock<Option<ThreadPool>>,
}

impl Queue {
    /// Runs a kernel on the queue's threads, or on this one if the system gives none.
    pub(crate) fn run_kernel<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let id = self.id;
        let name = move |n| format!("virtual-kfd-{id}-{n}");
        let threads = self.threads.get_or_init(|| ThreadPoolBuilder::new().thread_name(name).build().ok());
        match threads {
            Some(threads) => threads.install(run),
            None => run(),
        }
    }

    /// Ends the queue, and waits for the packet that runs; false if it still runs after some time. Its thread ends with
    /// it.
    pub(crate) fn stop(&self) -> bool {
        self.ended.store(true, Ordering::SeqCst);
        let until = Instant::now() + STOP_LIMIT;
        while let Err(TryLockError::WouldBlock) = self.busy.try_lock() {
            if Instant::now() >= until {
                *self.abandoned() = true;
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        true
    }

    /// Returns whether nobody may complete packets any more, and keeps it as it is until the guard is dropped.
    pub(crate) fn abandoned(&self) -> MutexGuard<'_, bool> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
