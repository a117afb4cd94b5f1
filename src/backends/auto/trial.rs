//! Trials of backends, in child processes or in this process.

use crate::backends::devices::{DeviceList, devices_with};
use crate::backends::measure::{self, Speed};
use crate::backends::{BackendName, OpenOptions, open_named};
use ggml_core::Result;
use ggml_core::files::{create_folders, create_new};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

/// Time limit of one phase of a backend's trial.
#[cfg(feature = "compare")]
const TRIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest time for which a marker file of a running process means that it is still trying the backend.
const LONGEST_TRIAL: Duration = Duration::from_secs(600);

/// A trial without a result.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Failure {
    /// The backend failed. That need not last: its memory may have been full.
    Failed(String),
    /// Another process is trying the backend.
    Busy(String),
}

impl Failure {
    /// Returns the reason in words.
    pub(super) fn reason(&self) -> &str {
        match self {
            Failure::Failed(why) | Failure::Busy(why) => why,
        }
    }
}

/// The devices of a machine and their speed; tests replace it.
pub(super) trait Machine {
    /// Lists the devices.
    fn devices(&mut self) -> DeviceList;

    /// Tries a backend, and measures its speed within `budget`.
    fn speed(&mut self, name: &BackendName, budget: Duration) -> Result<Speed, Failure>;
}

/// The machine that runs this program.
pub(super) struct ThisMachine<'a> {
    pub(super) options: &'a OpenOptions,
}

impl Machine for ThisMachine<'_> {
    fn devices(&mut self) -> DeviceList {
        devices_with(self.options.hip_library.clone())
    }

    fn speed(&mut self, name: &BackendName, budget: Duration) -> Result<Speed, Failure> {
        #[cfg(feature = "compare")]
        if crate::isolate::has_children() {
            let library = self.options.hip_library.clone();
            let trial = crate::isolate::trial(name, TRIAL_TIMEOUT, library, Some(budget));
            let speed = trial.seconds().map(|(step_s, prompt_s)| Speed { step_s, prompt_s });
            return speed.ok_or_else(|| Failure::Failed(trial.describe()));
        }
        guarded(name, || here(name, self.options, budget).map_err(|error| error.to_string()))
    }
}

/// Tries a backend in this process.
fn here(name: &BackendName, options: &OpenOptions, budget: Duration) -> Result<Speed> {
    let options = OpenOptions { both_drivers: true, ..options.clone() };
    let backend = open_named(name, &options)?;
    measure::check(backend.as_ref())?;
    measure::speed(backend.as_ref(), budget)
}

/// Runs `work`, which may end the process. A marker file exists while it runs. If there is one already,
/// `work` is skipped: another process runs it, or has ended in it.
fn guarded<T>(name: &BackendName, work: impl FnOnce() -> Result<T, String>) -> Result<T, Failure> {
    let stem: String =
        name.to_string().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    match super::super::cache_folder() {
        Some(folder) => guarded_by(&folder.join(format!("auto-trying-{stem}")), work),
        None => work().map_err(Failure::Failed),
    }
}

fn guarded_by<T>(mark: &Path, work: impl FnOnce() -> Result<T, String>) -> Result<T, Failure> {
    let _ = mark.parent().map(create_folders);
    match create_new(mark) {
        Ok(mut file) => drop(file.write_all(std::process::id().to_string().as_bytes())),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(left_over(mark)),
        // Without a folder to write to, nothing guards.
        Err(_) => {}
    }
    let done = work();
    let _ = std::fs::remove_file(mark);
    done.map_err(Failure::Failed)
}

/// Returns the meaning of a marker file that holds the id of its process.
fn left_over(mark: &Path) -> Failure {
    let process: Option<u32> = std::fs::read_to_string(mark).ok().and_then(|text| text.trim().parse().ok());
    let age = std::fs::metadata(mark).and_then(|m| m.modified()).ok().and_then(|time| time.elapsed().ok());
    let runs =
        |process: u32| !Path::new("/proc/self").exists() || Path::new(&format!("/proc/{process}")).exists();
    if age.is_none_or(|age| age < LONGEST_TRIAL) && process.is_none_or(runs) {
        return Failure::Busy("another process is trying it".into());
    }
    Failure::Failed(format!("the process ended when it was tried; remove {} to try again", mark.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A marker of a process that runs is no crash; one of a process that has ended is.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_marker_names_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("diptych/auto-trying-hip");
        let tried = || guarded_by(&mark, || Ok(7));
        let inside = guarded_by(&mark, || Ok(tried()));
        assert_eq!(inside, Ok(Err(Failure::Busy("another process is trying it".into()))));
        assert_eq!(tried(), Ok(7));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        std::fs::write(&mark, child.id().to_string()).unwrap();
        let Err(Failure::Failed(why)) = tried() else { panic!("a crash") };
        assert!(why.contains("ended when it was tried"), "{why}");
        assert!(mark.exists(), "it stays until it is removed");
    }
}
