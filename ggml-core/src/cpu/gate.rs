//! Who may touch a piece of memory, and for how long others wait for it.
//!
//! The memory of this backend is reached through pointers, from programs on several threads. Every access passes the
//! memory's gate first: many readers or one writer. Nobody waits longer than a deadline.

use crate::deadline::Deadline;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What somebody wants to do with a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    /// Read; others may read too.
    Read,
    /// Write, alone.
    Write,
}

/// A lock with readers, a writer and deadlines.
#[derive(Debug, Default)]
pub(super) struct Gate {
    inside: Mutex<Inside>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    readers: usize,
    writer: bool,
    /// Those who wait. Waking costs a system call, which an ordinary run would make for each of its memories.
    waiting: usize,
}

impl Inside {
    fn admits(&self, access: Access) -> bool {
        !self.writer && (access == Access::Read || self.readers == 0)
    }
}

impl Gate {
    /// Waits until `access` is possible; `false` if it is not before the deadline. Everyone let in leaves with
    /// [`Gate::leave`].
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

    /// Ends an access that [`Gate::enter`] allowed.
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

    /// The counters; nothing that holds this lock can panic, so they are never left half changed.
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
