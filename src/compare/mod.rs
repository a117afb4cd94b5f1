//! The same work on several backends, each in a process of its own, and where they part.
//!
//! [`run`] starts one child process for each backend, one after the other: the same executable, by exec, never a fork
//! of a process that touched a GPU. A child records what it does before it does it, so that a crash, a hang or an error
//! becomes a record with phase and node, and the other backends' results are complete. The run's folder has all that is
//! known: [`resume`] goes on with a run that was cut short, [`report()`] makes the report of what there is. A program that
//! calls [`run`] or [`resume`] must call [`child_entry`] first thing in `main`.

use ggml_core::{Error, Result};
use std::path::{Path, PathBuf};

mod advice;
mod again;
mod cards;
mod child;
mod comparison;
mod counts;
mod failing;
mod files;
mod generate;
mod graph;
mod header;
mod host;
mod invariance;
mod json;
mod judge;
mod loaded;
mod merge;
mod nodes;
mod ops;
mod options;
mod page;
mod parent;
mod protocol;
mod recorder;
pub mod report;
mod shrink;
mod system;
mod table;
mod text;
mod trial;
mod whole;

pub use child::child_entry;
pub(crate) use child::has_children;
pub use counts::counts;
pub use options::{CompareOptions, Event, PerNode, Progress, Subject};
pub use page::{html, write_page};
pub use report::Report;
pub use table::{Style, table};
#[cfg(feature = "probe")]
pub(crate) use trial::Trial;
pub(crate) use trial::{list, trial};

use header::Header;
use parent::Children;
use protocol::Task;

/// Runs the comparison. Errors are those of wrong use (model, tokens, filter, environment, output folder); what happens
/// on a backend is in the report. [`Report::write`] keeps it, at [`report_path`] by custom: nothing is left there of an
/// earlier run.
pub fn run(options: &CompareOptions, progress: Progress<'_>) -> Result<Report> {
    options.check()?;
    files::begin(&options.out)?;
    let header = match &options.work {
        Subject::Model(path) => whole::plan_model(path.as_deref(), options)?,
        Subject::Graph(path) => whole::plan_graph(path, options)?,
        Subject::Ops(filter) => ops::plan(filter, options)?,
    };
    header.write()?;
    let mut children = Children::begin(&options.out, options.stop.clone())?;
    play(&header, &mut children, progress)
}

/// Goes on with the run of a folder: what ran is not run again, also not what may have stopped the machine. Of the
/// options only [`CompareOptions::stop`] counts.
pub fn resume(out: &Path, options: &CompareOptions, progress: Progress<'_>) -> Result<Report> {
    let header = Header::read(out)?;
    let mut children = Children::resume(out, options.stop.clone())?;
    play(&header, &mut children, progress)
}

/// The report of the runs of one or many folders, also of runs that did not end. Nothing is written.
pub fn report(folders: &[PathBuf]) -> Result<Report> {
    let one = |folder: &PathBuf| {
        // A report that came without the rest stands for itself.
        if !files::header(folder).exists() && files::report(folder).exists() {
            return Report::read(&files::report(folder));
        }
        let header = Header::read(folder)?;
        play(&header, &mut Children::past(folder)?, &mut |_| {})
    };
    merge::merge(folders.iter().map(one).collect::<Result<_>>()?)
}

fn play(header: &Header, children: &mut Children, progress: Progress<'_>) -> Result<Report> {
    let mut report = match &header.task {
        Task::Ops(_) => ops::play(header, children, progress)?,
        Task::Graph(_) => whole::play(header, children, progress)?,
        Task::Model(task) => {
            let mut report = whole::play(header, children, progress)?;
            again::look(header, task, children, &mut report, progress)?;
            failing::of_model(header, task, children, &mut report, progress);
            report
        }
        Task::Trial(_) | Task::List => {
            return Err(Error::argument("run", "a backend on trial", "a comparison"));
        }
    };
    merge::complete(&mut report, children.out());
    Ok(report)
}

/// Where the page of a run with that output folder is kept, see [`html`].
pub fn page_path(out: &Path) -> PathBuf {
    files::page(out)
}

/// Where the report of a run with that output folder is kept.
pub fn report_path(out: &Path) -> PathBuf {
    files::report(out)
}
