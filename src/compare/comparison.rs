//! Comparison of a backend with the reference: distances of its logits, its first node out of bounds, and the
//! classification of a difference.

use crate::isolate::json::null_is_infinite;
use crate::isolate::results::{NodeReport, TextScore};
use ggml_core::metrics::{Distance, distance_in_rows, kl_divergence, kl_divergences, top1_agreement};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The largest mean KL divergence from the reference, in nats, that rounding can cause, and the largest change
/// of a text's mean negative log-likelihood.
pub(super) const MOST_DIVERGENCE: f64 = 0.5;

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
    /// Number of positions.
    #[serde(default)]
    pub positions: usize,
    /// Number of positions whose logits are all the same, such as zeros, while the reference's are not.
    #[serde(default)]
    pub flat: usize,
    /// True if the rows are hidden states of a model without an output layer. Then `row` is of a position or an
    /// element of the vectors, and divergence and largest logit do not exist: both are 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

impl LogitsReport {
    /// Compares rows of `n` logits with the reference's.
    pub(super) fn new(got: &[f32], want: &[f32], n: usize) -> LogitsReport {
        let d = distance_in_rows(got, want, n);
        let is_flat = |row: &[f32]| row.iter().all(|x| *x == row[0]);
        let rows = got.chunks(n.max(1)).zip(want.chunks(n.max(1)));
        LogitsReport {
            positions: want.len() / n.max(1),
            flat: rows.filter(|(got, want)| is_flat(got) && !is_flat(want)).count(),
            nmse: d.nmse,
            row: d.row,
            max_abs: d.max_abs,
            kl: kl_divergence(got, want, n),
            top1_agreement: top1_agreement(got, want, n),
            non_finite: d.non_finite,
            hidden: false,
        }
    }

    /// Compares rows of `n` elements of hidden states with the reference's.
    pub(super) fn of_hidden(got: &[f32], want: &[f32], n: usize) -> LogitsReport {
        LogitsReport { kl: 0.0, top1_agreement: 0.0, hidden: true, ..LogitsReport::new(got, want, n) }
    }

    /// Returns the words for what is compared.
    pub(super) fn what(&self) -> &'static str {
        if self.hidden { "hidden states" } else { "logits" }
    }

    /// Adds other positions: errors are the largest of the two, shares and divergence the means over all
    /// positions.
    #[must_use]
    fn with(self, other: LogitsReport) -> LogitsReport {
        let positions = self.positions + other.positions;
        let share = |of: &LogitsReport| of.positions as f64 / positions.max(1) as f64;
        let mean = |a: f64, b: f64| a * share(&self) + b * share(&other);
        LogitsReport {
            nmse: self.nmse.max(other.nmse),
            row: self.row.max(other.row),
            max_abs: self.max_abs.max(other.max_abs),
            kl: mean(self.kl, other.kl),
            top1_agreement: mean(self.top1_agreement, other.top1_agreement),
            non_finite: self.non_finite + other.non_finite,
            positions,
            flat: self.flat + other.flat,
            hidden: self.hidden,
        }
    }

    pub(super) fn distance(&self) -> Distance {
        Distance { nmse: self.nmse, row: self.row, ..Distance::default() }
    }
}

/// Describes the effect on sampling, or on vectors of texts.
impl std::fmt::Display for LogitsReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.hidden {
            return write!(f, "largest difference {:.1e}", self.max_abs);
        }
        let percent = 100.0 * self.top1_agreement;
        write!(
            f,
            "the best token is the same at {percent:.0}% of the positions, KL divergence {:.1e}",
            self.kl
        )
    }
}

/// A text scored on a backend and on the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TextReport {
    /// Score on the backend.
    pub score: TextScore,
    /// Score on the reference.
    pub reference: TextScore,
    /// Distances of the logits of the scored tokens. NMSE and row are those of the worst chunk.
    pub logits: LogitsReport,
    /// The largest Kullback-Leibler divergence at a position, in nats.
    #[serde(deserialize_with = "null_is_infinite")]
    pub kl_max: f64,
}

impl TextReport {
    /// Builds the report of two scores, without distances.
    pub(super) fn new(score: TextScore, reference: TextScore) -> TextReport {
        TextReport { score, reference, ..TextReport::default() }
    }

    /// Adds the rows of `n` logits of a chunk.
    pub(super) fn add(&mut self, got: &[f32], want: &[f32], n: usize) {
        let chunk = LogitsReport::new(got, want, n);
        self.logits = if self.logits.positions == 0 { chunk } else { self.logits.with(chunk) };
        self.kl_max = kl_divergences(got, want, n).into_iter().fold(self.kl_max, f64::max);
    }

    /// True if the perplexities are no further apart than rounding can cause.
    pub(super) fn is_near(&self) -> bool {
        (self.score.nll - self.reference.nll).abs() <= MOST_DIVERGENCE
    }
}

/// Describes the two perplexities.
impl std::fmt::Display for TextReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the perplexity of the text is {}, the reference's {}", self.score, self.reference)
    }
}

/// Drafts of a file's predictor on a backend and on the reference. Wrong results that no bound shows can make drafts useless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftsReport {
    /// Number of drafts.
    pub drafts: usize,
    /// Number of drafts that are the reference's.
    pub same: usize,
    /// Number of drafts that the backend's model agrees with.
    pub accepted: usize,
    /// The same number on the reference.
    pub reference_accepted: usize,
}

impl DraftsReport {
    /// Fewest drafts that are judged: rounding decides about some.
    const JUDGED: usize = 8;

    /// True if the drafts are like the reference's: at least half are the same, and the accepted shares are no more than
    /// a quarter apart.
    pub(super) fn is_near(&self) -> bool {
        let apart = self.accepted.abs_diff(self.reference_accepted);
        self.drafts < Self::JUDGED || (self.same * 2 >= self.drafts && apart * 4 <= self.drafts)
    }
}

/// Describes the drafts.
impl std::fmt::Display for DraftsReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DraftsReport { drafts, same, accepted, reference_accepted } = self;
        write!(
            f,
            "of {drafts} drafts of the predictor {same} are the reference's; {accepted} are accepted, {reference_accepted} on the reference"
        )
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
    /// The way of execution that changes bits in `fast`, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<String>,
    /// The error in exact precision, of a node or of the steps together, in words.
    #[serde(default)]
    pub exact_node: Option<String>,
    /// True if the model amplifies rounding: exact precision differs, although in it every node with the
    /// reference's operands agrees, and the program gives the same bits step by step and in other memory.
    #[serde(default)]
    pub amplified: bool,
    /// True if the entire difference is rounding that the precision allows.
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
            (None, None) if self.rounding => format!(
                "this is rounding: {}, and in fast every node is within its bound and the program gives the same bits step by step, in other memory and again",
                agrees()
            ),
            (None, None) if self.bits.is_some() => format!(
                "not rounding: {}, and in fast every node is within its bound, but {}: the steps together are wrong",
                agrees(),
                self.bits.as_deref().unwrap_or_default()
            ),
            (None, None) => format!(
                "too large for rounding, although {} and in fast every node is within its bound: the steps together are wrong",
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
        let found = "in exact precision every node with the reference's operands agrees, and the steps give the same bits one \
             by one and in other memory";
        match self.rounding {
            true => format!("{found}: this is rounding, which the model amplifies"),
            false => {
                format!("{found}, but the logits are unrelated to the reference's: too large for rounding")
            }
        }
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
    /// Name of the variant; `None` for the plain run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Distances of the prompt's logits, if the work is a model.
    pub logits: Option<LogitsReport>,
    /// Distances of the logits of the decode steps, each of which continues with the reference's token.
    #[serde(default)]
    pub steps: Option<LogitsReport>,
    /// The text on both backends, if one was scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextReport>,
    /// Drafts of the file's predictor, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drafts: Option<DraftsReport>,
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
