//! The same work on several backends, each in a process of its own, and where they part.
//!
//! [`run`] starts one child process for each backend, one after the other: the same executable, by exec, never a fork
//! of a process that touched a GPU. A child streams what it does to the parent (see [`protocol`]), so that a crash, a
//! hang or an error becomes a record with phase and node, and the other backends' results are complete. A program
//! that calls [`run`] must call [`child_entry`] first thing in `main`.

use crate::backends::{BackendName, VirtualTarget};
use crate::model::Offload;
use ggml_core::plan::Precision;
use ggml_core::{Error, Result};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod child;
mod generate;
mod graph;
mod judge;
mod nodes;
mod ops;
mod parent;
pub mod protocol;
pub mod report;
mod table;
mod whole;

pub use child::child_entry;
pub use report::Report;
pub use table::table;

use protocol::{PerNode, Task};

/// The work that is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A model; `None`: a small one with seeded random weights, written to the output folder.
    Model(Option<PathBuf>),
    /// A graph file with the contents of its leaves, see [`ggml_core::graph::file`].
    Graph(PathBuf),
    /// The cases of the operation catalogue that a filter selects: names of operations and parts of the names of
    /// cases, by comma; empty: all of them.
    Ops(String),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Model(None) => f.write_str("model"),
            Subject::Model(Some(path)) => write!(f, "model {}", path.display()),
            Subject::Graph(path) => write!(f, "graph {}", path.display()),
            Subject::Ops(filter) if filter.is_empty() => f.write_str("ops"),
            Subject::Ops(filter) => write!(f, "ops {filter}"),
        }
    }
}

/// What to compare, and how.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// The work.
    pub work: Subject,
    /// Backends, in the order in which they run (the reference always first).
    pub backends: Vec<BackendName>,
    /// The backend that the others are measured against.
    pub reference: BackendName,
    /// Token ids of the prompt; `None`: 32 seeded ones.
    pub tokens: Option<Vec<u32>>,
    /// Tokens to generate greedily.
    pub predict: usize,
    /// Models: how much lies on the device; a run for each. The backends of the host run once.
    pub offload: Vec<Offload>,
    /// Whether to compare every node of the graph.
    pub per_node: PerNode,
    /// How often each backend does the work: results must be the same bits every time.
    pub repeat: usize,
    /// How much rounding is allowed.
    pub precision: Precision,
    /// Deadline of every phase.
    pub timeout: Duration,
    /// Seed of the default model and prompt.
    pub seed: u64,
    /// Folder for `result.json`, logs and arrays; made if it is missing.
    pub out: PathBuf,
    /// Vulkan: architecture class to tune for.
    pub vulkan_arch: Option<String>,
    /// HIP: runtime library to load.
    pub hip_library: Option<PathBuf>,
}

impl Default for CompareOptions {
    fn default() -> Self {
        CompareOptions {
            work: Subject::Model(None),
            backends: vec![
                BackendName::Reference,
                BackendName::Cpu,
                BackendName::Vulkan(None),
                BackendName::Hip(None),
                BackendName::HipVirtual(VirtualTarget::default()),
            ],
            reference: BackendName::Reference,
            tokens: None,
            predict: 16,
            offload: vec![Offload::All],
            per_node: PerNode::Off,
            repeat: 1,
            precision: Precision::default(),
            timeout: Duration::from_secs(300),
            seed: 1,
            out: PathBuf::from("out/compare"),
            vulkan_arch: None,
            hip_library: None,
        }
    }
}

/// What is going on, for a line of text or a bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Backend name.
    pub backend: String,
    /// What it does.
    pub what: String,
    /// Parts of its work that are done, and all of them, where the work has parts.
    pub done: Option<(usize, usize)>,
}

impl Event {
    fn new(backend: impl ToString, what: impl ToString) -> Event {
        Event { backend: backend.to_string(), what: what.to_string(), done: None }
    }
}

/// Called for each event.
pub type Progress<'a> = &'a mut dyn FnMut(&Event);

/// Runs the comparison and writes `result.json`. Errors are those of wrong use (model, tokens, filter, output folder);
/// what happens on a backend is in the report.
pub fn run(options: &CompareOptions, progress: Progress<'_>) -> Result<Report> {
    if options.offload.is_empty() || options.offload.contains(&Offload::Auto) {
        return Err(Error::argument_said("offload", "is a list of numbers"));
    }
    if options.repeat == 0 {
        return Err(Error::argument_said("repeat", "there must be at least one run"));
    }
    std::fs::create_dir_all(&options.out).map_err(|e| Error::io(&options.out, e))?;
    let mut report = Report::new(options);
    match &options.work {
        Subject::Model(path) => whole::compare_model(path.as_deref(), options, &mut report, progress)?,
        Subject::Graph(path) => whole::compare_graph(path, options, &mut report, progress)?,
        Subject::Ops(filter) => ops::compare(filter, options, &mut report, progress)?,
    }
    report.write(&options.out.join("result.json"))?;
    Ok(report)
}

/// The backends in the order in which they run: the reference first, none twice.
fn order(options: &CompareOptions) -> Vec<BackendName> {
    let mut seen = HashSet::new();
    let all = std::iter::once(&options.reference).chain(&options.backends);
    all.filter(|b| seen.insert((*b).clone())).cloned().collect()
}

/// A child's work, apart from its task.
fn work(options: &CompareOptions, backend: &BackendName, task: Task) -> protocol::Work {
    protocol::Work {
        backend: backend.to_string(),
        precision: options.precision,
        timeout: options.timeout,
        repeat: options.repeat,
        stepwise: false,
        vulkan_arch: options.vulkan_arch.clone(),
        hip_library: options.hip_library.clone(),
        task,
    }
}

/// Stem of the files that belong to a run: the backend's name, and how much lies on it unless it is everything.
fn file_stem(backend: &str, offload: i64) -> String {
    let name: String = backend.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    if offload == report::EVERYTHING { name } else { format!("{name}-offload-{offload}") }
}

fn logits_path(out: &Path, backend: &str, offload: i64) -> PathBuf {
    out.join(format!("{}.logits.npy", file_stem(backend, offload)))
}

fn nodes_path(out: &Path, backend: &str, offload: i64) -> PathBuf {
    out.join(format!("{}.nodes", file_stem(backend, offload)))
}
