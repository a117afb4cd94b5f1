//! Steps of a plan.

use crate::fuse::Group;
use crate::tensor::TensorId;

/// Nodes that a backend computes together.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Group of nodes.
    pub group: Group,
    /// Level; steps of one level do not depend on each other.
    pub level: usize,
}

impl Step {
    /// Returns the node that names the step: the last of its group.
    pub fn node(&self) -> TensorId {
        self.group.last()
    }
}
