//! The child: one backend, one piece of work, every phase announced.

use super::protocol::{CHILD, Done, Failed, Message, Task, Work};
use super::report::Status;
use super::{generate, graph, ops, trial};
use crate::backends::{OpenOptions, open};
use crate::leave::leave;
use crate::program::{FAILED, WRONG_USE};
use ggml_core::backend::Backend;
use ggml_core::phase::Deadlines;
use ggml_core::{Error, Result};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Whether this program's `main` begins with [`child_entry`], so that it can have children.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// Whether this program can have children: [`child_entry`] was called.
pub(crate) fn has_children() -> bool {
    ENTERED.load(Ordering::Relaxed)
}

/// Call this first thing in `main`: in a child process it does the child's work and returns its exit status; in any
/// other it returns `None`.
pub fn child_entry() -> Option<ExitCode> {
    ENTERED.store(true, Ordering::Relaxed);
    let mut args = std::env::args_os().skip(1);
    if args.next()? != CHILD {
        return None;
    }
    let path = args.next()?;
    Some(ExitCode::from(child(Path::new(&path))))
}

/// Writes a message as a line of its own, also where a driver has begun one. A parent that is gone does not matter.
fn say(message: Message) {
    if let Ok(line) = serde_json::to_string(&message) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush());
    }
}

/// Announces phases, the spans that backends enter, and warnings, which also go to the log.
struct Announcer;

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Announcer {
    fn on_enter(&self, id: &tracing::span::Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id).filter(|s| s.metadata().target() == "diptych::phase") {
            say(Message::Enter { phase: span.name().into() });
        }
    }

    fn on_exit(&self, id: &tracing::span::Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id).filter(|s| s.metadata().target() == "diptych::phase") {
            say(Message::Exit { phase: span.name().into() });
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, _context: Context<'_, S>) {
        if *event.metadata().level() <= tracing::Level::WARN {
            let mut text = Words::default();
            event.record(&mut text);
            let (level, target) = (event.metadata().level(), event.metadata().target());
            // The log may lie on a disk that is full.
            let _ = writeln!(std::io::stderr(), "{level} {target}: {}", text.0);
            say(Message::Warning { what: text.0 });
        }
    }
}

/// An event's message and fields as text.
#[derive(Default)]
struct Words(String);

impl tracing::field::Visit for Words {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        // The record says which backend it is.
        if field.name() == "backend" || text == "\"\"" {
            return;
        }
        if !self.0.is_empty() {
            self.0.push_str(", ");
        }
        if field.name() != "message" {
            self.0.push_str(field.name());
            self.0.push_str(": ");
        }
        self.0.push_str(&text);
    }
}

fn child(path: &Path) -> u8 {
    let subscriber = tracing_subscriber::registry().with(Announcer);
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        tracing::warn!("phases cannot be announced: another subscriber is set");
    }
    let work = match read_work(path) {
        Ok(work) => work,
        Err(error) => return conclude(Err(error)),
    };
    if work.task == Task::List {
        return conclude(trial::run_list(&work, &mut say));
    }
    match open_backend(&work) {
        // What became of the work is said before the device is closed: closing may hang.
        Ok(backend) => conclude(run(&work, backend.clone())),
        // No argument of a call within the work: an option or the environment.
        Err(error @ Error::InvalidArgument { .. }) => {
            say(Message::WrongUse { what: error.to_string() });
            WRONG_USE
        }
        Err(error) => conclude(Err(error)),
    }
}

/// Says how it ended; the exit status.
fn conclude(outcome: Result<Done>) -> u8 {
    match outcome {
        Ok(done) => {
            say(Message::Done(done));
            0
        }
        Err(error) => {
            say(Message::Failed(failed(&error)));
            if matches!(error, Error::Timeout { .. }) {
                leave(FAILED);
            }
            FAILED
        }
    }
}

fn read_work(path: &Path) -> Result<Work> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
    serde_json::from_str(&text).map_err(|e| Error::model("work of a child", e, "").with_path(path))
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

/// A crash for the `null` backend: a real signal, as from a driver.
fn crash() {
    std::process::abort();
}

fn open_backend(work: &Work) -> Result<Arc<dyn Backend>> {
    let options = OpenOptions {
        deadlines: Deadlines::all(work.timeout),
        vulkan_arch: work.vulkan_arch.clone(),
        hip_library: work.hip_library.as_ref().map(|path| path.as_ref().into()),
        breadcrumbs: work.stepwise,
        crash: Some(crash),
        ..OpenOptions::default()
    };
    let backend = open(&work.backend, &options)?;
    say(Message::Device { device: backend.device().clone() });
    Ok(backend)
}

fn run(work: &Work, backend: Arc<dyn Backend>) -> Result<Done> {
    match &work.task {
        Task::Model(task) => generate::run(work, task, backend, &mut say),
        Task::Graph(task) => graph::run(work, task, backend, &mut say),
        Task::Ops(task) => ops::run_cases(work, task, backend.as_ref(), &mut say),
        Task::Trial(task) => trial::run_trial(task, backend.as_ref()),
        Task::List => trial::run_list(work, &mut say),
    }
}
