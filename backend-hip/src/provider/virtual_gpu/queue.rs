//! The device's queue: executes work in order on one thread, asynchronously to the host.

use crate::driver::Code;
use ggml_core::sync::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Unit of work; on failure it returns a code with a text.
pub(super) type Work = Box<dyn FnOnce() -> Result<(), Failure> + Send>;

/// Reason why work failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) code: Code,
    pub(super) text: String,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    /// Number of units of work submitted, and completed.
    given: u64,
    done: u64,
    /// Completion times of work, by number, for events with timing.
    times: VecDeque<(u64, Instant)>,
    failure: Option<Failure>,
    /// Number of the work from which on nothing completes.
    stalled: Option<u64>,
    closed: bool,
}

/// Queue of the device.
pub(super) struct Queue {
    shared: Arc<(Mutex<State>, Condvar)>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

/// Number of stored completion times.
const TIMES: usize = 4096;

fn wait<'a>(condition: &Condvar, guard: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    pub(super) fn new() -> Queue {
        Queue { shared: Arc::default(), worker: Mutex::new(None) }
    }

    /// Adds work and returns its number. After a failure all later work fails with the same code.
    pub(super) fn push(&self, stall: bool, work: Work) -> Result<u64, Code> {
        let mut worker = lock(&self.worker);
        if worker.is_none() {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("virtual GPU".into());
            *worker = Some(thread.spawn(move || run(&shared)).map_err(|_| 999)?);
        }
        let mut state = lock(&self.shared.0);
        if let Some(failure) = &state.failure {
            return Err(failure.code);
        }
        state.given += 1;
        let number = state.given;
        if stall {
            state.stalled.get_or_insert(number);
        }
        state.waiting.push_back(work);
        self.shared.1.notify_all();
        Ok(number)
    }

    /// Returns true if all work up to a number is complete.
    pub(super) fn complete(&self, number: u64) -> Result<bool, Code> {
        let state = lock(&self.shared.0);
        match &state.failure {
            Some(failure) if state.done < number => Err(failure.code),
            _ => Ok(state.done >= number),
        }
    }

    /// Waits until all work is complete or has failed, as `hipFree` does. Waits forever if neither happens,
    /// unless `given_up` returns true.
    pub(super) fn drain(&self, given_up: impl Fn() -> bool) {
        let mut state = lock(&self.shared.0);
        while state.done < state.given && state.failure.is_none() && !given_up() {
            let waited = self.shared.1.wait_timeout(state, Duration::from_millis(5));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the time when all work up to a number was complete.
    pub(super) fn time(&self, number: u64) -> Option<Instant> {
        let state = lock(&self.shared.0);
        let first = state.times.partition_point(|&(n, _)| n < number);
        state.times.get(first).map(|&(_, at)| at)
    }

    /// Returns the first failure.
    pub(super) fn failure(&self) -> Option<Failure> {
        lock(&self.shared.0).failure.clone()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        lock(&self.shared.0).closed = true;
        self.shared.1.notify_all();
        // The last user could be the worker itself only if its work held the driver, which never happens.
        if let Some(worker) = lock(&self.worker).take() {
            let _ = worker.join();
        }
    }
}

/// Executes work until the queue is closed. Earlier work is completed first, unless the device is broken.
fn run((state, changed): &(Mutex<State>, Condvar)) {
    loop {
        let work = {
            let mut state = lock(state);
            loop {
                let next = state.done + 1;
                let blocked = state.failure.is_some() || state.stalled.is_some_and(|from| next >= from);
                if state.closed && (blocked || state.waiting.is_empty()) {
                    return;
                }
                match if blocked { None } else { state.waiting.pop_front() } {
                    Some(work) => break work,
                    None => state = wait(changed, state),
                }
            }
        };
        let result = work();
        let mut state = lock(state);
        match result {
            Ok(()) => {
                state.done += 1;
                if state.times.len() == TIMES {
                    state.times.pop_front();
                }
                let done = state.done;
                state.times.push_back((done, Instant::now()));
            }
            Err(failure) => state.failure = Some(failure),
        }
        changed.notify_all();
    }
}
