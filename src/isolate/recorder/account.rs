//! Builds a record from a child's events and its parent's observation of its end.

use super::{End, Timed};
use crate::driver_call::{CallKind, kind};
use crate::isolate::fault::{self, Fault};
use crate::isolate::protocol::{Done, Failed, Message};
use crate::isolate::record::{BackendReport, KernelLog, Record};
use crate::isolate::results::{NodeReport, Status};
use crate::isolate::system::is_from_outside;
use ggml_core::Phase;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of the log's end that are quoted in a message.
const LOG_END: usize = 400;

/// Begins what AMD's runtime wrote, in a message.
pub(crate) const WROTE: &str = "; the runtime wrote: ";

/// Begins what the kernel logged, in a message.
pub(crate) const LOGGED: &str = "; the kernel logged: ";

/// Beginnings of the reasons that AMD's runtime writes to standard error and returns no code for.
const REASONS: [&str; 2] = ["HSA Error:", "HSA_STATUS_ERROR"];

/// The most warnings in a record; the log has all of them.
const MAX_WARNINGS: usize = 16;

/// Exit status of a child that could not record a result.
pub(crate) const UNRECORDED: u8 = 3;

/// Phase of a child whose work is done: it closes its device.
const CLOSE: &str = "close";

/// Phase of a child that is about to end: exit handlers.
const EXIT: &str = "exit";

/// Outcome of a child.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChildOutcome {
    pub(crate) backend: BackendReport,
    pub(crate) record: Record,
    /// Results of the finished cases.
    pub(crate) cases: Vec<NodeReport>,
    /// The case that was running when the child ended.
    pub(crate) case: Option<String>,
    /// True if the parent observed the end of the child.
    pub(crate) ended: bool,
}

/// State of a child, updated event by event.
#[derive(Debug, Default)]
pub(crate) struct Account {
    outcome: ChildOutcome,
    /// Phases that were entered and not left.
    open: Vec<String>,
    last_phase: Option<String>,
    /// Path of the library that is being loaded.
    loading: Option<String>,
    /// The last call that began work.
    begun: Option<String>,
    at: f64,
    finished: bool,
    failed: bool,
    leaving: bool,
    wrong_use: Option<String>,
}

impl Account {
    /// Creates the account of a child without events, see [`Record`].
    pub(crate) fn new(backend: &str, offload: i64, epoch: usize, stem: &str) -> Account {
        let mut account = Account::default();
        account.outcome.backend.name = backend.into();
        let record = &mut account.outcome.record;
        (record.backend, record.stem) = (backend.into(), stem.into());
        (record.offload, record.epoch) = (offload, epoch);
        account
    }

    /// Records the variables that the child has in addition to its parent's.
    pub(crate) fn set_environment(&mut self, environment: &[(String, String)]) {
        self.outcome.record.environment = environment.into();
    }

    /// Applies an event.
    pub(crate) fn receive(&mut self, event: Timed<Message>) {
        self.at = event.at;
        let ChildOutcome { backend, record, cases, case, .. } = &mut self.outcome;
        match event.event {
            Message::Began { pid } => record.pid = pid,
            Message::Enter { phase } => {
                if record.furthest.as_deref().is_none_or(|known| order(known) < order(&phase)) {
                    record.furthest = Some(phase.clone());
                }
                self.last_phase = Some(phase.clone());
                self.open.push(phase);
            }
            Message::Exit { phase } => {
                if let Some(at) = self.open.iter().rposition(|p| *p == phase) {
                    self.open.truncate(at);
                }
            }
            Message::Call { name, on } => {
                if name == "dlopen" && !on.is_empty() {
                    self.loading = Some(on);
                }
                match kind(&name) {
                    CallKind::Wait => record.waits_for.clone_from(&self.begun),
                    CallKind::Order => record.waits_for = None,
                    CallKind::Work => (record.waits_for, self.begun) = (None, Some(name.clone())),
                }
                record.last_call = Some(name);
            }
            Message::Learnt { what, value } => match what.as_str() {
                "library" => record.library = Some(value),
                "device" => backend.device = value,
                "driver" => backend.driver = value,
                _ => backend.versions.push((what, value)),
            },
            Message::Step { what } => record.step = Some(what),
            Message::Memory { resident, device } => {
                record.resident_bytes = record.resident_bytes.max(resident);
                record.device_bytes = record.device_bytes.max(Some(device));
            }
            Message::Node { name } => record.node = Some(name),
            Message::Warning { what } => {
                let warnings = &mut record.warnings;
                if warnings.len() < MAX_WARNINGS && !warnings.contains(&what) {
                    warnings.push(what);
                }
            }
            Message::Device { device } => backend.fill(&device),
            Message::Progress { .. } | Message::Listed { .. } | Message::RouteDone { .. } => {}
            Message::Route { name, .. } => record.step = Some(name),
            Message::Case { name } => *case = Some(name),
            Message::CaseDone(report) => {
                *case = None;
                cases.push(report);
            }
            Message::Done(done) => self.done(done),
            Message::Failed(failed) => self.failed(failed),
            Message::Leaving => self.leaving = true,
            Message::WrongUse { what } => self.wrong_use = Some(what),
        }
    }

    fn done(&mut self, done: Done) {
        self.finished = true;
        let r = &mut self.outcome.record;
        r.status = Status::Ok;
        (r.node, r.step, r.waits_for) = (None, None, None);
        (r.load_s, r.prompt_s, r.eval_s) = (Some(done.load_s), Some(done.prompt_s), Some(done.eval_s));
        r.tokens = done.token_ids.len();
        // The first token is chosen from the prompt's logits.
        let generated = r.tokens.saturating_sub(1) as f64;
        r.tokens_per_s = (generated > 0.0 && done.eval_s > 0.0).then(|| generated / done.eval_s);
        (r.token_ids, r.margins) = (done.token_ids, done.margins);
        (r.unstable, r.variants, r.times) = (done.unstable, done.variants, done.times);
        (r.score, r.invalid_from, r.drafts) = (done.score, done.invalid_from, done.drafts);
        r.driver_allocations = Some(done.stats.driver_allocations);
    }

    fn failed(&mut self, failed: Failed) {
        (self.finished, self.failed) = (true, true);
        let r = &mut self.outcome.record;
        r.status = failed.status;
        r.phase = failed.phase.or_else(|| self.open.last().cloned());
        r.node = failed.node.or(r.node.take());
        r.message = Some(failed.message);
    }

    /// True if the child has reported an error; no event of interest follows it.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Returns the error in an option or an environment variable.
    pub(crate) fn wrong_use(&self) -> Option<&str> {
        self.wrong_use.as_deref()
    }

    /// Returns the phase of the child at its last event.
    fn phase(&self) -> Option<String> {
        match (self.finished, self.leaving) {
            (true, true) => Some(EXIT.into()),
            (true, false) => Some(CLOSE.into()),
            _ => self.open.last().or(self.last_phase.as_ref()).cloned(),
        }
    }

    /// Builds the outcome. `end` is `None` if the parent ended before it saw the child end. The end of the
    /// log is quoted in the message.
    pub(crate) fn conclude(mut self, end: Option<&End>, log: &Path) -> ChildOutcome {
        let phase = self.phase();
        let record = &mut self.outcome.record;
        record.elapsed_s = end.map_or(self.at, |end| end.elapsed_s);
        record.library = record.library.take().or(self.loading.take());
        record.signal = end.and_then(|end| end.signal.clone());
        record.stuck = end.and_then(|end| end.stuck.clone());
        record.kernel = end.map(|end| (*end.kernel).clone()).unwrap_or_default();
        // A line without the signal is not the handler's.
        record.fault = Fault::find(&read_log(log)).filter(|f| Some(&f.signal) == record.signal.as_ref());
        self.outcome.ended = end.is_some();
        if let Some((status, message)) = self.verdict(end, log) {
            let record = &mut self.outcome.record;
            (record.status, record.phase, record.message) = (status, phase, Some(message));
        }
        let record = &mut self.outcome.record;
        if matches!(record.status, Status::Error | Status::Unsupported)
            && let (Some(message), Some(words)) = (&mut record.message, runtime_words(&read_log(log)))
        {
            message.push_str(&format!("{WROTE}{words}"));
        }
        if matches!(record.status, Status::Ok | Status::Unsupported) {
            record.kernel = KernelLog::default();
        }
        if let ([first, rest @ ..], Some(message)) = (record.kernel.lines.as_slice(), &mut record.message) {
            message.push_str(&format!("{LOGGED}{first}"));
            if !rest.is_empty() {
                let lines = if rest.len() == 1 { "line" } else { "lines" };
                message.push_str(&format!(" (and {} more {lines})", rest.len()));
            }
        }
        self.outcome
    }

    /// Returns status and message of a child that did not end normally; `None` if the child's own report
    /// counts.
    fn verdict(&self, end: Option<&End>, log: &Path) -> Option<(Status, String)> {
        if let Some(what) = &self.wrong_use {
            return Some((Status::Error, what.clone()));
        }
        // The record of an error is complete, whatever follows: exit handlers of a driver may hang or crash
        // afterwards.
        if self.failed {
            return None;
        }
        let Some(end) = end else {
            let text = "no end was recorded: its parent was killed too, or the machine stopped";
            return (!self.finished).then(|| (Status::Crash, text.into()));
        };
        let work = if self.finished { "after its work was done" } else { "before its work was done" };
        if let Some(error) = &end.error {
            return Some((Status::Error, error.clone()));
        }
        if end.interrupted && !self.finished {
            return Some((Status::Ended, "was interrupted".into()));
        }
        if let Some(silent) = end.silent_s {
            let end = match &end.stuck {
                None => "was killed".into(),
                Some(stuck) => format!("could not be killed: {}", stuck.describe()),
            };
            return Some((Status::Hang, format!("recorded no event for {silent:.0} s {work} and {end}")));
        }
        let outside = end.signal.as_deref().is_some_and(is_from_outside);
        let place = self.outcome.record.fault.as_ref().map(Fault::place).unwrap_or_default();
        let text = match (&end.signal, end.status) {
            (Some(signal), _) if outside => format!("ended from outside by {signal}"),
            (Some(signal), _) => format!("died of {signal}{place}"),
            (None, Some(0)) if self.finished => return None,
            (None, status) if !self.finished && status == Some(UNRECORDED.into()) => {
                return Some((Status::Error, with_log_end("could not record its results".into(), log)));
            }
            (None, status) => format!("exited with status {}", status.unwrap_or(-1)),
        };
        let text = match self.leaving {
            true => format!("{text} in an exit handler, {work}"),
            false if self.finished => format!("{text} {work}, while it closed its device"),
            false => format!("{text} {work}"),
        };
        if outside {
            // The kernel sends this signal too.
            let memory = "; if nobody did that, memory ran out: journalctl -k | grep -i oom shows it";
            let is_kill = end.signal.as_deref() == Some("SIGKILL");
            return Some((Status::Ended, format!("{text}{}", if is_kill { memory } else { "" })));
        }
        Some((Status::Crash, with_log_end(text, log)))
    }
}

/// Returns the index of a phase in their order; `None` for a phase of another version.
fn order(phase: &str) -> Option<usize> {
    Phase::ALL.iter().position(|known| known.name() == phase)
}

/// The most bytes at the end of a log that are read.
const LOG_READ: u64 = 64 << 10;

/// Reads the end of a log.
fn read_log(log: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = std::fs::File::open(log) {
        let length = file.metadata().map_or(0, |about| about.len());
        // A log that cannot be read counts as empty.
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(LOG_READ)));
        let _ = file.take(LOG_READ).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the last reason that AMD's runtime wrote to a log. Each line of the library's own begins with its level.
fn runtime_words(log: &str) -> Option<String> {
    let is_foreign = |line: &&str| !["WARN ", "ERROR "].iter().any(|level| line.starts_with(level));
    let reason = |line: &str| {
        REASONS.iter().filter_map(|begin| line.find(begin)).min().map(|at| line[at..].to_string())
    };
    let found = log.lines().filter(is_foreign).filter_map(reason).next_back()?;
    let words: Vec<&str> = found.split_whitespace().collect();
    Some(words.join(" ").chars().take(LOG_END).collect())
}

/// Appends the end of a log, in one line, without the lines of the handler of signals.
fn with_log_end(text: String, log: &Path) -> String {
    let log = read_log(log);
    let lines: Vec<&str> =
        log.lines().filter(|line| !line.trim().is_empty() && !fault::is_line(line)).collect();
    // Runtimes repeat themselves.
    let counted = lines.chunk_by(|a, b| a == b).map(|same| match same {
        [line] => line.to_string(),
        same => format!("{} ({} times)", same[0], same.len()),
    });
    let words = counted.collect::<Vec<_>>().join("\n").split_whitespace().collect::<Vec<_>>().join(" ");
    let begin = words.char_indices().map(|(at, _)| at).find(|at| words.len() - at <= LOG_END);
    let end = &words[begin.unwrap_or(words.len())..];
    if end.is_empty() { text } else { format!("{text}: {end}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::MARK;

    /// The outcome of a child that did something and ended, and whose log has some lines.
    fn outcome(messages: Vec<Message>, end: &End, log: &str) -> Record {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hip.log");
        std::fs::write(&path, log).unwrap();
        let mut account = Account::new("hip", 0, 0, "hip");
        messages.into_iter().for_each(|event| account.receive(Timed { at: 0.0, event }));
        account.conclude(Some(end), &path).record
    }

    fn killed_by(signal: &str) -> End {
        End { signal: Some(signal.into()), ..End::default() }
    }

    /// Lines of the kernel are evidence of a failure, and none of a run that ended well.
    #[test]
    fn what_the_kernel_logged_is_said() {
        let log = |lines: &[&str]| {
            Box::new(KernelLog { lines: lines.iter().map(|l| l.to_string()).collect(), unread: None })
        };
        let end = End { kernel: log(&["page fault", "ring reset", "more"]), ..killed_by("SIGSEGV") };
        let record = outcome(Vec::new(), &end, "");
        let message =
            "died of SIGSEGV before its work was done; the kernel logged: page fault (and 2 more lines)";
        assert_eq!((record.message.as_deref(), record.kernel.lines.len()), (Some(message), 3));
        let end = End { kernel: log(&["page fault", "ring reset"]), ..killed_by("SIGSEGV") };
        assert!(outcome(Vec::new(), &end, "").message.unwrap().ends_with("page fault (and 1 more line)"));
        let end = End { status: Some(0), kernel: log(&["page fault"]), ..End::default() };
        let record = outcome(vec![Message::Done(Done::default())], &end, "");
        assert!(record.status == Status::Ok && record.kernel.is_empty(), "{record:?}");
    }

    /// The line of a handler is read if it is about the signal that ended the child, and is no part of the message.
    #[test]
    fn a_line_of_the_handler_has_the_signal_that_ended_it() {
        let log =
            format!("hello\n{MARK}signal=SIGSEGV address=0x10 pc=0x7f01 offset=0x1234 module=/x/lib.so\n");
        let record = outcome(Vec::new(), &killed_by("SIGSEGV"), &log);
        let message = "died of SIGSEGV at 0x10 in lib.so+0x1234 before its work was done: hello";
        assert_eq!(record.message.as_deref(), Some(message));
        let record = outcome(Vec::new(), &killed_by("SIGABRT"), &log);
        assert_eq!(record.message.as_deref(), Some("died of SIGABRT before its work was done: hello"));
        let repeated = format!("first\n{}last\n", "HSA exception: BadAlloc\n\n".repeat(30));
        let record = outcome(vec![], &killed_by("SIGSEGV"), &repeated);
        let said = "died of SIGSEGV before its work was done: first HSA exception: BadAlloc (30 times) last";
        assert_eq!(record.message.as_deref(), Some(said));
        assert_eq!(record.fault, None);
    }

    /// A wait is for the last call that began work, and none is left of work that was done.
    #[test]
    fn a_wait_is_for_the_call_that_began_work() {
        let call = |name: &str| Message::Call { name: name.into(), on: String::new() };
        let enter = |phase: &str| Message::Enter { phase: phase.into() };
        let begun = || {
            vec![
                enter("upload"),
                call("hipMemcpyAsync"),
                call("hipEventRecord"),
                call("hipEventQuery"),
                enter("close"),
            ]
        };
        let silent = End { silent_s: Some(2.0), ..End::default() };
        let record = outcome(begun(), &silent, "");
        assert_eq!(record.waits_for.as_deref(), Some("hipMemcpyAsync"));
        assert_eq!(record.last_call.as_deref(), Some("hipEventQuery"));
        assert_eq!(record.furthest.as_deref(), Some("close"));
        let waits = vec![call("vkQueueSubmit"), call("vkWaitSemaphores")];
        assert_eq!(outcome(waits, &silent, "").waits_for.as_deref(), Some("vkQueueSubmit"));
        let done = [begun(), vec![Message::Done(Done::default())]].concat();
        let record = outcome(done, &End { status: Some(0), ..End::default() }, "");
        assert_eq!((record.status, record.waits_for), (Status::Ok, None));
    }

    /// A signal that somebody sent is no crash; the kernel's own has a hint.
    #[test]
    fn a_signal_from_outside_is_no_crash() {
        let record = outcome(Vec::new(), &killed_by("SIGTERM"), "");
        let message = "ended from outside by SIGTERM before its work was done";
        assert_eq!((record.status, record.message.as_deref()), (Status::Ended, Some(message)));
        let message = outcome(Vec::new(), &killed_by("SIGKILL"), "").message.unwrap();
        assert!(message.ends_with("memory ran out: journalctl -k | grep -i oom shows it"), "{message}");
        assert_eq!(outcome(Vec::new(), &killed_by("SIGABRT"), "").status, Status::Crash);
    }

    /// HIP 7 returns 719 for an illegal instruction, HIP 6 lists no device on an old kernel: the reason is in the log only.
    #[test]
    fn what_the_runtime_wrote_is_part_of_an_error() {
        let log = "WARN diptych::hip: HSA_STATUS_ERROR_OURS\n:0:rocdevice.cpp  :3721: 17 us:  Callback: Queue 0x7f aborting \
                   with error : HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION: The agent attempted to execute an illegal shader \
                   instruction. code: 0x2a\nERROR diptych::hip: given up\nKernel Name: mat\n";
        let words = "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION: The agent attempted to execute an illegal shader instruction. \
                     code: 0x2a";
        assert_eq!(runtime_words(log).as_deref(), Some(words));
        assert_eq!(
            runtime_words("HSA Error:  Incompatible kernel\n").as_deref(),
            Some("HSA Error: Incompatible kernel")
        );
        assert_eq!(runtime_words("MESA: warning\n"), None);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, log).unwrap();
        let of = |status| {
            let mut account = Account::new("hip", -1, 0, "hip");
            account.outcome.record.status = status;
            account.outcome.record.message = Some("hipErrorLaunchFailure (719)".into());
            account.failed = true;
            account.conclude(Some(&End { status: Some(0), ..End::default() }), &path).record.message.unwrap()
        };
        assert_eq!(of(Status::Error), format!("hipErrorLaunchFailure (719){WROTE}{words}"));
        assert_eq!(of(Status::Hang), "hipErrorLaunchFailure (719)");
    }
}
