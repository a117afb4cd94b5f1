//! `result.json`: the machine-readable report of a comparison.

pub use super::comparison::{Comparison, Divergence, DraftsReport, LogitsReport, SecondLook, TextReport};
use super::files::replace;
pub use super::finding::{Finding, Location};
use super::host::lossy;
pub use super::host::{Environment, Host};
use super::options::CompareOptions;
use super::variant_rows::VariantRow;
pub(super) use crate::isolate::record::label;
pub use crate::isolate::record::{BackendReport, EVERYTHING, Fault, KernelLog, OpTime, Record, Stuck};
pub use crate::isolate::results::{NodeReport, Status, TextScore, Variant};
use crate::json;
use crate::statistics::Summary;
use ggml_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::SystemTime;

/// Name of the setting that tells prompts apart. Reports for others leave its value out, since short prompts can be
/// guessed from it.
pub(super) const PROMPT_HASH: &str = "prompt";

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
    /// Further facts that the work depends on, by name: identity of the model, prompt, number of tokens to generate, and
    /// others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<(String, String)>,
    /// Type of the cache, if the work is a model.
    pub cache: Option<String>,
    /// Text that was scored, and which part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Parts of the model's file that text does not need, see [`ModelFile::left_out`](crate::model::ModelFile::left_out).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The backends.
    pub backends: Vec<BackendReport>,
    /// Records of all runs.
    pub records: Vec<Record>,
    /// Variants that were run next to the plain runs, see [`Record::variant`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<VariantRow>,
    /// Effects of the variants, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variant_findings: Vec<String>,
    /// Command that tries harmless variants after a crash or a hang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cure_command: Option<String>,
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
    /// Further facts that the work depends on, see [`Report::settings`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<(String, String)>,
    /// The folder's path, as it was given.
    pub folder: String,
}

/// Outcome of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// True if every backend that can run here agrees with the reference.
    pub agree: bool,
    /// Disagreements and failures, one line each.
    pub findings: Vec<String>,
    /// The same findings as fields, in the same order; none in reports of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Finding>,
    /// Differences beyond a bound that are no disagreement, one line each with the reason.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Patterns over runs, one sentence each: with how many units on the device a backend works and with how many it
    /// dies, and runs that are equal but for one thing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    /// Recommendation in one sentence, which needs no knowledge of drivers.
    #[serde(default)]
    pub advice: String,
}

/// Statistics of a backend with one offload, over all epochs and folders in which it did the same work under the same
/// circumstances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Backend name.
    pub backend: String,
    /// Device of the backend, which may differ between machines.
    pub device: String,
    /// The work, and the circumstances in which the runs of the report differ: precision, settings, variables, host, and
    /// the driver, routes and overrides of the backend.
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
    /// Number of runs that the user or another process ended: they are no crashes.
    #[serde(default)]
    pub ended: usize,
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
        let failed = |finding: &Finding| {
            ["crash", "hang", "error", "ended"].iter().any(|status| finding.cause.starts_with(status))
        };
        let is_absent = |finding: &Finding| finding.cause == "not available";
        match self.details.as_slice() {
            _ if self.agree => "all backends that can run here agree",
            [] => "something differs",
            all if all.iter().all(is_absent) => "a backend cannot run here",
            all if all.iter().all(|finding| failed(finding) || is_absent(finding)) => "a backend failed",
            _ => "something differs",
        }
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
            settings: options.settings(),
            cache: None,
            text: None,
            left_out: Vec::new(),
            backends: Vec::new(),
            records: Vec::new(),
            variants: Vec::new(),
            variant_findings: Vec::new(),
            cure_command: None,
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
        self.records.iter().filter(|r| r.case.is_none()).filter_map(|r| Some((r, self.backend_of(r)?)))
    }

    /// Returns the description of a record's backend.
    pub(super) fn backend_of(&self, record: &Record) -> Option<&BackendReport> {
        let of = (&record.backend, &record.run_id, &record.variant);
        self.backends.iter().find(|b| (&b.name, &b.run_id, &b.variant) == of)
    }

    /// Returns the report without the rows of variants.
    pub(super) fn plain(&self) -> Report {
        let mut plain = self.clone();
        plain.records.retain(|record| record.variant.is_none());
        plain.comparisons.retain(|comparison| comparison.variant.is_none());
        plain.backends.retain(|backend| backend.variant.is_none());
        plain
    }

    /// True if it is the record that the others are compared with.
    pub(super) fn is_reference(&self, record: &Record) -> bool {
        let is_plain = record.variant.is_none();
        is_plain && (&record.backend, record.offload, record.epoch) == (&self.reference, EVERYTHING, 0)
    }

    /// Returns the record that the others are compared with.
    pub(super) fn reference_record(&self) -> Option<&Record> {
        self.records.iter().find(|r| self.is_reference(r))
    }

    /// Returns the comparison of a run with the reference.
    pub(super) fn comparison_of(&self, record: &Record) -> Option<&Comparison> {
        let of = (&record.run_id, &record.backend, record.offload, record.epoch, &record.variant);
        self.comparisons.iter().find(|c| (&c.run_id, &c.lhs, c.offload, c.epoch, &c.variant) == of)
    }

    /// Adds the description of a backend, unless it is present already.
    pub(crate) fn add_backend(&mut self, backend: BackendReport) {
        let of = (&backend.name, &backend.variant);
        match self.backends.iter_mut().find(|b| (&b.name, &b.variant) == of) {
            // The device may not have been opened in an earlier run.
            Some(known) if known.device.is_empty() => *known = backend,
            Some(_) => {}
            None => self.backends.push(backend),
        }
    }

    /// Reads a report that was written by this version or an earlier one.
    pub fn read(path: &Path) -> Result<Report> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        json::read(&text).map_err(|e| Error::model("report", e, "one of compare").with_path(path))
    }

    /// Writes the report as JSON. Infinities and NaN, which JSON lacks, become null. The file is replaced as
    /// a whole.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::io(path, e))?;
        replace(path, &(text + "\n"))
    }
}
