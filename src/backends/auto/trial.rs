//! Trials of backends, in child processes or in this process.

use super::cache;
use crate::backends::devices::{DeviceList, devices_with};
use crate::backends::{BackendName, OpenOptions, measure, open_named};
use ggml_core::Result;
use ggml_core::files::write_cached;
use std::time::Duration;

/// Time limit of one phase of a backend's trial.
#[cfg(feature = "compare")]
const TRIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// The devices of a machine and their speed; tests replace it.
pub(super) trait Machine {
    /// Lists the devices.
    fn devices(&mut self) -> DeviceList;

    /// Tries a backend: seconds of a decode step, measured within `budget`, or the reason of a failure.
    fn step_seconds(&mut self, name: &BackendName, budget: Duration) -> Result<f64, String>;
}

/// The machine that runs this program.
pub(super) struct ThisMachine<'a> {
    pub(super) options: &'a OpenOptions,
}

impl Machine for ThisMachine<'_> {
    fn devices(&mut self) -> DeviceList {
        devices_with(self.options.hip_library.clone())
    }

    fn step_seconds(&mut self, name: &BackendName, budget: Duration) -> Result<f64, String> {
        #[cfg(feature = "compare")]
        if crate::isolate::has_children() {
            let library = self.options.hip_library.clone();
            let trial = crate::isolate::trial(name, TRIAL_TIMEOUT, library, Some(budget));
            return trial.step_s().ok_or_else(|| trial.describe());
        }
        guarded(name, || here(name, self.options, budget).map_err(|error| error.to_string()))
    }
}

/// Tries a backend in this process: seconds of a decode step.
fn here(name: &BackendName, options: &OpenOptions, budget: Duration) -> Result<f64> {
    let backend = open_named(name, options)?;
    measure::check(backend.as_ref())?;
    measure::step_seconds(backend.as_ref(), budget)
}

/// Runs `work`, which may end the process. A marker file exists while it runs; if the marker is left over
/// from an earlier process, `work` is skipped and an error returned.
fn guarded<T>(name: &BackendName, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let stem: String =
        name.to_string().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let Some(mark) = cache::folder().map(|folder| folder.join(format!("auto-trying-{stem}"))) else {
        return work();
    };
    if mark.symlink_metadata().is_ok() {
        return Err(format!("the process ended when it was tried; remove {} to try again", mark.display()));
    }
    let _ = write_cached(&mark, &[]);
    let done = work();
    let _ = std::fs::remove_file(&mark);
    done
}
