//! The parent's side: start a child, listen, end it when it hangs, and make a record of what happened.

use super::options::{Event, Progress};
use super::protocol::{CHILD, Message, Work};
use super::report::{BackendReport, Record, Status, label};
use super::{files, system};
use ggml_core::{Deadline, Error, Phase, Result};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A child's own deadlines end a phase first; the parent waits this much longer before it ends the child.
const GRACE: Duration = Duration::from_secs(5);

/// How often the parent looks whether a child has ended.
const POLL: Duration = Duration::from_millis(2);

/// Bytes of a log that are quoted as last words.
const LAST_WORDS: usize = 400;

/// Warnings that a record keeps; the log has all of them.
const MAX_WARNINGS: usize = 16;

/// What became of a child.
pub(super) struct ChildOutcome {
    pub(super) backend: BackendReport,
    pub(super) record: Record,
}

/// What the parent knows of a running child.
#[derive(Default)]
struct Watch {
    backend: BackendReport,
    record: Record,
    /// Phases that were entered and not left.
    open: Vec<String>,
    last_phase: Option<String>,
    finished: bool,
    failed: bool,
    wrong_use: Option<String>,
}

impl Watch {
    fn hear(&mut self, message: Message) {
        match message {
            Message::Enter { phase } => {
                self.last_phase = Some(phase.clone());
                self.open.push(phase);
            }
            Message::Exit { phase } => {
                if let Some(at) = self.open.iter().rposition(|p| *p == phase) {
                    self.open.truncate(at);
                }
            }
            Message::Node { name } => self.record.node = Some(name),
            Message::Warning { what } => {
                let warnings = &mut self.record.warnings;
                if warnings.len() < MAX_WARNINGS && !warnings.contains(&what) {
                    warnings.push(what);
                }
            }
            Message::Device { device } => self.backend.fill(&device),
            Message::Progress { .. }
            | Message::Listed { .. }
            | Message::Case { .. }
            | Message::CaseDone(_) => {}
            Message::Done(done) => {
                self.finished = true;
                let r = &mut self.record;
                r.status = Status::Ok;
                r.node = None;
                (r.load_s, r.prompt_s, r.eval_s) =
                    (Some(done.load_s), Some(done.prompt_s), Some(done.eval_s));
                r.tokens = done.token_ids.len();
                // The first token comes from the prompt's logits.
                let generated = r.tokens.saturating_sub(1) as f64;
                r.tokens_per_s = (generated > 0.0 && done.eval_s > 0.0).then(|| generated / done.eval_s);
                (r.token_ids, r.margins) = (done.token_ids, done.margins);
                r.unstable = done.unstable;
                r.driver_allocations = Some(done.stats.driver_allocations);
            }
            Message::Failed(failed) => {
                (self.finished, self.failed) = (true, true);
                let r = &mut self.record;
                r.status = failed.status;
                r.phase = failed.phase.or_else(|| self.open.last().cloned());
                r.node = failed.node.or(r.node.take());
                r.message = Some(failed.message);
            }
            Message::WrongUse { what } => self.wrong_use = Some(what),
        }
    }

    /// Writes the work of a child, starts it, and listens until it has ended.
    fn follow(&mut self, work: &Work, out: &Path, stem: &str, hear: &mut dyn FnMut(&Message)) -> Result<()> {
        let (work_path, log_path) = (out.join(format!("{stem}.work.json")), out.join(format!("{stem}.log")));
        let text = serde_json::to_string_pretty(work).map_err(|e| Error::io(&work_path, e))?;
        std::fs::write(&work_path, text).map_err(|e| Error::io(&work_path, e))?;
        let (mut child, lines) = spawn(&work_path, &log_path)?;
        self.record.pid = child.id();
        let limit = work.timeout.saturating_add(GRACE);
        // A child may close its output and stay.
        let hung = listen(&lines, limit, self, hear) || ended(&mut child, self.patience(limit))?.is_none();
        if hung {
            let _ = child.kill();
        }
        conclude(self, ended(&mut child, GRACE)?, hung, limit, &log_path);
        Ok(())
    }

    /// How long to wait for a child: one that has failed has nothing more to say.
    fn patience(&self, limit: Duration) -> Duration {
        if self.failed { GRACE } else { limit }
    }

    /// The phase that the child was in when it was last heard of.
    fn phase(&self) -> Option<String> {
        self.open.last().or(self.last_phase.as_ref()).cloned()
    }
}

/// Runs a child to its end. If it dies or hangs while it computes and nobody knows at which node, a second child runs
/// the same graph node by node to find out. The error is one of wrong use.
pub(super) fn run_child(work: &Work, out: &Path, progress: Progress<'_>) -> Result<ChildOutcome> {
    let stem = files::stem(&work.backend, work.offload());
    let name = label(&work.backend, work.offload());
    let mut hear = |message: &Message| {
        if let Message::Progress { what } = message {
            progress(&Event::new(&name, what));
        }
    };
    let mut outcome = watch_child(work, out, &stem, &mut hear)?;
    let computing = outcome.record.phase.as_deref().is_some_and(|p| p.ends_with("compute"));
    let died = matches!(outcome.record.status, Status::Crash | Status::Hang);
    if died && computing && outcome.record.node.is_none() {
        progress(&Event::new(&name, "looking for the node"));
        let stepwise = Work { stepwise: true, ..work.clone() };
        outcome.record.node =
            watch_child(&stepwise, out, &format!("{stem}.stepwise"), &mut |_| {})?.record.node;
    }
    Ok(outcome)
}

/// Runs one child to its end. Its work and its log are files of that stem in the folder. A child that cannot be started
/// has a record too; the error is one of wrong use.
pub(super) fn watch_child(
    work: &Work,
    out: &Path,
    stem: &str,
    hear: &mut dyn FnMut(&Message),
) -> Result<ChildOutcome> {
    let mut watch = Watch::default();
    watch.backend.name = work.backend.clone();
    watch.record.backend = work.backend.clone();
    watch.record.offload = work.offload();
    let start = Instant::now();
    if let Err(error) = watch.follow(work, out, stem, hear) {
        watch.record.status = Status::Error;
        watch.record.message = Some(error.to_string());
    }
    watch.record.elapsed_s = start.elapsed().as_secs_f64();
    match watch.wrong_use {
        Some(what) => Err(Error::argument(&work.backend, what, "")),
        None => Ok(ChildOutcome { backend: watch.backend, record: watch.record }),
    }
}

/// Starts a child, with a thread that reads its lines.
fn spawn(work: &Path, log: &Path) -> Result<(Child, Receiver<Vec<u8>>)> {
    let program = std::env::current_exe().map_err(|e| Error::io("the program's own path", e))?;
    let stderr = std::fs::File::create(log).map_err(|e| Error::io(log, e))?;
    let mut child = Command::new(&program)
        .arg(CHILD)
        .arg(work)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .map_err(|e| Error::io(&program, e))?;
    let (sender, lines) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(|l| l.ok()) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    Ok((child, lines))
}

/// Listens until the child has closed its output; true if it said nothing for longer than the limit.
fn listen(
    lines: &Receiver<Vec<u8>>,
    limit: Duration,
    watch: &mut Watch,
    hear: &mut dyn FnMut(&Message),
) -> bool {
    loop {
        match lines.recv_timeout(watch.patience(limit)) {
            Ok(line) => {
                // A driver may print on standard output too, whatever bytes it likes.
                if let Ok(message) = serde_json::from_slice::<Message>(&line) {
                    hear(&message);
                    watch.hear(message);
                }
            }
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Waits for the end of a child, which may not come even after it was killed: a call within the system does not return.
fn ended(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Deadline::new(Phase::Close, limit);
    loop {
        let status = child.try_wait().map_err(|e| Error::io("the end of a child", e))?;
        if status.is_some() || deadline.passed() {
            return Ok(status);
        }
        std::thread::sleep(POLL);
    }
}

fn conclude(watch: &mut Watch, status: Option<ExitStatus>, hung: bool, limit: Duration, log: &Path) {
    let phase = watch.phase();
    let record = &mut watch.record;
    let signal = status.and_then(system::ended_by);
    if watch.failed {
        // Its record is complete, however it left: exit handlers of a driver may hang or crash after an error.
    } else if hung {
        record.status = Status::Hang;
        record.phase = if watch.finished { Some("close".into()) } else { phase };
        let end = if status.is_some() { "was ended" } else { "could not be ended" };
        record.message = Some(format!("said nothing for {:.0} s and {end}", limit.as_secs_f64()));
    } else if !watch.finished {
        // Also with status 0: a driver's library may end the process.
        let end = match &signal {
            Some(signal) => format!("died of {signal}"),
            None => {
                let status = status.and_then(|s| s.code()).unwrap_or(-1);
                format!("left with status {status} before its work was done")
            }
        };
        record.status = Status::Crash;
        record.phase = phase;
        record.message = Some(match last_words(log).as_str() {
            "" => end,
            words => format!("{end}: {words}"),
        });
        record.signal = signal;
    } else if let Some(signal) = signal {
        // The work was done and the process died while it gave everything back.
        record.status = Status::Crash;
        record.phase = Some("close".into());
        record.message = Some(format!("died of {signal} after its work was done"));
        record.signal = Some(signal);
    }
}

/// The end of a log in one line.
fn last_words(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let tail = &bytes[bytes.len().saturating_sub(LAST_WORDS)..];
    String::from_utf8_lossy(tail).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_open_phase_is_the_innermost() {
        let mut watch = Watch::default();
        let enter = |p: &str| Message::Enter { phase: p.into() };
        let exit = |p: &str| Message::Exit { phase: p.into() };
        assert_eq!(watch.phase(), None);
        watch.hear(enter("prepare"));
        watch.hear(enter("compile"));
        assert_eq!(watch.phase().as_deref(), Some("compile"));
        watch.hear(exit("compile"));
        assert_eq!(watch.phase().as_deref(), Some("prepare"));
        watch.hear(exit("prepare"));
        assert_eq!(watch.phase().as_deref(), Some("compile"), "the last one that was entered");
    }
}
