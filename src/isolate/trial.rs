//! Trial of a backend: a child lists a driver's devices, or opens a backend and computes a small graph; its
//! outcome is reported even if it dies.

use super::json::JsonPath;
use super::parent::Children;
use super::protocol::{Message, Task, TrialTask, Work};
use super::record::Record;
use super::recorder::ChildOutcome;
use super::results::Status;
use crate::backend_name::BackendName;
use crate::view::View;
use ggml_core::files::TemporaryFolder;
use ggml_core::routes::RouteUse;
use ggml_core::routes::cards::CardReport;
use ggml_core::{Error, Result};
use std::path::PathBuf;
use std::time::Duration;

/// Outcome of a trial.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// Versions and paths that the backend reported, by name.
    #[cfg_attr(not(feature = "probe"), expect(dead_code, reason = "shown by probe"))]
    pub(crate) versions: Vec<(String, String)>,
    /// The backend's routes.
    #[cfg_attr(not(feature = "probe"), expect(dead_code, reason = "shown by probe"))]
    pub(crate) routes: Vec<RouteUse>,
    /// Report of the card, if the backend was opened.
    #[cfg_attr(not(feature = "probe"), expect(dead_code, reason = "written by probe"))]
    pub(crate) card: Option<CardReport>,
    /// Record of the child, with status and phase.
    pub(crate) record: Record,
}

impl Trial {
    /// Returns the seconds of a decode step and of a prompt, if they were measured.
    pub(crate) fn seconds(&self) -> Option<(f64, f64)> {
        let (step_s, prompt_s) = self.record.eval_s.zip(self.record.prompt_s)?;
        (self.works() && step_s > 0.0 && prompt_s > 0.0).then_some((step_s, prompt_s))
    }

    /// True if the backend opened, computed, and gave correct results.
    pub(crate) fn works(&self) -> bool {
        self.record.status == Status::Ok
    }

    /// Describes the outcome in words.
    pub(crate) fn describe(&self) -> String {
        let record = &self.record;
        if self.works() {
            return "every phase succeeded and the results agree with the reference".into();
        }
        let phase = record.phase.as_ref().map_or(String::new(), |phase| format!(" in phase {phase}"));
        let status = match record.status {
            Status::Crash => "crashed",
            Status::Hang => "hung",
            Status::Ended => "was ended",
            _ => "failed",
        };
        format!("{status}{phase}: {}", record.message.as_deref().unwrap_or("no message"))
    }
}

/// Opens a backend in a child and computes with it. With `measure`, also measures a decode step within that
/// time.
pub(crate) fn trial(
    backend: &BackendName,
    limit: Duration,
    library: Option<PathBuf>,
    measure: Option<Duration>,
) -> Trial {
    let mut card = None;
    let outcome = child(backend, limit, library, Task::Trial(TrialTask { measure }), &mut |message| {
        if let Message::Device { device } = message {
            card = Some(device.card_report());
        }
    });
    match outcome {
        Ok(ChildOutcome { backend, record, .. }) => {
            Trial { versions: backend.versions, routes: backend.routes, card, record }
        }
        Err(error) => {
            let message = Some(error.to_string());
            Trial {
                versions: Vec::new(),
                routes: Vec::new(),
                card: None,
                record: Record { message, ..Record::default() },
            }
        }
    }
}

/// Lists the devices of a driver in a child; an error describes the child's outcome.
pub(crate) fn list(driver: &str, limit: Duration, library: Option<PathBuf>) -> Result<Vec<View>, String> {
    let name: BackendName = driver.parse().map_err(|e: Error| e.to_string())?;
    let mut listed = None;
    let outcome = child(&name, limit, library, Task::List, &mut |message| {
        if let Message::Listed { views } = message {
            listed = Some(views.clone());
        }
    });
    let record = outcome.map_err(|error| error.to_string())?.record;
    match listed.filter(|_| record.status == Status::Ok) {
        Some(views) => Ok(views),
        None if record.status == Status::Unsupported => Err(record.message.unwrap_or_default()),
        None => Err(Trial { versions: Vec::new(), routes: Vec::new(), card: None, record }.describe()),
    }
}

/// Runs one child in a temporary folder.
fn child(
    backend: &BackendName,
    limit: Duration,
    library: Option<PathBuf>,
    task: Task,
    receive: &mut dyn FnMut(&Message),
) -> Result<ChildOutcome> {
    let work = Work { hip_library: library.map(JsonPath::from), ..Work::new(backend, limit, task) };
    let folder = TemporaryFolder::new().map_err(|e| Error::io(std::env::temp_dir(), e))?;
    let mut children = Children::begin(folder.path(), None)?;
    let outcome = children.run(&work, "child", receive)?;
    outcome.ok_or_else(|| Error::argument("a child", "was not started", ""))
}
