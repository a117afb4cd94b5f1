//! The driver thread.
//!
//! A call into a GPU driver may never return. So all calls are made on one thread that belongs to the
//! backend, and callers wait for its result no longer than their phase's deadline. When the deadline passes
//! the backend is *given up*: that call and every later one fail with an error, everything that the thread
//! holds is left as it is (the driver may still use it), and the process continues.
//!
//! A job's time counts from its start, so a job that waits behind a long one is not late. The long one has a
//! deadline of its own, which every waiting caller checks.

use super::monitor::Monitor;
use super::session::Session;
use crate::driver::codes::is_fatal;
use ggml_core::{Deadline, Error, Missing, Phase, Result, phase};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

struct Job {
    number: u64,
    phase: Phase,
    limit: Duration,
    /// Part of the limit that earlier steps of the same call have used.
    spent: Duration,
    run: Box<dyn FnOnce(&mut Session) + Send>,
}

/// Deadline for closing a session without a waiting caller.
const CLOSING: Duration = Duration::from_secs(30);

/// Interval at which a waiting caller checks whether the backend was given up.
const CHECK_INTERVAL: Duration = Duration::from_millis(25);

/// The thread. After it is dropped, the thread closes the session and ends; the drop does not wait for that.
pub(crate) struct DriverThread {
    monitor: Arc<Monitor>,
    jobs: Sender<Job>,
}

impl std::fmt::Debug for DriverThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DriverThread").field("monitor", &self.monitor).finish_non_exhaustive()
    }
}

impl DriverThread {
    /// Starts the thread, which opens a session. `limit` applies to all of opening.
    pub(crate) fn open<T: Send + 'static>(
        backend: &str,
        limit: Duration,
        open: impl FnOnce(&Arc<Monitor>) -> Result<(Session, T)> + Send + 'static,
    ) -> Result<(DriverThread, T)> {
        let (jobs, queue) = channel();
        let (monitor, info) = start(backend, limit, move |monitor, reply| match open(monitor) {
            Ok((session, info)) => {
                monitor.end();
                let _ = reply.send(Ok(info));
                serve(monitor, session, queue);
            }
            Err(error) => report_failure(monitor, reply, error),
        })?;
        Ok((DriverThread { monitor, jobs }, info))
    }

    /// Returns the state of the thread.
    pub(crate) fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Runs a job on the thread and waits for its result.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        phase: Phase,
        limit: Duration,
        job: impl FnOnce(&mut Session) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.call_after(phase, limit, Duration::ZERO, job)
    }

    /// Runs a job like [`DriverThread::call`], for a step of a call that has used part of its time already.
    pub(crate) fn call_after<T: Send + 'static>(
        &self,
        phase: Phase,
        limit: Duration,
        spent: Duration,
        job: impl FnOnce(&mut Session) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.monitor.check(phase)?;
        let (reply, answer) = sync_channel(1);
        let number = self.monitor.next_job();
        let run = Box::new(move |session: &mut Session| {
            let result = job(session);
            // Done here, so that no later job runs before the caller has seen the error.
            if let Err(error) = &result
                && is_fatal(error)
            {
                session.monitor().give_up(error);
            }
            // The caller may have stopped waiting.
            let _ = reply.send(result);
        });
        if self.jobs.send(Job { number, phase, limit, spent, run }).is_err() {
            return Err(ended(&self.monitor, phase));
        }
        wait(&self.monitor, number, phase, &answer)
    }

    /// Queues a job without waiting for it. Does nothing if the backend was given up.
    pub(crate) fn post(
        &self,
        phase: Phase,
        limit: Duration,
        job: impl FnOnce(&mut Session) + Send + 'static,
    ) {
        if !self.monitor.is_given_up() {
            let number = self.monitor.next_job();
            let _ = self.jobs.send(Job { number, phase, limit, spent: Duration::ZERO, run: Box::new(job) });
        }
    }
}

/// Runs work that may hang on a thread of its own, with a deadline.
pub(crate) fn bounded<T: Send + 'static>(
    backend: &str,
    limit: Duration,
    work: impl FnOnce(&Arc<Monitor>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (_, value) = start(backend, limit, move |monitor, reply| match work(monitor) {
        Ok(value) => drop(reply.send(Ok(value))),
        Err(error) => report_failure(monitor, reply, error),
    })?;
    Ok(value)
}

/// Starts a thread and waits for its first result.
fn start<T: Send + 'static>(
    backend: &str,
    limit: Duration,
    body: impl FnOnce(&Arc<Monitor>, SyncSender<Result<T>>) + Send + 'static,
) -> Result<(Arc<Monitor>, T)> {
    let monitor = Arc::new(Monitor::new(backend));
    let (reply, answer) = sync_channel(1);
    let of_thread = monitor.clone();
    monitor.begin(0, Deadline::new(Phase::LoadRuntime, limit));
    std::thread::Builder::new()
        .name(format!("diptych {backend}"))
        // Drivers compile and parse on the caller's stack.
        .stack_size(8 << 20)
        .spawn(move || body(&of_thread, reply))
        .map_err(|e| Error::Unavailable {
            backend: backend.into(),
            phase: Phase::LoadRuntime,
            missing: Missing::Feature,
            reason: format!("no thread for the driver: {e}"),
        })?;
    let value = wait(&monitor, 0, Phase::OpenDevice, &answer)?;
    Ok((monitor, value))
}

fn report_failure<T>(monitor: &Monitor, reply: SyncSender<Result<T>>, error: Error) {
    if is_fatal(&error) {
        monitor.give_up(&error);
    }
    let _ = reply.send(Err(error));
}

fn wait<T>(monitor: &Monitor, job: u64, phase: Phase, answer: &Receiver<Result<T>>) -> Result<T> {
    loop {
        match answer.recv_timeout(CHECK_INTERVAL) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => {
                monitor.check(phase)?;
                return Err(ended(monitor, phase));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some(error) = monitor.check_time(job, phase) {
                    return Err(error);
                }
                if let Err(given_up) = monitor.check(phase) {
                    // A job that gives the device up sends the error, which says more, right after that.
                    return answer.recv_timeout(CHECK_INTERVAL).unwrap_or(Err(given_up));
                }
            }
        }
    }
}

fn ended(monitor: &Monitor, phase: Phase) -> Error {
    let error = Error::DeviceLost {
        backend: monitor.backend.clone(),
        phase,
        node: None,
        reason: "the driver's thread ended".into(),
    };
    monitor.give_up(&error);
    error
}

/// Loop of the driver thread.
fn serve(monitor: &Monitor, mut session: Session, queue: Receiver<Job>) {
    for job in queue {
        if monitor.is_given_up() {
            // Dropping a job notifies its caller.
            continue;
        }
        monitor.begin(job.number, Deadline::new(job.phase, job.limit).after(job.spent));
        // Jobs of the phase `close` have no waiting caller that would announce the phase.
        let _span = (job.phase == Phase::Close).then(|| phase::enter(Phase::Close, &monitor.backend));
        (job.run)(&mut session);
        monitor.end();
    }
    monitor.begin(u64::MAX, Deadline::new(Phase::Close, CLOSING));
    let _span = phase::enter(Phase::Close, &monitor.backend);
    drop(session);
}
