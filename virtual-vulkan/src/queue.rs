//! The device's queue: runs submissions in order on its own thread, asynchronously to the host.

use crate::reply::Reply;
use crate::table::lock;
use ash::vk;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A unit of queued work; its error describes the fault.
pub(crate) type Work = Box<dyn FnOnce(&Queue) -> Result<(), String> + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    queued: u64,
    done: u64,
    running: bool,
    fault: Option<String>,
    closed: bool,
}

/// A queue.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

/// Interval at which a wait checks for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Queue {
    pub(crate) fn new() -> Arc<Queue> {
        Arc::default()
    }

    /// Queues work.
    pub(crate) fn push(self: &Arc<Self>, work: Work) -> Reply {
        let mut state = lock(&self.state);
        if state.fault.is_some() || state.closed {
            return Err(vk::Result::ERROR_DEVICE_LOST);
        }
        if !state.running {
            let (queue, thread) = (self.clone(), std::thread::Builder::new().name("virtual card".into()));
            thread.spawn(move || queue.run()).map_err(|_| vk::Result::ERROR_OUT_OF_HOST_MEMORY)?;
            state.running = true;
        }
        state.queued += 1;
        state.waiting.push_back(work);
        self.changed.notify_all();
        Ok(())
    }

    /// Runs work until the queue is closed or a fault occurs.
    fn run(&self) {
        loop {
            let work = {
                let mut state = lock(&self.state);
                loop {
                    if state.closed || state.fault.is_some() {
                        state.waiting.clear();
                        return;
                    }
                    match state.waiting.pop_front() {
                        Some(work) => break work,
                        None => {
                            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                        }
                    }
                }
            };
            let result = work(self);
            let mut state = lock(&self.state);
            match result {
                Ok(()) => state.done += 1,
                Err(fault) => {
                    tracing::info!(fault, "the device is lost");
                    state.fault = Some(fault);
                }
            }
            self.changed.notify_all();
        }
    }

    /// Wakes all waiting threads.
    pub(crate) fn notify(&self) {
        drop(lock(&self.state));
        self.changed.notify_all();
    }

    /// Waits until a condition holds; returns TIMEOUT after `nanoseconds`, or DEVICE_LOST.
    pub(crate) fn wait(&self, nanoseconds: u64, reached: impl Fn() -> bool) -> Reply {
        let end = Instant::now().checked_add(Duration::from_nanos(nanoseconds));
        let mut state = lock(&self.state);
        loop {
            if reached() {
                return Ok(());
            }
            if state.fault.is_some() {
                return Err(vk::Result::ERROR_DEVICE_LOST);
            }
            let remaining = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if remaining.is_zero() {
                return Err(vk::Result::TIMEOUT);
            }
            let waited = self.changed.wait_timeout(state, remaining.min(POLL_INTERVAL));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Blocks the queue's own thread until a condition holds or the queue is closed.
    pub(crate) fn hold(&self, until: impl Fn() -> bool) {
        let mut state = lock(&self.state);
        while !until() && !state.closed {
            let waited = self.changed.wait_timeout(state, POLL_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until all work is done, without a timeout, as on a device.
    pub(crate) fn drain(&self) -> Reply {
        let mut state = lock(&self.state);
        while state.done < state.queued && !state.closed {
            if state.fault.is_some() {
                return Err(vk::Result::ERROR_DEVICE_LOST);
            }
            let waited = self.changed.wait_timeout(state, POLL_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Returns the fault that made the device lost.
    pub(crate) fn fault(&self) -> Option<String> {
        lock(&self.state).fault.clone()
    }

    /// Makes the thread end. Running work is not awaited.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }
}
