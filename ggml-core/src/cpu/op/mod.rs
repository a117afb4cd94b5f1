//! Kernels by family of operations.
//!
//! [`plan`] is the one place where a node gets its kernel or a reason why there is none; both `supports` and
//! preparation ask it. A kernel has the operation's parameters; addresses and extents come with each run.

use super::isa::Detected;
use super::run::{Line, Run};
use super::window::{Input, Output};
use crate::graph::Graph;
use crate::op::Op;
use crate::plan::Precision;
use crate::tensor::TensorId;

mod binary;
mod copy;
mod delta_net;
mod flash_attn;
mod glu;
mod mul_mat;
mod mul_mat_id;
mod norm;
mod rope;
mod rows;
mod soft_max;
mod ssm_conv;
mod top_k;
mod unary;

/// Operands that an operation has at the most.
pub(super) const MAX_OPERANDS: usize = 7;

/// Operands and result of a step.
pub(super) struct Args<'a> {
    /// Operands by index. `None` where the node has none, where the kernel does not read it, and where its elements
    /// are in the output already (only for operands that the operation's definition allows it for).
    pub(super) src: [Option<Input<'a>>; MAX_OPERANDS],
    /// The result.
    pub(super) out: Output<'a>,
    /// Scratch memory, at least [`Kernel::shared_bytes`].
    pub(super) shared: &'a mut [Line],
}

/// A kernel with the parameters of its operation.
pub(super) trait Kernel: Send + Sync + std::fmt::Debug {
    /// Computes the result, on several threads if that pays.
    fn run(&self, run: &Run<'_>, args: Args<'_>);

    /// Whether operand `i` is read: not so for one that the result aliases.
    fn reads(&self, _i: usize) -> bool {
        true
    }

    /// Scratch memory that all threads share, in bytes.
    fn shared_bytes(&self) -> usize {
        0
    }

    /// Scratch memory of each thread, in bytes.
    fn local_bytes(&self) -> usize {
        0
    }
}

/// The kernel of a node; `None` for leaves and views, which compute nothing.
///
/// # Errors
/// The reason why there is no kernel.
pub(super) fn plan(
    graph: &Graph,
    node: TensorId,
    precision: Precision,
    detected: Detected,
) -> Result<Option<Box<dyn Kernel>>, String> {
    let Some(op) = graph.tensor(node).op() else { return Ok(None) };
    let src = graph.operands(node);
    Ok(Some(match op {
        Op::View(_) | Op::Reshape(_) | Op::Permute(_) | Op::Transpose(_) => return Ok(None),
        Op::Binary(op) => Box::new(binary::BinaryKernel::new(*op)),
        Op::Cpy(_) => Box::new(copy::CopyKernel::new(src[0].dtype, src[1].dtype, true)?),
        Op::Cont(_) => Box::new(copy::CopyKernel::new(src[0].dtype, src[0].dtype, false)?),
        Op::FlashAttnExt(op) => Box::new(flash_attn::FlashAttnKernel::new(*op, &src)?),
        Op::Glu(op) => Box::new(glu::GluKernel::new(*op)),
        Op::MulMat(_) => Box::new(mul_mat::MulMatKernel::new(&src, precision, detected)?),
        Op::RmsNorm(op) => Box::new(norm::RmsNormKernel::new(*op)),
        Op::Rope(op) => Box::new(rope::RopeKernel::new(*op)),
        Op::GetRows(_) => Box::new(rows::GetRowsKernel::new(src[0].dtype)?),
        Op::SetRows(_) => Box::new(rows::SetRowsKernel::new(src[0].dtype)?),
        Op::SoftMax(op) => Box::new(soft_max::SoftMaxKernel::new(*op)),
        Op::Unary(op) => Box::new(unary::UnaryKernel::activation(op.activation)),
        Op::Scale(op) => Box::new(unary::UnaryKernel::scale(*op)),
        Op::MulMatId(_) => Box::new(mul_mat_id::MulMatIdKernel::new(&src, precision, detected)?),
        Op::TopK(op) => Box::new(top_k::TopKKernel::new(*op)),
        Op::SsmConv(_) => Box::new(ssm_conv::SsmConvKernel::new(&src)),
        Op::GatedDeltaNet(op) => Box::new(delta_net::DeltaNetKernel::new(*op, &src)),
    }))
}

/// Extents of the tiles of an element-wise operation: parts of rows, or whole rows, of some thousand elements.
///
/// That is small enough to stay in the first-level cache between the copy of an operand into the result and the
/// computation there, and to keep all threads busy.
fn row_tiles(ne: [usize; 4]) -> [usize; 4] {
    const ELEMENTS: usize = 4096;
    [ne[0].min(ELEMENTS), (ELEMENTS / ne[0].max(1)).max(1), 1, 1]
}
