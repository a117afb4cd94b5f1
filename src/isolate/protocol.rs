//! Protocol between parent and child: the parent writes a [`Work`] file, the child answers with [`Message`]s,
//! which the [recorder](super::recorder) stores. Output of the child or a driver goes to a log file.

use super::files;
use super::json::{JsonPath, null_is_nan};
use super::record::{EVERYTHING, OpTime};
use super::results::{NodeReport, Status, TextScore, Variant};
use crate::backend_name::BackendName;
use crate::view::View;
use ggml_core::backend::{DeviceInfo, Stats};
use ggml_core::precision::Precision;
use ggml_core::routes::Verdict;
use ggml_core::{DType, Error, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// First argument of a child process; followed by the paths of its work file and its event file, and by a number
/// that the parent repeats as the first line of the child's standard input. So no argument alone makes a program
/// a child.
pub(crate) const CHILD: &str = "--compare-child";

/// Work of a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Work {
    /// Backend name.
    pub(crate) backend: String,
    /// Index of the repetition.
    #[serde(default)]
    pub(crate) epoch: usize,
    /// Precision of the work.
    pub(crate) precision: Precision,
    /// Deadline of each phase.
    pub(crate) timeout: Duration,
    /// Number of times to do the work; results must have the same bits every time.
    pub(crate) repeat: usize,
    /// True to compute the prompt by other methods too.
    #[serde(default)]
    pub(crate) invariance: bool,
    /// True to compute it by the methods that must give the same bits.
    #[serde(default)]
    pub(crate) same_bits: bool,
    /// True to only find the node at which the graph fails: announce and run each node separately.
    pub(crate) stepwise: bool,
    /// Vulkan: architecture class to tune for.
    pub(crate) vulkan_arch: Option<String>,
    /// HIP: runtime library to load.
    pub(crate) hip_library: Option<JsonPath>,
    /// Vulkan: true to run under the validation layers.
    #[serde(default)]
    pub(crate) vulkan_validation: bool,
    /// Variables of the child's environment, in addition to its parent's; one with an empty value is removed.
    #[serde(default)]
    pub(crate) environment: Vec<(String, String)>,
    /// The task.
    pub(crate) task: Task,
}

impl Work {
    /// Builds the work of a backend, with default options.
    pub(crate) fn new(backend: &BackendName, timeout: Duration, task: Task) -> Work {
        Work {
            backend: backend.to_string(),
            epoch: 0,
            precision: Precision::default(),
            timeout,
            repeat: 1,
            invariance: false,
            same_bits: false,
            stepwise: false,
            vulkan_arch: None,
            hip_library: None,
            vulkan_validation: false,
            environment: Vec::new(),
            task,
        }
    }

    /// Returns the number of the model's units on the device.
    pub(crate) fn offload(&self) -> i64 {
        match &self.task {
            Task::Model(task) => task.offload,
            Task::Graph(_) | Task::Ops(_) | Task::Trial(_) | Task::Routes(_) | Task::List => EVERYTHING,
        }
    }
}

/// Kinds of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Task {
    /// A model: a prompt and its continuation.
    Model(ModelTask),
    /// A graph file.
    Graph(GraphTask),
    /// Cases of the operation catalogue.
    Ops(OpsTask),
    /// A small graph, to check that the backend works.
    Trial(TrialTask),
    /// Checks of a device's routes.
    Routes(RoutesTask),
    /// No computation: lists the devices of the backend's driver.
    List,
}

/// Checks of a device's routes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RoutesTask {
    /// Folder of the verdicts.
    pub(crate) folder: JsonPath,
    /// Time for all checks.
    pub(crate) limit: Duration,
    /// True to check whatever a route computes, not only the essential types.
    pub(crate) full: bool,
    /// True to check routes again that have a verdict.
    pub(crate) again: bool,
    /// Names of the routes to check; empty for all.
    pub(crate) only: Vec<String>,
    /// Names of routes that are left alone, because an earlier child has checked them.
    pub(crate) done: Vec<String>,
    /// Products of the model at hand.
    pub(crate) products: Vec<ProductShape>,
    /// True to measure candidates of the tuning table, too.
    pub(crate) tune: bool,
    /// True to prepare the checks of later routes while those of a route run.
    pub(crate) ahead: bool,
}

/// Shape of a product: weights `[k, rows]` of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProductShape {
    /// Type of the weights.
    pub dtype: DType,
    /// Length of a row of the weights.
    pub k: usize,
    /// Number of rows.
    pub rows: usize,
}

/// Trial of a backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TrialTask {
    /// Time budget of the measurement; `None` measures nothing.
    pub(crate) measure: Option<Duration>,
}

/// A prompt and its greedy continuation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelTask {
    /// Path of the model file.
    pub(crate) model: JsonPath,
    /// Token ids of the prompt.
    pub(crate) tokens: Vec<u32>,
    /// Number of tokens to generate.
    pub(crate) predict: usize,
    /// Token that each decode step continues with, so that a different token does not change later steps; if
    /// empty, the computed tokens.
    #[serde(default)]
    pub(crate) given: Vec<u32>,
    /// Type of the cache, the same on all backends, so that only their computations differ.
    pub(crate) cache: DType,
    /// Number of units on the device, see [`Record::offload`](super::record::Record::offload).
    pub(crate) offload: i64,
    /// Path for the logits: rows of the prompt's tokens, then of each decode step.
    pub(crate) logits: JsonPath,
    /// Results of nodes.
    pub(crate) nodes: NodesTask,
    /// Text to score, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<TextTask>,
}

/// A text to score: chunks of equal length. The first one is the prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TextTask {
    /// Token ids of each chunk.
    pub(crate) chunks: Vec<Vec<u32>>,
    /// Paths for the logits of the scored tokens of each chunk.
    #[serde(default)]
    pub(crate) logits: Vec<JsonPath>,
}

/// A graph file with the contents of its leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GraphTask {
    /// Path of the graph file.
    pub(crate) graph: JsonPath,
    /// Results of nodes; if off, only the outputs are written.
    pub(crate) nodes: NodesTask,
}

/// Mode of comparing node by node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PerNode {
    /// No comparison of nodes.
    #[default]
    Off,
    /// Each node gets operands that the backend computed: errors accumulate along the graph.
    Chained,
    /// Each node gets the reference's operands: an error belongs to the node that causes it.
    Isolated,
}

impl std::str::FromStr for PerNode {
    type Err = Error;

    fn from_str(text: &str) -> Result<PerNode> {
        match text {
            "off" => Ok(PerNode::Off),
            "chained" => Ok(PerNode::Chained),
            "isolated" => Ok(PerNode::Isolated),
            _ => Err(Error::argument("per node", format!("'{text}'"), "one of off, chained, isolated")),
        }
    }
}

/// Request for results of nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodesTask {
    /// Mode of comparing nodes.
    pub(crate) mode: PerNode,
    /// Path for the node results.
    pub(crate) out: JsonPath,
    /// Path of the reference's node results, for [`PerNode::Isolated`].
    pub(crate) reference: Option<JsonPath>,
    /// True if nodes are computed one by one although they ship in groups. The reference needs this, because
    /// it has to have a result of every node.
    #[serde(default)]
    pub(crate) alone: bool,
    /// Results whose errors are estimated, in place of all other work. The backend is `reference`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) doubtful: Vec<Doubtful>,
}

/// A result that differs by more than the types of its operands let expect.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Doubtful {
    /// True for a node of a decode step's graph.
    pub(crate) step: bool,
    /// Name of the node.
    pub(crate) name: String,
    /// Names of the nodes of its group in their order; empty if it was computed by itself.
    pub(crate) members: Vec<String>,
    /// True if it follows from the graph's leaves, not from the reference's operands of its nodes.
    pub(crate) whole: bool,
}

impl NodesTask {
    /// Returns the same request for the graph of a decode step, with files next to the prompt's.
    pub(crate) fn of_step(&self) -> NodesTask {
        let next_to = |path: &JsonPath| JsonPath::from(files::of_step(path.as_ref()));
        NodesTask { out: next_to(&self.out), reference: self.reference.as_ref().map(next_to), ..self.clone() }
    }
}

/// Cases of the operation catalogue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpsTask {
    /// Names of the cases, in the order in which they run.
    pub(crate) cases: Vec<String>,
    /// File of the reference's results: the reference appends to it, the others read it.
    pub(crate) results: JsonPath,
    /// True if this backend is the reference.
    pub(crate) is_reference: bool,
}

/// An event that a child records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Message {
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
        /// Name of the part: "prompt", "decode step 3", "chunk 2".
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
    /// The checks of a route are about to begin.
    Route {
        /// Name of the route.
        name: String,
        /// True if no checks of another route are being prepared meanwhile.
        is_alone: bool,
    },
    /// The verdict on a route.
    RouteDone {
        /// The verdict.
        verdict: Verdict,
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
pub(crate) struct Done {
    /// Seconds from opening the file until all weights are on the device.
    pub(crate) load_s: f64,
    /// Seconds of the prompt, including preparation.
    pub(crate) prompt_s: f64,
    /// Seconds of generation, without the preparation of its program.
    pub(crate) eval_s: f64,
    /// Generated token ids.
    pub(crate) token_ids: Vec<u32>,
    /// Difference between the two largest logits at each generated token.
    #[serde(deserialize_with = "null_is_nan")]
    pub(crate) margins: Vec<f32>,
    /// Number of values whose bits changed between repetitions.
    pub(crate) unstable: usize,
    /// Results of the prompt by other methods.
    #[serde(default)]
    pub(crate) variants: Vec<Variant>,
    /// Seconds of a decode step by operation.
    #[serde(default)]
    pub(crate) times: Vec<OpTime>,
    /// Score of the text.
    #[serde(default)]
    pub(crate) score: Option<TextScore>,
    /// The predictor's draft after each generated token but the last, if the file has a predictor.
    #[serde(default)]
    pub(crate) drafts: Vec<u32>,
    /// The node with which invalid values begin, if there are some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) invalid_from: Option<String>,
    /// Counters of the backend.
    pub(crate) stats: Stats,
}

/// Failure of a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failed {
    /// Status of the run.
    pub(crate) status: Status,
    /// Phase of the error, if it has one.
    pub(crate) phase: Option<String>,
    /// Node of the error, if it has one.
    pub(crate) node: Option<String>,
    /// Text of the error.
    pub(crate) message: String,
}
