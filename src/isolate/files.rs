//! Files of a child in the folder of its run, and of the run's parent.

use super::record::EVERYTHING;
use ggml_core::{Error, Result};
use std::io::{ErrorKind, Write};
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
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(path, e)),
        _ => Ok(()),
    }
}

/// Writes a file completely or not at all: writes a temporary file next to it and renames that.
pub(crate) fn replace(path: &Path, text: &str) -> Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let write = || {
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    let written = write().map_err(|e| Error::io(&temporary, e));
    let renamed = written.and_then(|()| std::fs::rename(&temporary, path).map_err(|e| Error::io(path, e)));
    if renamed.is_err() {
        // A partial file is useless, and its error is returned already.
        let _ = std::fs::remove_file(&temporary);
    }
    renamed
}
