//! Locks on memory, with deadlines.
//!
//! The memory of this backend is accessed through pointers, by programs on several threads. Every access
//! first passes the memory's gate: many readers or one writer. No thread waits longer than a deadline.

use crate::deadline::Deadline;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Kind of access to a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    /// Shared read access.
    Read,
    /// Exclusive write access.
    Write,
}

/// Readers-writer lock with deadlines.
#[derive(Debug, Default)]
pub(super) struct Gate {
    inside: Mutex<Inside>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    readers: usize,
    writer: bool,
    /// Number of waiting threads. Without waiters no notification is sent: it is a system call that a run
    /// would otherwise make for each of its memories.
    waiting: usize,
}

impl Inside {
    fn admits(&self, access: Access) -> bool {
        !self.writer && (access == Access::Read || self.readers == 0)
    }
}

impl Gate {
    /// Waits for `access`; returns `false` if it is not granted before the deadline. Each granted access ends
    /// with [`Gate::leave`].
    pub(super) fn enter(&self, access: Access, deadline: &Deadline) -> bool {
        let mut inside = self.lock();
        while !inside.admits(access) {
            let wait = deadline.remaining();
            if wait.is_zero() {
                return false;
            }
            inside.waiting += 1;
            inside = self.left.wait_timeout(inside, wait).unwrap_or_else(PoisonError::into_inner).0;
            inside.waiting -= 1;
        }
        match access {
            Access::Read => inside.readers += 1,
            Access::Write => inside.writer = true,
        }
        true
    }

    /// Ends an access granted by [`Gate::enter`].
    pub(super) fn leave(&self, access: Access) {
        let mut inside = self.lock();
        match access {
            Access::Read => inside.readers = inside.readers.saturating_sub(1),
            Access::Write => inside.writer = false,
        }
        if inside.waiting > 0 {
            self.left.notify_all();
        }
    }

    /// Locks the counters. Code that holds this lock cannot panic, so they are never inconsistent.
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Phase;
    use std::time::Duration;

    fn soon(ms: u64) -> Deadline {
        Deadline::new(Phase::Compute, Duration::from_millis(ms))
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let gate = Gate::default();
        assert!(gate.enter(Access::Read, &soon(0)) && gate.enter(Access::Read, &soon(0)));
        assert!(!gate.enter(Access::Write, &soon(5)));
        gate.leave(Access::Read);
        gate.leave(Access::Read);
        assert!(gate.enter(Access::Write, &soon(0)));
        assert!(!gate.enter(Access::Read, &soon(5)) && !gate.enter(Access::Write, &soon(5)));
    }

    #[test]
    fn one_who_waits_is_let_in() {
        let gate = Gate::default();
        assert!(gate.enter(Access::Write, &soon(0)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.enter(Access::Read, &soon(60_000)));
            std::thread::sleep(Duration::from_millis(5));
            gate.leave(Access::Write);
            assert!(waiting.join().unwrap());
        });
    }
}
