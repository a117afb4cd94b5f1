//! One run of a program: threads, scratch memory, and the time at which it must end.

use super::host;
use super::isa::Detected;
use crate::deadline::Deadline;
use crate::error::Result;
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Estimated nanoseconds on one thread below which a step stays there.
///
/// Measured with two threads: handing over half of the work costs about 1 microsecond if the other thread is awake,
/// as it mostly is between the steps of a run, and 10 to 20 if it sleeps.
const WORTH_NS: usize = 12_000;

/// A cache line of scratch memory.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Line([u8; 64]);

/// Scratch memory of at least `bytes` bytes.
///
/// # Errors
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the allocator has none.
pub(super) fn lines(bytes: usize) -> Result<Vec<Line>> {
    let count = bytes.div_ceil(size_of::<Line>());
    bytemuck::allocation::try_zeroed_vec(count).map_err(|()| host::out_of_memory(bytes))
}

/// What every step of a run gets.
#[derive(Debug)]
pub(super) struct Run<'a> {
    detected: Detected,
    threads: usize,
    locals: &'a [Mutex<Vec<Line>>],
    deadline: Deadline,
    expired: AtomicBool,
}

impl<'a> Run<'a> {
    /// A run on `threads` threads of the pool that it is called in; `locals` is scratch memory for each of them.
    pub(super) fn new(
        detected: Detected,
        threads: usize,
        locals: &'a [Mutex<Vec<Line>>],
        deadline: Deadline,
    ) -> Run<'a> {
        Run { detected, threads, locals, deadline, expired: AtomicBool::new(false) }
    }

    /// The instruction set to dispatch kernels to.
    pub(super) fn detected(&self) -> Detected {
        self.detected
    }

    /// Threads that share the work.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Whether the deadline has passed; results of the step are incomplete then.
    pub(super) fn expired(&self) -> bool {
        self.expired.load(Ordering::Relaxed)
    }

    /// Whether work is worth several threads: `ns` is the estimated time on one.
    pub(super) fn is_shared(&self, ns: usize) -> bool {
        self.threads > 1 && ns >= WORTH_NS
    }

    /// Notes whether the deadline has passed.
    pub(super) fn check_deadline(&self) -> bool {
        if self.deadline.passed() {
            self.expired.store(true, Ordering::Relaxed);
        }
        self.expired()
    }

    /// Calls `f` for every number below `count`, on several threads if `ns`, the estimated time on one thread, is
    /// worth it. After the deadline nothing more is called.
    pub(super) fn for_each(&self, count: usize, ns: usize, f: impl Fn(usize) + Sync) {
        let task = |n: usize| {
            if !self.expired() {
                f(n);
                // A short step ends before anyone would look.
                if ns > WORTH_NS {
                    self.check_deadline();
                }
            }
        };
        if count < 2 || !self.is_shared(ns) {
            (0..count).for_each(task);
        } else {
            // Whoever is free takes the next one, so that nobody waits long for a thread that came late.
            let next = AtomicUsize::new(0);
            (0..self.threads.min(count)).into_par_iter().with_max_len(1).for_each(|_| {
                while let n = next.fetch_add(1, Ordering::Relaxed)
                    && n < count
                {
                    task(n);
                }
            });
        }
    }

    /// Calls `f` for every piece of `chunk` lines, as [`Run::for_each`] does.
    pub(super) fn for_each_chunk(
        &self,
        lines: &mut [Line],
        chunk: usize,
        ns: usize,
        f: impl Fn(usize, &mut [Line]) + Sync,
    ) {
        let chunk = chunk.max(1);
        if lines.len() <= chunk || !self.is_shared(ns) {
            lines.chunks_mut(chunk).enumerate().for_each(|(i, lines)| f(i, lines));
        } else {
            lines.par_chunks_mut(chunk).enumerate().for_each(|(i, lines)| f(i, lines));
        }
    }

    /// The calling thread's scratch memory. A task must not start other tasks while it has it.
    pub(super) fn local<R>(&self, f: impl FnOnce(&mut [Line]) -> R) -> R {
        let index = rayon::current_thread_index().unwrap_or(0) % self.locals.len().max(1);
        match self.locals.get(index) {
            // Never contended: each thread of the pool has its own, and one program runs in it at a time.
            Some(local) => f(&mut local.lock().unwrap_or_else(PoisonError::into_inner)),
            None => f(&mut []),
        }
    }
}
