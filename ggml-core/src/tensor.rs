//! Tensor descriptions: a shape, the root of the storage, and the source of the contents.

use crate::op::Op;
use crate::shape::Shape;
use serde::{Deserialize, Serialize};
use std::ops::{Deref, DerefMut};

/// Index of a tensor in its [`Graph`](crate::Graph).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TensorId(pub u32);

impl TensorId {
    /// Returns the id as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Source of the contents of a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Source {
    /// Bound once and never written.
    Weight,
    /// Written by the caller before each run.
    Input,
    /// Retained from run to run (a KV cache); zero at the beginning.
    State,
    /// Computed.
    Node {
        /// The operation with its parameters.
        op: Op,
        /// Operands in the order of the operation's definition.
        src: Vec<TensorId>,
    },
}

/// A tensor of up to four dimensions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    /// Name, element type, extents and strides; accessible as fields of the tensor through `Deref`.
    #[serde(flatten)]
    pub shape: Shape,
    /// Tensor that owns the storage: this one, or for a view the viewed one.
    pub root: TensorId,
    /// Bytes from the beginning of the root's storage.
    pub offset: usize,
    /// Source of the contents.
    pub source: Source,
}

impl Deref for Tensor {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

impl DerefMut for Tensor {
    fn deref_mut(&mut self) -> &mut Shape {
        &mut self.shape
    }
}

impl Tensor {
    /// True if this tensor is a view of the storage of another.
    pub fn is_view(&self) -> bool {
        matches!(&self.source, Source::Node { op, .. } if op.is_view())
    }

    /// Returns the operation of a computed tensor.
    pub fn op(&self) -> Option<&Op> {
        match &self.source {
            Source::Node { op, .. } => Some(op),
            _ => None,
        }
    }

    /// Returns the operands; empty for leaves.
    pub fn src(&self) -> &[TensorId] {
        match &self.source {
            Source::Node { src, .. } => src,
            _ => &[],
        }
    }
}
