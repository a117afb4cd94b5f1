//! Steps of a plan.

use crate::fuse::Group;
use crate::tensor::TensorId;

/// Nodes that a backend computes together.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The nodes.
    pub group: Group,
    /// Steps of one level do not depend on each other.
    pub level: usize,
}

impl Step {
    /// The node that names the step: the last of its group.
    pub fn node(&self) -> TensorId {
        self.group.last()
    }
}
