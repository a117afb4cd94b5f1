//! Options of a comparison, and its progress events.

use super::variant_rows::{BackendVariable, VariantRow};
use crate::backend_name::{BackendName, VirtualTarget};
use crate::isolate::json::{self, JsonPath};
pub use crate::isolate::protocol::PerNode;
use crate::isolate::protocol::{Task, Work};
use crate::model::Offload;
use ggml_core::precision::Precision;
use ggml_core::setters;
use ggml_core::{DType, Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The work that is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A model; `None` is a small one with seeded random weights, written to the output folder.
    Model(#[serde(with = "json::some_path")] Option<PathBuf>),
    /// A graph file with the contents of its leaves, see [`ggml_core::graph::file`].
    Graph(#[serde(with = "json::path")] PathBuf),
    /// The cases of the operation catalogue that a filter selects: operations, and parts of the names of
    /// cases, separated by commas. An empty filter selects all cases.
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

/// Options of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompareOptions {
    /// The work.
    pub work: Subject,
    /// Backends, in the order in which they run (the reference always first).
    #[serde(with = "json::texts")]
    pub backends: Vec<BackendName>,
    /// True if a missing backend is a finding. Set it for backends that a user requested by name.
    pub require_all: bool,
    /// The backend with which the others are compared.
    #[serde(with = "json::text")]
    pub reference: BackendName,
    /// Text of the prompt, for a model with a tokenizer.
    pub prompt: Option<String>,
    /// Token ids of the prompt, used without `prompt`; `None` is 32 seeded random ids.
    pub tokens: Option<Vec<u32>>,
    /// Models: text to score. Its first chunk is the prompt, so `prompt` and `tokens` are none.
    #[serde(default, with = "json::some_path")]
    pub text: Option<PathBuf>,
    /// Tokens of a chunk of the text.
    #[serde(default)]
    pub chunk: usize,
    /// Number of chunks of the text that are scored, from its beginning; fewer if the text has fewer.
    #[serde(default)]
    pub chunks: usize,
    /// Chunks of the text, if they have been read already.
    #[serde(default)]
    pub(super) text_chunks: Option<Vec<Vec<u32>>>,
    /// Number of tokens to generate greedily.
    pub predict: usize,
    /// Models: the amounts to offload to the device, with one run for each. Backends of the host run once.
    #[serde(with = "json::texts")]
    pub offload: Vec<Offload>,
    /// Number of repetitions of each run, each in its own process. All runs of an epoch precede the next
    /// epoch, so that drift affects all runs alike. The `reference` backend runs once.
    pub epochs: usize,
    /// Mode of comparing every node of the graph.
    pub per_node: PerNode,
    /// Number of times each backend does the work; results must have the same bits every time.
    pub repeat: usize,
    /// Models: true if each backend also computes the prompt by other methods, which must not change its
    /// logits: in other batches, next to another sequence, step by step, in other memory, with another part
    /// of the model on the device.
    pub invariance: bool,
    /// Models: true to compute the prompt at least by the methods that must give the same bits.
    #[serde(default)]
    pub(super) same_bits: bool,
    /// Precision, which determines how much rounding is allowed.
    pub precision: Precision,
    /// Models: element type of the cache, the same on every backend; `None` is F16, or F32 in `exact`
    /// precision.
    pub cache: Option<DType>,
    /// Deadline of every phase; `Duration::MAX` means no deadline.
    pub timeout: Duration,
    /// Seed of the default model and prompt.
    pub seed: u64,
    /// Folder for `result.json`, events, logs and arrays; created if it is missing.
    #[serde(with = "json::path")]
    pub out: PathBuf,
    /// Vulkan: architecture class to tune for.
    pub vulkan_arch: Option<String>,
    /// HIP: runtime library to load.
    #[serde(with = "json::some_path")]
    pub hip_library: Option<PathBuf>,
    /// Variables of the children's environment, in addition to the program's own; a later one replaces an earlier one
    /// of the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<BackendVariable>,
    /// Models and graphs: variants, each run in children of its own after the plain runs of all backends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<VariantRow>,
    /// Models and graphs: true to run harmless variants of a backend that crashes or hangs, to find one that helps.
    #[serde(default)]
    pub cure: bool,
    /// Flag that stops the run when it is set: the running child is ended, and the results so far are judged.
    #[serde(skip)]
    pub stop: Option<Arc<AtomicBool>>,
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
                BackendName::VulkanVirtual(VirtualTarget::default()),
                BackendName::HipVirtual(VirtualTarget::default()),
            ],
            require_all: false,
            reference: BackendName::Reference,
            prompt: None,
            tokens: None,
            text: None,
            chunk: 128,
            chunks: 1,
            text_chunks: None,
            predict: 16,
            offload: vec![Offload::All],
            epochs: 1,
            per_node: PerNode::Off,
            repeat: 1,
            invariance: false,
            same_bits: false,
            precision: Precision::default(),
            cache: None,
            timeout: Duration::from_secs(300),
            seed: 1,
            out: PathBuf::from("out/compare"),
            vulkan_arch: None,
            hip_library: None,
            environment: Vec::new(),
            variants: Vec::new(),
            cure: false,
            stop: None,
        }
    }
}

setters!(CompareOptions {
    with_work => work: Subject,
    with_backends => backends: impl Into<Vec<BackendName>>,
    with_require_all => require_all: bool,
    with_reference => reference: BackendName,
    with_prompt => prompt: impl Into<Option<String>>,
    with_tokens => tokens: impl Into<Option<Vec<u32>>>,
    with_text => text: impl Into<Option<PathBuf>>,
    with_chunk => chunk: usize,
    with_chunks => chunks: usize,
    with_predict => predict: usize,
    with_offload => offload: impl Into<Vec<Offload>>,
    with_epochs => epochs: usize,
    with_per_node => per_node: PerNode,
    with_repeat => repeat: usize,
    with_invariance => invariance: bool,
    with_precision => precision: Precision,
    with_cache => cache: impl Into<Option<DType>>,
    with_timeout => timeout: Duration,
    with_seed => seed: u64,
    with_out => out: impl Into<PathBuf>,
    with_vulkan_arch => vulkan_arch: impl Into<Option<String>>,
    with_hip_library => hip_library: impl Into<Option<PathBuf>>,
    with_environment => environment: impl Into<Vec<BackendVariable>>,
    with_variants => variants: impl Into<Vec<VariantRow>>,
    with_cure => cure: bool,
    with_stop => stop: impl Into<Option<Arc<AtomicBool>>>,
});

impl CompareOptions {
    /// Checks the options before anything runs.
    pub(super) fn check(&self) -> Result<()> {
        if self.offload.is_empty() || self.offload.contains(&Offload::Auto) {
            return Err(Error::argument("offload", format!("{:?}", self.offload), "a list of numbers"));
        }
        let model = matches!(self.work, Subject::Model(_));
        if !model && (self.invariance || self.prompt.is_some()) {
            return Err(Error::argument("prompt or invariance", &self.work, "a model"));
        }
        if self.text.is_some() && (!model || self.prompt.is_some() || self.tokens.is_some()) {
            return Err(Error::argument("text", "with other work", "a model, without prompt and tokens"));
        }
        if self.repeat == 0 {
            return Err(Error::argument("repeat", 0, "at least one run"));
        }
        if self.epochs == 0 {
            return Err(Error::argument("epochs", 0, "at least one"));
        }
        if self.epochs > 1 && matches!(self.work, Subject::Ops(_)) {
            return Err(Error::argument(
                "epochs",
                self.epochs,
                "one for operation tests, which have --repeat",
            ));
        }
        let pair = self.backends.iter().find(|backend| matches!(backend, BackendName::Pair(_)));
        if let Some(pair) = pair.filter(|_| !matches!(self.work, Subject::Model(_))) {
            let expected = "each of its drivers by itself: only a model has phases";
            return Err(Error::argument("backend", format!("'{pair}'"), expected));
        }
        if self.timeout.is_zero() {
            return Err(Error::argument("timeout", "0 seconds", "more than 0 seconds"));
        }
        self.check_variants()
    }

    /// Checks that every variant, and every variable, is for a backend of the run.
    pub(super) fn check_variants(&self) -> Result<()> {
        let is_ops = matches!(self.work, Subject::Ops(_));
        if is_ops && (self.cure || !self.variants.is_empty()) {
            return Err(Error::argument("variants", "of operation tests", "a model or a graph"));
        }
        let (order, among) = (self.order(), "of the backends of this run");
        let names = || order.iter().map(|b| b.to_string()).collect::<Vec<_>>().join(", ");
        if let Some(row) = self.variants.iter().find(|row| !order.iter().any(|b| row.applies_to(b))) {
            let found = format!("'{}' changes none {among} ({})", row.name, names());
            return Err(Error::argument("variant", found, "settings that one of them reads"));
        }
        if let Some(variable) = self.environment.iter().find(|v| !order.iter().any(|b| v.applies_to(b))) {
            let found = format!("{variable} is for none {among} ({})", names());
            return Err(Error::argument("variable", found, "the name of one of them"));
        }
        Ok(())
    }

    /// Returns the variables of a backend's children; one with an empty value is removed from their environment.
    fn environment_of(&self, backend: &BackendName) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = Vec::new();
        for variable in self.environment.iter().filter(|variable| variable.applies_to(backend)) {
            all.retain(|(name, _)| *name != variable.name);
            all.push((variable.name.clone(), variable.value.clone()));
        }
        all
    }

    /// Returns the options on which measurements depend, by name.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        let per_node = match self.per_node {
            PerNode::Off => "off",
            PerNode::Chained => "chained",
            PerNode::Isolated => "isolated",
        };
        let mut settings = vec![("repeat", self.repeat.to_string()), ("per-node", per_node.into())];
        if matches!(self.work, Subject::Model(_)) {
            settings.push(("invariance", self.invariance.to_string()));
        }
        settings.extend(self.vulkan_arch.as_ref().map(|arch| ("vulkan-arch", arch.clone())));
        settings.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    /// Builds the work of a child on a backend.
    pub(super) fn child_work(&self, backend: &BackendName, task: Task) -> Work {
        Work {
            precision: self.precision,
            repeat: self.repeat,
            invariance: self.invariance,
            same_bits: self.same_bits,
            vulkan_arch: self.vulkan_arch.clone(),
            hip_library: self.hip_library.clone().map(JsonPath::from),
            environment: self.environment_of(backend),
            ..Work::new(backend, self.timeout, task)
        }
    }

    /// Builds the work of a child of a variant.
    pub(super) fn variant_work(&self, row: &VariantRow, backend: &BackendName, task: Task) -> Work {
        let mut work = self.child_work(backend, task);
        work.environment.retain(|(name, _)| row.environment.iter().all(|(own, _)| own != name));
        work.environment.extend(row.environment.iter().cloned());
        if let Some(library) = &row.library {
            work.hip_library = Some(library.clone().into());
        }
        work.vulkan_validation = row.validation;
        work
    }

    /// Returns the backends in the order in which they run: the reference first, without duplicates.
    pub(super) fn order(&self) -> Vec<BackendName> {
        let mut seen = HashSet::new();
        let all = std::iter::once(&self.reference).chain(&self.backends);
        all.filter(|b| seen.insert((*b).clone())).cloned().collect()
    }
}

/// A progress event, for a line of text or a progress bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Backend name.
    pub backend: String,
    /// Description of the action.
    pub what: String,
    /// Finished parts of the work, and all of its parts, if the work has parts.
    pub done: Option<(usize, usize)>,
}

impl Event {
    pub(super) fn new(backend: impl ToString, what: impl ToString) -> Event {
        Event { backend: backend.to_string(), what: what.to_string(), done: None }
    }
}

/// Function called for each event.
pub type Progress<'a> = &'a mut dyn FnMut(&Event);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolate::protocol::OpsTask;
    use std::path::Path;

    /// Only a model has prompts and decode steps for two drivers.
    #[test]
    fn two_drivers_of_a_card_compute_a_model() {
        let options = CompareOptions::default().with_backends(vec!["vulkan+hip".parse().unwrap()]);
        let check = |work| CompareOptions { work, ..options.clone() }.check();
        assert!(check(Subject::Model(None)).is_ok());
        let error = check(Subject::Ops(String::new())).unwrap_err().to_string();
        assert!(error.contains("'vulkan+hip'; expected each of its drivers by itself"), "{error}");
    }

    /// A row's settings replace those of the plain run; the others stay.
    #[test]
    fn a_child_of_a_variant_has_its_settings() {
        let environment: Vec<BackendVariable> = ["HSA_XNACK=0", "HSA_ENABLE_SDMA=1", "vulkan:RADV_DEBUG=x"]
            .map(|text| text.parse().unwrap())
            .into();
        let options = CompareOptions::default().with_environment(environment);
        let work = |row: &str, backend: &str| {
            let task = OpsTask { cases: Vec::new(), results: PathBuf::new().into(), is_reference: false };
            options.variant_work(&row.parse().unwrap(), &backend.parse().unwrap(), Task::Ops(task))
        };
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        let hip = work("HSA_ENABLE_SDMA=0 + library=libamdhip64.so.7", "hip");
        assert_eq!(hip.environment, [pair("HSA_XNACK", "0"), pair("HSA_ENABLE_SDMA", "0")]);
        let library: Option<&Path> = hip.hip_library.as_ref().map(AsRef::as_ref);
        assert_eq!(library, Some(Path::new("libamdhip64.so.7")));
        assert!(!hip.vulkan_validation && work("validation", "vulkan").vulkan_validation);
    }
}
