//! The end of a phase: the one way in which limits of time are kept.

use crate::error::{Error, Phase};
use std::time::{Duration, Instant};

/// A phase that began at some time and may last so long. No limit is too long: `Duration::MAX` never passes.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    phase: Phase,
    limit: Duration,
    start: Instant,
}

impl Deadline {
    /// A phase that begins now.
    pub fn new(phase: Phase, limit: Duration) -> Deadline {
        Deadline { phase, limit, start: Instant::now() }
    }

    /// The same end, for a phase within this one.
    pub fn as_phase(self, phase: Phase) -> Deadline {
        Deadline { phase, ..self }
    }

    /// The same with part of the time spent before now: on earlier steps of the phase.
    pub fn after(self, spent: Duration) -> Deadline {
        Deadline { start: self.start.checked_sub(spent).unwrap_or(self.start), ..self }
    }

    /// The phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// How long the phase may take.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Time since the phase began.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Time left; zero once the deadline has passed. What waits gives this to a condition variable or a channel.
    pub fn remaining(&self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }

    /// Whether there is no time left.
    pub fn passed(&self) -> bool {
        self.remaining().is_zero()
    }

    /// The error of a deadline that passed.
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
