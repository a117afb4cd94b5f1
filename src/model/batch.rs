//! Batch graphs: the shape that a graph is built for, its inputs, and the graph with its weights and state.

use super::best::BestNodes;
use super::hparams::{Hparams, Temperature, Window};
use ggml_core::{DType, Error, Graph, Result, TensorId};
use serde::{Deserialize, Serialize};

/// Extents of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// Tokens of the batch.
    pub tokens: usize,
    /// Cache rows that attention reads, masked ones included. For non-causal models the tokens of the batch.
    pub kv: usize,
    /// Maximum number of positions of a sequence.
    pub context: usize,
    /// Maximum number of sequences: the cache has `context` rows for each, recurrent state one slot.
    pub sequences: usize,
    /// Rows of logits: one for each wanted token of the batch.
    pub outputs: usize,
    /// Type of the cache: F32, F16, Q8_0 or Q4_0.
    pub cache: DType,
    /// Kind of result for each row.
    pub want: Want,
    /// True if the last tokens of a sequence may be drafts, which recurrent state does not count: the model's state is
    /// the one before them.
    pub drafts: bool,
    /// Use of the layer that predicts further tokens.
    pub predictor: Predictor,
}

/// Use that a graph makes of the layer of the file that predicts further tokens, its predictor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Predictor {
    /// None.
    #[default]
    Unused,
    /// The batch also computes what the predictor needs of its tokens: their keys and values, and the last hidden
    /// states.
    Follows,
    /// The graph has no other layer: after the one token of the batch it drafts some tokens, each after the one before.
    Drafts {
        /// Number of drafts.
        count: usize,
        /// Number of first tokens of the vocabulary that may be drafted. The output layer takes most of the time of a
        /// draft.
        among: usize,
    },
}

impl Predictor {
    /// Number of hidden states that a sequence keeps: those of its last positions.
    pub(crate) const KEPT: usize = 16;

    /// Largest number of drafts of a graph. The states after all of them are kept until it is known which ones stay.
    pub(crate) const MOST: usize = Predictor::KEPT - 1;
}

/// Result wanted after a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Want {
    /// All logits.
    #[default]
    Logits,
    /// The given number of largest logits with their tokens. They are selected on the device, so that the
    /// others need not be read back.
    Best(usize),
    /// No logits, but the residual stream after the given number of layers. After all layers the stream has
    /// gone through the norm in front of the output layer. Later layers are not computed and get no state.
    Hidden(usize),
}

impl Want {
    /// Returns a result that covers both: the larger `Best`, otherwise all logits.
    pub fn or(self, other: Want) -> Want {
        match (self, other) {
            (Want::Best(a), Want::Best(b)) => Want::Best(a.max(b)),
            _ => Want::Logits,
        }
    }

    /// Returns the number of values in a row of this result.
    pub(crate) fn width(self, hparams: &Hparams) -> usize {
        match self {
            Want::Logits => hparams.vocabulary,
            Want::Best(k) => k.min(hparams.vocabulary),
            Want::Hidden(_) => hparams.embedding,
        }
    }
}

impl BatchShape {
    /// Returns the number of cache rows. Any of them may hold a position of any sequence.
    pub fn cells(&self) -> usize {
        self.context.saturating_mul(self.sequences)
    }

    /// Checks that the extents are positive and consistent and that cache rows can be numbered by I32, as
    /// graphs do.
    pub(super) fn check(&self) -> Result<()> {
        let some = [self.tokens, self.kv, self.context, self.sequences, self.outputs].iter().all(|&n| n > 0);
        let fits = self.kv <= self.cells() && self.cells() <= i32::MAX as usize;
        let drafts = match self.predictor {
            Predictor::Drafts { count, among } => {
                let one = (self.tokens, self.want) == (1, Want::Best(1));
                one && among > 0 && (1..=Predictor::MOST).contains(&count)
            }
            Predictor::Follows => !matches!(self.want, Want::Hidden(_)),
            Predictor::Unused => true,
        };
        if some && fits && drafts && self.outputs <= self.tokens {
            return Ok(());
        }
        let most = Predictor::MOST;
        let expected = format!(
            "extents of at least 1, outputs <= tokens, kv <= cells, cells that I32 can number, and at most {most} drafts after one token"
        );
        Err(Error::argument("batch shape", format!("{self:?}"), expected))
    }

    /// Returns the number of positions that the graph computes.
    pub(super) fn positions(&self) -> usize {
        match self.predictor {
            Predictor::Drafts { count, .. } => count,
            Predictor::Unused | Predictor::Follows => self.tokens,
        }
    }

    /// Returns the number of columns of a mask; those after `kv` are unused. Each row of the masks of drafts is an operand
    /// of its own, so the rows are aligned.
    pub(crate) fn mask_columns(&self) -> usize {
        match self.predictor {
            Predictor::Drafts { .. } => self.kv.next_multiple_of(128),
            Predictor::Unused | Predictor::Follows => self.kv,
        }
    }
}

/// Inputs of a batch graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphInputs {
    /// I32 `[tokens]`: token ids.
    pub tokens: TensorId,
    /// I32 `[tokens]`: positions. A graph that drafts has those of the drafts here, and in the next two inputs.
    pub positions: TensorId,
    /// I32 `[tokens]`: rows of the cache that the batch writes.
    pub cache_rows: TensorId,
    /// F16 `[kv, tokens]`: 0 where a token sees a row of the cache, minus infinity elsewhere. A computed node
    /// instead of an input if there are `mask_inputs`.
    pub mask: TensorId,
    /// Mask of the layers with an attention window; absent if the model has no window or the window covers
    /// the context.
    pub window_mask: Option<TensorId>,
    /// Inputs that the device makes the masks from; absent if the masks are inputs, as they are for few
    /// tokens.
    pub mask_inputs: Option<MaskInputs>,
    /// I32 `[outputs]`: tokens of the batch whose logits are wanted; absent if all are.
    pub output_rows: Option<TensorId>,
    /// I32 `[3, sequences]`, or `[4, sequences]` with drafts: the tokens of each sequence in the batch, which are consecutive, see
    /// [`Tokens`](ggml_core::op::ssm_conv::Tokens); absent if the model has no recurrent state.
    pub runs: Option<TensorId>,
    /// F32 `[1, tokens]`: factors of queries as given by [`BatchGraph::temperature`]; absent if unused.
    pub query_factors: Option<TensorId>,
    /// Inputs of the predictor; absent if it is unused.
    pub predictor: Option<PredictorInputs>,
}

/// Inputs of the predictor. Its own input has two rows for each token: the embedding of the token, and the hidden state
/// before it. Each of the first three inputs gives the rows of one source, I32 `[2 tokens]`, -1 for those of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictorInputs {
    /// Rows of the embeddings of the batch's tokens.
    pub embedded: TensorId,
    /// Rows of the hidden states that the batch computes; absent for one token, which has none before it there.
    pub hidden: Option<TensorId>,
    /// Rows of the hidden states that are kept, 16 for each sequence.
    pub kept: TensorId,
    /// I32 `[tokens]`: rows in which the hidden states of the batch are kept, -1 for none; absent in a graph that drafts.
    pub keep: Option<TensorId>,
}

/// Inputs of a batch graph that its masks are computed from, see [`CacheMask`](ggml_core::op::CacheMask).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskInputs {
    /// I32 `[kv, 1 + words]`: the position in each row of the cache, -1 for a free row, then the sequences that hold
    /// it, as bits.
    pub cells: TensorId,
    /// I32 `[tokens, 2]`: the sequence of each token, -1 for padding, then its position.
    pub tokens: TensorId,
}

/// Division of a state tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// Cache: one row for each cell, see [`GraphInputs::cache_rows`].
    Rows,
    /// Recurrent state: one block for each sequence, in the last extent that is not 1, see
    /// [`GraphInputs::runs`]. A token at position 0 starts from zeros, whatever its slot holds.
    Slots,
    /// Hidden states of the last positions of each sequence, see [`PredictorInputs::kept`]. They only make drafts
    /// better, so they are neither saved nor restored.
    Hidden,
}

/// Graph for one batch shape.
#[derive(Clone, Debug)]
pub struct BatchGraph {
    /// Graph; its outputs are `logits` and the nodes of `best`.
    pub graph: Graph,
    /// Shape of the batch.
    pub shape: BatchShape,
    /// Inputs of the graph.
    pub inputs: GraphInputs,
    /// Weights with their names in the file.
    pub weights: Vec<(TensorId, String)>,
    /// State tensors, in the same order for every shape. Those of the predictor are the first; a graph that drafts has no
    /// others, one that does not use the predictor has none of them.
    pub state: Vec<TensorId>,
    /// Number of state tensors of the predictor.
    pub(super) of_predictor: usize,
    /// Division of each state tensor.
    pub state_kinds: Vec<StateKind>,
    /// Attention window that `inputs.window_mask` expresses.
    pub window: Option<Window>,
    /// Growth of queries that `inputs.query_factors` holds.
    pub temperature: Option<Temperature>,
    /// True if a token sees only itself and earlier tokens.
    pub causal: bool,
    /// F32 `[vocabulary, outputs]`. `[embedding, outputs]` if hidden
    /// states are wanted, and for models without an output layer.
    pub logits: TensorId,
    /// Nodes that select the best logits, if those are wanted.
    pub best: Option<BestNodes>,
    /// I32 `[1]` each: the tokens that the graph drafts.
    pub drafts: Vec<TensorId>,
    /// First tensor of each layer, then of the output; tensors before the first layer belong to the
    /// embedding.
    pub(super) units: Vec<TensorId>,
}

impl BatchGraph {
    /// Returns the unit of a node: 0 for the embedding, then the layers, then the output.
    pub(crate) fn unit_of(&self, node: TensorId) -> usize {
        self.units.partition_point(|&first| first <= node)
    }

    /// Returns the name of a unit.
    pub(crate) fn unit_name(&self, unit: usize) -> String {
        match unit {
            0 => "embedding".into(),
            i if i == self.units.len() => "output".into(),
            i => format!("layer {}", i - 1),
        }
    }
}
