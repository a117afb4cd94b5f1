//! The parent's side: starts a child, follows its events, ends it when it hangs, and builds a record of the
//! outcome.

use super::kernel_log::{self, Since};
use super::protocol::{CHILD, Message, Work};
use super::recorder::{self, Account, ChildOutcome, End, Follower, RunEvent, Sync, Writer};
use super::system;
use super::{files, own_program};
use crate::backend_name::BackendName;
use crate::virtual_kfd;
use ggml_core::files::random;
use ggml_core::{Deadline, Error, Phase, Result};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time beyond a child's own deadlines, which end a phase first, before the parent ends the child.
const GRACE: Duration = Duration::from_secs(5);

/// Interval at which the parent polls a child for events and for its end.
const POLL: Duration = Duration::from_millis(2);

/// A child that was abandoned, and the backend whose device it holds.
struct Abandoned {
    pid: u32,
    backend: String,
}

/// The children of a run, in its folder. A child that has run already is rebuilt from its events, any other
/// is started, unless the run is over.
pub(crate) struct Children {
    out: PathBuf,
    /// Writer of the parent's events; `None` if the run is over.
    events: Option<Writer>,
    /// Children that were started before, and their ends, if known.
    past: HashMap<String, Option<End>>,
    stop: Option<Arc<AtomicBool>>,
    abandoned: Vec<Abandoned>,
}

impl Children {
    /// Creates the children of a new run.
    pub(crate) fn begin(out: &Path, stop: Option<Arc<AtomicBool>>) -> Result<Children> {
        recorder::create(&files::run_events(out))?;
        Children::resume(out, stop)
    }

    /// Opens the children of a run that continues. Children that ran are not started again, including those
    /// without a recorded end, which may have stopped the machine.
    pub(crate) fn resume(out: &Path, stop: Option<Arc<AtomicBool>>) -> Result<Children> {
        let mut children = Children::past(out)?;
        let path = files::run_events(out);
        let mut follower = Follower::open(&path)?;
        follower.next::<RunEvent>().map_err(|e| Error::io(&path, e))?;
        children.events = Some(Writer::open(&path, follower.end())?);
        children.stop = stop;
        Ok(children)
    }

    /// Opens the children of a run that is over.
    pub(crate) fn past(out: &Path) -> Result<Children> {
        let mut past = HashMap::new();
        for event in recorder::read::<RunEvent>(&files::run_events(out))? {
            match event.event {
                RunEvent::Started { stem } => past.insert(stem, None),
                RunEvent::Ended { stem, end } => past.insert(stem, Some(end)),
            };
        }
        Ok(Children { out: out.into(), events: None, past, stop: None, abandoned: Vec::new() })
    }

    /// Opens the children of another run in its own folder. That run is over if this one is; otherwise it is
    /// created if `is_new`, or else continued.
    pub(crate) fn nested(&self, out: &Path, is_new: bool) -> Result<Children> {
        match &self.events {
            Some(_) if is_new => Children::begin(out, self.stop.clone()),
            Some(_) => Children::resume(out, self.stop.clone()),
            None => Children::past(out),
        }
    }

    /// True if no more children are started.
    pub(crate) fn is_over(&self) -> bool {
        self.events.is_none() || self.is_stopped()
    }

    /// Returns the run's folder.
    pub(crate) fn out(&self) -> &Path {
        &self.out
    }

    /// True if the user ended the run.
    fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Returns true if `run` would start a child for this stem.
    pub(crate) fn starts(&self, stem: &str) -> bool {
        self.events.is_some() && !self.is_stopped() && !self.past.contains_key(stem)
    }

    /// Returns the outcome of a child, and runs it to its end if it has not run before; `None` if it has not
    /// run and the run is over. The stem determines its files. A child that cannot be started also has a
    /// record; the only error is wrong use.
    pub(crate) fn run(
        &mut self,
        work: &Work,
        stem: &str,
        receive: &mut dyn FnMut(&Message),
    ) -> Result<Option<ChildOutcome>> {
        let mut account = Account::new(&work.backend, work.offload(), work.epoch, stem);
        account.set_environment(&work.environment);
        let log = files::log(&self.out, stem);
        if let Some(end) = self.past.get(stem) {
            // Unreadable events count as missing; the records of other children are not affected.
            let events = recorder::read(&files::events(&self.out, stem)).unwrap_or_default();
            events.into_iter().for_each(|event| account.receive(event));
            return Ok(Some(account.conclude(end.as_ref(), &log)));
        }
        if !self.starts(stem) {
            return Ok(None);
        }
        let start = Instant::now();
        let mut end = self
            .follow(work, stem, &mut account, receive)
            .unwrap_or_else(|error| End { error: Some(error.to_string()), ..End::default() });
        end.elapsed_s = start.elapsed().as_secs_f64();
        // On a full disk the event is missing from a later report, but not from this one.
        let _ = self.record(RunEvent::Ended { stem: stem.into(), end: end.clone() });
        if let Some(what) = account.wrong_use() {
            return Err(Error::argument(&work.backend, what, ""));
        }
        let outcome = account.conclude(Some(&end), &log);
        if end.stuck.is_some() {
            self.abandoned.push(Abandoned { pid: outcome.record.pid, backend: work.backend.clone() });
        }
        Ok(Some(outcome))
    }

    fn record(&mut self, event: RunEvent) -> Result<()> {
        let path = files::run_events(&self.out);
        let Some(events) = &mut self.events else { return Ok(()) };
        events.append(event, Sync::Now, "").map_err(|e| Error::io(&path, e))
    }

    /// Starts a child and follows its events until it has ended.
    fn follow(
        &mut self,
        work: &Work,
        stem: &str,
        account: &mut Account,
        receive: &mut dyn FnMut(&Message),
    ) -> Result<End> {
        self.record(RunEvent::Started { stem: stem.into() })?;
        if let Some(held) = self.abandoned.iter().find(|held| held.backend == work.backend) {
            let why = format!("was not run: process {} could not be killed and holds its device", held.pid);
            return Ok(End { error: Some(why), ..End::default() });
        }
        let (work_path, events) = (files::work(&self.out, stem), files::events(&self.out, stem));
        let text = serde_json::to_string_pretty(work).map_err(|e| Error::io(&work_path, e))?;
        files::replace(&work_path, &text)?;
        recorder::create(&events)?;
        let log = is_of_driver(&work.backend).then(|| Since::now(Path::new(kernel_log::PATH)));
        let mut child = spawn(&work_path, &events, &files::log(&self.out, stem), &environment_of(work))?;
        let mut follower = Follower::open(&events)?;
        let limit = work.timeout.saturating_add(GRACE);
        let mut end = self.follow_events(&mut child, &mut follower, limit, account, receive);
        if let (Ok(end), Some(log)) = (&mut end, log)
            && end.status != Some(0)
        {
            *end.kernel = log.read();
        }
        if end.as_ref().is_ok_and(|end| end.stuck.is_none()) {
            // The rest of the reserved space is not needed any more.
            Writer::open(&events, follower.end())?.trim();
        }
        end
    }

    /// Follows the child's events until it has ended, or has recorded none but calls for longer than the
    /// limit.
    fn follow_events(
        &self,
        child: &mut Child,
        follower: &mut Follower,
        limit: Duration,
        account: &mut Account,
        receive: &mut dyn FnMut(&Message),
    ) -> Result<End> {
        let mut last_event = Instant::now();
        let mut receive_events = |account: &mut Account| -> Result<bool> {
            let events = follower.next().map_err(|e| Error::io("the events of a child", e))?;
            // Calls may be repeated forever within a phase that hangs.
            let alive = events.iter().any(|e| !matches!(e.event, Message::Call { .. }));
            for event in events {
                receive(&event.event);
                account.receive(event);
            }
            Ok(alive)
        };
        loop {
            let status = child.try_wait().map_err(|e| Error::io("the end of a child", e))?;
            // The status was read first, so no event follows these if the child has ended.
            if receive_events(account)? {
                last_event = Instant::now();
            }
            let stopped = self.is_stopped();
            if let Some(status) = status {
                return Ok(end_of(status, stopped));
            }
            let silent = last_event.elapsed();
            if stopped || silent >= if account.has_failed() { GRACE } else { limit } {
                // Killing fails if the child has ended in the meantime.
                let _ = child.kill();
                let status = ended(&mut || child.try_wait(), GRACE)?;
                receive_events(account)?;
                return Ok(End {
                    silent_s: (!stopped).then_some(silent.as_secs_f64()),
                    stuck: status.is_none().then(|| system::stuck(Path::new("/proc"), child.id())),
                    ..status.map_or_else(End::default, |status| end_of(status, stopped))
                });
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        if let Some(events) = &self.events {
            events.trim();
        }
    }
}

/// Returns the variables of a child: those that its backend needs, then those of its work.
fn environment_of(work: &Work) -> Vec<(String, String)> {
    let kfd = work.backend.parse::<BackendName>().ok().and_then(|name| name.kfd());
    let mut all = kfd.map_or_else(Vec::new, virtual_kfd::environment);
    all.extend(work.environment.iter().cloned());
    all
}

/// Starts a child. It ends when its standard input is closed, see [`crate::leave::follow_parent`].
fn spawn(work: &Path, events: &Path, log: &Path, environment: &[(String, String)]) -> Result<Child> {
    let open = || {
        let log = ggml_core::files::create(log)?;
        Ok::<_, std::io::Error>((log.try_clone()?, log))
    };
    let (stdout, stderr) = open().map_err(|e| Error::io(log, e))?;
    let nonce = format!("{:016x}", random());
    let mut command = own_program::command()?;
    for (name, value) in environment {
        match value.is_empty() {
            true => command.env_remove(name),
            false => command.env(name, value),
        };
    }
    command.arg(CHILD).args([work, events]).arg(&nonce);
    command.stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
    let mut child = command.spawn().map_err(|e| Error::io(command.get_program(), e))?;
    if let Some(input) = &mut child.stdin {
        // A child that has died already is noticed by its end.
        let _ = writeln!(input, "{nonce}");
    }
    Ok(child)
}

/// True if a driver of the kernel serves a backend.
fn is_of_driver(backend: &str) -> bool {
    backend.parse::<BackendName>().is_ok_and(|name| name.has_driver() && !name.is_emulated())
}

fn end_of(status: ExitStatus, stopped: bool) -> End {
    let signal = system::ended_by(status);
    // A terminal sends the signal to both parent and child.
    let interrupted = stopped || signal.as_deref() == Some(system::INTERRUPT);
    End { status: status.code(), signal, interrupted, ..End::default() }
}

/// Waits up to `limit` for the end of a child. A killed child may stay in a system call that does not return.
fn ended(
    try_wait: &mut dyn FnMut() -> std::io::Result<Option<ExitStatus>>,
    limit: Duration,
) -> Result<Option<ExitStatus>> {
    let deadline = Deadline::new(Phase::Close, limit);
    loop {
        let status = try_wait().map_err(|e| Error::io("the end of a child", e))?;
        if status.is_some() || deadline.passed() {
            return Ok(status);
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolate::protocol::{OpsTask, Task};
    use crate::isolate::results::Status;

    /// Waiting for a process that never ends stops at the limit.
    #[test]
    fn waiting_has_an_end() {
        let mut calls = 0;
        let mut never = || {
            calls += 1;
            Ok(None)
        };
        assert_eq!(ended(&mut never, Duration::from_millis(20)).unwrap(), None);
        assert!(calls > 1);
    }

    #[test]
    fn only_drivers_are_in_the_kernels_log() {
        for (name, expected) in [
            ("hip", true),
            ("hip:1", true),
            ("vulkan", true),
            ("cpu", false),
            ("reference", false),
            ("null=crash@compute", false),
            ("hip-virtual:gfx906", false),
            ("vulkan-virtual:vega10", false),
        ] {
            assert_eq!(is_of_driver(name), expected, "{name}");
        }
    }

    /// A device held by a child that could not be ended is not used again; other backends are.
    #[test]
    fn a_device_that_is_held_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut children = Children::begin(dir.path(), None).unwrap();
        children.abandoned.push(Abandoned { pid: 77, backend: "cpu".into() });
        let task = Task::Ops(OpsTask { cases: Vec::new(), results: "".into(), is_reference: false });
        let work = Work::new(&BackendName::Cpu, GRACE, task);
        let outcome = children.run(&work, "cpu", &mut |_| {}).unwrap().unwrap();
        assert_eq!(outcome.record.status, Status::Error);
        let message = outcome.record.message.clone().unwrap();
        assert_eq!(message, "was not run: process 77 could not be killed and holds its device");
        drop(children);
        // A later report gives the same record.
        let rebuilt = Children::past(dir.path()).unwrap().run(&work, "cpu", &mut |_| {}).unwrap().unwrap();
        assert_eq!(rebuilt.record, outcome.record);
    }
}
