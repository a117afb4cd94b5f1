//! Kernels by family of operations.
//!
//! [`plan`] maps a group to its kernel, or to a reason why there is none; `supports`, `joins` and program
//! preparation all use it. A kernel holds the operations' parameters; addresses and extents are passed to
//! each run. A single node is a special case of its family's kernel.

use super::isa::Detected;
use crate::fuse::Group;
use crate::graph::Graph;
use crate::op::Op;
use crate::precision::Precision;
use crate::tensor::TensorId;

mod binary;
mod cache_mask;
mod copy;
mod delta_net;
mod flash_attn;
mod glu;
mod heads;
mod kernel;
mod mul_mat;
mod mul_mat_id;
mod norm;
mod products;
mod rope;
mod router;
mod rows;
mod soft_max;
mod ssm_conv;
mod ssm_scan;
mod top_k;
mod unary;

pub(super) use kernel::{Args, Kernel, MAX_OPERANDS, Planned};

use kernel::Operands;

/// Returns the kernel of a group; `None` for leaves and views, which compute nothing.
///
/// # Errors
/// The reason why there is no kernel.
pub(super) fn plan(
    graph: &Graph,
    group: &Group,
    precision: Precision,
    detected: Detected,
) -> Result<Option<Planned>, String> {
    let operands = Operands(graph);
    Ok(Some(match group {
        Group::Node(node) => {
            let Some(kernel) = plan_node(graph, *node, precision, detected)? else { return Ok(None) };
            let src = graph.tensor(*node).src().iter().enumerate();
            let src = src.map(|(i, &id)| kernel.reads(i).then_some(id)).collect();
            Planned { kernel, src, out: vec![*node] }
        }
        Group::Products(group) => products::ProductsKernel::group(group, operands, precision, detected)?,
        Group::Heads(group) => heads::HeadsKernel::group(group, operands)?,
        Group::Experts(group) => mul_mat_id::MulMatIdKernel::group(group, operands, precision, detected)?,
        Group::Router(group) => router::RouterKernel::group(group, operands)?,
        Group::Gate(_) => return Err("the scores of experts are computed as a separate product".into()),
        Group::Conv(_) | Group::Delta(_) => {
            return Err("operations with a state are computed by themselves".into());
        }
        Group::Best(_) => return Err("the nodes of the best element are computed one by one".into()),
        Group::Norm(group) => norm::NormKernel::group(group, operands)?,
        Group::Scaled(group) => norm::NormKernel::scaled(group, operands)?,
        Group::Chain(group) => unary::UnaryKernel::group(group, operands)?,
    }))
}

/// Plans a single node, as [`plan`].
fn plan_node(
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
        Op::CacheMask(op) => Box::new(cache_mask::CacheMaskKernel::new(*op)),
        Op::Cpy(_) => Box::new(copy::CopyKernel::new(src[0].dtype, src[1].dtype, true)?),
        Op::Cont(_) => Box::new(copy::CopyKernel::new(src[0].dtype, src[0].dtype, false)?),
        Op::FlashAttnExt(op) => Box::new(flash_attn::FlashAttnKernel::new(*op, &src)?),
        Op::Glu(op) => Box::new(glu::GluKernel::new(*op)),
        Op::MulMat(_) => Box::new(mul_mat::MulMatKernel::new(&src, precision, detected)?),
        Op::RmsNorm(op) => Box::new(norm::NormKernel::new(*op)),
        Op::Rope(op) => Box::new(rope::RopeKernel::new(*op)),
        Op::GetRows(_) => Box::new(rows::GetRowsKernel::new(src[0].dtype)?),
        Op::SetRows(_) => Box::new(rows::SetRowsKernel::new(src[0].dtype)?),
        Op::SoftMax(op) => Box::new(soft_max::SoftMaxKernel::new(*op)),
        Op::Unary(op) => Box::new(unary::UnaryKernel::activation(op.activation)),
        Op::Scale(op) => Box::new(unary::UnaryKernel::scale(*op)),
        Op::MulMatId(_) => Box::new(mul_mat_id::MulMatIdKernel::new(&src, precision, detected)?),
        Op::TopK(op) => Box::new(top_k::TopKKernel::new(*op)),
        Op::SsmScan(_) => Box::new(ssm_scan::SsmScanKernel::new(&src)),
        Op::SsmConv(_) => Box::new(ssm_conv::SsmConvKernel::new(&src)),
        Op::GatedDeltaNet(op) => Box::new(delta_net::DeltaNetKernel::new(*op, &src)),
    }))
}
