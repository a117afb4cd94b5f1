//! Graphs: tensors in topological order.
//!
//! A graph is a value. Leaves are added with [`Graph::leaf`], nodes with the builder methods, one for each operation, which check
//! shapes and types when a node is added and name operation, operands and rule when one does not fit.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::Op;
use crate::tensor::{Source, Tensor, TensorId, contiguous_strides};
use std::collections::HashSet;

mod build;
pub mod file;

/// Tensors in topological order, and which of them are results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    tensors: Vec<Tensor>,
    names: HashSet<String>,
    outputs: Vec<TensorId>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// All tensors; a [`TensorId`] is an index here.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Ids of all tensors in order.
    pub fn ids(&self) -> impl Iterator<Item = TensorId> + use<> {
        (0..self.tensors.len() as u32).map(TensorId)
    }

    /// A tensor of this graph.
    ///
    /// An id of another graph is a mistake of the caller; the first tensor stands in for it, and a graph with no
    /// tensors has no ids.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        self.tensors.get(id.index()).unwrap_or(&self.tensors[0])
    }

    /// Operands of a node.
    pub fn operands(&self, id: TensorId) -> Vec<&Tensor> {
        self.tensor(id).src().iter().map(|&s| self.tensor(s)).collect()
    }

    /// The tensor of a name.
    pub fn find(&self, name: &str) -> Option<TensorId> {
        self.ids().find(|&id| self.tensor(id).name == name)
    }

    /// Results, in the order in which they were declared.
    pub fn outputs(&self) -> &[TensorId] {
        &self.outputs
    }

    /// Declares a result: it keeps its storage until the end of a run.
    pub fn output(&mut self, id: TensorId) {
        if !self.outputs.contains(&id) {
            self.outputs.push(id);
        }
    }

    /// Nodes that compute something (no leaves, no views), in order.
    pub fn computed(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.ids().filter(|&id| self.tensor(id).op().is_some_and(|op| !op.is_view()))
    }

    /// The leaf or computing node whose result a tensor looks at: the tensor itself unless it is a view.
    pub fn producer(&self, mut id: TensorId) -> TensorId {
        while self.tensor(id).is_view() {
            id = self.tensor(id).src()[0];
        }
        id
    }

    /// Adds a weight, an input or a state tensor with contiguous storage of its own.
    pub fn leaf(&mut self, name: &str, dtype: DType, ne: [usize; 4], source: Source) -> Result<TensorId> {
        let describe = || format!("{name} {dtype} {ne:?}");
        let invalid =
            |rule: &str| Error::InvalidGraph { op: "LEAF", operands: describe(), rule: rule.into() };
        if matches!(source, Source::Node { .. }) {
            return Err(invalid("a leaf is a weight, an input or a state"));
        }
        if ne.contains(&0) {
            return Err(invalid("extents must not be 0"));
        }
        let nb = contiguous_strides(dtype, ne)
            .ok_or_else(|| invalid("rows must be whole blocks of a sane size"))?;
        let id = TensorId(self.tensors.len() as u32);
        self.push(Tensor { name: name.into(), dtype, ne, nb, root: id, offset: 0, source })
    }

    /// Adds a node. Its name is "op-index" until [`Graph::name`] gives it another.
    pub fn node(&mut self, op: Op, src: &[TensorId]) -> Result<TensorId> {
        let name = format!("{}-{}", op.name().to_lowercase(), self.tensors.len());
        self.named_node(op, src, &name)
    }

    /// Adds a node with a name.
    pub(crate) fn named_node(&mut self, op: Op, src: &[TensorId], name: &str) -> Result<TensorId> {
        let id = TensorId(self.tensors.len() as u32);
        if let Some(bad) = src.iter().find(|s| s.index() >= self.tensors.len()) {
            return Err(Error::argument_said("operand", format!("tensor {} is not in this graph", bad.0)));
        }
        let operands: Vec<&Tensor> = src.iter().map(|&s| self.tensor(s)).collect();
        let invalid = |rule: String| Error::InvalidGraph {
            op: op.name(),
            operands: operands.iter().map(|t| t.describe()).collect::<Vec<_>>().join("; "),
            rule,
        };
        let out = op.definition().output(&operands).map_err(&invalid)?;
        if out.ne.contains(&0) {
            return Err(invalid("the result would have no elements".into()));
        }
        let (nb, root, offset) = match out.alias {
            Some(alias) => (alias.nb, operands[alias.src].root, operands[alias.src].offset + alias.offset),
            None => {
                let nb = contiguous_strides(out.dtype, out.ne).ok_or_else(|| {
                    invalid("the result would have rows of broken blocks or an absurd size".into())
                })?;
                (nb, id, 0)
            }
        };
        let source = Source::Node { op, src: src.to_vec() };
        self.push(Tensor { name: name.into(), dtype: out.dtype, ne: out.ne, nb, root, offset, source })
    }

    fn push(&mut self, tensor: Tensor) -> Result<TensorId> {
        if !self.names.insert(tensor.name.clone()) {
            return Err(Error::argument_said(
                "tensor name",
                format!("'{}' is already in the graph", tensor.name),
            ));
        }
        self.tensors.push(tensor);
        Ok(TensorId(self.tensors.len() as u32 - 1))
    }

    /// Renames a tensor.
    pub fn name(&mut self, id: TensorId, name: &str) -> Result<()> {
        let Some(tensor) = self.tensors.get_mut(id.index()) else {
            return Err(Error::argument_said("tensor", "is not in this graph"));
        };
        if tensor.name == name {
            return Ok(());
        }
        if !self.names.insert(name.to_string()) {
            return Err(Error::argument_said("tensor name", format!("'{name}' is already in the graph")));
        }
        self.names.remove(&tensor.name);
        tensor.name = name.to_string();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> (Graph, TensorId, TensorId) {
        let mut g = Graph::new();
        let a = g.leaf("a", DType::F32, [8, 4, 1, 1], Source::Input).unwrap();
        let b = g.leaf("b", DType::F32, [3, 4, 1, 1], Source::Input).unwrap();
        (g, a, b)
    }

    #[test]
    fn errors_name_operation_operands_and_rule() {
        let (mut g, a, b) = graph();
        let error = g.add(a, b).unwrap_err().to_string();
        assert_eq!(error, "ADD(a F32 [8, 4]; b F32 [3, 4]): every extent of b must divide that of a");
        assert!(g.mul_mat(a, b).unwrap_err().to_string().contains("rows of the same length"));
        assert!(g.view(a, [9, 4, 1, 1], [4, 32, 128, 128], 0).is_err());
        assert!(g.view(a, [1, usize::MAX, 1, 1], [4, usize::MAX & !3, 4, 4], 0).is_err());
        assert!(g.node(Op::Cont(crate::op::Cont {}), &[TensorId(99)]).is_err());
        assert!(g.leaf("a", DType::F32, [1; 4], Source::Input).is_err(), "names are unique");
        assert!(g.leaf("z", DType::Q8_0, [33, 1, 1, 1], Source::Input).is_err());
        assert!(g.leaf("z", DType::F32, [usize::MAX, 2, 1, 1], Source::Input).is_err());
        assert_eq!(g.tensors().len(), 2, "a refused node leaves nothing behind");
    }

    #[test]
    fn views_share_their_root() {
        let (mut g, a, _) = graph();
        let v = g.view(a, [4, 2, 1, 1], [4, 32, 64, 64], 40).unwrap();
        let t = g.transpose(v).unwrap();
        assert_eq!((g.tensor(t).root, g.tensor(t).offset, g.tensor(t).nb[0]), (a, 40, 32));
        assert_eq!(g.producer(t), a);
        let c = g.cont(t).unwrap();
        assert_eq!((g.producer(c), g.tensor(c).root), (c, c));
        assert_eq!(g.computed().collect::<Vec<_>>(), vec![c]);
    }
}
