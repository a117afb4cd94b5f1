//! What parent and child say to each other: the parent gives a [`Work`] file, the child answers with one JSON
//! [`Message`] a line on its standard output. What the child or a driver prints on standard error goes to a log file.

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
    /// Model file.
    pub model: PathBuf,
    /// Prompt.
    pub tokens: Vec<u32>,
    /// Tokens to generate.
    pub predict: usize,
    /// Node by node.
    pub per_node: PerNode,
    /// Rounding.
    pub precision: Precision,
    /// Deadline of each phase.
    pub timeout: Duration,
    /// Only find the node at which the prompt's graph fails: announce and run each node alone.
    pub stepwise: bool,
    /// Vulkan: architecture class to tune for.
    pub vulkan_arch: Option<String>,
    /// HIP: runtime library.
    pub hip_library: Option<PathBuf>,
    /// Where to write the prompt's logits.
    pub logits: PathBuf,
    /// Where to write node results.
    pub nodes: PathBuf,
    /// Node results of the reference, for [`PerNode::Isolated`].
    pub reference_nodes: Option<PathBuf>,
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
