//! Ways for a process to end: when its driver hangs, and when its parent process has ended.

#[cfg(feature = "compare")]
use std::io::{BufRead, Read};
#[cfg(feature = "compare")]
use std::time::Duration;

/// Ends the process immediately: no destructor and no exit handler runs, and buffered output is lost. A
/// program should end like this after a [`Timeout`](crate::Error::Timeout), because the exit handlers of a
/// driver that hangs wait for its device without a time limit.
pub fn leave(status: u8) -> ! {
    // SAFETY: `_exit` takes no pointer and may be called at any time and on any thread.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Ends the process as a driver's wild pointer does, for backends that crash on request.
#[cfg(feature = "compare")]
pub(crate) fn crash() {
    // SAFETY: both functions take only integers. The default action is restored first, because the handler
    // that Rust's runtime installs for stack overflows would let the process survive the signal.
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::raise(libc::SIGSEGV);
    }
}

/// Maximum bytes of the line of [`follow_parent`].
#[cfg(feature = "compare")]
const LINE: u64 = 64;

/// Ends this process with `status` when its parent process ends, at any moment. The parent holds the other
/// end of this process's standard input, which the system closes. On Linux the kernel also kills the process,
/// which needs no running thread.
///
/// Returns the first line that the parent writes to the standard input; `None` if it does not come within
/// `limit`.
#[cfg(feature = "compare")]
pub(crate) fn follow_parent(status: u8, limit: Duration) -> Option<String> {
    #[cfg(target_os = "linux")]
    // SAFETY: `prctl` with this option takes an integer and affects this process only.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    let (send, receive) = std::sync::mpsc::channel();
    let wait_for_parent = move || {
        let mut input = std::io::stdin().lock();
        let mut line = String::new();
        let read = input.by_ref().take(LINE).read_line(&mut line);
        if read.is_err() || !line.ends_with('\n') || send.send(line.trim_end().to_string()).is_err() {
            return;
        }
        // The copy ends, or fails, when the parent has ended.
        let _ = std::io::copy(&mut input, &mut std::io::sink());
        leave(status)
    };
    std::thread::Builder::new().name("diptych parent".into()).spawn(wait_for_parent).ok()?;
    receive.recv_timeout(limit).ok()
}
