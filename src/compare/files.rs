//! The folder of a run: names of the files in it, and an empty place for its results.

use super::report::EVERYTHING;
use ggml_core::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Stem of the files that belong to a run of a backend: its name, how much lies on it unless it is everything, and the
/// number of the repetition after the first.
pub(super) fn stem(backend: &str, offload: i64, epoch: usize) -> String {
    let name: String = backend.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let offload = if offload == EVERYTHING { String::new() } else { format!("-offload-{offload}") };
    let epoch = if epoch == 0 { String::new() } else { format!("-epoch-{epoch}") };
    format!("{name}{offload}{epoch}")
}

/// Logits of a run.
pub(super) fn logits(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.logits.npy"))
}

/// Results of a run's nodes.
pub(super) fn nodes(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.nodes"))
}

/// What a child has to do.
pub(super) fn work(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.work.json"))
}

/// What a child recorded.
pub(super) fn events(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.events.jsonl"))
}

/// What a child printed.
pub(super) fn log(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.log"))
}

/// What the parent recorded.
pub(super) fn run_events(out: &Path) -> PathBuf {
    out.join("run.events.jsonl")
}

/// What was known of a run before anything ran.
pub(super) fn header(out: &Path) -> PathBuf {
    out.join("run.json")
}

/// The model that is written where none is given.
pub(super) fn model(out: &Path) -> PathBuf {
    out.join("model.gguf")
}

/// Beside the results of the prompt's nodes those of a step's.
pub(super) fn of_step(nodes: &Path) -> PathBuf {
    nodes.with_extension("step.nodes")
}

/// The graph file of a run's first node that is out of its bound. It is there if it fails alone.
pub(super) fn failing(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.failing.json"))
}

/// The folder of runs that look again at what a run found.
pub(super) fn again(out: &Path) -> PathBuf {
    out.join("again")
}

/// The reference's results of operation tests.
pub(super) fn reference_results(out: &Path) -> PathBuf {
    out.join("reference.results")
}

/// The report.
pub(super) fn report(out: &Path) -> PathBuf {
    out.join("result.json")
}

/// The report for people.
pub(super) fn page(out: &Path) -> PathBuf {
    out.join("report.html")
}

/// Makes the folder, or takes the report of an earlier run out of it. That files can be written there shows now, not
/// after the work.
pub(super) fn begin(out: &Path) -> Result<()> {
    std::fs::create_dir_all(out).map_err(|e| Error::io(out, e))?;
    let report = report(out);
    std::fs::write(&report, []).map_err(|e| Error::io(&report, e))?;
    remove(&report)?;
    remove(&page(out))?;
    remove(&header(out))?;
    match std::fs::remove_dir_all(again(out)) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(again(out), e)),
        _ => Ok(()),
    }
}

/// Removes a file of an earlier run, so that what lies there later is of this run.
pub(super) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(path, e)),
        _ => Ok(()),
    }
}
