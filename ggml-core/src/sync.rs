//! Locks that ignore poisoning; locks held during a driver call are acquired with a deadline.

use crate::deadline::Deadline;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Acquires a lock and ignores poisoning: no holder leaves its data in an invalid state.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Acquires a lock that may be held during a driver call; returns `None` once the deadline has passed.
pub fn lock_until<'a, T>(mutex: &'a Mutex<T>, deadline: &Deadline) -> Option<MutexGuard<'a, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if deadline.passed() => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Phase;

    #[test]
    fn a_lock_that_is_held_is_waited_for_no_longer_than_the_deadline() {
        let mutex = Mutex::new(3);
        let soon = Deadline::new(Phase::Upload, Duration::from_millis(5));
        assert_eq!(lock_until(&mutex, &soon).map(|g| *g), Some(3));
        let held = lock(&mutex);
        assert!(lock_until(&mutex, &soon).is_none());
        drop(held);
        assert!(lock_until(&mutex, &soon).is_some(), "a free lock needs no time");
    }
}
