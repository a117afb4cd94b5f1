//! `result.json`: the machine-readable report of a comparison.

pub use super::comparison::{Comparison, Divergence, LogitsReport, NodeReport, SecondLook, Status, Variant};
use super::host::lossy;
pub use super::host::{Environment, Host};
use super::json::null_is_nan;
use super::options::CompareOptions;
use crate::backends::View;
use crate::statistics::Summary;
use ggml_core::backend::DeviceInfo;
use ggml_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// [`Record::offload`] of a run with everything on the device.
pub const EVERYTHING: i64 = -1;

/// Report of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Unique name of the run.
    pub run_id: String,
    /// Start time, RFC 3339, UTC.
    pub started_at: String,
    /// The command line.
    pub command: Vec<String>,
    /// The host machine.
    pub host: Host,
    /// Environment variables that were set.
    pub environment: Environment,
    /// The backend with which the others are compared.
    pub reference: String,
    /// The work: "model FILE", "graph FILE" or "ops FILTER".
    pub work: String,
    /// Precision, which determines how much rounding was allowed.
    pub precision: String,
    /// Type of the cache, if the work is a model.
    pub cache: Option<String>,
    /// The backends.
    pub backends: Vec<BackendReport>,
    /// Records of all runs.
    pub records: Vec<Record>,
    /// Number of runs that were planned but not made.
    #[serde(default)]
    pub missing: usize,
    /// True if a missing backend is a finding.
    #[serde(default)]
    pub require_all: bool,
    /// Comparison of each backend with the reference.
    pub comparisons: Vec<Comparison>,
    /// Statistics of each backend and offload, over all epochs and folders.
    #[serde(default)]
    pub statistics: Vec<Statistics>,
    /// The runs that the report contains. The fields above that describe the work are those of the first run.
    #[serde(default)]
    pub runs: Vec<Run>,
    /// The outcome.
    pub verdict: Verdict,
}

/// A run, in a folder, that a report contains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Unique name of the run, the [`Record::run_id`] of its records.
    pub run_id: String,
    /// Start time, RFC 3339, UTC.
    pub started_at: String,
    /// The command line.
    pub command: Vec<String>,
    /// The host machine.
    pub host: Host,
    /// Environment variables that were set.
    pub environment: Environment,
    /// The work.
    pub work: String,
    /// Precision, which determines how much rounding was allowed.
    pub precision: String,
    /// The folder's path, as it was given.
    pub folder: String,
}

/// Description of a backend in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendReport {
    /// ID of the run that it belongs to, see [`Run`].
    #[serde(default)]
    pub run_id: String,
    /// Name on the command line.
    pub name: String,
    /// Device name; empty if none was opened.
    pub device: String,
    /// Driver name.
    pub driver: String,
    /// Versions and paths by name.
    pub versions: Vec<(String, String)>,
    /// Features by name.
    pub features: Vec<(String, String)>,
    /// Architecture class or target.
    pub arch: String,
    /// Device UUID.
    pub uuid: Option<String>,
    /// Overrides that the backend found in effect.
    pub overrides: Vec<(String, String)>,
}

impl BackendReport {
    pub(crate) fn fill(&mut self, device: &DeviceInfo) {
        self.device = device.name.clone();
        self.driver = device.driver.clone();
        self.versions = device.versions.clone();
        self.features = device.features.clone();
        self.arch = device.arch.clone();
        self.uuid = device.uuid.clone();
        self.overrides = device.overrides.clone();
    }

    /// Returns the backend's view of its device.
    pub(super) fn view(&self) -> View {
        View::new(&self.name, &self.device, &self.driver, &self.arch, &self.features, self.uuid.as_ref())
    }
}

/// A process that did not end when it was killed, as the kernel describes it. It is inside a driver, in a
/// system call that cannot be interrupted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stuck {
    /// Process state ("D (disk sleep)").
    pub state: String,
    /// Kernel function in which the process waits.
    pub wchan: String,
    /// Call stack in the kernel, innermost function first, if it is readable.
    pub stack: Vec<String>,
}

impl Stuck {
    pub(crate) fn describe(&self) -> String {
        if self.state.is_empty() {
            return "the system says nothing of it".into();
        }
        let wchan = if self.wchan.is_empty() { "" } else { &format!(" in the kernel's {}", self.wchan) };
        let stack = self.stack.join(" < ");
        let stack = if stack.is_empty() { "" } else { &format!(" ({stack})") };
        format!("it is in state {}{wchan}{stack}", self.state)
    }
}

/// One run of one backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// ID of the run that it belongs to, see [`Run`].
    #[serde(default)]
    pub run_id: String,
    /// Stem of its files in the run's folder: `STEM.work.json`, `STEM.events.jsonl`, `STEM.log`.
    #[serde(default)]
    pub stem: String,
    /// Backend name.
    pub backend: String,
    /// Number of the model's units on the device, counted from the end, see
    /// [`Offload`](crate::model::Offload); -1 is all. `cpu` computes the rest.
    pub offload: i64,
    /// Index of the repetition.
    pub epoch: usize,
    /// Outcome of the run.
    pub status: Status,
    /// Operation tests: the case that failed; `None` in the record of the backend as a whole.
    pub case: Option<String>,
    /// Phase in which it failed.
    pub phase: Option<String>,
    /// Node at which it failed, if known.
    pub node: Option<String>,
    /// Part of a model's work that was being computed: "prompt", "decode step 3".
    #[serde(default)]
    pub step: Option<String>,
    /// Library that the backend loaded, or was about to load, if known.
    #[serde(default)]
    pub library: Option<String>,
    /// The last call into a driver that was announced.
    #[serde(default)]
    pub last_call: Option<String>,
    /// Signal that ended the process.
    pub signal: Option<String>,
    /// Description of the process if it could not be ended.
    #[serde(default)]
    pub stuck: Option<Stuck>,
    /// The error, or the last output of the process.
    pub message: Option<String>,
    /// Warnings of the backend, and its advice for the error.
    pub warnings: Vec<String>,
    /// Process id of the child.
    pub pid: u32,
    /// Seconds from start to end of the process.
    pub elapsed_s: f64,
    /// Seconds of loading.
    pub load_s: Option<f64>,
    /// Seconds of the prompt.
    pub prompt_s: Option<f64>,
    /// Seconds of generation.
    pub eval_s: Option<f64>,
    /// Number of tokens generated.
    pub tokens: usize,
    /// Tokens generated per second.
    pub tokens_per_s: Option<f64>,
    /// Ids of the generated tokens.
    pub token_ids: Vec<u32>,
    /// Difference between the two largest logits at each generated token.
    #[serde(deserialize_with = "null_is_nan")]
    pub margins: Vec<f32>,
    /// The generated text; currently never set.
    pub text: Option<String>,
    /// Number of values whose bits changed between repetitions.
    pub unstable: usize,
    /// Number of allocations requested from the driver.
    pub driver_allocations: Option<u64>,
    /// The largest observed number of resident bytes of the process.
    #[serde(default)]
    pub resident_bytes: Option<u64>,
    /// The largest observed number of bytes allocated on the device.
    #[serde(default)]
    pub device_bytes: Option<u64>,
    /// Results of the prompt by other methods, if requested.
    #[serde(default)]
    pub variants: Vec<Variant>,
    /// Times of a decode step by operation, the slowest first; only in the first epoch.
    #[serde(default)]
    pub times: Vec<OpTime>,
}

/// Time of an operation, or of a kind of group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpTime {
    /// Name of the operation.
    pub op: String,
    /// Seconds of all its nodes, each run and waited for separately; more than their share of a whole step.
    pub seconds: f64,
}

/// Formats a run's name for texts.
pub(super) fn label(backend: &str, offload: i64) -> String {
    if offload == EVERYTHING { backend.into() } else { format!("{backend} offload {offload}") }
}

/// The most characters of a message's headline.
const HEADLINE: usize = 80;

impl Record {
    /// Returns the first clauses of the message, as many as fit in a line.
    pub fn headline(&self) -> &str {
        let Some(message) = &self.message else { return "no reason given" };
        let ends = message.match_indices([':', ';']).map(|(at, _)| at).chain([message.len()]);
        let fitting = ends.take_while(|&end| message[..end].chars().count() <= HEADLINE).last();
        fitting.filter(|&end| end > 0).map_or(message, |end| &message[..end])
    }

    /// Formats backend and offload for texts.
    pub fn label(&self) -> String {
        label(&self.backend, self.offload)
    }
}

/// Outcome of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// True if every backend that can run here agrees with the reference.
    pub agree: bool,
    /// Disagreements and failures, one line each.
    pub findings: Vec<String>,
    /// Differences beyond a bound that are no disagreement, one line each with the reason.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Recommendation in one sentence, which needs no knowledge of drivers.
    #[serde(default)]
    pub advice: String,
}

/// Statistics of a backend with one offload, over all epochs and folders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Backend name.
    pub backend: String,
    /// Device of the backend, which may differ between machines.
    pub device: String,
    /// The work.
    pub work: String,
    /// Units of the model on the device, see [`Record::offload`].
    pub offload: i64,
    /// Number of records.
    pub runs: usize,
    /// Number of runs that ended with results.
    pub ok: usize,
    /// Number of runs that ended with a typed error.
    pub errors: usize,
    /// Number of runs whose process died.
    pub crashes: usize,
    /// Number of runs that hung.
    pub hangs: usize,
    /// Number of runs that the backend does not support.
    pub unsupported: usize,
    /// Seconds of the whole process, of runs with results.
    pub elapsed_s: Option<Summary>,
    /// Seconds of loading, of runs with results.
    pub load_s: Option<Summary>,
    /// Seconds of the prompt, of runs with results.
    pub prompt_s: Option<Summary>,
    /// Seconds of generation, of runs with results.
    pub eval_s: Option<Summary>,
    /// Tokens generated per second, of runs with results.
    pub tokens_per_s: Option<Summary>,
    /// Seconds from the start of the process to its crash or hang.
    pub time_to_crash_s: Option<Summary>,
}

impl Verdict {
    /// Returns the outcome in words.
    pub(super) fn sentence(&self) -> &'static str {
        if self.agree { "all backends that can run here agree" } else { "something differs" }
    }
}

impl Report {
    pub(crate) fn new(options: &CompareOptions) -> Report {
        let now = SystemTime::now();
        let started_at = humantime::format_rfc3339_seconds(now).to_string();
        let compact: String = started_at.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
        Report {
            run_id: format!("{compact}-{}", std::process::id()),
            started_at,
            command: std::env::args_os().map(lossy).collect(),
            host: Host::read(),
            environment: Environment::read(),
            reference: options.reference.to_string(),
            work: options.work.to_string(),
            precision: options.precision.name().into(),
            cache: None,
            backends: Vec::new(),
            records: Vec::new(),
            missing: 0,
            require_all: options.require_all,
            comparisons: Vec::new(),
            statistics: Vec::new(),
            runs: Vec::new(),
            verdict: Verdict::default(),
        }
    }

    /// Returns the records with their backends, without the records of single cases.
    pub fn backend_records(&self) -> impl Iterator<Item = (&Record, &BackendReport)> {
        let backend =
            |r: &Record| self.backends.iter().find(|b| (&b.name, &b.run_id) == (&r.backend, &r.run_id));
        self.records.iter().filter(|r| r.case.is_none()).filter_map(move |r| Some((r, backend(r)?)))
    }

    /// Returns the comparison of a run with the reference.
    pub(super) fn comparison_of(&self, record: &Record) -> Option<&Comparison> {
        let of = (&record.run_id, &record.backend, record.offload, record.epoch);
        self.comparisons.iter().find(|c| (&c.run_id, &c.lhs, c.offload, c.epoch) == of)
    }

    /// Adds the description of a backend, unless it is present already.
    pub(crate) fn add_backend(&mut self, backend: BackendReport) {
        match self.backends.iter_mut().find(|b| b.name == backend.name) {
            // The device may not have been opened in an earlier run.
            Some(known) if known.device.is_empty() => *known = backend,
            Some(_) => {}
            None => self.backends.push(backend),
        }
    }

    /// Reads a report that was written by this version or an earlier one.
    pub fn read(path: &Path) -> Result<Report> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        serde_json::from_str(&text).map_err(|e| Error::model("report", e, "one of compare").with_path(path))
    }

    /// Writes the report as JSON. Infinities and NaN, which JSON lacks, become null. The file is replaced as
    /// a whole.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::io(path, e))?;
        replace(path, &(text + "\n"))
    }
}

/// Writes a file completely or not at all: writes a temporary file next to it and renames that.
pub(super) fn replace(path: &Path, text: &str) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let write = || {
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    let written = write().map_err(|e| Error::io(&beside, e));
    let moved = written.and_then(|()| std::fs::rename(&beside, path).map_err(|e| Error::io(path, e)));
    if moved.is_err() {
        // A partial file is useless, and its error is returned already.
        let _ = std::fs::remove_file(&beside);
    }
    moved
}
