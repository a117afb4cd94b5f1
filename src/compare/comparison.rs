//! Distances of results from the reference's: of logits, nodes and cases, and the classification of a
//! difference.

use super::json::null_is_infinite;
use ggml_core::metrics::Bound;
use ggml_core::metrics::{Distance, distance_in_rows, kl_divergence, top1_agreement};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Outcome of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The run ended and has results.
    Ok,
    /// The run ended with a typed error.
    #[default]
    Error,
    /// The process died of a signal, or left before it reported the end of its work.
    Crash,
    /// A phase exceeded its deadline.
    Hang,
    /// The backend cannot run here, or does not support this work.
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

/// Distances of logits from the reference's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogitsReport {
    /// Normalised mean squared error.
    #[serde(deserialize_with = "null_is_infinite")]
    pub nmse: f64,
    /// Error of the worst row (a position) or column (a token of the vocabulary), relative to the scale of
    /// all logits.
    #[serde(default, deserialize_with = "null_is_infinite")]
    pub row: f64,
    /// Largest absolute difference.
    #[serde(deserialize_with = "null_is_infinite")]
    pub max_abs: f64,
    /// Mean Kullback-Leibler divergence in nats.
    #[serde(deserialize_with = "null_is_infinite")]
    pub kl: f64,
    /// Fraction of positions with the same largest logit.
    pub top1_agreement: f64,
    /// NaN and infinities that the reference does not have.
    pub non_finite: usize,
}

impl LogitsReport {
    /// Compares rows of `n` logits with the reference's.
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

/// Describes the effect on sampling.
impl std::fmt::Display for LogitsReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let share = 100.0 * self.top1_agreement;
        write!(f, "the best token is the same at {share:.0}% of the positions, KL divergence {:.1e}", self.kl)
    }
}

/// A second examination of a difference. A difference in `fast` precision is computed again in `exact`, and
/// node by node with the reference's operands. A difference in `exact` is also computed node by node, and the
/// same steps are executed in different ways and have to give the same bits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondLook {
    /// Distances of the prompt's logits in exact precision, if they could be computed.
    pub exact: Option<LogitsReport>,
    /// The difference in exact precision, if there is one too.
    pub exact_disagreement: Option<String>,
    /// The first node out of its bound in `fast`, in words.
    pub node: Option<String>,
    /// The error in exact precision, of a node or of the steps together, in words.
    #[serde(default)]
    pub exact_node: Option<String>,
    /// True if the model amplifies rounding: exact precision differs, although in it every node with the
    /// reference's operands agrees, and the program gives the same bits step by step and in other memory.
    #[serde(default)]
    pub amplified: bool,
    /// True if the whole difference is rounding that the precision allows.
    pub rounding: bool,
    /// The difference that was examined, in words.
    pub difference: String,
}

impl SecondLook {
    /// Describes the result in words.
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

    /// Describes the difference in exact precision; empty if it is the one that was examined.
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

/// The prompt computed by another method on the same backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Name of the method.
    pub name: String,
    /// Normalised mean squared error against the prompt computed in one batch.
    #[serde(deserialize_with = "null_is_infinite")]
    pub nmse: f64,
    /// Error of the worst row.
    #[serde(deserialize_with = "null_is_infinite")]
    pub row: f64,
    /// The largest errors allowed; 0 requires the same bits.
    pub bound: Bound,
    /// True if an error is larger.
    pub changed: bool,
}

/// Result of one node of a graph, or of one case of an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Name of the node or case.
    pub node: String,
    /// Operation.
    pub op: String,
    /// Type of the result.
    #[serde(rename = "type")]
    pub dtype: String,
    /// Type of the first operand (the weights of a product).
    pub operand_type: String,
    /// Extents of the result.
    pub shape: [usize; 4],
    /// `Ok` if there is a result to judge, otherwise the kind of failure.
    pub status: Status,
    /// The reason or error for a status other than `Ok`.
    pub message: Option<String>,
    /// Normalised mean squared error; null in JSON if it is infinite or there is nothing to compare.
    #[serde(deserialize_with = "null_is_infinite")]
    pub nmse: f64,
    /// Error of the worst row relative to the scale of all rows, see
    /// [`Distance::row`](ggml_core::metrics::Distance::row); null as for `nmse`.
    #[serde(default, deserialize_with = "null_is_infinite")]
    pub row: f64,
    /// Largest absolute difference; null as for `nmse`.
    #[serde(deserialize_with = "null_is_infinite")]
    pub max_abs: f64,
    /// Largest difference in units in the last place.
    pub ulp: u64,
    /// NaN and infinities that the reference does not have.
    pub non_finite: usize,
    /// The largest NMSE allowed for this node.
    pub bound: f64,
    /// The largest error allowed for its worst row.
    #[serde(default)]
    pub row_bound: f64,
    /// Seconds of preparation and execution, for operation tests.
    pub elapsed_s: f64,
    /// Number of values whose bits changed between repetitions.
    pub unstable: usize,
    /// True if the node belongs to the graph of a decode step, which uses other kernels than the prompt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub step: bool,
    /// Names of the nodes that were computed together as a group. The operation is then the kind of group,
    /// and the bound is the sum of the nodes' bounds.
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

    /// Marks the node as failed: it has no result to judge.
    pub(crate) fn fail(&mut self, why: impl ToString) {
        (self.status, self.message) = (Status::Error, Some(why.to_string()));
    }

    /// True if there is a result and it is out of bounds.
    pub fn is_out_of_bounds(&self) -> bool {
        self.status == Status::Ok && !self.held_to().holds(&self.distance())
    }

    /// Describes the error that exceeds its bound.
    pub(crate) fn describe_error(&self) -> String {
        self.held_to().excess(&self.distance())
    }

    /// Returns the error as a multiple of its bound.
    pub(crate) fn excess(&self) -> f64 {
        // An error of 0 gives 0, even if the bound is 0.
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

/// The first node out of bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// Name of the node.
    pub node: String,
    /// Its operation.
    pub op: String,
    /// Its normalised mean squared error.
    #[serde(deserialize_with = "null_is_infinite")]
    pub nmse: f64,
    /// Names of the nodes that were computed together with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// True if it belongs to the graph of a decode step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub step: bool,
    /// Graph file with this node and its operands only, reduced as long as it still fails.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// Command that runs the file.
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

/// Comparison of a backend with the reference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// ID of the run that it belongs to, see [`Run`](super::report::Run).
    #[serde(default)]
    pub run_id: String,
    /// Index of the repetition.
    #[serde(default)]
    pub epoch: usize,
    /// Name of the backend.
    pub lhs: String,
    /// Name of the reference.
    pub rhs: String,
    /// Number of the model's units on the device.
    pub offload: i64,
    /// Distances of the prompt's logits, if the work is a model.
    pub logits: Option<LogitsReport>,
    /// Distances of the logits of the decode steps, each of which continues with the reference's token.
    #[serde(default)]
    pub steps: Option<LogitsReport>,
    /// The largest NMSE of the logits that counts as agreement.
    pub bound: Option<f64>,
    /// The first node out of bounds, if node results were requested.
    pub first_divergence: Option<Divergence>,
    /// Results of every node, if requested; of every case, if the work is operation tests.
    pub nodes: Vec<NodeReport>,
    /// Index of the first generated token that differs.
    pub greedy_divergence_at: Option<usize>,
    /// Second examination of a model's difference.
    #[serde(default)]
    pub second_look: Option<SecondLook>,
    /// The difference in words; `None` if they agree.
    pub disagreement: Option<String>,
}
