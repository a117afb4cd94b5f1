//! Turns of two drivers that use one memory.

use crate::backend::Backend;
use crate::error::Result;
use crate::sync::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Driver by driver, true if it may have work of which the other does not know.
#[derive(Debug, Default)]
pub(super) struct Order {
    used: Mutex<[bool; 2]>,
    changes: AtomicU64,
}

/// Use of the memory by a driver. What was submitted until it is dropped is waited for before the other driver's next
/// turn.
pub(super) struct Turn<'a> {
    order: &'a Order,
    index: usize,
}

impl Order {
    /// Begins a turn of a driver, after all work of the other one.
    ///
    /// Two threads may have turns of different drivers at the same time, with memory of their own: a thread's work is
    /// marked when its turn ends, so its next turn of the other driver waits for it.
    pub(super) fn enter(&self, drivers: &[Arc<dyn Backend>; 2], index: usize) -> Result<Turn<'_>> {
        let mut used = lock(&self.used);
        let other = 1 - index;
        if used[other] {
            drivers[other].hand_over()?;
            drivers[index].take_over()?;
            used[other] = false;
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        used[index] = true;
        Ok(Turn { order: self, index })
    }

    /// Returns the number of changes of the driver.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.order.used)[self.index] = true;
    }
}
