//! Protocol between parent and child: the parent writes a [`Work`] file, the child answers with [`Message`]s,
//! which the [recorder](super::recorder) stores. Output of the child or a driver goes to a log file.

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

/// First argument of a child process; followed by the paths of its work file and its event file.
pub(super) const CHILD: &str = "--compare-child";

/// Work of a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Work {
    /// Backend name.
    pub(super) backend: String,
    /// Index of the repetition.
    #[serde(default)]
    pub(super) epoch: usize,
    /// Precision of the work.
    pub(super) precision: Precision,
    /// Deadline of each phase.
    pub(super) timeout: Duration,
    /// Number of times to do the work; results must have the same bits every time.
    pub(super) repeat: usize,
    /// True to compute the prompt by other methods too.
    #[serde(default)]
    pub(super) invariance: bool,
    /// True to compute it by the methods that must give the same bits.
    #[serde(default)]
    pub(super) same_bits: bool,
    /// True to only find the node at which the graph fails: announce and run each node separately.
    pub(super) stepwise: bool,
    /// Vulkan: architecture class to tune for.
    pub(super) vulkan_arch: Option<String>,
    /// HIP: runtime library to load.
    pub(super) hip_library: Option<JsonPath>,
    /// The task.
    pub(super) task: Task,
}

impl Work {
    /// Builds the work of a backend from a comparison's options.
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

    /// Returns the number of the model's units on the device.
    pub(super) fn offload(&self) -> i64 {
        match &self.task {
            Task::Model(task) => task.offload,
            Task::Graph(_) | Task::Ops(_) | Task::Trial(_) | Task::List => EVERYTHING,
        }
    }
}

/// Kinds of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Task {
    /// A model: a prompt and its continuation.
    Model(ModelTask),
    /// A graph file.
    Graph(GraphTask),
    /// Cases of the operation catalogue.
    Ops(OpsTask),
    /// A small graph, to check that the backend works.
    Trial(TrialTask),
    /// No computation: lists the devices of the backend's driver.
    List,
}

/// Trial of a backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TrialTask {
    /// Time budget of the measurement; `None` measures nothing.
    pub(super) measure: Option<Duration>,
}

/// A prompt and its greedy continuation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ModelTask {
    /// Path of the model file.
    pub(super) model: JsonPath,
    /// Token ids of the prompt.
    pub(super) tokens: Vec<u32>,
    /// Number of tokens to generate.
    pub(super) predict: usize,
    /// Token that each decode step continues with, so that a different token does not change later steps; if
    /// empty, the computed tokens.
    #[serde(default)]
    pub(super) given: Vec<u32>,
    /// Type of the cache, the same on all backends, so that only their computations differ.
    pub(super) cache: DType,
    /// Number of units on the device, see [`Record::offload`](super::report::Record::offload).
    pub(super) offload: i64,
    /// Path for the logits: rows of the prompt's tokens, then of each decode step.
    pub(super) logits: JsonPath,
    /// Results of nodes.
    pub(super) nodes: NodesTask,
}

/// A graph file with the contents of its leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct GraphTask {
    /// Path of the graph file.
    pub(super) graph: JsonPath,
    /// Results of nodes; if off, only the outputs are written.
    pub(super) nodes: NodesTask,
}

/// Request for results of nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct NodesTask {
    /// Mode of comparing nodes.
    pub(super) mode: PerNode,
    /// Path for the node results.
    pub(super) out: JsonPath,
    /// Path of the reference's node results, for [`PerNode::Isolated`].
    pub(super) reference: Option<JsonPath>,
    /// True if nodes are computed one by one although they ship in groups. The reference needs this, because
    /// it has to have a result of every node.
    #[serde(default)]
    pub(super) alone: bool,
}

impl NodesTask {
    /// Returns the same request for the graph of a decode step, with files next to the prompt's.
    pub(super) fn of_step(&self) -> NodesTask {
        let beside = |path: &JsonPath| JsonPath::from(files::of_step(path.as_ref()));
        NodesTask { out: beside(&self.out), reference: self.reference.as_ref().map(beside), ..self.clone() }
    }
}

/// Cases of the operation catalogue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct OpsTask {
    /// Names of the cases, in the order in which they run.
    pub(super) cases: Vec<String>,
    /// File of the reference's results: the reference appends to it, the others read it.
    pub(super) results: JsonPath,
    /// True if this backend is the reference.
    pub(super) is_reference: bool,
}

/// An event that a child records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Message {
    /// The child has started.
    Began {
        /// Process id.
        pid: u32,
    },
    /// A phase starts.
    Enter {
        /// Name of the phase.
        phase: String,
    },
    /// A phase ends.
    Exit {
        /// Name of the phase.
        phase: String,
    },
    /// A call into a driver is about to be made. Repetitions of the same call in a row are recorded once.
    Call {
        /// Name of the function.
        name: String,
        /// Argument of the call, if it adds information.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        on: String,
    },
    /// A fact about a driver or device that is not open yet.
    Learnt {
        /// Name of the fact.
        what: String,
        /// Value of the fact.
        value: String,
    },
    /// A part of a model's work is about to start.
    Step {
        /// Name of the part: "prompt", "decode step 3".
        what: String,
    },
    /// Current memory use.
    Memory {
        /// Resident bytes of the process, if the system reports them.
        resident: Option<u64>,
        /// Bytes allocated on the device.
        device: u64,
    },
    /// A node is about to run by itself.
    Node {
        /// Name of the node.
        name: String,
    },
    /// The device is open.
    Device {
        /// Description of the device.
        device: DeviceInfo,
    },
    /// The devices that a driver lists.
    Listed {
        /// The driver's views of its devices.
        views: Vec<View>,
    },
    /// A case of the operation catalogue is about to run.
    Case {
        /// Name of the case.
        name: String,
    },
    /// A case has run, or the backend does not support it.
    CaseDone(NodeReport),
    /// A warning of a backend, or its advice for an error.
    Warning {
        /// Text of the warning.
        what: String,
    },
    /// A part of the work is done.
    Progress {
        /// Description of the part.
        what: String,
    },
    /// The work is over and the device is closed; exit handlers follow.
    Leaving,
    /// The work has succeeded. A child without this event or one of the next two did not end by itself.
    Done(Done),
    /// The work has ended with an error.
    Failed(Failed),
    /// The backend cannot be opened because of a wrong option or value in the environment.
    WrongUse {
        /// Description of the wrong option or variable.
        what: String,
    },
}

/// Results of a child.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Done {
    /// Seconds from opening the file until all weights are on the device.
    pub(super) load_s: f64,
    /// Seconds of the prompt, including preparation.
    pub(super) prompt_s: f64,
    /// Seconds of generation, without the preparation of its program.
    pub(super) eval_s: f64,
    /// Generated token ids.
    pub(super) token_ids: Vec<u32>,
    /// Difference between the two largest logits at each generated token.
    #[serde(deserialize_with = "null_is_nan")]
    pub(super) margins: Vec<f32>,
    /// Number of values whose bits changed between repetitions.
    pub(super) unstable: usize,
    /// Results of the prompt by other methods.
    #[serde(default)]
    pub(super) variants: Vec<Variant>,
    /// Seconds of a decode step by operation.
    #[serde(default)]
    pub(super) times: Vec<OpTime>,
    /// Counters of the backend.
    pub(super) stats: Stats,
}

/// Failure of a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Failed {
    /// Status of the run.
    pub(super) status: Status,
    /// Phase of the error, if it has one.
    pub(super) phase: Option<String>,
    /// Node of the error, if it has one.
    pub(super) node: Option<String>,
    /// Text of the error.
    pub(super) message: String,
}
