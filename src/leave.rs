//! Leaving a process: one whose driver hangs, and one whose parent is gone.

/// Ends the process at once: no destructor and no exit handler runs, and what is buffered is lost. After a
/// [`Timeout`](crate::Error::Timeout) a program should end so, because the exit handlers of a driver that hangs wait for
/// its device without a limit.
pub fn leave(status: u8) -> ! {
    // SAFETY: `_exit` takes no pointer and may be called at any time and on any thread.
    unsafe { libc::_exit(i32::from(status)) }
}

/// What a driver's wild pointer does to the process, for backends that crash on request.
#[cfg(feature = "compare")]
pub(crate) fn crash() {
    // SAFETY: both take numbers. The handler that Rust's runtime sets for stack overflows would let the signal pass.
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::raise(libc::SIGSEGV);
    }
}

/// Has this process end with that status when its parent does, whatever it is doing then. The parent holds the other end of its standard
/// input, which the system closes; on Linux the kernel kills it too, which needs no thread that is alive.
#[cfg(feature = "compare")]
pub(crate) fn follow_parent(status: u8) {
    #[cfg(target_os = "linux")]
    // SAFETY: `prctl` with this option takes a number and changes what happens to this process only.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    let watch = move || {
        let mut nothing = std::io::sink();
        // It ends, or fails, when the parent is gone.
        let _ = std::io::copy(&mut std::io::stdin(), &mut nothing);
        leave(status)
    };
    // Without the thread the process goes on to its end.
    let _ = std::thread::Builder::new().name("diptych parent".into()).spawn(watch);
}
