//! The same work on several backends, each in a process of its own, and where they part.
//!
//! [`run`] starts one child process for each backend, one after the other: the same executable, by exec, never a fork
//! of a process that touched a GPU. A child streams what it does to the parent (see [`protocol`]), so that a crash, a
//! hang or an error becomes a record with phase and node, and the other backends' results are complete. A program
//! that calls [`run`] must call [`child_entry`] first thing in `main`.

use crate::backends::BackendName;
use crate::model::ModelFile;
use crate::synthesize::{self, Shape};
use ggml_core::plan::Precision;
use ggml_core::rng::Rng;
use ggml_core::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

mod child;
mod judge;
mod nodes;
mod parent;
pub mod protocol;
pub mod report;
mod table;

pub use child::child_entry;
pub use report::Report;
pub use table::table;

use protocol::{PerNode, Work};

/// What to compare.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// The model; `None`: a small one with seeded random weights, written to the output folder.
    pub model: Option<PathBuf>,
    /// Backends, in the order in which they run (the reference always first).
    pub backends: Vec<BackendName>,
    /// The backend that the others are measured against.
    pub reference: BackendName,
    /// Token ids of the prompt; `None`: 32 seeded ones.
    pub tokens: Option<Vec<u32>>,
    /// Tokens to generate greedily.
    pub predict: usize,
    /// Whether to compare every node of the prompt's graph.
    pub per_node: PerNode,
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
            model: None,
            backends: vec![
                BackendName::Reference,
                BackendName::Cpu,
                BackendName::Vulkan(None),
                BackendName::Hip(None),
            ],
            reference: BackendName::Reference,
            tokens: None,
            predict: 16,
            per_node: PerNode::Off,
            precision: Precision::default(),
            timeout: Duration::from_secs(300),
            seed: 1,
            out: PathBuf::from("out/compare"),
            vulkan_arch: None,
            hip_library: None,
        }
    }
}

/// Called for each line of progress.
pub type Progress<'a> = &'a mut dyn FnMut(&str);

/// Runs the comparison and writes `result.json`. Errors are those of wrong use (model, tokens, output folder); what
/// happens on a backend is in the report.
pub fn run(options: &CompareOptions, progress: Progress<'_>) -> Result<Report> {
    std::fs::create_dir_all(&options.out).map_err(|e| Error::io(&options.out, &e))?;
    let model = prepare_model(options)?;
    let tokens = prompt(options, &model)?;
    let mut backends = options.backends.clone();
    backends.retain(|b| *b != options.reference);
    backends.insert(0, options.reference.clone());
    let mut seen = std::collections::HashSet::new();
    backends.retain(|b| seen.insert(b.clone()));

    let mut report = Report::new(options);
    let reference_nodes = nodes_path(&options.out, &options.reference);
    for backend in &backends {
        let isolated = options.per_node == PerNode::Isolated && *backend != options.reference;
        let work = Work {
            backend: backend.to_string(),
            model: model.clone(),
            tokens: tokens.clone(),
            predict: options.predict,
            per_node: if isolated || options.per_node == PerNode::Off {
                options.per_node
            } else {
                PerNode::Chained
            },
            precision: options.precision,
            timeout: options.timeout,
            stepwise: false,
            vulkan_arch: options.vulkan_arch.clone(),
            hip_library: options.hip_library.clone(),
            logits: logits_path(&options.out, backend),
            nodes: nodes_path(&options.out, backend),
            reference_nodes: isolated.then(|| reference_nodes.clone()),
        };
        progress(&format!("{backend}: running"));
        let outcome = parent::run_child(&work, &options.out, progress)?;
        progress(&format!("{backend}: {}", outcome.record.status));
        report.backends.push(outcome.backend);
        report.records.push(outcome.record);
    }
    judge::judge(&mut report, options, &model)?;
    report.write(&options.out.join("result.json"))?;
    Ok(report)
}

fn file_name(backend: &BackendName) -> String {
    backend.to_string().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

fn logits_path(out: &Path, backend: &BackendName) -> PathBuf {
    out.join(format!("{}.logits.npy", file_name(backend)))
}

fn nodes_path(out: &Path, backend: &BackendName) -> PathBuf {
    out.join(format!("{}.nodes", file_name(backend)))
}

/// The model's path, after the file has been checked, or that of the default model, after it has been written.
fn prepare_model(options: &CompareOptions) -> Result<PathBuf> {
    let path = match &options.model {
        Some(path) => path.clone(),
        None => {
            let path = options.out.join("model.gguf");
            synthesize::write(&Shape::small("qwen3"), options.seed, &path)?;
            path
        }
    };
    ModelFile::open(&path)?;
    Ok(path)
}

fn prompt(options: &CompareOptions, model: &Path) -> Result<Vec<u32>> {
    let hparams = ModelFile::open(model)?.hparams().clone();
    let vocabulary = hparams.vocabulary;
    let tokens = match &options.tokens {
        Some(tokens) => tokens.clone(),
        None => {
            let mut rng = Rng::named("prompt", options.seed);
            (0..32).map(|_| rng.below(vocabulary) as u32).collect()
        }
    };
    if tokens.is_empty() {
        return Err(Error::argument("tokens", "there must be at least one"));
    }
    if let Some(bad) = tokens.iter().find(|&&t| t as usize >= vocabulary) {
        return Err(Error::argument("token id", format!("{bad} is outside the vocabulary of {vocabulary}")));
    }
    let needed = tokens.len() + options.predict;
    if needed > hparams.context {
        let why = format!("{needed} positions are needed, the model's context has {}", hparams.context);
        return Err(Error::argument("context", why));
    }
    Ok(tokens)
}
