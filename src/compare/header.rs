//! What is known of a run before anything runs: enough to go on with it, or to make its report.

use super::files;
use super::judge::Measure;
use super::options::{CompareOptions, Subject};
use super::protocol::Task;
use super::report::{Report, replace};
use ggml_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A run of one backend that is planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Planned {
    /// Backend name.
    pub(super) backend: String,
    /// Units of the model on it, see [`Record::offload`](super::report::Record::offload).
    pub(super) offload: i64,
    /// Number of the repetition.
    pub(super) epoch: usize,
}

impl Planned {
    /// Stem of its files.
    pub(super) fn stem(&self) -> String {
        files::stem(&self.backend, self.offload, self.epoch)
    }
}

/// What is known of a run before anything runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Header {
    /// The report without results.
    pub(super) report: Report,
    /// What was asked for.
    pub(super) options: CompareOptions,
    /// What agreement is measured by, unless each case says it.
    pub(super) measure: Option<Measure>,
    /// What a child has to do, but for what differs between the runs.
    pub(super) task: Task,
    /// The runs in their order, unless it is the cases that are in order.
    pub(super) runs: Vec<Planned>,
}

impl Header {
    /// Reads that of a folder, which need not be where it was when the run began.
    pub(super) fn read(out: &Path) -> Result<Header> {
        let path = files::header(out);
        let text = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
        let mut header: Header = serde_json::from_str(&text)
            .map_err(|e| Error::model("description of a run", e, "one of this version").with_path(&path))?;
        header.options.out = out.into();
        if let (Task::Model(task), Subject::Model(None)) = (&mut header.task, &header.options.work) {
            task.model = files::model(out).into();
        }
        Ok(header)
    }

    /// Writes it.
    pub(super) fn write(&self) -> Result<()> {
        let path = files::header(&self.options.out);
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::io(&path, e))?;
        replace(&path, &(text + "\n"))
    }
}
