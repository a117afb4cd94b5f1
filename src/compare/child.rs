//! The child process: one backend, one task. Every event is recorded before the act that it announces.

use super::{generate, graph, ops, trial};
use crate::backends::{OpenOptions, open};
use crate::crash;
use crate::event_text::EventText;
use crate::exit_status::{FAILED, WRONG_USE};
use crate::isolate::protocol::{CHILD, Done, Failed, Message, Task, Work};
use crate::isolate::recorder::{Sync, UNRECORDED, Writer};
use crate::isolate::results::Status;
use crate::isolate::{allow_children, system};
use crate::json;
use crate::leave::{self, follow_parent, leave};
use crate::qualify;
use ggml_core::backend::Backend;
use ggml_core::phase::Deadlines;
use ggml_core::routes::Routes;
use ggml_core::{Error, Result};
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Runs the work of a child process and returns its exit status; in any other process it returns `None`. Call
/// it first in `main`.
pub fn child_entry() -> Option<ExitCode> {
    child_entry_with(&|_, backend| backend)
}

/// Function that puts another backend in the place of the one that a child opened by a name.
pub type Replace<'a> = &'a (dyn Fn(&str, Arc<dyn Backend>) -> Arc<dyn Backend> + std::marker::Sync);

/// As [`child_entry`], with a backend of the caller's in the place of the opened one: to compare a backend that
/// the library does not know, or one with planted faults.
pub fn child_entry_with(replace: Replace<'_>) -> Option<ExitCode> {
    allow_children();
    let mut args = std::env::args_os().skip(1);
    if args.next()? != CHILD {
        return None;
    }
    let (work, events, nonce) = (args.next()?, args.next()?, args.next().unwrap_or_default());
    Some(ExitCode::from(child(Path::new(&work), Path::new(&events), &nonce, replace)))
}

/// Writer of events, and the last recorded call.
static RECORDING: OnceLock<Mutex<(Writer, Option<Message>)>> = OnceLock::new();

/// Records a message. If a result cannot be recorded the process ends, because the parent would never receive
/// it. Other messages that cannot be recorded, for example on a full disk, are dropped.
fn record(message: Message) {
    let Some(recording) = RECORDING.get() else { return };
    let (writer, last) = &mut *recording.lock().unwrap_or_else(PoisonError::into_inner);
    // Polling repeats the same call; only the first is recorded.
    let is_call = matches!(message, Message::Call { .. });
    if is_call && last.as_ref() == Some(&message) {
        return;
    }
    let (sync, act) = importance(&message);
    let is_result = matches!(message, Message::CaseDone(_) | Message::Done(_) | Message::Failed(_));
    if let Err(error) = writer.append(&message, sync, act)
        && is_result
    {
        let _ = writeln!(std::io::stderr(), "the result cannot be recorded: {error}");
        leave(UNRECORDED);
    }
    *last = is_call.then_some(message);
}

/// Returns when a message has to be on the disk, and the name of the act that it announces.
fn importance(message: &Message) -> (Sync, &str) {
    match message {
        Message::Enter { phase } => (Sync::Act, phase),
        Message::Call { name, .. } => (Sync::Act, name),
        Message::Step { .. } => (Sync::Act, "step"),
        Message::Case { .. } => (Sync::Act, "case"),
        Message::Route { .. } => (Sync::Act, "route"),
        Message::RouteDone { .. } => (Sync::Now, ""),
        Message::Exit { .. } | Message::Memory { .. } | Message::Warning { .. } => (Sync::Lazy, ""),
        Message::Progress { .. } | Message::CaseDone(_) | Message::Leaving => (Sync::Lazy, ""),
        Message::Began { .. } | Message::Learnt { .. } | Message::Node { .. } | Message::Device { .. } => {
            (Sync::Now, "")
        }
        Message::Listed { .. } => (Sync::Lazy, ""),
        Message::Done(_) | Message::Failed(_) | Message::WrongUse { .. } => (Sync::Now, ""),
    }
}

/// Records phases (the spans that backends enter), calls and facts learnt (their events), and warnings, which
/// are also written to the log.
struct Announcer;

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Announcer {
    fn on_enter(&self, id: &tracing::span::Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id).filter(|s| s.metadata().target() == "diptych::phase") {
            record(Message::Enter { phase: span.name().into() });
        }
    }

    fn on_exit(&self, id: &tracing::span::Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id).filter(|s| s.metadata().target() == "diptych::phase") {
            record(Message::Exit { phase: span.name().into() });
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, _context: Context<'_, S>) {
        let (level, target) = (event.metadata().level(), event.metadata().target());
        match target {
            "diptych::call" => {
                let [name, on] = fields(event, ["name", "on"]);
                record(Message::Call { name, on });
            }
            "diptych::learnt" => {
                let [what, value] = fields(event, ["what", "value"]);
                record(Message::Learnt { what, value });
            }
            _ if *level <= tracing::Level::WARN => {
                let mut text = EventText::default();
                event.record(&mut text);
                // Writing the log may fail if its disk is full.
                let _ = writeln!(std::io::stderr(), "{level} {target}: {}", text.0);
                record(Message::Warning { what: text.0 });
            }
            _ => {}
        }
    }
}

/// Text fields of an event, by name.
struct Fields<'a, const N: usize>([&'a str; N], [String; N]);

impl<const N: usize> tracing::field::Visit for Fields<'_, N> {
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        if let Some(at) = self.0.iter().position(|name| *name == field.name()) {
            self.1[at] = value.into();
        }
    }

    fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}
}

fn fields<const N: usize>(event: &tracing::Event<'_>, names: [&str; N]) -> [String; N] {
    let mut fields = Fields(names, names.map(|_| String::new()));
    event.record(&mut fields);
    fields.1
}

/// Time that a parent has for the first line to a child.
const GREETING: Duration = Duration::from_secs(10);

fn child(work: &Path, events: &Path, nonce: &OsStr, replace: Replace<'_>) -> u8 {
    if nonce.is_empty() || follow_parent(FAILED, GREETING).is_none_or(|line| *line != *nonce) {
        let _ =
            writeln!(std::io::stderr(), "error: {CHILD} is for processes that this program starts itself");
        return WRONG_USE;
    }
    // The work first: without it nothing is written.
    let opened = std::fs::read_to_string(work).map_err(|e| Error::io(work, e));
    let (text, writer) = match opened.and_then(|text| Ok((text, Writer::begin(events)?))) {
        Ok(opened) => opened,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            return UNRECORDED;
        }
    };
    drop(RECORDING.set(Mutex::new((writer, None))));
    crash::install(crash::Reader::Parent);
    record(Message::Began { pid: std::process::id() });
    let subscriber = tracing_subscriber::registry().with(Announcer);
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        record(Message::Warning { what: "phases cannot be announced: another subscriber is set".into() });
    }
    let parsed = json::read(&text);
    let status = serve(parsed.map_err(|e| Error::model("work of a child", e, "").with_path(work)), replace);
    record(Message::Leaving);
    status
}

fn serve(work: Result<Work>, replace: Replace<'_>) -> u8 {
    let work = match work {
        Ok(work) => work,
        Err(error) => return conclude(Err(error)),
    };
    if work.task == Task::List {
        return conclude(trial::run_list(&work, &mut record));
    }
    if let Task::Routes(task) = &work.task {
        let open = |routes: Routes| {
            let backend = open_backend(&work, Some(routes))?;
            Ok(replace(&work.backend, backend))
        };
        return conclude(qualify::run_routes(&work, task, &open, &mut record));
    }
    match open_backend(&work, None) {
        // The result is recorded before the device is closed, because closing may hang.
        Ok(backend) => conclude(run(&work, replace(&work.backend, backend.clone()))),
        // The invalid argument is an option or an environment variable, not an argument of the work.
        Err(error @ Error::InvalidArgument { .. }) => {
            record(Message::WrongUse { what: error.to_string() });
            WRONG_USE
        }
        Err(error) => conclude(Err(error)),
    }
}

/// Records the outcome and returns the exit status.
fn conclude(outcome: Result<Done>) -> u8 {
    match outcome {
        Ok(done) => {
            record(Message::Done(done));
            0
        }
        Err(error) => {
            record(Message::Failed(failed(&error)));
            if matches!(error, Error::Timeout { .. }) {
                leave(FAILED);
            }
            FAILED
        }
    }
}

fn failed(error: &Error) -> Failed {
    let status = match error {
        Error::Unsupported { .. } | Error::Unavailable { .. } => Status::Unsupported,
        Error::Timeout { .. } => Status::Hang,
        _ => Status::Error,
    };
    Failed {
        status,
        phase: error.phase().map(|p| p.name().to_string()),
        node: error.node().map(str::to_string),
        message: error.to_string(),
    }
}

/// Opens the backend of some work. The checks of routes name the routes and look at no verdict.
fn open_backend(work: &Work, routes: Option<Routes>) -> Result<Arc<dyn Backend>> {
    let options = OpenOptions {
        deadlines: Deadlines::all(work.timeout),
        vulkan_arch: work.vulkan_arch.clone(),
        hip_library: work.hip_library.as_ref().map(|path| path.as_ref().into()),
        vulkan_validation: work.vulkan_validation,
        breadcrumbs: work.stepwise,
        crash: Some(leave::crash),
        both_drivers: true,
        routes,
        ..OpenOptions::default()
    };
    let backend = open(&work.backend, &options)?;
    record(Message::Device { device: backend.device().clone() });
    Ok(backend)
}

fn run(work: &Work, backend: Arc<dyn Backend>) -> Result<Done> {
    let counted = backend.clone();
    let memory =
        || record(Message::Memory { resident: system::resident(), device: counted.stats().allocated_bytes });
    let mut send = |message: Message| {
        if matches!(message, Message::Step { .. }) {
            memory();
        }
        record(message);
    };
    let done = match &work.task {
        Task::Model(task) => generate::run(work, task, backend, &mut send),
        Task::Graph(task) => graph::run(work, task, backend, &mut send),
        Task::Ops(task) => ops::run_cases(work, task, backend.as_ref(), &mut send),
        Task::Trial(task) => trial::run_trial(task, backend.as_ref()),
        Task::Routes(_) | Task::List => trial::run_list(work, &mut send),
    };
    memory();
    done
}
