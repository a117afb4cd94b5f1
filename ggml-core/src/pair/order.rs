//! Turns of two drivers that use one memory.

use crate::backend::Backend;
use crate::deadline::Deadline;
use crate::error::{Error, Phase, Result};
use crate::sync::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The turns of both drivers: at any time those of one of them only.
#[derive(Debug, Default)]
pub(super) struct Order {
    turns: Mutex<Turns>,
    changed: Condvar,
    changes: AtomicU64,
}

/// Turns and waiting threads of each driver, by its index.
#[derive(Debug, Default)]
struct Turns {
    /// Turns that have not ended.
    active: [usize; 2],
    /// Threads that wait for a turn.
    waiting: [usize; 2],
    /// The driver that has used the memory since the last change, if one has.
    user: Option<usize>,
}

impl Turns {
    /// True if a thread has to wait for a turn of a driver: the other one has turns, or threads that wait for them while
    /// this one has had the last. So neither driver keeps the other's threads away.
    fn must_wait(&self, index: usize) -> bool {
        let other = 1 - index;
        self.active[other] > 0 || self.waiting[other] > 0 && self.user == Some(index)
    }
}

/// Use of the memory by a driver. What was submitted until it is dropped is waited for before the other driver's next
/// turn.
pub(super) struct Turn<'a> {
    order: &'a Order,
    index: usize,
}

impl Order {
    /// Begins a turn of a driver, once all turns of the other one have ended and their work is complete. Threads may have
    /// turns of the same driver at the same time; a thread must not begin a turn in a turn of its own.
    ///
    /// # Errors
    /// [`Error::Timeout`] if the other driver's turns do not end within its deadline; errors of the drivers.
    pub(super) fn enter(&self, drivers: &[Arc<dyn Backend>; 2], index: usize) -> Result<Turn<'_>> {
        let other = 1 - index;
        let deadline = Deadline::new(Phase::Compute, drivers[other].deadlines().compute);
        let mut turns = lock(&self.turns);
        turns.waiting[index] += 1;
        while turns.must_wait(index) && !deadline.passed() {
            let waited = self.changed.wait_timeout(turns, deadline.remaining());
            (turns, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        turns.waiting[index] -= 1;
        // Whoever waited for this thread's turn only, or for its end, may go on.
        self.changed.notify_all();
        if turns.must_wait(index) {
            let (backend, phase) = (drivers[other].device().backend.clone(), Phase::Compute);
            return Err(Error::Timeout { backend, phase, node: None, after: deadline.limit() });
        }
        if turns.user == Some(other) {
            drivers[other].hand_over()?;
            drivers[index].take_over()?;
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        turns.user = Some(index);
        turns.active[index] += 1;
        Ok(Turn { order: self, index })
    }

    /// Returns the number of changes of the driver.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.order.turns).active[self.index] -= 1;
        self.order.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::{NullBackend, NullOptions};
    use crate::phase::Deadlines;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    fn drivers(limit: Duration) -> [Arc<dyn Backend>; 2] {
        let options = || NullOptions { deadlines: Deadlines::all(limit), ..NullOptions::default() };
        [0, 1].map(|_| Arc::new(NullBackend::open(options()).unwrap()) as Arc<dyn Backend>)
    }

    /// Threads of both drivers never have turns at the same time, and none is kept away by the other's.
    #[test]
    fn turns_of_two_drivers_exclude_each_other() {
        let (order, drivers) = (Order::default(), drivers(Duration::from_secs(60)));
        let inside = [AtomicUsize::new(0), AtomicUsize::new(0)];
        std::thread::scope(|threads| {
            for thread in 0..4 {
                let (order, drivers, inside) = (&order, &drivers, &inside);
                threads.spawn(move || {
                    for _ in 0..200 {
                        let _turn = order.enter(drivers, thread % 2).unwrap();
                        inside[thread % 2].fetch_add(1, Ordering::SeqCst);
                        assert_eq!(inside[1 - thread % 2].load(Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        inside[thread % 2].fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        let turns = lock(&order.turns);
        assert_eq!((turns.active, turns.waiting), ([0; 2], [0; 2]));
        assert!(order.changes() > 0);
    }

    /// A turn that does not end is waited for no longer than the deadline of its driver; then the other one goes on.
    #[test]
    fn a_turn_that_does_not_end_is_an_error() {
        let (order, drivers) = (Order::default(), drivers(Duration::from_millis(20)));
        let held = order.enter(&drivers, 0).unwrap();
        let error = order.enter(&drivers, 1).err().expect("the first driver has a turn");
        assert!(matches!(error, Error::Timeout { phase: Phase::Compute, .. }), "{error}");
        drop(order.enter(&drivers, 0).unwrap());
        drop(held);
        assert!(order.enter(&drivers, 1).is_ok());
        assert_eq!(order.changes(), 1);
    }
}
