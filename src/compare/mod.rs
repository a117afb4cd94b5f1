//! The same work on several backends, each in a process of its own, and where they part.
//!
//! [`run`] starts one child process for each backend, one after the other: the same executable, by exec, never a fork
//! of a process that touched a GPU. A child streams what it does to the parent, a line of JSON for each phase, node and
//! result, so that a crash, a hang or an error becomes a record with phase and node, and the other backends' results are
//! complete. A program that calls [`run`] must call [`child_entry`] first thing in `main`.

use ggml_core::Result;
use std::path::{Path, PathBuf};

mod child;
mod counts;
mod files;
mod generate;
mod graph;
mod judge;
mod nodes;
mod ops;
mod options;
mod parent;
mod protocol;
pub mod report;
mod system;
mod table;
mod text;
mod trial;
mod whole;

pub use child::child_entry;
pub(crate) use child::has_children;
pub use counts::counts;
pub use options::{CompareOptions, Event, PerNode, Progress, Subject};
pub use report::Report;
pub use table::table;
pub(crate) use trial::{Trial, list, trial};

/// Runs the comparison. Errors are those of wrong use (model, tokens, filter, environment, output folder); what happens
/// on a backend is in the report. [`Report::write`] keeps it, at [`report_path`] by custom: nothing is left there of an
/// earlier run.
pub fn run(options: &CompareOptions, progress: Progress<'_>) -> Result<Report> {
    options.check()?;
    files::begin(&options.out)?;
    let mut report = Report::new(options);
    match &options.work {
        Subject::Model(path) => whole::compare_model(path.as_deref(), options, &mut report, progress)?,
        Subject::Graph(path) => whole::compare_graph(path, options, &mut report, progress)?,
        Subject::Ops(filter) => ops::compare(filter, options, &mut report, progress)?,
    }
    Ok(report)
}

/// Where the report of a run with that output folder is kept.
pub fn report_path(out: &Path) -> PathBuf {
    files::report(out)
}
