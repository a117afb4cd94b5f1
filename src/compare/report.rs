//! `result.json`: the machine-readable account of a comparison.

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

/// Everything about one comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Unique name of the run.
    pub run_id: String,
    /// Start, RFC 3339, UTC.
    pub started_at: String,
    /// The command line.
    pub command: Vec<String>,
    /// The machine.
    pub host: Host,
    /// What was set in the environment.
    pub environment: Environment,
    /// The backend that the others are measured against.
    pub reference: String,
    /// The work: "model FILE", "graph FILE" or "ops FILTER".
    pub work: String,
    /// How much rounding was allowed.
    pub precision: String,
    /// Type of the cache, where the work is a model.
    pub cache: Option<String>,
    /// The backends.
    pub backends: Vec<BackendReport>,
    /// What each run did.
    pub records: Vec<Record>,
    /// Runs that were planned and not made.
    #[serde(default)]
    pub missing: usize,
    /// Whether a backend that is not there is a finding.
    #[serde(default)]
    pub require_all: bool,
    /// Each backend against the reference.
    pub comparisons: Vec<Comparison>,
    /// Each backend with so much of the model on it, over all epochs and folders.
    #[serde(default)]
    pub statistics: Vec<Statistics>,
    /// The folders that the report was made of. What is said above of the work is that of the first.
    #[serde(default)]
    pub runs: Vec<Run>,
    /// The outcome.
    pub verdict: Verdict,
}

/// A folder that a report was made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Unique name of the run: [`Record::run_id`] of its records.
    pub run_id: String,
    /// Start, RFC 3339, UTC.
    pub started_at: String,
    /// The command line.
    pub command: Vec<String>,
    /// The machine.
    pub host: Host,
    /// What was set in the environment.
    pub environment: Environment,
    /// The work.
    pub work: String,
    /// How much rounding was allowed.
    pub precision: String,
    /// The folder, as it was named.
    pub folder: String,
}

/// A backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendReport {
    /// The run that it belongs to, see [`Run`].
    #[serde(default)]
    pub run_id: String,
    /// Name on the command line.
    pub name: String,
    /// Device name; empty where none was opened.
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

    /// Its view of its device.
    pub(super) fn view(&self) -> View {
        View::new(&self.name, &self.device, &self.driver, &self.arch, &self.features, self.uuid.as_ref())
    }
}

/// A process that did not end when it was killed, as the kernel describes it: it is in a system call that cannot be
/// interrupted, within a driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stuck {
    /// Its state ("D (disk sleep)").
    pub state: String,
    /// The function of the kernel that it waits in.
    pub wchan: String,
    /// The functions of the kernel that it is in, innermost first, where they may be read.
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
    /// The run that it belongs to, see [`Run`].
    #[serde(default)]
    pub run_id: String,
    /// Stem of its files in the run's folder: `STEM.work.json`, `STEM.events.jsonl`, `STEM.log`.
    #[serde(default)]
    pub stem: String,
    /// Backend name.
    pub backend: String,
    /// Units of the model on the device, counted from the end, see [`Offload`](crate::model::Offload); -1 is all. The
    /// rest is computed by `cpu`.
    pub offload: i64,
    /// Number of the repetition.
    pub epoch: usize,
    /// What became of it.
    pub status: Status,
    /// Operation tests: the case that failed. The backend's own record has none.
    pub case: Option<String>,
    /// Phase in which it failed.
    pub phase: Option<String>,
    /// Node at which it failed, where known.
    pub node: Option<String>,
    /// What of a model was being computed: "prompt", "decode step 3".
    #[serde(default)]
    pub step: Option<String>,
    /// The library that the backend loaded, or was about to load, once known.
    #[serde(default)]
    pub library: Option<String>,
    /// The last call into a driver that was announced.
    #[serde(default)]
    pub last_call: Option<String>,
    /// Signal that ended the process.
    pub signal: Option<String>,
    /// The process could not be ended.
    #[serde(default)]
    pub stuck: Option<Stuck>,
    /// The error, or the last words of the process.
    pub message: Option<String>,
    /// What the backend warned of, and its advice for the error.
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
    /// Tokens generated.
    pub tokens: usize,
    /// Tokens generated per second.
    pub tokens_per_s: Option<f64>,
    /// Their ids.
    pub token_ids: Vec<u32>,
    /// Distance between the two largest logits at each of them.
    #[serde(deserialize_with = "null_is_nan")]
    pub margins: Vec<f32>,
    /// The text, once there is a tokenizer.
    pub text: Option<String>,
    /// Values that were not the same bits in every repetition.
    pub unstable: usize,
    /// Allocations asked of the driver.
    pub driver_allocations: Option<u64>,
    /// The most bytes that the process was seen to have in memory.
    #[serde(default)]
    pub resident_bytes: Option<u64>,
    /// The most bytes that it was seen to have allocated on the device.
    #[serde(default)]
    pub device_bytes: Option<u64>,
    /// The prompt in other ways, where that was asked for.
    #[serde(default)]
    pub variants: Vec<Variant>,
    /// A decode step by operation, the slowest first, of the first epoch.
    #[serde(default)]
    pub times: Vec<OpTime>,
}

/// How long an operation, or a kind of group, took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpTime {
    /// Its name.
    pub op: String,
    /// Seconds of all of its nodes, each run alone and waited for: more than what they take together.
    pub seconds: f64,
}

/// A run's name in texts.
pub(super) fn label(backend: &str, offload: i64) -> String {
    if offload == EVERYTHING { backend.into() } else { format!("{backend} offload {offload}") }
}

/// Characters of a message's headline.
const HEADLINE: usize = 80;

impl Record {
    /// The first clauses of the message, as many as fit in a line.
    pub fn headline(&self) -> &str {
        let Some(message) = &self.message else { return "no reason given" };
        let ends = message.match_indices([':', ';']).map(|(at, _)| at).chain([message.len()]);
        let fitting = ends.take_while(|&end| message[..end].chars().count() <= HEADLINE).last();
        fitting.filter(|&end| end > 0).map_or(message, |end| &message[..end])
    }

    /// Backend and offload, for texts.
    pub fn label(&self) -> String {
        label(&self.backend, self.offload)
    }
}

/// The outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether every backend that can run here agrees with the reference.
    pub agree: bool,
    /// What does not, a line each.
    pub findings: Vec<String>,
    /// What is beyond a bound and no disagreement, a line each, with the reason.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What to do, in one sentence that needs no knowledge of drivers.
    #[serde(default)]
    pub advice: String,
}

/// What one backend with so much of the model on it did, over all epochs and folders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Backend name.
    pub backend: String,
    /// Its device; the same backend of two machines may have two.
    pub device: String,
    /// The work.
    pub work: String,
    /// Units of the model on the device, see [`Record::offload`].
    pub offload: i64,
    /// Records.
    pub runs: usize,
    /// Those that ended and have results.
    pub ok: usize,
    /// Those that ended with a typed error.
    pub errors: usize,
    /// Those whose process died.
    pub crashes: usize,
    /// Those that hung.
    pub hangs: usize,
    /// Those that cannot run there.
    pub unsupported: usize,
    /// Seconds of the whole process, of those that ended well.
    pub elapsed_s: Option<Summary>,
    /// Seconds of loading.
    pub load_s: Option<Summary>,
    /// Seconds of the prompt.
    pub prompt_s: Option<Summary>,
    /// Seconds of generation.
    pub eval_s: Option<Summary>,
    /// Tokens generated per second.
    pub tokens_per_s: Option<Summary>,
    /// Seconds from the start of the process to its crash or hang.
    pub time_to_crash_s: Option<Summary>,
}

impl Verdict {
    /// The outcome in words.
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

    /// The runs with their backends; records of single cases are not among them.
    pub fn backend_records(&self) -> impl Iterator<Item = (&Record, &BackendReport)> {
        let backend =
            |r: &Record| self.backends.iter().find(|b| (&b.name, &b.run_id) == (&r.backend, &r.run_id));
        self.records.iter().filter(|r| r.case.is_none()).filter_map(move |r| Some((r, backend(r)?)))
    }

    /// What became of a run against the reference.
    pub(super) fn comparison_of(&self, record: &Record) -> Option<&Comparison> {
        let of = (&record.run_id, &record.backend, record.offload, record.epoch);
        self.comparisons.iter().find(|c| (&c.run_id, &c.lhs, c.offload, c.epoch) == of)
    }

    /// Adds what is known of a backend, unless it is there.
    pub(crate) fn add_backend(&mut self, backend: BackendReport) {
        match self.backends.iter_mut().find(|b| b.name == backend.name) {
            // The device may not have been opened before.
            Some(known) if known.device.is_empty() => *known = backend,
            Some(_) => {}
            None => self.backends.push(backend),
        }
    }

    /// Reads one that was written, also one of an earlier version.
    pub fn read(path: &Path) -> Result<Report> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        serde_json::from_str(&text).map_err(|e| Error::model("report", e, "one of compare").with_path(path))
    }

    /// Writes the report as JSON. Infinities and NaN, which JSON lacks, become null. The file is never there in part.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::io(path, e))?;
        replace(path, &(text + "\n"))
    }
}

/// Writes a file, as a whole or not at all: beside its place, which it then takes.
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
        // Half a file is of no use, and the error is said already.
        let _ = std::fs::remove_file(&beside);
    }
    moved
}
