//! Leaving a process whose driver hangs.

/// Ends the process at once: no destructor and no exit handler runs, and what is buffered is lost. After a
/// [`Timeout`](crate::Error::Timeout) a program should end so, because the exit handlers of a driver that hangs wait for
/// its device without a limit.
pub fn leave(status: u8) -> ! {
    // SAFETY: `_exit` takes no pointer and may be called at any time and on any thread.
    unsafe { libc::_exit(i32::from(status)) }
}
