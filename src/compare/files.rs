//! The folder of a run: names of its files, and preparation for new results.

use super::report::EVERYTHING;
use ggml_core::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Returns the stem of the files of a backend's run: its name, the number of offloaded units unless it is
/// everything, and the index of the repetition unless it is 0.
pub(super) fn stem(backend: &str, offload: i64, epoch: usize) -> String {
    let name: String = backend.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let offload = if offload == EVERYTHING { String::new() } else { format!("-offload-{offload}") };
    let epoch = if epoch == 0 { String::new() } else { format!("-epoch-{epoch}") };
    format!("{name}{offload}{epoch}")
}

/// Returns the path of a run's logits.
pub(super) fn logits(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.logits.npy"))
}

/// Returns the path of a run's node results.
pub(super) fn nodes(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.nodes"))
}

/// Returns the path of a child's task.
pub(super) fn work(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.work.json"))
}

/// Returns the path of the events that a child recorded.
pub(super) fn events(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.events.jsonl"))
}

/// Returns the path of a child's output.
pub(super) fn log(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.log"))
}

/// Returns the path of the events that the parent recorded.
pub(super) fn run_events(out: &Path) -> PathBuf {
    out.join("run.events.jsonl")
}

/// Returns the path of a run's header, which is written before anything runs.
pub(super) fn header(out: &Path) -> PathBuf {
    out.join("run.json")
}

/// Returns the path of the model that is written if none is given.
pub(super) fn model(out: &Path) -> PathBuf {
    out.join("model.gguf")
}

/// Returns the path of a decode step's node results, next to the prompt's.
pub(super) fn of_step(nodes: &Path) -> PathBuf {
    nodes.with_extension("step.nodes")
}

/// Returns the path of the graph file of a run's first node out of its bound. It exists only if that node
/// fails by itself.
pub(super) fn failing(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.failing.json"))
}

/// Returns the folder of the runs that examine a difference again.
pub(super) fn again(out: &Path) -> PathBuf {
    out.join("again")
}

/// Returns the path of the reference's results of operation tests.
pub(super) fn reference_results(out: &Path) -> PathBuf {
    out.join("reference.results")
}

/// Returns the path of the report.
pub(super) fn report(out: &Path) -> PathBuf {
    out.join("result.json")
}

/// Returns the path of the report as an HTML page.
pub(super) fn page(out: &Path) -> PathBuf {
    out.join("report.html")
}

/// Creates the folder, and removes the report, page, header and second examinations of an earlier run. A
/// folder that is not writable fails here, before the work.
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

/// Removes a file of an earlier run, if it exists.
pub(super) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(path, e)),
        _ => Ok(()),
    }
}
