//! The driver thread.
//!
//! A call into a GPU driver may never return. So all calls are made on one thread that belongs to the backend, and
//! callers wait for its answer no longer than their phase's deadline. When the deadline passes the backend is *given
//! up*: that call and every later one fail with an error, whatever the thread holds is left as it is (it may still be
//! used by the driver), and the process goes on.
//!
//! A job's time counts from its start, so a job that waits behind a long one is not late; that one has a deadline of
//! its own, which everybody who waits looks at.

use crate::error::{Call, is_fatal};
use crate::options::GRACE;
use crate::session::Session;
use ggml_core::{Error, Missing, Phase, Result};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

struct Job {
    number: u64,
    phase: Phase,
    limit: Duration,
    /// Part of the limit that earlier steps of the same call have used.
    spent: Duration,
    run: Box<dyn FnOnce(&mut Session) + Send>,
}

/// How often somebody who waits looks whether the backend was given up.
const LOOK: Duration = Duration::from_millis(25);

/// A lock whose holder cannot leave broken data behind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock that is waited for no longer than a while; `None` if that was not enough.
pub(crate) fn lock_within<T>(mutex: &Mutex<T>, limit: Duration) -> Option<MutexGuard<'_, T>> {
    let start = Instant::now();
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(std::sync::TryLockError::Poisoned(e)) => return Some(e.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) if start.elapsed() >= limit => return None,
            Err(std::sync::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

/// What the thread is doing, for those who wait.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// Backend name.
    pub(crate) backend: String,
    given_up: OnceLock<Error>,
    current: Mutex<Option<Current>>,
    call: AtomicU8,
    nodes: Mutex<Option<Arc<[String]>>>,
    node: AtomicUsize,
    jobs: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    job: u64,
    phase: Phase,
    started: Instant,
    limit: Duration,
}

impl Monitor {
    fn new(backend: &str) -> Monitor {
        Monitor {
            backend: backend.into(),
            given_up: OnceLock::new(),
            current: Mutex::new(None),
            call: AtomicU8::new(Call::None as u8),
            nodes: Mutex::new(None),
            node: AtomicUsize::new(0),
            jobs: AtomicU64::new(1),
        }
    }

    /// Notes which driver function is being called.
    pub(crate) fn enter(&self, call: Call) {
        self.call.store(call as u8, Ordering::Relaxed);
    }

    /// Notes that no driver function is being called.
    pub(crate) fn leave(&self) {
        self.call.store(Call::None as u8, Ordering::Relaxed);
    }

    /// Notes the nodes of the program that runs; `None` after the run.
    pub(crate) fn run(&self, nodes: Option<Arc<[String]>>) {
        self.node.store(0, Ordering::Relaxed);
        *lock(&self.nodes) = nodes;
    }

    /// Notes the first node that is not known to be complete.
    pub(crate) fn reached(&self, node: usize) {
        self.node.store(node, Ordering::Relaxed);
    }

    /// Name of the node that runs.
    pub(crate) fn node_name(&self) -> Option<String> {
        let nodes = lock(&self.nodes);
        nodes.as_ref()?.get(self.node.load(Ordering::Relaxed)).cloned()
    }

    /// Phase of the current job.
    pub(crate) fn phase(&self) -> Phase {
        lock(&self.current).map_or(Phase::Close, |c| c.phase)
    }

    /// Changes the phase of the current job (opening goes through several).
    pub(crate) fn set_phase(&self, phase: Phase) {
        if let Some(current) = lock(&self.current).as_mut() {
            current.phase = phase;
        }
    }

    /// When the current job has to be done.
    pub(crate) fn deadline(&self) -> Instant {
        let now = Instant::now();
        lock(&self.current)
            .map_or(now, |c| c.started.checked_add(c.limit).unwrap_or(now + Duration::from_secs(86_400)))
    }

    /// The timeout of the current job.
    pub(crate) fn timeout(&self) -> Error {
        let current = *lock(&self.current);
        Error::Timeout {
            backend: self.backend.clone(),
            phase: current.map_or(Phase::Close, |c| c.phase),
            node: self.node_name(),
            after: current.map_or(Duration::ZERO, |c| c.limit),
        }
    }

    /// Gives the backend up, with the error that was the reason. The first reason stays.
    pub(crate) fn give_up(&self, reason: &Error) {
        if self.given_up.set(reason.clone()).is_ok() {
            let call = Call::from_index(self.call.load(Ordering::Relaxed));
            tracing::error!(target: "diptych::hip", backend = %self.backend, call = call.name(), "given up: {reason}");
        }
    }

    /// Whether the backend was given up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.get().is_some()
    }

    /// An error if the backend was given up.
    pub(crate) fn check(&self, phase: Phase) -> Result<()> {
        let Some(reason) = self.given_up.get() else { return Ok(()) };
        let call = Call::from_index(self.call.load(Ordering::Relaxed));
        let inside = match call {
            Call::None => String::new(),
            call => format!(" (the driver is still in {})", call.name()),
        };
        Err(Error::Unavailable {
            backend: self.backend.clone(),
            phase,
            missing: Missing::Device,
            reason: format!(
                "the device was given up after: {reason}{inside}; its memory is not freed, and it can be used again \
                 only from a new process"
            ),
        })
    }

    /// Gives up if the current job is over its time. Says whether it is that job.
    fn check_time(&self, job: u64) -> Option<Error> {
        let current = (*lock(&self.current))?;
        if current.started.elapsed() < current.limit.saturating_add(GRACE) {
            return None;
        }
        let error = self.timeout();
        self.give_up(&error);
        (current.job == job).then_some(error)
    }
}

/// The thread. Dropping it lets the thread close the session and end; nobody waits for that here.
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
    /// Starts the thread, which opens a session there. `limit` is for all of opening.
    pub(crate) fn open<T: Send + 'static>(
        backend: &str,
        limit: Duration,
        open: impl FnOnce(&Arc<Monitor>) -> Result<(Session, T)> + Send + 'static,
    ) -> Result<(DriverThread, T)> {
        let (jobs, queue) = channel();
        let (monitor, info) = start(backend, limit, move |monitor, reply| match open(monitor) {
            Ok((session, info)) => {
                *lock(&monitor.current) = None;
                let _ = reply.send(Ok(info));
                serve(monitor, session, queue);
            }
            Err(error) => refuse(monitor, reply, error),
        })?;
        Ok((DriverThread { monitor, jobs }, info))
    }

    /// What the thread is doing.
    pub(crate) fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Does a job on the thread and waits for it.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        phase: Phase,
        limit: Duration,
        job: impl FnOnce(&mut Session) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.call_after(phase, limit, Duration::ZERO, job)
    }

    /// As [`DriverThread::call`], for a step of a call that has used part of its time already.
    pub(crate) fn call_after<T: Send + 'static>(
        &self,
        phase: Phase,
        limit: Duration,
        spent: Duration,
        job: impl FnOnce(&mut Session) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.monitor.check(phase)?;
        let (reply, answer) = sync_channel(1);
        let number = self.monitor.jobs.fetch_add(1, Ordering::Relaxed);
        let run = Box::new(move |session: &mut Session| {
            let result = job(session);
            // Here, so that no later job runs before the caller has seen the error.
            if let Err(error) = &result
                && is_fatal(error)
            {
                session.monitor().give_up(error);
            }
            // A caller that has gone does not matter.
            let _ = reply.send(result);
        });
        if self.jobs.send(Job { number, phase, limit, spent, run }).is_err() {
            return Err(ended(&self.monitor, phase));
        }
        wait(&self.monitor, number, phase, &answer)
    }

    /// Has a job done some time, without waiting. Nothing happens if the backend was given up.
    pub(crate) fn post(
        &self,
        phase: Phase,
        limit: Duration,
        job: impl FnOnce(&mut Session) + Send + 'static,
    ) {
        if !self.monitor.is_given_up() {
            let number = self.monitor.jobs.fetch_add(1, Ordering::Relaxed);
            let _ = self.jobs.send(Job { number, phase, limit, spent: Duration::ZERO, run: Box::new(job) });
        }
    }
}

/// Does something that may hang on a thread of its own, with a deadline.
pub(crate) fn bounded<T: Send + 'static>(
    backend: &str,
    limit: Duration,
    work: impl FnOnce(&Arc<Monitor>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (_, value) = start(backend, limit, move |monitor, reply| match work(monitor) {
        Ok(value) => drop(reply.send(Ok(value))),
        Err(error) => refuse(monitor, reply, error),
    })?;
    Ok(value)
}

/// Starts a thread and waits for its first answer.
fn start<T: Send + 'static>(
    backend: &str,
    limit: Duration,
    body: impl FnOnce(&Arc<Monitor>, SyncSender<Result<T>>) + Send + 'static,
) -> Result<(Arc<Monitor>, T)> {
    let monitor = Arc::new(Monitor::new(backend));
    let (reply, answer) = sync_channel(1);
    let of_thread = monitor.clone();
    *lock(&monitor.current) =
        Some(Current { job: 0, phase: Phase::LoadRuntime, started: Instant::now(), limit });
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

fn refuse<T>(monitor: &Monitor, reply: SyncSender<Result<T>>, error: Error) {
    if is_fatal(&error) {
        monitor.give_up(&error);
    }
    let _ = reply.send(Err(error));
}

fn wait<T>(monitor: &Monitor, job: u64, phase: Phase, answer: &Receiver<Result<T>>) -> Result<T> {
    loop {
        match answer.recv_timeout(LOOK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => {
                monitor.check(phase)?;
                return Err(ended(monitor, phase));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some(error) = monitor.check_time(job) {
                    return Err(error);
                }
                monitor.check(phase)?;
            }
        }
    }
}

fn ended(monitor: &Monitor, phase: Phase) -> Error {
    let error = Error::DeviceLost { backend: monitor.backend.clone(), phase, node: None };
    monitor.give_up(&error);
    error
}

/// The driver thread's loop.
fn serve(monitor: &Monitor, mut session: Session, queue: Receiver<Job>) {
    for job in queue {
        if monitor.is_given_up() {
            // Dropping a job tells its caller.
            continue;
        }
        let now = Instant::now();
        let started = now.checked_sub(job.spent).unwrap_or(now);
        *lock(&monitor.current) =
            Some(Current { job: job.number, phase: job.phase, started, limit: job.limit });
        (job.run)(&mut session);
        monitor.leave();
        *lock(&monitor.current) = None;
    }
    let limit = Duration::from_secs(30);
    *lock(&monitor.current) =
        Some(Current { job: u64::MAX, phase: Phase::Close, started: Instant::now(), limit });
    drop(session);
}
