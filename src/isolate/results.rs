//! Results that a child sends: its status, the logits by another method, a node or case.

use super::json::null_is_infinite;
use ggml_core::metrics::{Bound, Distance};
use serde::{Deserialize, Serialize};

/// Outcome of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The run ended and has results.
    Ok,
    /// The run ended with a typed error.
    #[default]
    Error,
    /// The process died of a signal, or exited before it reported the end of its work.
    Crash,
    /// A phase exceeded its deadline.
    Hang,
    /// The user or another process ended the run: this says nothing about the backend.
    Ended,
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
            Status::Ended => "ended",
            Status::Unsupported => "unsupported",
        })
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

/// Score of a text: the probability of the tokens in the second halves of its chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TextScore {
    /// Number of chunks.
    pub chunks: usize,
    /// Number of scored tokens.
    pub tokens: usize,
    /// Mean negative log-likelihood of a token, in nats; null in JSON, read as infinity, if it is no number.
    #[serde(deserialize_with = "null_is_infinite")]
    pub nll: f64,
    /// Perplexity, the exponential of `nll`; null as for `nll`.
    #[serde(deserialize_with = "null_is_infinite")]
    pub perplexity: f64,
    /// Standard error of the perplexity; null as for `nll`.
    #[serde(deserialize_with = "null_is_infinite")]
    pub error: f64,
}

/// Formats the perplexity with its standard error.
impl std::fmt::Display for TextScore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.4} +- {:.4}", self.perplexity, self.error)
    }
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
    /// The reason or error for a status other than `Ok`. For an error that may be rounding: the reason why that was
    /// not estimated.
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
    /// Largest squared error of an element, relative to the mean square of its own row of the reference or to its
    /// own square, whichever is larger; of a row for types other than F32. Only for nodes that get the
    /// reference's operands; null as for `nmse`.
    #[serde(default, deserialize_with = "null_is_infinite")]
    pub own: f64,
    /// Error as a multiple of the largest that rounding of these operands makes, see
    /// [`Expected::excess`](ggml_core::expected::Expected::excess). It is computed for results that exceed the
    /// bounds of their types, and replaces these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounding: Option<f64>,
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

/// The largest error of a row relative to its own squares that needs no estimate. The bound of an operation may be
/// larger: it also holds for a column of a cache of one row, which is a single value.
const MOST_OF_A_ROW: f64 = 1.0 / 16.0;

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
        self.status == Status::Ok
            && self.rounding.map_or(!self.is_small(), |excess| excess.is_nan() || excess > 1.0)
    }

    /// True if the errors are those that the types of the operands let expect, in every row.
    fn is_small(&self) -> bool {
        self.held_to().holds(&self.distance()) && self.own <= self.own_bound()
    }

    /// Returns the largest error of a row relative to its own squares.
    fn own_bound(&self) -> f64 {
        self.row_bound.min(MOST_OF_A_ROW)
    }

    /// True if the error is larger than the types of the operands let expect, but may be rounding.
    pub(crate) fn is_doubtful(&self) -> bool {
        let may_round = self.bound > 0.0 && self.non_finite == 0;
        self.status == Status::Ok && may_round && self.rounding.is_none() && !self.is_small()
    }

    /// Describes the error that exceeds its bound.
    pub(crate) fn describe_error(&self) -> String {
        let why = self.message.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        self.describe_excess() + &why
    }

    fn describe_excess(&self) -> String {
        match self.rounding {
            Some(excess) if excess > 1e100 => {
                format!("an error where rounding of its operands makes none (NMSE {:.1e})", self.nmse)
            }
            Some(excess) => format!(
                "an error {excess:.1e} times the largest that rounding of its operands makes (NMSE {:.1e})",
                self.nmse
            ),
            None if self.held_to().holds(&self.distance()) => {
                format!("an error of {:.1e} of its own row, the bound {:.0e}", self.own, self.own_bound())
            }
            None => self.held_to().excess(&self.distance()),
        }
    }

    /// Returns the error as a multiple of its bound.
    pub(crate) fn excess(&self) -> f64 {
        // An error of 0 gives 0, even if the bound is 0.
        let times = |error: f64, bound: f64| if error == 0.0 { 0.0 } else { error / bound };
        let of_type = || {
            times(self.nmse, self.bound)
                .max(times(self.row, self.row_bound))
                .max(times(self.own, self.own_bound()))
        };
        self.rounding.unwrap_or_else(of_type)
    }

    fn held_to(&self) -> Bound {
        Bound { nmse: self.bound, row: self.row_bound }
    }

    pub(crate) fn distance(&self) -> Distance {
        Distance { nmse: self.nmse, row: self.row, ..Distance::default() }
    }
}
