//! State of the driver thread, visible to other threads: phase, deadline, driver call, node, and whether it
//! was given up.

use crate::driver::codes::Call;
use ggml_core::sync::lock;
use ggml_core::{Deadline, Error, Missing, Phase, Result, phase};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Time that a waiting caller gives the driver thread to report a timeout itself, before the thread is given
/// up.
const GRACE: Duration = Duration::from_millis(50);

/// State of the driver thread.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// Backend name.
    pub(crate) backend: String,
    given_up: OnceLock<Error>,
    current: Mutex<Option<Current>>,
    call: AtomicU8,
    nodes: Mutex<Option<Arc<[String]>>>,
    node: AtomicUsize,
    jobs: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    job: u64,
    deadline: Deadline,
}

impl Monitor {
    /// Creates the monitor of an idle thread.
    pub(super) fn new(backend: &str) -> Monitor {
        Monitor {
            backend: backend.into(),
            given_up: OnceLock::new(),
            current: Mutex::new(None),
            call: AtomicU8::new(Call::None as u8),
            nodes: Mutex::new(None),
            node: AtomicUsize::new(0),
            jobs: AtomicU64::new(1),
        }
    }

    /// Records the driver function that is being called, and announces it.
    pub(crate) fn enter(&self, call: Call) {
        phase::call(call.name(), "");
        self.call.store(call as u8, Ordering::Relaxed);
    }

    /// Records that no driver function is being called.
    pub(crate) fn leave(&self) {
        self.call.store(Call::None as u8, Ordering::Relaxed);
    }

    /// Records the nodes of the running program; `None` after the run.
    pub(crate) fn set_nodes(&self, nodes: Option<Arc<[String]>>) {
        self.node.store(0, Ordering::Relaxed);
        *lock(&self.nodes) = nodes;
    }

    /// Records the first node that is not known to be complete.
    pub(crate) fn set_node(&self, node: usize) {
        self.node.store(node, Ordering::Relaxed);
    }

    /// Returns the name of the running node.
    pub(crate) fn node_name(&self) -> Option<String> {
        let nodes = lock(&self.nodes);
        nodes.as_ref()?.get(self.node.load(Ordering::Relaxed)).cloned()
    }

    /// Returns the number of the next job.
    pub(super) fn next_job(&self) -> u64 {
        self.jobs.fetch_add(1, Ordering::Relaxed)
    }

    /// Records the start of a job.
    pub(super) fn begin(&self, job: u64, deadline: Deadline) {
        *lock(&self.current) = Some(Current { job, deadline });
    }

    /// Records that no job is running.
    pub(super) fn end(&self) {
        self.leave();
        *lock(&self.current) = None;
    }

    /// Returns the phase of the current job.
    pub(crate) fn phase(&self) -> Phase {
        self.deadline().phase()
    }

    /// Changes the phase of the current job (opening goes through several).
    pub(crate) fn set_phase(&self, phase: Phase) {
        if let Some(current) = lock(&self.current).as_mut() {
            current.deadline = current.deadline.as_phase(phase);
        }
    }

    /// Returns the deadline of the current job; without a job, a deadline of the phase `close` with no time
    /// left.
    pub(crate) fn deadline(&self) -> Deadline {
        lock(&self.current).map_or_else(|| Deadline::new(Phase::Close, Duration::ZERO), |c| c.deadline)
    }

    /// Returns the timeout error of the current job.
    pub(crate) fn timeout(&self) -> Error {
        self.deadline().missed(&self.backend, self.node_name())
    }

    /// Gives the backend up because of an error. Only the first reason is stored.
    pub(crate) fn give_up(&self, reason: &Error) {
        if self.given_up.set(reason.clone()).is_ok() {
            let call = Call::from_index(self.call.load(Ordering::Relaxed));
            tracing::error!(target: "diptych::hip", backend = %self.backend, call = call.name(), "given up: {reason}");
        }
    }

    /// Returns true if the backend was given up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.get().is_some()
    }

    /// Returns an error if the backend was given up.
    pub(crate) fn check(&self, phase: Phase) -> Result<()> {
        let Some(reason) = self.given_up.get() else { return Ok(()) };
        let call = Call::from_index(self.call.load(Ordering::Relaxed));
        let inside = match call {
            Call::None => String::new(),
            call => format!(" (the driver is still in {})", call.name()),
        };
        Err(Error::Unavailable {
            backend: self.backend.clone(),
            phase,
            missing: Missing::Device,
            reason: format!(
                "the device was given up after: {reason}{inside}; its memory is not freed, and it can be used again \
                 only from a new process"
            ),
        })
    }

    /// Gives the backend up if the current job exceeds its deadline. Returns the error if `job` is that job, or waits in
    /// a phase of computation: the work that hangs may be part of its own, started ahead.
    pub(super) fn check_time(&self, job: u64, phase: Phase) -> Option<Error> {
        let current = (*lock(&self.current))?;
        if current.deadline.elapsed() < current.deadline.limit().saturating_add(GRACE) {
            return None;
        }
        let error = self.timeout();
        self.give_up(&error);
        let computes =
            matches!(phase, Phase::FirstCompute | Phase::Compute | Phase::Upload | Phase::Readback);
        (current.job == job || computes).then_some(error)
    }
}
