//! Graphs: tensors in topological order.
//!
//! Leaves are added with [`Graph::leaf`], nodes with one builder method for each operation. The methods check
//! shapes and types when a node is added. Their errors name the operation, the operands and the violated
//! rule.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::Op;
use crate::shape::{Shape, contiguous_strides};
use crate::tensor::{Source, Tensor, TensorId};
use std::collections::HashSet;
use std::sync::LazyLock;

mod build;
pub mod file;

/// Maximum length of a tensor name in bytes; names appear as table columns.
pub const MAX_NAME: usize = 255;

/// Tensors in topological order, and the graph's outputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    tensors: Vec<Tensor>,
    /// For each view the leaf or computing node that it refers to; for other tensors the tensor itself.
    producers: Vec<TensorId>,
    names: HashSet<String>,
    outputs: Vec<TensorId>,
}

impl Graph {
    /// Creates an empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Returns all tensors; a [`TensorId`] is an index into them.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Iterates over the ids of all tensors in order.
    pub fn ids(&self) -> impl Iterator<Item = TensorId> + use<> {
        (0..self.tensors.len() as u32).map(TensorId)
    }

    /// Returns the tensor with an id; `None` if there is none.
    pub fn get(&self, id: TensorId) -> Option<&Tensor> {
        self.tensors.get(id.index())
    }

    /// Returns the tensor with an id of this graph.
    ///
    /// For a foreign id, which is an error of the caller, it does not panic but returns a placeholder: an
    /// input of one element whose root id is invalid, so that nothing has storage for it. For untrusted ids
    /// use [`Graph::get`].
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        static STAND_IN: LazyLock<Tensor> = LazyLock::new(|| Tensor {
            shape: Shape { name: "(not in this graph)".into(), dtype: DType::F32, ne: [1; 4], nb: [4; 4] },
            root: TensorId(u32::MAX),
            offset: 0,
            source: Source::Input,
        });
        self.get(id).unwrap_or(&STAND_IN)
    }

    /// Checks an id given by the caller.
    fn known(&self, id: TensorId, what: &str) -> Result<()> {
        let count = self.tensors.len();
        let foreign =
            || Error::argument(what, format!("tensor {}", id.0), format!("one of the graph's {count}"));
        self.get(id).map(|_| ()).ok_or_else(foreign)
    }

    /// Returns the operands of a node.
    pub fn operands(&self, id: TensorId) -> Vec<&Tensor> {
        self.tensor(id).src().iter().map(|&s| self.tensor(s)).collect()
    }

    /// Returns the tensor with a name.
    pub fn find(&self, name: &str) -> Option<TensorId> {
        self.ids().find(|&id| self.tensor(id).name == name)
    }

    /// Returns the graph's outputs, in the order in which they were declared.
    pub fn outputs(&self) -> &[TensorId] {
        &self.outputs
    }

    /// Declares an output. Its storage is preserved until the end of a run.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the tensor is not in this graph.
    pub fn output(&mut self, id: TensorId) -> Result<()> {
        self.known(id, "output")?;
        if !self.outputs.contains(&id) {
            self.outputs.push(id);
        }
        Ok(())
    }

    /// Iterates over the nodes that compute something (no leaves, no views), in order.
    pub fn computed(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.ids().filter(|&id| self.tensor(id).op().is_some_and(|op| !op.is_view()))
    }

    /// Returns the leaf or computing node that a view refers to; for other tensors the tensor itself.
    pub fn producer(&self, id: TensorId) -> TensorId {
        self.producers.get(id.index()).copied().unwrap_or(id)
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
        let shape = Shape { name: name.into(), dtype, ne, nb };
        self.push(Tensor { shape, root: id, offset: 0, source })
    }

    /// Adds a node. Its name is "op-index" until it is renamed by [`Graph::name`].
    pub fn node(&mut self, op: Op, src: &[TensorId]) -> Result<TensorId> {
        let name = format!("{}-{}", op.name().to_lowercase(), self.tensors.len());
        self.named_node(op, src, &name)
    }

    /// Adds a node with a name.
    pub(crate) fn named_node(&mut self, op: Op, src: &[TensorId], name: &str) -> Result<TensorId> {
        let id = TensorId(self.tensors.len() as u32);
        src.iter().try_for_each(|&operand| self.known(operand, "operand"))?;
        let operands: Vec<&Tensor> = src.iter().map(|&s| self.tensor(s)).collect();
        let invalid = |rule: String| Error::InvalidGraph {
            op: op.name(),
            operands: operands.iter().map(|t| t.describe()).collect::<Vec<_>>().join("; "),
            rule,
        };
        let shapes: Vec<&Shape> = operands.iter().map(|t| &t.shape).collect();
        let out = op.definition().output(&shapes).map_err(&invalid)?;
        if out.ne.contains(&0) {
            return Err(invalid("the result would have no elements".into()));
        }
        // Checked for views too: with strides of 0 a view may have more elements than can be counted.
        let dense = contiguous_strides(out.dtype, out.ne)
            .ok_or_else(|| invalid("the result would have rows of broken blocks or an absurd size".into()))?;
        let (nb, root, offset) = match out.alias {
            Some(alias) => (alias.nb, operands[alias.src].root, operands[alias.src].offset + alias.offset),
            None => (dense, id, 0),
        };
        let source = Source::Node { op, src: src.to_vec() };
        let shape = Shape { name: name.into(), dtype: out.dtype, ne: out.ne, nb };
        self.push(Tensor { shape, root, offset, source })
    }

    fn push(&mut self, tensor: Tensor) -> Result<TensorId> {
        self.take_name(&tensor.name)?;
        let id = TensorId(self.tensors.len() as u32);
        let viewed = tensor.src().first().filter(|_| tensor.is_view());
        self.producers.push(viewed.map_or(id, |&of| self.producer(of)));
        self.tensors.push(tensor);
        Ok(id)
    }

    /// Renames a tensor.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the tensor is not in this graph, another tensor has the name, or the
    /// name is longer than [`MAX_NAME`].
    pub fn name(&mut self, id: TensorId, name: &str) -> Result<()> {
        self.known(id, "tensor to rename")?;
        let index = id.index();
        if self.tensors[index].name == name {
            return Ok(());
        }
        self.take_name(name)?;
        self.names.remove(&self.tensors[index].name);
        self.tensors[index].name = name.to_string();
        Ok(())
    }

    /// Registers a name, which must be new.
    fn take_name(&mut self, name: &str) -> Result<()> {
        let (what, limit) = ("tensor name", MAX_NAME);
        if name.len() > limit {
            let found = format!("{} bytes", name.len());
            return Err(Error::argument(what, found, format!("at most {limit}")));
        }
        if !self.names.insert(name.to_string()) {
            return Err(Error::argument(
                what,
                format!("'{name}' a second time"),
                "one that is not in the graph",
            ));
        }
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
        // A view may repeat elements, but their number must not overflow.
        assert!(g.view(a, [8, 1 << 30, 1 << 30, 1], [4, 0, 0, 0], 0).is_err());
        assert_eq!(g.tensors().len(), 2, "a refused node leaves nothing behind");
    }

    #[test]
    fn names_have_a_limit() {
        let (mut g, a, _) = graph();
        let longest = "x".repeat(MAX_NAME);
        g.name(a, &longest).unwrap();
        for name in ["x".repeat(MAX_NAME + 1), "é".repeat(100_000)] {
            let errors = [g.name(a, &name), g.leaf(&name, DType::F32, [1; 4], Source::Input).map(|_| ())];
            for error in errors.map(|e| e.unwrap_err().to_string()) {
                assert_eq!(error, format!("tensor name: {} bytes; expected at most 255", name.len()));
            }
        }
        assert_eq!(g.find(&longest), Some(a));
        let taken = g.leaf("b", DType::F32, [1; 4], Source::Input).unwrap_err().to_string();
        assert_eq!(taken, "tensor name: 'b' a second time; expected one that is not in the graph");
    }

    #[test]
    fn ids_of_another_graph_are_errors() {
        let (other, _, b) = graph();
        let mut g = Graph::new();
        assert_eq!((g.get(b), g.operands(b).len(), g.producer(b)), (None, 0, b));
        assert_eq!(g.tensor(b).describe(), "(not in this graph) F32 [1]");
        assert_ne!(g.tensor(b), other.tensor(b));
        let x = g.leaf("x", DType::F32, [8, 1, 1, 1], Source::Input).unwrap();
        let foreign = [g.output(b), g.name(b, "c"), g.add(x, b).map(|_| ()), g.cont(b).map(|_| ())];
        for (error, what) in foreign.into_iter().zip(["output", "tensor to rename", "operand", "operand"]) {
            let text = error.unwrap_err().to_string();
            assert_eq!(text, format!("{what}: tensor 1; expected one of the graph's 1"));
        }
        assert!(g.outputs().is_empty() && g.tensors().len() == 1);
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
