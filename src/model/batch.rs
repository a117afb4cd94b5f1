//! What a batch graph is made for, and what it is.

use super::best::BestNodes;
use super::{Temperature, Window};
use ggml_core::{DType, Error, Graph, Result, TensorId};
use serde::{Deserialize, Serialize};

/// Extents of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// Tokens of the batch.
    pub tokens: usize,
    /// Rows of the cache that attention looks at (masked ones included); of a model whose tokens all see each other those
    /// of the batch.
    pub kv: usize,
    /// Positions that a sequence has room for.
    pub context: usize,
    /// Sequences that the state has room for: the cache has `context` rows for each, recurrent state a slot.
    pub sequences: usize,
    /// Rows of logits: some tokens of the batch, or all of them.
    pub outputs: usize,
    /// Type of the cache: F32, F16, Q8_0 or Q4_0.
    pub cache: DType,
    /// What is given of each row.
    pub want: Want,
}

/// What is wanted of the logits after a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Want {
    /// All of them.
    #[default]
    Logits,
    /// So many of the largest, with their tokens: chosen where they are computed, so that the others need not be read.
    Best(usize),
    /// None: in their place the stream behind so many layers, behind all of them with the norm in front of the output layer.
    /// Layers behind are not computed and get no state.
    Hidden(usize),
}

impl Want {
    /// What has enough for both.
    pub fn or(self, other: Want) -> Want {
        match (self, other) {
            (Want::Best(a), Want::Best(b)) => Want::Best(a.max(b)),
            _ => Want::Logits,
        }
    }
}

impl BatchShape {
    /// Rows of the cache: any of them may hold a position of any sequence.
    pub fn cells(&self) -> usize {
        self.context.saturating_mul(self.sequences)
    }

    /// That there can be such a batch: rows of the cache are I32 in a graph.
    pub(super) fn check(&self) -> Result<()> {
        let some = [self.tokens, self.kv, self.context, self.sequences, self.outputs].iter().all(|&n| n > 0);
        let fits = self.kv <= self.cells() && self.cells() <= i32::MAX as usize;
        if some && fits && self.outputs <= self.tokens {
            return Ok(());
        }
        Err(Error::argument(
            "batch shape",
            format!("{self:?}"),
            "extents from 1 on, outputs among the tokens, kv among the cells, cells numbered by I32",
        ))
    }
}

/// The inputs of a batch graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphInputs {
    /// I32 `[tokens]`: token ids.
    pub tokens: TensorId,
    /// I32 `[tokens]`: positions.
    pub positions: TensorId,
    /// I32 `[tokens]`: rows of the cache that the batch writes.
    pub cache_rows: TensorId,
    /// F16 `[kv, tokens]`: 0 where a token sees a row of the cache, minus infinity elsewhere. A node, and no input, where
    /// there are `places`.
    pub mask: TensorId,
    /// The mask of layers with an attention window; absent where there are none, or the window holds the context.
    pub window_mask: Option<TensorId>,
    /// What the masks are made of on the device; absent where they are inputs, as those of few tokens are.
    pub places: Option<Places>,
    /// I32 `[outputs]`: tokens of the batch whose logits are wanted; absent where all are.
    pub output_rows: Option<TensorId>,
    /// I32 `[3, sequences]`: the tokens of each sequence in the batch, which lie one behind the other, see
    /// [`Tokens`](ggml_core::op::ssm_conv::Tokens); absent where a model has no recurrent state.
    pub runs: Option<TensorId>,
    /// F32 `[1, tokens]`: factors of queries, which [`BatchGraph::temperature`] says; absent where nothing needs them.
    pub query_factors: Option<TensorId>,
}

/// The inputs of a batch graph that its masks are made of, see [`CacheMask`](ggml_core::op::CacheMask).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// I32 `[kv, 2]`: the sequence that each row of the cache belongs to, -1 where it is free, then its position.
    pub cells: TensorId,
    /// I32 `[tokens, 2]`: the same of the tokens, -1 where there is none.
    pub tokens: TensorId,
}

/// How a state tensor is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// A cache: a row for each cell, see [`GraphInputs::cache_rows`].
    Rows,
    /// Recurrent state: a block for each sequence, in the last extent that is not 1, see [`GraphInputs::runs`]. A
    /// token at position 0 begins with zeros, whatever its slot holds.
    Slots,
}

/// A graph for one batch shape.
#[derive(Clone, Debug)]
pub struct BatchGraph {
    /// The graph; its output is `logits`, or those of `best`.
    pub graph: Graph,
    /// Its shape.
    pub shape: BatchShape,
    /// Its inputs.
    pub inputs: GraphInputs,
    /// Weights with their names in the file.
    pub weights: Vec<(TensorId, String)>,
    /// State tensors, in an order that is the same for every shape.
    pub state: Vec<TensorId>,
    /// How each of them is divided.
    pub state_kinds: Vec<StateKind>,
    /// The attention window that `inputs.window_mask` has to express.
    pub window: Option<Window>,
    /// What `inputs.query_factors` holds.
    pub temperature: Option<Temperature>,
    /// Whether a token sees only those before it.
    pub causal: bool,
    /// F32 `[vocabulary, outputs]`; an output where all are wanted. `[embedding, outputs]` where hidden states are, and of
    /// models without an output layer.
    pub logits: TensorId,
    /// The nodes that choose the best of them, where those are wanted.
    pub best: Option<BestNodes>,
    /// The first tensor of each layer, then of the output; what is before is the embedding.
    pub(super) units: Vec<TensorId>,
}

impl BatchGraph {
    /// The unit that a node belongs to: 0 the embedding, then the layers, at last the output.
    pub(crate) fn unit_of(&self, node: TensorId) -> usize {
        self.units.partition_point(|&first| first <= node)
    }

    /// A name for a unit.
    pub(crate) fn unit_name(&self, unit: usize) -> String {
        match unit {
            0 => "embedding".into(),
            i if i == self.units.len() => "output".into(),
            i => format!("layer {}", i - 1),
        }
    }
}
