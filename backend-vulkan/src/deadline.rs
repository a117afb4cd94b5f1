//! Deadlines for driver calls that have no timeout.

use crate::error::broken;
use ggml_core::{Deadline, Result};
use std::sync::mpsc;

/// Stack size in bytes of a thread that calls the driver. It is large because opening a device compiles the
/// lane probe.
const STACK: usize = 16 << 20;

/// Runs driver calls that may block forever on a separate thread and waits for them until the deadline.
///
/// A thread that does not return retains everything moved into `work`, so nothing is freed while the driver
/// may use it.
pub(crate) fn guarded<T: Send + 'static>(
    backend: &str,
    deadline: Deadline,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let span = tracing::Span::current();
    let thread =
        std::thread::Builder::new().name(format!("{backend} {}", deadline.phase())).stack_size(STACK);
    let thread = thread.spawn(move || {
        let _entered = span.enter();
        // After the deadline the receiver is gone and the result is unused.
        let _ = sender.send(work());
    });
    if let Err(error) = thread {
        return Err(broken(backend, deadline.phase(), "thread::spawn", error.to_string()));
    }
    match receiver.recv_timeout(deadline.remaining()) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(deadline.missed(backend, None)),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            Err(broken(backend, deadline.phase(), "driver call", "its thread ended without a result".into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::{Error, Phase};
    use std::time::Duration;

    #[test]
    fn a_call_that_never_returns_becomes_an_error() {
        let deadline = Deadline::new(Phase::Allocate, Duration::from_millis(30));
        let error = guarded("vulkan:0", deadline, || {
            std::thread::sleep(Duration::from_secs(5));
            Ok(())
        });
        assert!(matches!(error, Err(Error::Timeout { phase: Phase::Allocate, .. })), "{error:?}");
        let deadline = Deadline::new(Phase::Allocate, Duration::from_secs(5));
        assert_eq!(guarded("vulkan:0", deadline, || Ok(3)).unwrap(), 3);
    }
}
