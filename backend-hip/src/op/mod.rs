//! From a node to kernel launches: one function for each family of operations.
//!
//! A family's function either returns the launches that compute a node or says why there are none, so that `supports`
//! and `prepare` cannot disagree. It knows the device only as a [`Profile`] and never sees an address: operands are
//! named, and pointers exactly at their first byte are put in their places when a program is prepared. So the `off`
//! fields of the parameter structures count from an operand's own beginning: `XParams::new(graph, node, &[])`.
//!
//! # Arguments of a kernel
//!
//! Eight bytes for each operand, in the order of [`Launch::operands`] (those that are read, then those that are
//! written, as in the bindings of the Vulkan shader of the same stem), then the parameter structure by value. What
//! the code object says of its arguments is compared with this before anything is launched.

use crate::arch::Profile;
use ggml_core::fuse::Group;
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

/// What a pointer argument points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The first byte of a tensor.
    Tensor(TensorId),
    /// The constant of a node (see `ggml_core::plan::Plan::constant`).
    Constant(TensorId),
    /// Memory that lasts from the first to the last launch of one step: byte offset, bytes. Aligned to 256 bytes if
    /// the offset is.
    Scratch(usize, usize),
    /// So many counters of 32 bits for work-groups that meet: zeros before a launch, which leaves zeros.
    Counters(u32),
}

/// One launch of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Stem of the code object (that of the kernel's source file).
    pub module: &'static str,
    /// Symbol of the kernel in it.
    pub kernel: &'static str,
    /// Operands that are read, then those that are written: the pointer arguments in order.
    pub operands: Vec<Operand>,
    /// How many of the last operands are written.
    pub written: usize,
    /// The parameter structure's bytes.
    pub params: Vec<u8>,
    /// Work-groups.
    pub grid: [u32; 3],
    /// Threads of a work-group.
    pub block: [u32; 3],
    /// Bytes of LDS beyond what the kernel declares itself.
    pub lds_bytes: u32,
}

impl Launch {
    /// The operands that are read, and those that are written.
    pub(crate) fn parts(&self) -> (&[Operand], &[Operand]) {
        self.operands.split_at(self.operands.len().saturating_sub(self.written))
    }
}

/// Everything that a family's function may look at.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// The node; of a group the one that names it.
    pub node: TensorId,
    /// The device.
    pub profile: &'a Profile,
    /// How much rounding is allowed.
    pub precision: Precision,
}

/// Why a node cannot be computed, in words that a user can act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl From<ggml_core::Error> for Refusal {
    fn from(error: ggml_core::Error) -> Refusal {
        Refusal(error.to_string())
    }
}

/// The launches that compute a group, in order, or why it is not computed together.
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

/// The launches that compute a node, in order. None for views and leaves.
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
