//! The output folder: names of the files in it, and an empty place for the results of a run.

use super::report::EVERYTHING;
use ggml_core::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Stem of the files that belong to a run: the backend's name, and how much lies on it unless it is everything.
pub(super) fn stem(backend: &str, offload: i64) -> String {
    let name: String = backend.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    if offload == EVERYTHING { name } else { format!("{name}-offload-{offload}") }
}

/// Logits of a run.
pub(super) fn logits(out: &Path, backend: &str, offload: i64) -> PathBuf {
    out.join(format!("{}.logits.npy", stem(backend, offload)))
}

/// Results of a run's nodes.
pub(super) fn nodes(out: &Path, backend: &str, offload: i64) -> PathBuf {
    out.join(format!("{}.nodes", stem(backend, offload)))
}

/// Beside the results of the prompt's nodes those of a step's.
pub(super) fn of_step(nodes: &Path) -> PathBuf {
    nodes.with_extension("step.nodes")
}

/// The graph file of a run's first node that is out of its bound.
pub(super) fn failing(out: &Path, backend: &str, offload: i64) -> PathBuf {
    out.join(format!("{}.failing.json", stem(backend, offload)))
}

/// The reference's results of operation tests.
pub(super) fn reference_results(out: &Path) -> PathBuf {
    out.join("reference.results")
}

/// The report.
pub(super) fn report(out: &Path) -> PathBuf {
    out.join("result.json")
}

/// Makes the folder, or takes the report of an earlier run out of it. That files can be written there shows now, not
/// after the work.
pub(super) fn begin(out: &Path) -> Result<()> {
    std::fs::create_dir_all(out).map_err(|e| Error::io(out, e))?;
    let report = report(out);
    std::fs::write(&report, []).map_err(|e| Error::io(&report, e))?;
    remove(&report)
}

/// Removes a file of an earlier run, so that what lies there later is of this run.
pub(super) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(path, e)),
        _ => Ok(()),
    }
}
