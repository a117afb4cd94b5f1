//! What a backend is doing, as `tracing` spans and events for whoever records it, and the deadlines of phases.

use crate::error::Phase;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Enters the span of a phase; it lasts until the returned guard is dropped. The span has the phase's name, the target
/// `diptych::phase` and a field `backend`.
pub fn enter(phase: Phase, backend: &str) -> tracing::span::EnteredSpan {
    macro_rules! span {
        ($name:literal) => {
            tracing::info_span!(target: "diptych::phase", $name, backend).entered()
        };
    }
    match phase {
        Phase::LoadRuntime => span!("load_runtime"),
        Phase::Enumerate => span!("enumerate"),
        Phase::OpenDevice => span!("open_device"),
        Phase::Allocate => span!("allocate"),
        Phase::Upload => span!("upload"),
        Phase::Compile => span!("compile"),
        Phase::Prepare => span!("prepare"),
        Phase::FirstCompute => span!("first_compute"),
        Phase::Compute => span!("compute"),
        Phase::Readback => span!("readback"),
        Phase::Close => span!("close"),
    }
}

/// Announces a call into a driver, before it is made: it may not come back. The event has the target `diptych::call` and
/// the fields `name`, of the driver's function, and `on`: what it is given where that says more than the name, the file of
/// a library.
pub fn call(name: &str, on: &str) {
    tracing::trace!(target: "diptych::call", name, on);
}

/// Tells something of a driver or device as soon as it is known, in an event with the target `diptych::learnt`: what comes
/// after may not come back. Paths of libraries are called "library", other things as in the versions of
/// [`DeviceInfo`](crate::backend::DeviceInfo).
pub fn learnt(what: &str, value: &str) {
    tracing::trace!(target: "diptych::learnt", what, value);
}

/// How long each phase may take before it becomes an [`Error::Timeout`](crate::Error::Timeout).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deadlines {
    /// Opening a device: load_runtime, enumerate, open_device together.
    pub open: Duration,
    /// One allocation.
    pub allocate: Duration,
    /// One upload or readback call.
    pub transfer: Duration,
    /// Compilation of all kernels of one program, and its recording.
    pub prepare: Duration,
    /// One run of a program.
    pub compute: Duration,
}

impl Default for Deadlines {
    /// Generous values: a software driver compiles slowly, and a deadline is there to end a hang.
    fn default() -> Self {
        Deadlines {
            open: Duration::from_secs(60),
            allocate: Duration::from_secs(30),
            transfer: Duration::from_secs(120),
            prepare: Duration::from_secs(600),
            compute: Duration::from_secs(300),
        }
    }
}

impl Deadlines {
    /// The same deadline for every phase.
    pub fn all(limit: Duration) -> Self {
        Deadlines { open: limit, allocate: limit, transfer: limit, prepare: limit, compute: limit }
    }

    /// The deadline of a phase.
    pub fn of(&self, phase: Phase) -> Duration {
        match phase {
            Phase::LoadRuntime | Phase::Enumerate | Phase::OpenDevice | Phase::Close => self.open,
            Phase::Allocate => self.allocate,
            Phase::Upload | Phase::Readback => self.transfer,
            Phase::Compile | Phase::Prepare => self.prepare,
            Phase::FirstCompute | Phase::Compute => self.compute,
        }
    }
}
