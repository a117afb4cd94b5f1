//! Files of a child in the folder of its run, and of the run's parent.

use super::record::EVERYTHING;
use ggml_core::files;
use ggml_core::{Error, Result};
use std::path::{Path, PathBuf};

/// Returns the stem of the files of a backend's run: its name, the number of offloaded units unless it is
/// everything, and the index of the repetition unless it is 0.
pub(crate) fn stem(backend: &str, offload: i64, epoch: usize) -> String {
    let name: String = backend.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let offload = if offload == EVERYTHING { String::new() } else { format!("-offload-{offload}") };
    let epoch = if epoch == 0 { String::new() } else { format!("-epoch-{epoch}") };
    format!("{name}{offload}{epoch}")
}

/// Returns the path of a child's task.
pub(crate) fn work(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.work.json"))
}

/// Returns the path of the events that a child recorded.
pub(crate) fn events(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.events.jsonl"))
}

/// Returns the path of a child's output.
pub(crate) fn log(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.log"))
}

/// Returns the path of the events that the parent recorded.
pub(crate) fn run_events(out: &Path) -> PathBuf {
    out.join("run.events.jsonl")
}

/// Returns the path of a decode step's node results, next to the prompt's.
pub(crate) fn of_step(nodes: &Path) -> PathBuf {
    nodes.with_extension("step.nodes")
}

/// Removes a file of an earlier run, if it exists.
pub(crate) fn remove(path: &Path) -> Result<()> {
    files::remove(path).map_err(|e| Error::io(path, e))
}

/// Writes a file completely or not at all.
pub(crate) fn replace(path: &Path, text: &str) -> Result<()> {
    files::write_atomically(path, text.as_bytes()).map_err(|e| Error::io(path, e))
}
