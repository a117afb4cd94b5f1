//! The child: one backend, one piece of work, every phase announced.

use super::nodes;
use super::protocol::{Done, Failed, Message, PerNode, Work};
use crate::backends::{OpenOptions, open};
use crate::model::Model;
use crate::session::{SessionOptions, greedy};
use crate::{npy, session};
use ggml_core::phase::Deadlines;
use ggml_core::{DType, Error, Result};
use std::io::Write;
use std::path::Path;
use std::time::Instant;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// First argument of a child.
pub(super) const CHILD: &str = "--compare-child";

/// Call this first thing in `main`: in a child process it does the child's work and returns its exit status; in any
/// other it returns `None`.
pub fn child_entry() -> Option<i32> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != CHILD {
        return None;
    }
    let path = args.next()?;
    Some(child(Path::new(&path)))
}

/// Writes a message as a line. A parent that is gone does not matter.
fn say(message: Message) {
    if let Ok(line) = serde_json::to_string(&message) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}");
        let _ = out.flush();
    }
}

/// Announces phases: the spans that backends enter.
struct PhaseLayer;

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for PhaseLayer {
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
}

fn child(path: &Path) -> i32 {
    let subscriber = tracing_subscriber::registry().with(PhaseLayer);
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        tracing::warn!("phases cannot be announced: another subscriber is set");
    }
    let outcome = read_work(path).and_then(|work| run(&work));
    match outcome {
        Ok(Some(done)) => say(Message::Done(done)),
        Ok(None) => {}
        Err(error) => {
            say(Message::Failed(failed(&error)));
            return 1;
        }
    }
    0
}

fn read_work(path: &Path) -> Result<Work> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, &e))?;
    serde_json::from_str(&text).map_err(|e| Error::model(e.to_string()).with_path(path))
}

fn failed(error: &Error) -> Failed {
    let status = match error {
        Error::Unsupported { .. } | Error::Unavailable { .. } => "unsupported",
        Error::Timeout { .. } => "hang",
        _ => "error",
    };
    Failed {
        status: status.into(),
        phase: error.phase().map(|p| p.name().to_string()),
        node: error.node().map(str::to_string),
        message: error.to_string(),
    }
}

/// A crash for the `null` backend: a real signal, as from a driver.
fn crash() {
    std::process::abort();
}

fn run(work: &Work) -> Result<Option<Done>> {
    let options = OpenOptions {
        deadlines: Deadlines::all(work.timeout),
        vulkan_arch: work.vulkan_arch.clone(),
        hip_library: work.hip_library.clone(),
        breadcrumbs: work.stepwise,
        crash: Some(crash),
        ..OpenOptions::default()
    };
    let backend = open(&work.backend, &options)?;
    say(Message::Device { device: backend.device().clone() });
    let start = Instant::now();
    let model = Model::load(&work.model, backend)?;
    let load_s = start.elapsed().as_secs_f64();
    if work.stepwise {
        nodes::locate(&model, work, &mut say)?;
        return Ok(None);
    }
    let mut done = generate(&model, work)?;
    done.load_s = load_s;
    if work.per_node != PerNode::Off {
        say(Message::Progress { what: "node by node".into() });
        nodes::run(&model, work, &mut say)?;
    }
    done.stats = model.backend().stats();
    Ok(Some(done))
}

/// The prompt with logits of every token, then greedy generation.
fn generate(model: &Model, work: &Work) -> Result<Done> {
    let needed = (work.tokens.len() + work.predict).max(1);
    let options = SessionOptions {
        context: Some(needed.next_multiple_of(session::KV_STEP)),
        cache: DType::F32,
        precision: work.precision,
        ..SessionOptions::default()
    };
    let mut session = model.session(&options)?;
    let start = Instant::now();
    let logits = session.logits(&work.tokens)?;
    let prompt_s = start.elapsed().as_secs_f64();
    let vocabulary = model.hparams().vocabulary;
    npy::write(&work.logits, work.tokens.len(), vocabulary, &logits)?;
    say(Message::Progress { what: format!("prompt of {} tokens in {prompt_s:.3} s", work.tokens.len()) });

    let mut row = logits[logits.len() - vocabulary..].to_vec();
    let (mut token_ids, mut margins) = (Vec::new(), Vec::new());
    if work.predict > 1 {
        session.prepare_decode()?;
    }
    let start = Instant::now();
    for i in 0..work.predict {
        let token = greedy(&row);
        token_ids.push(token);
        margins.push(margin(&row));
        if i + 1 < work.predict {
            row = session.decode(token)?;
        }
    }
    let eval_s = start.elapsed().as_secs_f64();
    Ok(Done { load_s: 0.0, prompt_s, eval_s, token_ids, margins, stats: model.backend().stats() })
}

/// Distance between the two largest values.
fn margin(row: &[f32]) -> f32 {
    let (mut first, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    for &x in row {
        if x > first {
            (first, second) = (x, first);
        } else if x > second {
            second = x;
        }
    }
    first - second
}
