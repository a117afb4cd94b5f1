//! Layout of the state tensors: the bytes of a position or of a sequence in each.

use crate::model::{BatchGraph, StateKind};
use ggml_core::TensorId;
use serde::{Deserialize, Serialize};

/// Layout of a state tensor: the share of each position or sequence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StateLayout {
    /// Division of the tensor.
    pub(super) kind: StateKind,
    /// Bytes of a position, or of the whole block of a sequence; 0 if it is never copied.
    pub(super) bytes: usize,
}

impl StateLayout {
    /// Returns the layouts of the state tensors of a graph.
    pub(super) fn of_graph(graph: &BatchGraph) -> Vec<StateLayout> {
        let shape = &graph.shape;
        let layout = |(&id, &kind): (&TensorId, &StateKind)| {
            let bytes = graph.graph.tensor(id).span_bytes();
            let bytes = match kind {
                StateKind::Rows => bytes / shape.cells(),
                StateKind::Slots => bytes / shape.sequences,
                StateKind::Hidden => 0,
            };
            StateLayout { kind, bytes }
        };
        graph.state.iter().zip(&graph.state_kinds).map(layout).collect()
    }

    /// Returns the bytes of a sequence of `position` positions.
    pub(super) fn length(&self, position: usize) -> usize {
        self.bytes
            * match self.kind {
                StateKind::Rows => position,
                StateKind::Slots => position.min(1),
                StateKind::Hidden => 0,
            }
    }
}
