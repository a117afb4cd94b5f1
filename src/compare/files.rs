//! The folder of a run: names of its files, and preparation for new results.

pub(super) use crate::isolate::files::{of_step, remove, replace, stem};
use ggml_core::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Name of the folder of the runs of variants, which has a folder for each variant.
pub(super) const VARIANTS: &str = "variants";

/// Returns the path of a run's logits.
pub(super) fn logits(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.logits.npy"))
}

/// Returns the path of a run's logits of a chunk's scored tokens.
pub(super) fn text(out: &Path, stem: &str, chunk: usize) -> PathBuf {
    out.join(format!("{stem}.text.{chunk}.npy"))
}

/// Returns the path of a run's node results.
pub(super) fn nodes(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.nodes"))
}

/// Returns the path of a run's header, which is written before anything runs.
pub(super) fn header(out: &Path) -> PathBuf {
    out.join("run.json")
}

/// Returns the path of the model that is written if none is given.
pub(super) fn model(out: &Path) -> PathBuf {
    out.join("model.gguf")
}

/// Returns the path of the graph file of a run's first node out of its bound. It exists only if that node
/// fails by itself.
pub(super) fn failing(out: &Path, stem: &str) -> PathBuf {
    out.join(format!("{stem}.failing.json"))
}

/// Returns the folder of the runs that examine a difference a second time.
pub(super) fn second_look(out: &Path) -> PathBuf {
    out.join("again")
}

/// Returns the folder of the runs of variants.
pub(super) fn variants(out: &Path) -> PathBuf {
    out.join(VARIANTS)
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

/// Creates the folder, and removes the report, page, header, second examinations and variants of an earlier run. A
/// folder that is not writable fails here, before the work.
pub(super) fn begin(out: &Path) -> Result<()> {
    let report = report(out);
    let was_run = header(out).exists();
    replace(&report, "")?;
    remove(&report)?;
    remove(&page(out))?;
    remove(&header(out))?;
    let mut folders = vec![second_look(out)];
    // In another folder this is not of a run. Files of variants that are left are removed with the run that writes them.
    if was_run {
        remove(&out.join("probe.json"))?;
        folders.push(variants(out));
    }
    for folder in folders {
        match std::fs::remove_dir_all(&folder) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io(folder, e)),
            _ => {}
        }
    }
    Ok(())
}
