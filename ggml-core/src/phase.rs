//! Activity of backends as `tracing` spans and events, and the deadlines of phases.

use crate::error::Phase;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Enters the span of a phase and returns its guard; dropping the guard leaves the span. The span has the
/// phase's name, the target `diptych::phase` and a field `backend`.
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

/// Records a driver call before it is made, because it may never return. The event has the target
/// `diptych::call` and the fields `name` (the driver's function) and `on` (its subject where the name is not
/// enough, for example the file of a library).
pub fn call(name: &str, on: &str) {
    tracing::trace!(target: "diptych::call", name, on);
}

/// Records a fact about a driver or device as soon as it is known, because a later call may never return. The
/// event has the target `diptych::learnt`. Paths of libraries are called "library"; other facts have the
/// names used in the versions of [`DeviceInfo`](crate::backend::DeviceInfo).
pub fn learnt(what: &str, value: &str) {
    tracing::trace!(target: "diptych::learnt", what, value);
}

/// Time that each phase may take before it becomes an [`Error::Timeout`](crate::Error::Timeout).
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
    /// Returns generous values: a software driver compiles slowly, and a deadline only has to end a hang.
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
    /// Returns the same deadline for every phase.
    pub fn all(limit: Duration) -> Self {
        Deadlines { open: limit, allocate: limit, transfer: limit, prepare: limit, compute: limit }
    }

    /// Returns the deadline of a phase.
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
