//! Lifetimes of the storage of tensors.

use super::step::Step;
use crate::graph::Graph;
use crate::tensor::TensorId;

/// Last use of the storage of each tensor.
pub(super) struct Uses {
    /// For each root, the last level that reads or writes its storage; `usize::MAX` for outputs.
    pub(super) last: Vec<usize>,
    /// Number of steps of that level that use the storage.
    steps: Vec<usize>,
}

impl Uses {
    pub(super) fn new(graph: &Graph, steps: &[Step]) -> Uses {
        let count = graph.tensors().len();
        let mut uses = Uses { last: vec![0; count], steps: vec![0; count] };
        for step in steps {
            let ids = step.group.results().into_iter().chain(step.group.operands(graph));
            let mut roots: Vec<usize> = ids.map(|id| graph.tensor(id).root.index()).collect();
            roots.sort_unstable();
            roots.dedup();
            for root in roots.into_iter().filter(|&root| root < count) {
                let again = uses.last[root] == step.level;
                uses.steps[root] = if again { uses.steps[root] + 1 } else { 1 };
                uses.last[root] = step.level;
            }
        }
        for &output in graph.outputs() {
            uses.last[graph.tensor(output).root.index()] = usize::MAX;
        }
        uses
    }

    /// True if a storage is used by one step of a level and by none after it.
    pub(super) fn is_last(&self, root: TensorId, level: usize) -> bool {
        self.last[root.index()] == level && self.steps[root.index()] == 1
    }
}
