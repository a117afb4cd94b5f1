//! Layout of the state tensors: the bytes of a position or of a sequence in each.

use crate::model::{BatchGraph, StateKind};
use ggml_core::TensorId;
use serde::{Deserialize, Serialize};

/// Layout of a state tensor: the share of each position or sequence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StateLayout {
    /// Division of the tensor.
    pub(super) kind: StateKind,
    /// Bytes of a position, or of the whole block of a sequence.
    pub(super) bytes: usize,
}

impl StateLayout {
    /// Returns the layouts of the state tensors of a graph.
    pub(super) fn of_graph(graph: &BatchGraph) -> Vec<StateLayout> {
        let shape = &graph.shape;
        let layout = |(&id, &kind): (&TensorId, &StateKind)| {
            let count = match kind {
                StateKind::Rows => shape.cells(),
                StateKind::Slots => shape.sequences,
            };
            StateLayout { kind, bytes: graph.graph.tensor(id).span_bytes() / count }
        };
        graph.state.iter().zip(&graph.state_kinds).map(layout).collect()
    }

    /// Returns the bytes of a sequence of `position` positions.
    pub(super) fn length(&self, position: usize) -> usize {
        self.bytes
            * match self.kind {
                StateKind::Rows => position,
                StateKind::Slots => position.min(1),
            }
    }
}
