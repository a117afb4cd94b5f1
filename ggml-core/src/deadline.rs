//! Deadlines of phases. All time limits are checked through [`Deadline`].

use crate::error::{Error, Phase};
use std::time::{Duration, Instant};

/// Start and time limit of a phase. Every limit is valid: `Duration::MAX` never passes.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    phase: Phase,
    limit: Duration,
    start: Instant,
}

impl Deadline {
    /// Starts the deadline of a phase now.
    pub fn new(phase: Phase, limit: Duration) -> Deadline {
        Deadline { phase, limit, start: Instant::now() }
    }

    /// Returns the same deadline for a phase nested in this one.
    pub fn as_phase(self, phase: Phase) -> Deadline {
        Deadline { phase, ..self }
    }

    /// Returns a deadline with `spent` already used up, for example by earlier steps of the phase.
    pub fn after(self, spent: Duration) -> Deadline {
        Deadline { start: self.start.checked_sub(spent).unwrap_or(self.start), ..self }
    }

    /// Returns the phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the time that the phase may take.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns the time since the phase began.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the time left, zero once the deadline has passed: the timeout to pass to a condition variable
    /// or channel.
    pub fn remaining(&self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }

    /// True if no time is left.
    pub fn passed(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Returns the [`Error::Timeout`] for this deadline.
    pub fn missed(&self, backend: &str, node: Option<String>) -> Error {
        Error::Timeout { backend: backend.into(), phase: self.phase, node, after: self.limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_limit_is_kept_and_none_overflows() {
        let never = Deadline::new(Phase::Compute, Duration::MAX);
        assert!(!never.passed() && never.remaining() > Duration::from_secs(1 << 40));
        let soon = Deadline::new(Phase::Compute, Duration::from_millis(5));
        std::thread::sleep(Duration::from_millis(6));
        assert!(soon.passed() && soon.remaining().is_zero());
        let spent = Deadline::new(Phase::Compute, Duration::from_secs(3)).after(Duration::from_secs(2));
        assert!(spent.remaining() <= Duration::from_secs(1));
        let within = Deadline::new(Phase::Prepare, Duration::ZERO).as_phase(Phase::Compile);
        assert!(within.passed());
        assert!(matches!(within.missed("cpu", None), Error::Timeout { phase: Phase::Compile, .. }));
    }
}
