//! One run of a program: threads, scratch memory and deadline.

use super::crew::Crew;
use super::host;
use super::isa::Detected;
use crate::deadline::Deadline;
use crate::error::Result;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Estimated nanoseconds on one thread below which a step is not shared: several times the cost of sharing
/// with awake helpers. Helpers are usually awake between the steps of a run.
const SHARED_NS: usize = 4_000;

/// Estimated nanoseconds between checks of the clock by a thread.
const CHECK_NS: usize = 100_000;

/// Cache line of scratch memory.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Line([u8; 64]);

/// Allocates scratch memory of at least `bytes` bytes.
///
/// # Errors
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the allocation fails.
pub(super) fn lines(bytes: usize) -> Result<Vec<Line>> {
    let count = bytes.div_ceil(size_of::<Line>());
    bytemuck::allocation::try_zeroed_vec(count).map_err(|()| host::out_of_memory(bytes))
}

/// Context shared by all steps of a run.
#[derive(Debug)]
pub(super) struct Execution<'a> {
    detected: Detected,
    threads: usize,
    crew: Option<&'a Crew>,
    locals: &'a [Mutex<Vec<Line>>],
    deadline: Deadline,
    expired: AtomicBool,
}

impl<'a> Execution<'a> {
    /// Creates a run on `threads` threads, the caller's and those of `crew`; `locals` is scratch memory for
    /// each of them.
    pub(super) fn new(
        detected: Detected,
        threads: usize,
        crew: Option<&'a Crew>,
        locals: &'a [Mutex<Vec<Line>>],
        deadline: Deadline,
    ) -> Execution<'a> {
        Execution { detected, threads, crew, locals, deadline, expired: AtomicBool::new(false) }
    }

    /// Returns the instruction set for dispatching kernels.
    pub(super) fn detected(&self) -> Detected {
        self.detected
    }

    /// Returns the number of threads that share the work.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// True if the deadline has passed; the results of the step are then incomplete.
    pub(super) fn expired(&self) -> bool {
        self.expired.load(Ordering::Relaxed)
    }

    /// True if work is worth sharing between threads; `ns` is the estimated time on one thread.
    pub(super) fn is_shared(&self, ns: usize) -> bool {
        self.threads > 1 && ns >= SHARED_NS
    }

    /// Checks the clock, and returns true if the deadline has passed.
    pub(super) fn check_deadline(&self) -> bool {
        if self.deadline.passed() {
            self.expired.store(true, Ordering::Relaxed);
        }
        self.expired()
    }

    /// Calls `f` for every index below `count`, on several threads if `ns`, the estimated time on one thread,
    /// is worth it. After the deadline there are no further calls.
    pub(super) fn for_each(&self, count: usize, ns: usize, f: impl Fn(usize) + Sync) {
        self.for_each_index(count, ns, &f);
    }

    /// Implements [`Execution::for_each`] once for all functions.
    fn for_each_index(&self, count: usize, ns: usize, f: &(dyn Fn(usize) + Sync)) {
        let between = (count.saturating_mul(CHECK_NS) / ns.max(1)).max(1);
        let task = |n: usize| {
            if !self.expired() {
                f(n);
                if (n + 1).is_multiple_of(between) {
                    self.check_deadline();
                }
            }
        };
        match self.crew.filter(|_| count > 1 && self.is_shared(ns)) {
            None => (0..count).for_each(task),
            Some(crew) => {
                // A free thread claims the next range of indices. Ranges are long at first, so that memory is
                // read in order, and short at the end, so that no thread waits long for another or for one
                // that started late.
                let next = AtomicUsize::new(0);
                let after = |n: usize| (n < count).then(|| n + ((count - n) / (2 * self.threads)).max(1));
                crew.together(&|| {
                    while let Ok(first) = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after) {
                        (first..after(first).unwrap_or(count)).for_each(task);
                    }
                });
            }
        }
    }

    /// Calls `f` for every chunk of `chunk` lines, as [`Execution::for_each`] does.
    pub(super) fn for_each_chunk(
        &self,
        lines: &mut [Line],
        chunk: usize,
        ns: usize,
        f: impl Fn(usize, &mut [Line]) + Sync,
    ) {
        let chunks = lines.chunks_mut(chunk.max(1)).enumerate();
        let count = chunks.len();
        let chunks = Mutex::new(chunks);
        self.for_each(count, ns, |_| {
            let next = chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
            if let Some((i, lines)) = next {
                f(i, lines);
            }
        });
    }

    /// Calls `f` with the calling thread's scratch memory. A task must not start other tasks from within `f`.
    pub(super) fn local<R>(&self, f: impl FnOnce(&mut [Line]) -> R) -> R {
        let index = self.crew.map_or(0, Crew::index);
        match self.locals.get(index) {
            // Never contended: each thread has its own, and a program runs only once at a time.
            Some(local) => f(&mut local.lock().unwrap_or_else(PoisonError::into_inner)),
            None => f(&mut []),
        }
    }
}
