//! What parent and child say to each other: the parent gives a [`Work`] file, the child answers with one JSON
//! [`Message`] a line on its standard output. What the child or a driver prints on standard error goes to a log file.

use super::report::{EVERYTHING, NodeReport};
use ggml_core::backend::{DeviceInfo, Stats};
use ggml_core::plan::Precision;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Whether and how to compare node by node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PerNode {
    /// Not.
    #[default]
    Off,
    /// Each node gets what the backend computed before: errors add up along the graph.
    Chained,
    /// Each node gets the reference's operands: an error belongs to the node that makes it.
    Isolated,
}

impl std::str::FromStr for PerNode {
    type Err = String;

    fn from_str(text: &str) -> Result<PerNode, String> {
        match text {
            "off" => Ok(PerNode::Off),
            "chained" => Ok(PerNode::Chained),
            "isolated" => Ok(PerNode::Isolated),
            _ => Err(format!("'{text}' is none of off, chained, isolated")),
        }
    }
}

/// What a child has to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Backend name.
    pub backend: String,
    /// Rounding.
    pub precision: Precision,
    /// Deadline of each phase.
    pub timeout: Duration,
    /// How often to run it; results must be the same bits every time.
    pub repeat: usize,
    /// Only find the node at which the graph fails: announce and run each node alone.
    pub stepwise: bool,
    /// Vulkan: architecture class to tune for.
    pub vulkan_arch: Option<String>,
    /// HIP: runtime library.
    pub hip_library: Option<PathBuf>,
    /// The task.
    pub task: Task,
}

impl Work {
    /// How much of the work's model lies on the device.
    pub(super) fn offload(&self) -> i64 {
        match &self.task {
            Task::Model(task) => task.offload,
            Task::Graph(_) | Task::Ops(_) => EVERYTHING,
        }
    }
}

/// The kinds of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Task {
    /// A model: a prompt and its continuation.
    Model(ModelTask),
    /// A graph file.
    Graph(GraphTask),
    /// Cases of the operation catalogue.
    Ops(OpsTask),
}

/// A prompt and its greedy continuation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelTask {
    /// Model file.
    pub model: PathBuf,
    /// Prompt.
    pub tokens: Vec<u32>,
    /// Tokens to generate.
    pub predict: usize,
    /// How much lies on the device, see [`Record::offload`](super::report::Record::offload).
    pub offload: i64,
    /// Where to write the prompt's logits.
    pub logits: PathBuf,
    /// Node by node.
    pub nodes: NodesTask,
}

/// A graph file with the contents of its leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphTask {
    /// The file.
    pub graph: PathBuf,
    /// Node by node; without it only the outputs are written.
    pub nodes: NodesTask,
}

/// Results of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodesTask {
    /// Whether and how.
    pub mode: PerNode,
    /// Where to write node results.
    pub out: PathBuf,
    /// Node results of the reference, for [`PerNode::Isolated`].
    pub reference: Option<PathBuf>,
}

/// Cases of the operation catalogue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpsTask {
    /// Their names, in the order in which they run.
    pub cases: Vec<String>,
    /// The reference's results: the reference adds to this file, the others read it.
    pub results: PathBuf,
    /// Whether this is the reference.
    pub is_reference: bool,
}

/// A line from a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Message {
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
    /// All is done.
    Done(Done),
    /// It ended with an error.
    Failed(Failed),
}

/// Results of a child.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Seconds from opening the file to having all weights on the device.
    pub load_s: f64,
    /// Seconds of the prompt, preparation included.
    pub prompt_s: f64,
    /// Seconds of generation, preparation of its program not included.
    pub eval_s: f64,
    /// Generated token ids.
    pub token_ids: Vec<u32>,
    /// Distance between the two largest logits at each generated token.
    pub margins: Vec<f32>,
    /// Values that were not the same bits in every repetition.
    pub unstable: usize,
    /// Counters.
    pub stats: Stats,
}

/// How a child failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// `error`, `hang` or `unsupported`.
    pub status: String,
    /// Phase, where the error has one.
    pub phase: Option<String>,
    /// Node, where the error has one.
    pub node: Option<String>,
    /// The error's text.
    pub message: String,
}
