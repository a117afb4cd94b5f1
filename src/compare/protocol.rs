//! What parent and child say to each other: the parent gives a [`Work`] file, the child answers with [`Message`]s, which
//! the [recorder](super::recorder) keeps. What the child or a driver prints goes to a log file.

use super::files;
use super::json::{JsonPath, null_is_nan};
use super::options::{CompareOptions, PerNode};
use super::report::{EVERYTHING, NodeReport, OpTime, Status, Variant};
use crate::backends::{BackendName, View};
use ggml_core::DType;
use ggml_core::backend::{DeviceInfo, Stats};
use ggml_core::precision::Precision;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// First argument of a child; the second is its work file.
pub(super) const CHILD: &str = "--compare-child";

/// What a child has to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Work {
    /// Backend name.
    pub(super) backend: String,
    /// Number of the repetition.
    #[serde(default)]
    pub(super) epoch: usize,
    /// Rounding.
    pub(super) precision: Precision,
    /// Deadline of each phase.
    pub(super) timeout: Duration,
    /// How often to run it; results must be the same bits every time.
    pub(super) repeat: usize,
    /// Whether to compute the prompt in other ways too.
    #[serde(default)]
    pub(super) invariance: bool,
    /// Whether to compute it in those that must give the same bits.
    #[serde(default)]
    pub(super) same_bits: bool,
    /// Only find the node at which the graph fails: announce and run each node alone.
    pub(super) stepwise: bool,
    /// Vulkan: architecture class to tune for.
    pub(super) vulkan_arch: Option<String>,
    /// HIP: runtime library.
    pub(super) hip_library: Option<JsonPath>,
    /// The task.
    pub(super) task: Task,
}

impl Work {
    /// What a comparison asks of a backend.
    pub(super) fn new(options: &CompareOptions, backend: &BackendName, task: Task) -> Work {
        Work {
            backend: backend.to_string(),
            epoch: 0,
            precision: options.precision,
            timeout: options.timeout,
            repeat: options.repeat,
            invariance: options.invariance,
            same_bits: options.same_bits,
            stepwise: false,
            vulkan_arch: options.vulkan_arch.clone(),
            hip_library: options.hip_library.clone().map(JsonPath::from),
            task,
        }
    }

    /// How much of the work's model lies on the device.
    pub(super) fn offload(&self) -> i64 {
        match &self.task {
            Task::Model(task) => task.offload,
            Task::Graph(_) | Task::Ops(_) | Task::Trial(_) | Task::List => EVERYTHING,
        }
    }
}

/// The kinds of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Task {
    /// A model: a prompt and its continuation.
    Model(ModelTask),
    /// A graph file.
    Graph(GraphTask),
    /// Cases of the operation catalogue.
    Ops(OpsTask),
    /// A little of everything, to see whether the backend works.
    Trial(TrialTask),
    /// No work: the devices that the backend's driver lists.
    List,
}

/// A backend on trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TrialTask {
    /// How long to measure.
    pub(super) measure: Option<Duration>,
}

/// A prompt and its greedy continuation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ModelTask {
    /// Model file.
    pub(super) model: JsonPath,
    /// Prompt.
    pub(super) tokens: Vec<u32>,
    /// Tokens to generate.
    pub(super) predict: usize,
    /// What each step goes on with, so that one that differs does not change those after it; none: what it computed.
    #[serde(default)]
    pub(super) given: Vec<u32>,
    /// Type of the cache: the same on all backends, so that nothing else than what they compute differs.
    pub(super) cache: DType,
    /// How much lies on the device, see [`Record::offload`](super::report::Record::offload).
    pub(super) offload: i64,
    /// Where to write the logits: those of the prompt's tokens, then those of each step.
    pub(super) logits: JsonPath,
    /// Node by node.
    pub(super) nodes: NodesTask,
}

/// A graph file with the contents of its leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct GraphTask {
    /// The file.
    pub(super) graph: JsonPath,
    /// Node by node; without it only the outputs are written.
    pub(super) nodes: NodesTask,
}

/// Results of nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct NodesTask {
    /// Whether and how.
    pub(super) mode: PerNode,
    /// Where to write node results.
    pub(super) out: JsonPath,
    /// Node results of the reference, for [`PerNode::Isolated`].
    pub(super) reference: Option<JsonPath>,
    /// Whether nodes are computed one by one although they ship in groups: there has to be a result of each of the
    /// reference's.
    #[serde(default)]
    pub(super) alone: bool,
}

impl NodesTask {
    /// The same for the graph of a step, in files beside those of the prompt's.
    pub(super) fn of_step(&self) -> NodesTask {
        let beside = |path: &JsonPath| JsonPath::from(files::of_step(path.as_ref()));
        NodesTask { out: beside(&self.out), reference: self.reference.as_ref().map(beside), ..self.clone() }
    }
}

/// Cases of the operation catalogue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct OpsTask {
    /// Their names, in the order in which they run.
    pub(super) cases: Vec<String>,
    /// The reference's results: the reference adds to this file, the others read it.
    pub(super) results: JsonPath,
    /// Whether this is the reference.
    pub(super) is_reference: bool,
}

/// An event of a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Message {
    /// It lives.
    Began {
        /// Process id.
        pid: u32,
    },
    /// A phase begins.
    Enter {
        /// Its name.
        phase: String,
    },
    /// A phase ends.
    Exit {
        /// Its name.
        phase: String,
    },
    /// A call into a driver is about to be made. The same call several times in a row is said once.
    Call {
        /// Name of the function.
        name: String,
        /// What it is given, where that says more.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        on: String,
    },
    /// Something is known of a driver or device that is not open yet.
    Learnt {
        /// What.
        what: String,
        /// What it is.
        value: String,
    },
    /// A part of a model's work is about to be computed.
    Step {
        /// "prompt", "decode step 3".
        what: String,
    },
    /// What is held now.
    Memory {
        /// Bytes of the process, where the system says.
        resident: Option<u64>,
        /// Bytes that were allocated of the device.
        device: u64,
    },
    /// A node is about to run alone.
    Node {
        /// Its name.
        name: String,
    },
    /// The device is open.
    Device {
        /// What it is.
        device: DeviceInfo,
    },
    /// The devices that a driver lists.
    Listed {
        /// Its views of them.
        views: Vec<View>,
    },
    /// A case of the operation catalogue is about to run.
    Case {
        /// Its name.
        name: String,
    },
    /// It ran, or the backend has no kernel for it.
    CaseDone(NodeReport),
    /// A backend warns of something, or has advice for an error.
    Warning {
        /// What, in words.
        what: String,
    },
    /// Part of the work is done.
    Progress {
        /// What, in words.
        what: String,
    },
    /// The work is over and the device given back: what comes now are exit handlers.
    Leaving,
    /// All is done. A child that says neither this nor one of the next two has not ended by itself.
    Done(Done),
    /// It ended with an error.
    Failed(Failed),
    /// The backend cannot be opened because of a wrong option or value in the environment.
    WrongUse {
        /// Which, in words.
        what: String,
    },
}

/// Results of a child.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Done {
    /// Seconds from opening the file to having all weights on the device.
    pub(super) load_s: f64,
    /// Seconds of the prompt, preparation included.
    pub(super) prompt_s: f64,
    /// Seconds of generation, preparation of its program not included.
    pub(super) eval_s: f64,
    /// Generated token ids.
    pub(super) token_ids: Vec<u32>,
    /// Distance between the two largest logits at each generated token.
    #[serde(deserialize_with = "null_is_nan")]
    pub(super) margins: Vec<f32>,
    /// Values that were not the same bits in every repetition.
    pub(super) unstable: usize,
    /// The prompt in other ways.
    #[serde(default)]
    pub(super) variants: Vec<Variant>,
    /// A decode step by operation.
    #[serde(default)]
    pub(super) times: Vec<OpTime>,
    /// Counters.
    pub(super) stats: Stats,
}

/// How a child failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Failed {
    /// What the run's status is then.
    pub(super) status: Status,
    /// Phase, where the error has one.
    pub(super) phase: Option<String>,
    /// Node, where the error has one.
    pub(super) node: Option<String>,
    /// The error's text.
    pub(super) message: String,
}
