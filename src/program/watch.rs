//! Watches what a program does with its driver: says what it waits for, keeps the warnings for an error, and knows
//! phase and call if a signal ends the process.

use super::advice;
use super::doing::{Doing, INTERVAL, Wait};
use super::output::note;
use crate::crash::situation;
use crate::event_text::EventText;
use ggml_core::sync::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The most warnings that are kept.
const MAX_WARNINGS: usize = 8;

/// True if warnings are shown when they come, and reasons in full.
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Knowledge of the subscriber.
#[derive(Default)]
struct Known {
    doing: Doing,
    /// Spans of phases by their number, with false for those of the host's backends.
    spans: Vec<(&'static Metadata<'static>, bool)>,
    warnings: Vec<String>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

fn with<T>(use_it: impl FnOnce(&mut Known) -> T) -> T {
    use_it(lock(&KNOWN).get_or_insert_default())
}

/// Begins to watch: installs a subscriber of `tracing`, unless the program has one, and the handler of fatal signals.
pub(super) fn begin() {
    crate::crash::install(crate::crash::Reader::User);
    if tracing::subscriber::set_global_default(Watcher).is_ok() {
        // Without the thread, nothing is said about waits.
        let _ = std::thread::Builder::new().name("diptych watch".into()).spawn(watch);
    }
}

/// Mentions long waits as long as the process lives.
fn watch() {
    loop {
        std::thread::sleep(INTERVAL);
        if let Some(wait) = with(|known| known.doing.due(Instant::now())) {
            note(advice::with_help(&wait));
        }
    }
}

pub(super) fn set_verbose(verbose: bool) {
    VERBOSE.store(verbose, Ordering::Relaxed);
}

pub(super) fn is_verbose() -> bool {
    VERBOSE.load(Ordering::Relaxed)
}

/// Returns the wait in the phase of an error, and the warnings that were not shown.
pub(super) fn at_error(phase: Option<&str>) -> (Option<Wait>, Vec<String>) {
    with(|known| {
        let wait = phase.and_then(|phase| known.doing.wait_in(phase, Instant::now()));
        (wait, std::mem::take(&mut known.warnings))
    })
}

const PHASE: &str = "diptych::phase";
const CALL: &str = "diptych::call";

/// Text field of a span or event.
struct Field(&'static str, String);

impl tracing::field::Visit for Field {
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        if field.name() == self.0 {
            self.1 = value.into();
        }
    }

    fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}
}

/// The subscriber.
struct Watcher;

impl Watcher {
    /// Returns the phase of a span, if it is one of a driver.
    fn phase(id: &Id) -> Option<&'static str> {
        let at = usize::try_from(id.into_u64()).ok()?.checked_sub(1)?;
        with(|known| known.spans.get(at).filter(|span| span.1).map(|span| span.0.name()))
    }
}

impl Subscriber for Watcher {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        [PHASE, CALL].contains(&metadata.target())
            || (!metadata.is_span() && *metadata.level() <= Level::WARN)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut backend = Field("backend", String::new());
        span.record(&mut backend);
        let is_driver = !matches!(backend.1.as_str(), "cpu" | "reference");
        let new = (span.metadata(), is_driver);
        with(|known| {
            let same =
                |other: &(&'static Metadata<'static>, bool)| std::ptr::eq(other.0, new.0) && other.1 == new.1;
            let at = known.spans.iter().position(same).unwrap_or_else(|| {
                known.spans.push(new);
                known.spans.len() - 1
            });
            Id::from_u64(at as u64 + 1)
        })
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if event.metadata().target() == CALL {
            let mut name = Field("name", String::new());
            event.record(&mut name);
            situation::CALL.set(&name.1);
            return with(|known| known.doing.call(&name.1, Instant::now()));
        }
        if event.metadata().target() == PHASE || *event.metadata().level() > Level::WARN {
            return;
        }
        let mut text = EventText::default();
        event.record(&mut text);
        if is_verbose() {
            return note(format_args!("warning: {}", text.0));
        }
        // Errors are returned too; their events repeat them.
        let is_new = |known: &Known| known.warnings.len() < MAX_WARNINGS && !known.warnings.contains(&text.0);
        with(|known| {
            if *event.metadata().level() == Level::WARN && is_new(known) {
                known.warnings.push(text.0.clone());
            }
        });
    }

    fn enter(&self, id: &Id) {
        if let Some(phase) = Watcher::phase(id) {
            situation::PHASE.set(phase);
            situation::CALL.set("");
            with(|known| known.doing.enter(phase, Instant::now()));
        }
    }

    fn exit(&self, id: &Id) {
        if let Some(phase) = Watcher::phase(id) {
            let outer = with(|known| {
                known.doing.exit(phase, Instant::now());
                known.doing.phase()
            });
            situation::PHASE.set(outer.unwrap_or_default());
        }
    }
}
