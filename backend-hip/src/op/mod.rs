//! Planning of nodes as kernel launches: one function for each family of operations.
//!
//! A family's function returns either the launches that compute a node or the reason for refusing it, so
//! `supports` and `prepare` always agree. It sees the device only as a [`Profile`] and never handles
//! addresses: launches name their operands, and `prepare` passes pointers to the first byte of each. So the
//! `off` fields of the parameter structures are relative to each operand's start:
//! `XParams::new(graph, node, &[])`.
//!
//! # Arguments of a kernel
//!
//! Eight bytes for each operand, in the order of [`Launch::operands`] (operands that are read, then operands
//! that are written, as in the bindings of the Vulkan shader of the same stem), then the parameter structure
//! by value. These arguments are compared with the code object's metadata before a launch.

use crate::arch::Profile;
use ggml_core::fuse::Group;
pub use ggml_core::kernel::Refusal;
use ggml_core::precision::Precision;
use ggml_core::{Graph, Op, TensorId};

mod binary;
mod cache_mask;
mod chunks;
pub(crate) mod copy;
mod delta_net;
mod flash_attn;
mod gate;
mod glu;
mod grid;
mod heads;
mod mat_narrow;
mod mat_vec;
mod mul_mat;
mod mul_mat_id;
mod norm;
mod products;
mod rope;
mod rows;
mod soft_max;
mod ssm_conv;
mod ssm_scan;
mod top_k;
mod types;
mod unary;

/// Target of a pointer argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The first byte of a tensor.
    Tensor(TensorId),
    /// The constant of a node (see `ggml_core::plan::Plan::constant`).
    Constant(TensorId),
    /// Memory that is valid from the first to the last launch of one step: byte offset, size in bytes.
    /// Aligned to 256 bytes if the offset is.
    Scratch(usize, usize),
    /// 32-bit counters (given number) for the coordination of work-groups: zero before a launch, which leaves
    /// them zero.
    Counters(u32),
}

/// Launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Stem of the code object (that of the kernel's source file).
    pub module: &'static str,
    /// Symbol of the kernel in the code object.
    pub kernel: &'static str,
    /// Pointer arguments in order: operands that are read, then operands that are written.
    pub operands: Vec<Operand>,
    /// Number of operands at the end of the list that are written.
    pub written: usize,
    /// Bytes of the parameter structure.
    pub params: Vec<u8>,
    /// Number of work-groups.
    pub grid: [u32; 3],
    /// Threads of a work-group.
    pub block: [u32; 3],
    /// Bytes of LDS in addition to those that the kernel declares.
    pub lds_bytes: u32,
}

impl Launch {
    /// Returns the operands that are read, and those that are written.
    pub(crate) fn parts(&self) -> (&[Operand], &[Operand]) {
        self.operands.split_at(self.operands.len().saturating_sub(self.written))
    }
}

/// Inputs of a family's function.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// The node; for a group, the node that names it.
    pub node: TensorId,
    /// The device.
    pub profile: &'a Profile,
    /// Allowed rounding.
    pub precision: Precision,
}

/// Returns the launches that compute a group, in order, or the reason why it is not fused.
pub fn plan_group(context: &Context<'_>, group: &Group) -> Result<Vec<Launch>, Refusal> {
    match group {
        Group::Node(_) => plan_node(context),
        Group::Products(products) => products::plan(context, products),
        Group::Experts(experts) => products::plan_experts(context, experts),
        Group::Heads(group) => heads::plan(context, group),
        Group::Chain(chain) => unary::plan_chain(context, chain),
        Group::Router(router) => top_k::plan_router(context, router),
        Group::Gate(group) => gate::plan(context, group),
        Group::Norm(norm) => norm::plan_norm(context, norm),
        Group::Scaled(scaled) => norm::plan_scaled(context, scaled),
        Group::Conv(conv) => ssm_conv::plan_group(context, conv),
        Group::Delta(delta) => delta_net::plan_group(context, delta),
        Group::Best(best) => top_k::plan_best(context, best),
        other => Err(Refusal(format!("{} are not computed together on HIP", other.name(context.graph)))),
    }
}

/// Returns the launches that compute a node, in order. Views and leaves have none.
fn plan_node(context: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    match context.graph.tensor(context.node).op() {
        None | Some(Op::View(_) | Op::Reshape(_) | Op::Permute(_) | Op::Transpose(_)) => Ok(Vec::new()),
        Some(Op::GetRows(_) | Op::SetRows(_)) => rows::plan(context),
        Some(Op::MulMat(_)) => mul_mat::plan(context),
        Some(Op::MulMatId(_)) => mul_mat_id::plan(context),
        Some(Op::TopK(_)) => top_k::plan(context),
        Some(Op::Binary(_)) => binary::plan(context),
        Some(Op::RmsNorm(_)) => norm::plan(context),
        Some(Op::Rope(_)) => rope::plan(context),
        Some(Op::SoftMax(_)) => soft_max::plan(context),
        Some(Op::Unary(_) | Op::Scale(_)) => unary::plan(context),
        Some(Op::Glu(_)) => glu::plan(context),
        Some(Op::Cpy(_) | Op::Cont(_)) => copy::plan(context),
        Some(Op::CacheMask(_)) => cache_mask::plan(context),
        Some(Op::FlashAttnExt(_)) => flash_attn::plan(context),
        Some(Op::SsmConv(_)) => ssm_conv::plan(context),
        Some(Op::SsmScan(_)) => ssm_scan::plan(context),
        Some(Op::GatedDeltaNet(_)) => delta_net::plan(context),
        Some(other) => Err(Refusal(format!("{} has no kernels for HIP", other.name()))),
    }
}
