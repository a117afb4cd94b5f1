//! Comparison of several backends on the same work, each in a separate process, with the node where they
//! diverge.
//!
//! [`run`] starts one child process for each backend, one after the other. A child is the same executable,
//! started by exec, never a fork of a process that has used a GPU. It records each action before performing
//! it, so that a crash, a hang or an error becomes a record with phase and node, and the other backends'
//! results are complete. All data is in the run's folder: [`resume`] continues a run that was interrupted,
//! [`report()`] builds the report of the data that exists. A program that calls [`run`] or [`resume`] must
//! call [`child_entry`] first in `main`.

use crate::isolate::parent::Children;
use crate::isolate::protocol::Task;
use ggml_core::files as folder_files;
use ggml_core::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

mod advice;
mod cards;
mod child;
mod circumstances;
mod comparison;
mod counts;
mod doubt;
mod failing;
mod files;
mod finding;
mod generate;
mod graph;
mod graph_runs;
mod header;
mod host;
mod invariance;
mod issue;
mod judge;
mod loaded;
mod matched;
mod merge;
mod nodes;
mod ops;
mod options;
mod page;
pub(crate) mod redact;
pub mod report;
mod routes;
mod scores;
mod second_look;
mod shrink;
mod table;
mod text;
mod trial;
mod variant_rows;
mod variants;

pub use child::{Replace, child_entry, child_entry_with};
pub use counts::counts;
pub use issue::text_report;
pub use options::{CompareOptions, Event, PerNode, Progress, Subject};
pub use page::{html, write_page};
pub use report::Report;
pub use table::{Style, table};
pub use variant_rows::{BackendVariable, VariantRow, read_variants};

use header::Header;

/// Runs the comparison. Failures of a backend are in the report. The caller stores the report with
/// [`Report::write`], usually at [`report_path`], where `run` has removed the report of an earlier run.
///
/// # Errors
/// Wrong use only: model, tokens, filter, environment, output folder.
pub fn run(options: &CompareOptions, progress: Progress<'_>) -> Result<Report> {
    options.check()?;
    files::begin(&options.out)?;
    let header = match &options.work {
        Subject::Model(path) => graph_runs::plan_model(path.as_deref(), options)?,
        Subject::Graph(path) => graph_runs::plan_graph(path, options)?,
        Subject::Ops(filter) => ops::plan(filter, options)?,
    };
    header.write()?;
    let mut children = Children::begin(&options.out, options.stop.clone())?;
    execute(&header, &mut children, progress)
}

/// Continues the run of a folder. Children that ran are not run again, including any that may have stopped
/// the machine. Only these options are used: [`CompareOptions::stop`], [`CompareOptions::hip_library`],
/// [`CompareOptions::environment`], [`CompareOptions::variants`], which may have more than the run had, and
/// [`CompareOptions::cure`]. The folder names the model or graph, see [`work_of`].
///
/// # Errors
/// [`Error::InvalidArgument`] if the folder belongs to another user or contains links, or if the run loaded a
/// HIP library, had variables or variants and the options do not name them: no library is loaded because a folder
/// names it.
pub fn resume(out: &Path, options: &CompareOptions, progress: Progress<'_>) -> Result<Report> {
    check_no_links(out)?;
    folder_files::check_own(out).map_err(|e| {
        Error::argument(
            "folder of a run",
            e,
            "a folder of your own; 'compare report' makes the report of another's",
        )
    })?;
    let header = Header::resume(out, options)?;
    let mut children = Children::resume(out, options.stop.clone())?;
    execute(&header, &mut children, progress)
}

/// Returns the work of the run in a folder, with the file that [`resume`] opens.
///
/// # Errors
/// As [`report()`].
pub fn work_of(out: &Path) -> Result<Subject> {
    check_no_links(out)?;
    Ok(Header::read(out)?.options.work)
}

fn check_no_links(folder: &Path) -> Result<()> {
    folder_files::check_no_links(folder).map_err(|e| match e.kind() {
        ErrorKind::PermissionDenied => Error::argument("folder of a run", e, "a folder without links"),
        _ => Error::io(folder, e),
    })
}

/// Builds the report of the runs in one or more folders, finished or not. Nothing is written.
///
/// # Errors
/// [`Error::InvalidArgument`] for a folder with links, which may name private files of the reader; errors of
/// files that are missing or not those of a run.
pub fn report(folders: &[PathBuf]) -> Result<Report> {
    let one = |folder: &PathBuf| {
        check_no_links(folder)?;
        // A folder that contains only a report is used as it is.
        if !files::header(folder).exists() && files::report(folder).exists() {
            return Report::read(&files::report(folder));
        }
        let header = Header::read(folder)?;
        execute(&header, &mut Children::past(folder)?, &mut |_| {})
    };
    merge::merge(folders.iter().map(one).collect::<Result<_>>()?)
}

fn execute(header: &Header, children: &mut Children, progress: Progress<'_>) -> Result<Report> {
    let mut report = match &header.task {
        Task::Ops(_) => ops::run(header, children, progress)?,
        Task::Graph(_) => graph_runs::run(header, children, progress)?,
        Task::Model(task) => {
            let mut report = graph_runs::run(header, children, progress)?;
            second_look::examine(header, task, children, &mut report, progress)?;
            failing::of_model(header, task, children, &mut report, progress);
            report
        }
        Task::Trial(_) | Task::Routes(_) | Task::List => {
            return Err(Error::argument("run", "a backend on trial", "a comparison"));
        }
    };
    variants::run(header, children, &mut report, progress)?;
    merge::complete(&mut report, children.out());
    Ok(report)
}

/// Returns the path of the page for a run with that output folder, see [`html`].
pub fn page_path(out: &Path) -> PathBuf {
    files::page(out)
}

/// Returns the path of the report for a run with that output folder.
pub fn report_path(out: &Path) -> PathBuf {
    files::report(out)
}
