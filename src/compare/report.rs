//! `result.json`: the machine-readable account of a comparison.

use super::options::CompareOptions;
use ggml_core::backend::DeviceInfo;
use ggml_core::bound::Bound;
use ggml_core::metrics::{Distance, distance_in_rows, kl_divergence, top1_agreement};
use ggml_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// [`Record::offload`] of a run with everything on the device.
pub const EVERYTHING: i64 = -1;

/// Environment variables that change what drivers do: recorded when they are set.
const OVERRIDES: &[&str] = &[
    "HSA_OVERRIDE_GFX_VERSION",
    "HSA_ENABLE_SDMA",
    "HSA_XNACK",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_MAX_HW_QUEUES",
    "AMD_SERIALIZE_KERNEL",
    "AMD_SERIALIZE_COPY",
    "HIP_LAUNCH_BLOCKING",
    "RADV_DEBUG",
    "RADV_PERFTEST",
    "RADV_FORCE_FAMILY",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_INSTANCE_LAYERS",
    "MESA_VK_DEVICE_SELECT",
    "LP_NATIVE_VECTOR_WIDTH",
    "LP_NUM_THREADS",
    "DIPTYCH_VULKAN_ARCH",
    "DIPTYCH_HIP_LIBRARY",
    "DIPTYCH_HIP_STREAM",
    "DIPTYCH_HIP_RTC",
    "DIPTYCH_CUDA_LIBRARY",
    "DIPTYCH_VIRTUAL_CHECKS",
    "DIPTYCH_VIRTUAL_FAULTS",
];

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
    /// Each backend against the reference.
    pub comparisons: Vec<Comparison>,
    /// The outcome.
    pub verdict: Verdict,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Operating system, as it names itself.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// Processor.
    pub cpu: String,
    /// Hardware threads.
    pub threads: usize,
    /// Version of this library.
    pub diptych: String,
}

/// What was set in the environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Variables that change what drivers do.
    pub overrides: Vec<(String, String)>,
}

/// A backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendReport {
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
}

/// What became of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It ended and has results.
    Ok,
    /// It ended with a typed error.
    #[default]
    Error,
    /// The process died of a signal, or left before it had said how its work ended.
    Crash,
    /// A phase outlasted its deadline.
    Hang,
    /// The backend cannot run here, or cannot run this work.
    Unsupported,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Status::Ok => "ok",
            Status::Error => "error",
            Status::Crash => "crash",
            Status::Hang => "hang",
            Status::Unsupported => "unsupported",
        })
    }
}

/// One run of one backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
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
    /// Signal that ended the process.
    pub signal: Option<String>,
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
    pub margins: Vec<f32>,
    /// The text, once there is a tokenizer.
    pub text: Option<String>,
    /// Values that were not the same bits in every repetition.
    pub unstable: usize,
    /// Allocations asked of the driver.
    pub driver_allocations: Option<u64>,
    /// The prompt in other ways, where that was asked for.
    #[serde(default)]
    pub variants: Vec<Variant>,
}

/// The prompt computed in another way on the same backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Which.
    pub name: String,
    /// Normalised mean squared error against the prompt in one batch.
    #[serde(deserialize_with = "null_is_infinite")]
    pub nmse: f64,
    /// Error of the worst row.
    #[serde(deserialize_with = "null_is_infinite")]
    pub row: f64,
    /// How large they may be; 0: the same bits are wanted.
    pub bound: Bound,
    /// Whether they are larger.
    pub changed: bool,
}

/// A run's name in texts.
pub(super) fn label(backend: &str, offload: i64) -> String {
    if offload == EVERYTHING { backend.into() } else { format!("{backend} offload {offload}") }
}

impl Record {
    /// Backend and offload, for texts.
    pub fn label(&self) -> String {
        label(&self.backend, self.offload)
    }
}

/// Distances of logits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogitsReport {
    /// Normalised mean squared error.
    pub nmse: f64,
    /// Error of the worst row (a position) or column (a token of the vocabulary) against the scale of the whole.
    #[serde(default, deserialize_with = "null_is_infinite")]
    pub row: f64,
    /// Largest difference.
    pub max_abs: f64,
    /// Mean Kullback-Leibler divergence in nats.
    pub kl: f64,
    /// Share of positions with the same largest logit.
    pub top1_agreement: f64,
    /// NaN and infinities that the reference does not have.
    pub non_finite: usize,
}

impl LogitsReport {
    /// Rows of `n` logits against the reference's.
    pub(super) fn new(got: &[f32], want: &[f32], n: usize) -> LogitsReport {
        let d = distance_in_rows(got, want, n);
        LogitsReport {
            nmse: d.nmse,
            row: d.row,
            max_abs: d.max_abs,
            kl: kl_divergence(got, want, n),
            top1_agreement: top1_agreement(got, want, n),
            non_finite: d.non_finite,
        }
    }

    pub(super) fn distance(&self) -> Distance {
        Distance { nmse: self.nmse, row: self.row, ..Distance::default() }
    }
}

/// What that means for who samples from them, in words.
impl std::fmt::Display for LogitsReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let share = 100.0 * self.top1_agreement;
        write!(f, "the best token is the same at {share:.0}% of the positions, KL divergence {:.1e}", self.kl)
    }
}

/// One node of a graph, or one case of an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Name.
    pub node: String,
    /// Operation.
    pub op: String,
    /// Type of the result.
    #[serde(rename = "type")]
    pub dtype: String,
    /// Type of the first operand (the weights of a product).
    pub operand_type: String,
    /// Extents.
    pub shape: [usize; 4],
    /// Whether there is a result that could be judged, and if not, why.
    pub status: Status,
    /// The reason or error that belongs to the status.
    pub message: Option<String>,
    /// Normalised mean squared error; null in JSON if it is infinite or there is nothing to compare.
    #[serde(deserialize_with = "null_is_infinite")]
    pub nmse: f64,
    /// Error of the worst row against the scale of the whole, see
    /// [`Distance::row`](ggml_core::metrics::Distance::row); null like the error.
    #[serde(default, deserialize_with = "null_is_infinite")]
    pub row: f64,
    /// Largest difference; null like the error.
    #[serde(deserialize_with = "null_is_infinite")]
    pub max_abs: f64,
    /// Largest difference in units in the last place.
    pub ulp: u64,
    /// NaN and infinities that the reference does not have.
    pub non_finite: usize,
    /// The largest error that this node may show.
    pub bound: f64,
    /// The largest error that its worst row may show.
    #[serde(default)]
    pub row_bound: f64,
    /// Seconds of preparing and running it, for operation tests.
    pub elapsed_s: f64,
    /// Values that were not the same bits in every repetition.
    pub unstable: usize,
    /// Whether it is of the graph of a step after the prompt, whose kernels are others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub step: bool,
    /// Of a result of a group the nodes that were computed together; the operation is the kind of group then, and the
    /// bound the sum of theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
}

/// JSON has no infinities and no NaN.
fn null_is_infinite<'de, D: serde::Deserializer<'de>>(value: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(value)?.unwrap_or(f64::INFINITY))
}

impl NodeReport {
    pub(crate) fn set(&mut self, d: &Distance) {
        self.status = Status::Ok;
        (self.nmse, self.row, self.max_abs) = (d.nmse, d.row, d.max_abs);
        (self.ulp, self.non_finite) = (d.ulp, d.non_finite);
    }

    pub(crate) fn hold_to(&mut self, bound: &Bound) {
        (self.bound, self.row_bound) = (bound.nmse, bound.row);
    }

    /// Without a result that could be judged, and why.
    pub(crate) fn fail(&mut self, why: impl ToString) {
        (self.status, self.message) = (Status::Error, Some(why.to_string()));
    }

    /// Whether there is a result and it is out of bounds.
    pub fn is_out_of_bounds(&self) -> bool {
        self.status == Status::Ok && !self.held_to().holds(&self.distance())
    }

    /// What is too large about it, in words.
    pub(crate) fn describe_error(&self) -> String {
        self.held_to().excess(&self.distance())
    }

    /// How many times its bound the result is off.
    pub(crate) fn excess(&self) -> f64 {
        (self.nmse / self.bound).max(self.row / self.row_bound)
    }

    fn held_to(&self) -> Bound {
        Bound { nmse: self.bound, row: self.row_bound }
    }

    pub(super) fn distance(&self) -> Distance {
        Distance { nmse: self.nmse, row: self.row, ..Distance::default() }
    }
}

/// The first node that is out of bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// Name.
    pub node: String,
    /// Operation.
    pub op: String,
    /// Its error.
    #[serde(deserialize_with = "null_is_infinite")]
    pub nmse: f64,
    /// The nodes that were computed together with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// Whether it is of the graph of a step after the prompt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub step: bool,
    /// A graph file of it alone with its operands, as small as it still fails.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// The command that runs the file.
    #[serde(default)]
    pub rerun: Option<String>,
}

impl Divergence {
    pub(super) fn new(node: &NodeReport) -> Divergence {
        Divergence {
            node: node.node.clone(),
            op: node.op.clone(),
            nmse: node.nmse,
            members: node.members.clone(),
            step: node.step,
            file: None,
            rerun: None,
        }
    }
}

/// A backend against the reference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The backend.
    pub lhs: String,
    /// The reference.
    pub rhs: String,
    /// Units of the model on the device.
    pub offload: i64,
    /// Logits of the prompt, if the work is a model.
    pub logits: Option<LogitsReport>,
    /// Logits of the steps after the prompt, each of which goes on with the reference's token.
    #[serde(default)]
    pub steps: Option<LogitsReport>,
    /// The largest NMSE of the logits that counts as agreement.
    pub bound: Option<f64>,
    /// The first node out of bounds, with node results.
    pub first_divergence: Option<Divergence>,
    /// Every node, with node results; every case, if the work is operation tests.
    pub nodes: Vec<NodeReport>,
    /// Index of the first generated token that differs.
    pub greedy_divergence_at: Option<usize>,
    /// What a difference of models in `fast` precision is.
    #[serde(default)]
    pub second_look: Option<SecondLook>,
    /// Whether they agree, and if not, why.
    pub disagreement: Option<String>,
}

/// A difference in `fast` precision, looked at again: in `exact`, and node by node with the reference's operands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondLook {
    /// Logits of the prompt in exact precision, if they could be computed.
    pub exact: Option<LogitsReport>,
    /// What differs in exact precision too.
    pub exact_disagreement: Option<String>,
    /// The first node in `fast` that is out of its bound, in words.
    pub node: Option<String>,
    /// Whether all of it is rounding that the precision allows.
    pub rounding: bool,
    /// The difference in `fast`, in words.
    pub difference: String,
}

impl SecondLook {
    /// What it found, in words.
    pub fn words(&self) -> String {
        let agrees = || match &self.exact {
            Some(l) => format!("in exact precision it agrees (NMSE {:.1e}; {l})", l.nmse),
            None => "in exact precision it agrees".into(),
        };
        let found = match (&self.exact_disagreement, &self.node) {
            (Some(why), Some(node)) => format!("not rounding: in exact precision {why}, and in fast {node}"),
            (Some(why), None) => format!("not rounding: in exact precision {why}"),
            (None, Some(node)) => {
                format!(
                    "not rounding: {}, but in fast {node}: a kernel that only fast has is wrong",
                    agrees()
                )
            }
            (None, None) if self.rounding => {
                format!("this is rounding: {}, and in fast every node is within its bound", agrees())
            }
            (None, None) => format!(
                "too much for rounding, although {} and in fast every node is within its bound: the steps together are wrong",
                agrees()
            ),
        };
        format!("{}; {found}", self.difference)
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
}

impl Report {
    pub(crate) fn new(options: &CompareOptions) -> Report {
        let now = SystemTime::now();
        let started_at = humantime::format_rfc3339_seconds(now).to_string();
        let compact: String = started_at.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
        let overrides = OVERRIDES
            .iter()
            .filter_map(|name| Some((name.to_string(), lossy(std::env::var_os(name)?))))
            .collect();
        Report {
            run_id: format!("{compact}-{}", std::process::id()),
            started_at,
            command: std::env::args_os().map(lossy).collect(),
            host: Host::read(),
            environment: Environment { overrides },
            reference: options.reference.to_string(),
            work: options.work.to_string(),
            precision: options.precision.name().into(),
            cache: None,
            backends: Vec::new(),
            records: Vec::new(),
            comparisons: Vec::new(),
            verdict: Verdict::default(),
        }
    }

    /// The runs with their backends; records of single cases are not among them.
    pub fn backend_records(&self) -> impl Iterator<Item = (&Record, &BackendReport)> {
        let backend = |r: &Record| self.backends.iter().find(|b| b.name == r.backend);
        self.records.iter().filter(|r| r.case.is_none()).filter_map(move |r| Some((r, backend(r)?)))
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

    /// Writes the report as JSON. Infinities and NaN, which JSON lacks, become null. The text is written beside the
    /// file, which it then replaces: the file is never there in part.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::io(path, e))?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let written = std::fs::write(&beside, text + "\n").map_err(|e| Error::io(&beside, e));
        let moved = written.and_then(|()| std::fs::rename(&beside, path).map_err(|e| Error::io(path, e)));
        if moved.is_err() {
            // Half a report is of no use, and the error is said already.
            let _ = std::fs::remove_file(&beside);
        }
        moved
    }
}

/// Text of the system, which need not be UTF-8.
fn lossy(text: OsString) -> String {
    text.to_string_lossy().into_owned()
}

impl Host {
    fn read() -> Host {
        let line = |path: &str, key: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let value = text.lines().find_map(|l| l.strip_prefix(key).map(str::to_string));
            value
                .unwrap_or_default()
                .trim_matches(|c: char| c == '"' || c == ':' || c.is_whitespace())
                .to_string()
        };
        Host {
            os: line("/etc/os-release", "PRETTY_NAME="),
            kernel: line("/proc/sys/kernel/osrelease", ""),
            cpu: line("/proc/cpuinfo", "model name"),
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            diptych: env!("CARGO_PKG_VERSION").into(),
        }
    }
}
