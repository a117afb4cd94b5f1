//! Interface of a kernel: its operands, its results and the functions of [`Kernel`].

use crate::cpu::execution::{Execution, Line};
use crate::cpu::window::{Input, MAX_RESULTS, Output};
use crate::dtype::DType;
use crate::graph::Graph;
use crate::tensor::TensorId;

/// Maximum number of operands of a step.
pub(in crate::cpu) const MAX_OPERANDS: usize = 9;

/// Operands and results of a step.
pub(in crate::cpu) struct Args<'a> {
    /// Operands by index. `None` if the node does not have it, the kernel does not read it, or its elements
    /// are already in the output (only if the operation's definition allows that).
    pub(in crate::cpu) src: [Option<Input<'a>>; MAX_OPERANDS],
    /// First result.
    pub(in crate::cpu) out: Output<'a>,
    /// Further results of a group.
    pub(in crate::cpu) more: [Option<Output<'a>>; MAX_RESULTS - 1],
    /// Scratch memory, at least [`Kernel::shared_bytes`] long.
    pub(in crate::cpu) shared: &'a mut [Line],
}

/// Kernel with the parameters of its operation.
pub(in crate::cpu) trait Kernel: Send + Sync + std::fmt::Debug {
    /// Computes the result, on several threads if worthwhile.
    fn run(&self, run: &Execution<'_>, args: Args<'_>);

    /// True if operand `i` is read; false for an operand that the result aliases.
    fn reads(&self, _i: usize) -> bool {
        true
    }

    /// Returns the bytes of scratch memory that all threads share.
    fn shared_bytes(&self) -> usize {
        0
    }

    /// Returns the bytes of scratch memory of each thread.
    fn local_bytes(&self) -> usize {
        0
    }
}

/// Planned step: the kernel, its operands and its results.
pub(in crate::cpu) struct Planned {
    pub(in crate::cpu) kernel: Box<dyn Kernel>,
    /// Operands by the kernel's indices.
    pub(in crate::cpu) src: Vec<Option<TensorId>>,
    /// Results, at least one.
    pub(in crate::cpu) out: Vec<TensorId>,
}

/// Tensors as operands of groups.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a>(pub(super) &'a Graph);

impl Operands<'_> {
    /// Returns the tensor if its rows are contiguous F32.
    pub(super) fn row(self, id: TensorId) -> Result<Option<TensorId>, String> {
        let tensor = self.0.tensor(id);
        if tensor.dtype == DType::F32 && tensor.rows_contiguous() {
            return Ok(Some(id));
        }
        Err(format!("{} is not in rows of F32", tensor.describe()))
    }
}

/// Returns the tile extents of an element-wise operation: parts of rows, or whole rows, of about 4096
/// elements.
///
/// A tile is small enough to stay in the first-level cache between the copy of an operand into the result and
/// the computation there, and to occupy all threads.
pub(super) fn row_tiles(ne: [usize; 4]) -> [usize; 4] {
    const ELEMENTS: usize = 4096;
    [ne[0].min(ELEMENTS), (ELEMENTS / ne[0].max(1)).max(1), 1, 1]
}
