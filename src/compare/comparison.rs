//! How far results are from the reference's: of logits, of nodes and cases, and what a difference is.

use super::json::null_is_infinite;
use ggml_core::metrics::Bound;
use ggml_core::metrics::{Distance, distance_in_rows, kl_divergence, top1_agreement};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

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

/// Distances of logits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogitsReport {
    /// Normalised mean squared error.
    #[serde(deserialize_with = "null_is_infinite")]
    pub nmse: f64,
    /// Error of the worst row (a position) or column (a token of the vocabulary) against the scale of the whole.
    #[serde(default, deserialize_with = "null_is_infinite")]
    pub row: f64,
    /// Largest difference.
    #[serde(deserialize_with = "null_is_infinite")]
    pub max_abs: f64,
    /// Mean Kullback-Leibler divergence in nats.
    #[serde(deserialize_with = "null_is_infinite")]
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

/// A difference looked at again: one in `fast` precision in `exact`, and node by node with the reference's operands; one in
/// `exact` too node by node, and for whether the same steps give the same bits however they are run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondLook {
    /// Logits of the prompt in exact precision, if they could be computed.
    pub exact: Option<LogitsReport>,
    /// What differs in exact precision too.
    pub exact_disagreement: Option<String>,
    /// The first node in `fast` that is out of its bound, in words.
    pub node: Option<String>,
    /// What is wrong in exact precision node by node, or of the steps together, in words.
    #[serde(default)]
    pub exact_node: Option<String>,
    /// Whether exact precision differs although in it every node agrees that gets the reference's operands, and the program
    /// gives the same bits step by step and in other memory: the model makes much of rounding.
    #[serde(default)]
    pub amplified: bool,
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
            (Some(why), None) if self.amplified => format!("{}{}", self.rests_on(why), self.amplification()),
            (Some(why), None) => match &self.exact_node {
                Some(node) => format!("not rounding: in exact precision {node}"),
                None => format!("not rounding: in exact precision {why}"),
            },
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

    /// The difference in exact precision, unless that is the one that was looked at.
    fn rests_on(&self, exact: &str) -> String {
        match exact == self.difference {
            true => String::new(),
            false => format!("in exact precision {exact}, but "),
        }
    }

    fn amplification(&self) -> String {
        let found = "in exact precision every node agrees that gets the reference's operands, and the same steps give the same \
             bits one by one and in other memory";
        match self.rounding {
            true => format!("{found}: this is rounding, of which the model makes much"),
            false => format!("{found}, yet nothing is left of the reference's logits: too much for rounding"),
        }
    }
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
        // Nothing is no times the bound, where that is nothing, too.
        let times = |error: f64, bound: f64| if error == 0.0 { 0.0 } else { error / bound };
        times(self.nmse, self.bound).max(times(self.row, self.row_bound))
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
    /// The run that it belongs to, see [`Run`](super::report::Run).
    #[serde(default)]
    pub run_id: String,
    /// Number of the repetition.
    #[serde(default)]
    pub epoch: usize,
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
