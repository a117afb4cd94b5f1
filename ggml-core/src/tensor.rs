//! Tensor descriptions: a shape, whose storage it uses, and where the contents come from.

use crate::op::Op;
use crate::shape::Shape;
use serde::{Deserialize, Serialize};
use std::ops::{Deref, DerefMut};

/// Index of a tensor in its [`Graph`](crate::Graph).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TensorId(pub u32);

impl TensorId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where the contents of a tensor come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Source {
    /// Bound once and never written.
    Weight,
    /// Written by the caller before each run.
    Input,
    /// Kept from run to run (a KV cache); zero at the beginning.
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
    /// Name, element type, extents and strides, which the tensor also has as its own fields.
    #[serde(flatten)]
    pub shape: Shape,
    /// The tensor that owns the storage: this one, or for a view the one that it looks into.
    pub root: TensorId,
    /// Bytes from the beginning of the root's storage.
    pub offset: usize,
    /// Where the contents come from.
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
    /// Returns true if this tensor is a view of another tensor's storage.
    pub fn is_view(&self) -> bool {
        matches!(&self.source, Source::Node { op, .. } if op.is_view())
    }

    /// The operation, for computed tensors.
    pub fn op(&self) -> Option<&Op> {
        match &self.source {
            Source::Node { op, .. } => Some(op),
            _ => None,
        }
    }

    /// The operands, empty for leaves.
    pub fn src(&self) -> &[TensorId] {
        match &self.source {
            Source::Node { src, .. } => src,
            _ => &[],
        }
    }
}
