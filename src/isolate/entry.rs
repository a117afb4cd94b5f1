//! Ability of this program to start child processes: its `main` has to begin with
//! [`child_entry`](crate::compare::child_entry).

use std::sync::atomic::{AtomicBool, Ordering};

static ENTERED: AtomicBool = AtomicBool::new(false);

/// Notes that this program runs the work of a child process when it is started as one.
pub(crate) fn allow_children() {
    ENTERED.store(true, Ordering::Relaxed);
}

/// Returns true if this program can start child processes.
pub(crate) fn has_children() -> bool {
    ENTERED.load(Ordering::Relaxed)
}
