//! The description of a run, written before anything runs: enough to resume it, or to build its report.

use super::files;
use super::host::lossy;
use super::judge::Measure;
use super::options::{CompareOptions, PerNode, Subject};
use super::report::Report;
use crate::isolate::protocol::Task;
use crate::json;
use ggml_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// One planned run of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Planned {
    /// Backend name.
    pub(super) backend: String,
    /// Number of the model's units on it, see [`Record::offload`](super::report::Record::offload).
    pub(super) offload: i64,
    /// Index of the repetition.
    pub(super) epoch: usize,
    /// Folder of its files within the run's folder; empty for the run's folder itself. A description on disk has none,
    /// and may be a stranger's.
    #[serde(skip)]
    pub(super) folder: String,
}

impl Planned {
    /// Creates the run of a backend without a folder of its own.
    pub(super) fn new(backend: impl ToString, offload: i64, epoch: usize) -> Planned {
        Planned { backend: backend.to_string(), offload, epoch, folder: String::new() }
    }

    /// Returns the stem of its files.
    pub(super) fn stem(&self) -> String {
        let stem = files::stem(&self.backend, self.offload, self.epoch);
        if self.folder.is_empty() { stem } else { format!("{}/{stem}", self.folder) }
    }
}

/// Description of a run, complete before anything runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Header {
    /// The report, without results.
    pub(super) report: Report,
    /// The options of the run.
    pub(super) options: CompareOptions,
    /// Measure of agreement; `None` if each case has its own.
    pub(super) measure: Option<Measure>,
    /// The task of a child, without the values that differ between the runs.
    pub(super) task: Task,
    /// The planned runs in their order; empty for operation tests, which have an order of cases.
    pub(super) runs: Vec<Planned>,
    /// Command that continues the run; empty if it was not continued.
    #[serde(skip)]
    pub(super) resumed_by: Vec<String>,
}

impl Header {
    /// True if nodes are computed with the reference's operands.
    pub(super) fn is_isolated(&self) -> bool {
        self.options.per_node == PerNode::Isolated
    }

    /// Reads the header of a folder, which may have been moved since the run started.
    pub(super) fn read(out: &Path) -> Result<Header> {
        let path = files::header(out);
        let text = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
        let mut header: Header = json::read(&text)
            .map_err(|e| Error::model("description of a run", e, "one of this version").with_path(&path))?;
        header.options.out = out.into();
        header.bind().map_err(|e| e.with_path(&path))?;
        Ok(header)
    }

    /// Reads the header of a run that continues, with the HIP library, the variables and the variants of the caller. A
    /// library is code, and a variable may name one: those that the folder names are never used, whoever wrote them
    /// there. The caller may add variants.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the run had a library, variables or variants that the caller does not give.
    pub(super) fn resume(out: &Path, given: &CompareOptions) -> Result<Header> {
        let mut header = Header::read(out)?;
        let options = &mut header.options;
        if let (Some(named), None) = (&options.hip_library, &given.hip_library) {
            let found = format!("the folder names {}, and none is given", named.display());
            let expected = "the library again (--hip-library), which is not taken from a folder";
            return Err(Error::argument("HIP library", found, expected));
        }
        if options.environment != given.environment {
            let set: Vec<String> = options.environment.iter().map(ToString::to_string).collect();
            let found = format!("other than those of the folder ({})", set.join(", "));
            return Err(Error::argument(
                "variables",
                found,
                "the same again (--env), which are not taken from a folder",
            ));
        }
        if let Some(row) = options.variants.iter().find(|row| !given.variants.contains(row)) {
            let found = format!("the folder has '{}', which is not given", row.name);
            let expected = "all of its variants again (--variants), which are not taken from a folder";
            return Err(Error::argument("variants", found, expected));
        }
        let is_new = options.variants != given.variants || (given.cure && !options.cure);
        options.hip_library.clone_from(&given.hip_library);
        options.variants.clone_from(&given.variants);
        options.cure |= given.cure;
        options.check_variants()?;
        header.resumed_by = std::env::args_os().map(lossy).collect();
        if is_new {
            header.write()?;
        }
        Ok(header)
    }

    /// Continues a nested run with its parent's library, variables, model or graph, whatever its folder names.
    pub(super) fn nested(out: &Path, parent: &CompareOptions) -> Result<Header> {
        let mut header = Header::read(out)?;
        (header.options.hip_library, header.options.work) = (parent.hip_library.clone(), parent.work.clone());
        header.options.environment.clone_from(&parent.environment);
        header.bind()?;
        Ok(header)
    }

    /// Gives the task the file of the options: the one that is shown is the one that is opened.
    fn bind(&mut self) -> Result<()> {
        let options = &mut self.options;
        if let Subject::Model(path @ None) = &mut options.work {
            *path = Some(files::model(&options.out));
        }
        match (&mut self.task, &options.work) {
            (Task::Model(task), Subject::Model(Some(path))) => task.model = path.clone().into(),
            (Task::Graph(task), Subject::Graph(path)) => task.graph = path.clone().into(),
            (Task::Ops(_), Subject::Ops(_)) => {}
            _ => return Err(Error::model("description of a run", "a task that is not its work", "")),
        }
        Ok(())
    }

    /// Writes the header to its folder.
    pub(super) fn write(&self) -> Result<()> {
        let path = files::header(&self.options.out);
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::io(&path, e))?;
        files::replace(&path, &(text + "\n"))
    }
}
