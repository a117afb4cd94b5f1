//! Constant data that kernels read in addition to their operands: for ROPE the frequency table.

use super::rope;
use crate::graph::Graph;
use crate::op::Op;
use crate::tensor::{Tensor, TensorId};
use std::collections::HashMap;

/// Constants of a program. Backends store them in their own memory, because a plan's arena may be shared with
/// other programs. Nodes with equal contents share one entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constants {
    contents: Vec<Vec<f32>>,
    entries: HashMap<TensorId, usize>,
}

impl Constants {
    /// Collects the constants of the given nodes.
    pub fn collect(graph: &Graph, nodes: impl IntoIterator<Item = TensorId>) -> Constants {
        let mut constants = Constants::default();
        let mut known: HashMap<Vec<u32>, usize> = HashMap::new();
        for node in nodes {
            let Some(data) = constant(graph.tensor(node)) else { continue };
            let bits = data.iter().map(|x| x.to_bits()).collect();
            let entry = *known.entry(bits).or_insert_with(|| {
                constants.contents.push(data);
                constants.contents.len() - 1
            });
            constants.entries.insert(node, entry);
        }
        constants
    }

    /// Returns the contents of all entries, without duplicates.
    pub fn contents(&self) -> &[Vec<f32>] {
        &self.contents
    }

    /// Returns the index in [`Constants::contents`] of a node's constant.
    pub fn entry(&self, node: TensorId) -> Option<usize> {
        self.entries.get(&node).copied()
    }
}

/// Returns the constant data of a node's kernels, if any.
pub fn constant(node: &Tensor) -> Option<Vec<f32>> {
    match node.op()? {
        Op::Rope(op) => Some(rope::frequency_table(op)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::op::rope::{Rope, RopeMode};
    use crate::tensor::Source;

    #[test]
    fn equal_contents_are_one_entry() {
        let mut g = Graph::new();
        let x = g.leaf("x", DType::F32, [8, 1, 1, 1], Source::Input).unwrap();
        let at = g.leaf("at", DType::I32, [1, 1, 1, 1], Source::Input).unwrap();
        let rope = |base| Rope::plain(RopeMode::Normal, 8, base);
        let nodes = [1e4, 1e6, 1e4].map(|base| g.rope(rope(base), x, at, None).unwrap());
        let constants = Constants::collect(&g, g.computed());
        assert_eq!(constants.contents().len(), 2);
        assert_eq!(nodes.map(|n| constants.entry(n)), [Some(0), Some(1), Some(0)]);
        assert_eq!(constants.entry(x), None);
    }
}
