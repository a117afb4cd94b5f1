//! From a node to dispatches: one function for each family of operations.
//!
//! A family's function either returns the dispatches that compute a node or says why there are none, so that
//! `supports` and `prepare` cannot disagree. It knows the device only as a [`Profile`] and the
//! operands' places only as [`Windows`].

use crate::device::tuning::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::fuse::Group;
use ggml_core::precision::Precision;
use ggml_core::{DType, Graph, Op, Tensor, TensorId};

pub mod binary;
pub mod cache_mask;
mod chunks;
pub mod copy;
#[cfg(test)]
mod coverage;
pub mod delta_net;
pub mod flash_attn;
pub mod gate;
pub mod glu;
mod grid;
pub mod heads;
pub mod mul_mat;
pub mod mul_mat_id;
pub mod norm;
mod parts;
pub mod products;
mod recurrent;
pub mod rope;
pub mod rows;
pub mod soft_max;
pub mod ssm_conv;
pub mod ssm_scan;
mod staged;
pub mod top_k;
pub mod unary;
mod vec_shape;
mod weights;

/// What a dispatch binds, in the order of the shader's bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The window of a tensor (its whole span).
    Tensor(TensorId),
    /// Part of a tensor's span, for operands larger than a window: byte offset after the tensor's beginning, bytes.
    Part(TensorId, usize, usize),
    /// The constant of a node (see [`ggml_core::kernel::constant`]).
    Constant(TensorId),
    /// The grid that weights of a type are chosen from ([`ggml_core::grids`]).
    Grid(DType),
    /// So many bytes of the program's own, which hold anything when the dispatch begins.
    Scratch(usize),
    /// The same, so many bytes behind where these begin (`skip`, which suits the device): skip, bytes.
    Behind(usize, usize),
    /// Bytes of the program's own that hold zeros when the dispatch begins: it has to leave them so.
    Counters(usize),
}

impl Operand {
    /// The tensor, the byte of it with which the operand begins, and the operand's bytes; `None` for what is no tensor.
    pub(crate) fn part(&self, graph: &Graph) -> Option<(TensorId, usize, usize)> {
        match *self {
            Operand::Tensor(id) => Some((id, 0, graph.tensor(id).span_bytes())),
            Operand::Part(id, skip, bytes) => Some((id, skip, bytes)),
            Operand::Constant(_) | Operand::Grid(_) => None,
            Operand::Scratch(_) | Operand::Behind(..) | Operand::Counters(_) => None,
        }
    }
}

/// One dispatch of one shader.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    /// The shader with its constants.
    pub pipeline: PipelineSpec,
    /// Operands that are read, then those that are written, then a grid, in binding order.
    pub operands: Vec<Operand>,
    /// How many operands are written.
    pub written: usize,
    /// The parameter structure's bytes.
    pub params: Vec<u8>,
    /// Work-groups.
    pub grid: [u32; 3],
}

/// What the windows of operands are like once they are aligned to what the device demands.
pub trait Windows {
    /// What remains of a tensor's offset, in blocks.
    fn remainder(&self, graph: &Graph, tensor: TensorId) -> u32;

    /// Bytes of the window of a part of a tensor: `bytes` bytes, `skip` bytes after its beginning.
    fn bytes(&self, graph: &Graph, tensor: TensorId, skip: usize, bytes: usize) -> u64;
}

/// Windows that begin exactly at their tensors: for `supports`, before anything has a place.
#[derive(Clone, Copy, Debug)]
pub struct ExactWindows;

impl Windows for ExactWindows {
    fn remainder(&self, _graph: &Graph, _tensor: TensorId) -> u32 {
        0
    }

    fn bytes(&self, _graph: &Graph, _tensor: TensorId, _skip: usize, bytes: usize) -> u64 {
        bytes as u64
    }
}

/// Everything that a family's function may look at.
pub struct Context<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// The node; of a group the one that names it.
    pub node: TensorId,
    /// The device and its tuning.
    pub profile: &'a Profile,
    /// How much rounding is allowed.
    pub precision: Precision,
    /// Places of operands.
    pub windows: &'a dyn Windows,
}

/// Why a node cannot be computed, in words that a user can act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl From<ggml_core::Error> for Refusal {
    fn from(error: ggml_core::Error) -> Refusal {
        Refusal(error.to_string())
    }
}

impl Context<'_> {
    /// Remainders of the node's operands and the node itself, in the form that the parameter structures take.
    pub fn offsets(&self) -> Vec<u32> {
        let src = self.graph.tensor(self.node).src();
        src.iter().chain([&self.node]).map(|&t| self.windows.remainder(self.graph, t)).collect()
    }

    /// The node.
    fn result(&self) -> &Tensor {
        self.graph.tensor(self.node)
    }

    /// An operand's id; the node's own if it has no such operand, which the graph's rules exclude.
    fn src(&self, i: usize) -> TensorId {
        self.result().src().get(i).copied().unwrap_or(self.node)
    }

    /// An operand.
    fn operand(&self, i: usize) -> &Tensor {
        self.graph.tensor(self.src(i))
    }

    /// Number of operands.
    fn operands(&self) -> usize {
        self.result().src().len()
    }

    /// Bytes of the largest window.
    fn window_limit(&self) -> usize {
        usize::try_from(self.profile.caps.max_binding).unwrap_or(usize::MAX)
    }
}

/// A dispatch with one written operand, the last.
fn dispatch(
    pipeline: PipelineSpec,
    operands: impl IntoIterator<Item = TensorId>,
    params: &impl bytemuck::NoUninit,
    grid: [u32; 3],
) -> Dispatch {
    Dispatch {
        pipeline,
        operands: operands.into_iter().map(Operand::Tensor).collect(),
        written: 1,
        params: bytemuck::bytes_of(params).to_vec(),
        grid,
    }
}

/// A pipeline.
fn pipeline(shader: &'static str, variant: &'static str, specialization: &[u32]) -> PipelineSpec {
    PipelineSpec { shader, variant, specialization: specialization.to_vec(), subgroup: None }
}

/// The dispatches that compute a group, or why it is not computed together. Views and empty tensors need none.
pub fn plan_group(context: &Context<'_>, group: &Group) -> Result<Vec<Dispatch>, Refusal> {
    let dispatches = match group {
        Group::Node(_) => plan_node(context),
        Group::Heads(group) => heads::plan(context, group),
        Group::Chain(chain) => unary::plan_chain(context, chain),
        Group::Router(router) => top_k::plan_router(context, router),
        Group::Gate(group) => gate::plan(context, group),
        Group::Norm(norm) => norm::plan_norm(context, norm),
        Group::Scaled(scaled) => norm::plan_scaled(context, scaled),
        Group::Conv(conv) => ssm_conv::plan_group(context, conv),
        Group::Delta(delta) => delta_net::plan_group(context, delta),
        Group::Best(best) => top_k::plan_best(context, best),
        Group::Products(group) => products::plan(context, group),
        Group::Experts(group) => mul_mat_id::plan_experts(context, group),
        other => Err(Refusal(format!("{} are not computed together on Vulkan", other.name(context.graph)))),
    }?;
    let parts = dispatches.iter().flat_map(|d| &d.operands).filter_map(|o| o.part(context.graph));
    for (id, skip, bytes) in parts {
        let (window, most) =
            (context.windows.bytes(context.graph, id, skip, bytes), context.profile.caps.max_binding);
        if window > most {
            let (name, tensor) = (group.name(context.graph), context.graph.tensor(id).describe());
            return Err(Refusal(format!(
                "{name}: {tensor} takes a window of {window} bytes, the largest on this device has {most}"
            )));
        }
    }
    Ok(dispatches)
}

fn plan_node(context: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let node = context.result();
    let Some(op) = node.op() else { return Ok(Vec::new()) };
    if op.is_view() || node.elements() == 0 {
        return Ok(Vec::new());
    }
    if let Some(empty) = context.graph.operands(context.node).iter().find(|t| t.elements() == 0) {
        return Err(Refusal(format!("{} with the empty operand {}", op.name(), empty.describe())));
    }
    match op {
        Op::Binary(_) => binary::plan(context),
        Op::CacheMask(_) => cache_mask::plan(context),
        Op::Cpy(_) | Op::Cont(_) => copy::plan(context),
        Op::FlashAttnExt(_) => flash_attn::plan(context),
        Op::GatedDeltaNet(_) => delta_net::plan(context),
        Op::Glu(_) => glu::plan(context),
        Op::MulMat(_) => mul_mat::plan(context),
        Op::MulMatId(_) => mul_mat_id::plan(context),
        Op::RmsNorm(_) => norm::plan(context),
        Op::Rope(_) => rope::plan(context),
        Op::GetRows(_) | Op::SetRows(_) => rows::plan(context),
        Op::SoftMax(_) => soft_max::plan(context),
        Op::SsmConv(_) => ssm_conv::plan(context),
        Op::SsmScan(_) => ssm_scan::plan(context),
        Op::TopK(_) => top_k::plan(context),
        Op::Unary(_) | Op::Scale(_) => unary::plan(context),
        other => Err(Refusal(format!("there is no Vulkan kernel for {}", other.name()))),
    }
}

/// Weights that an invocation of a mat-vec pipeline takes of a row at a time.
pub(crate) fn piece(pipeline: &PipelineSpec) -> Option<u32> {
    let of_type = weights::WEIGHTS.iter().find(|w| w.vec_variants().contains(&pipeline.variant))?;
    Some(of_type.piece)
}

/// Every pipeline that [`plan_group`] may ask for on a device, for audits of what its compiler makes of them. Where a
/// specialisation follows from a model's shape (heads that share a key, columns of a value row), usual values stand for
/// all.
pub fn all_pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let mut all = [
        binary::pipelines(profile),
        cache_mask::pipelines(profile),
        copy::pipelines(profile),
        delta_net::pipelines(profile),
        flash_attn::pipelines(profile),
        gate::pipelines(profile),
        glu::pipelines(profile),
        heads::pipelines(profile),
        mul_mat::pipelines(profile),
        mul_mat_id::pipelines(profile),
        norm::pipelines(profile),
        products::pipelines(profile),
        rope::pipelines(profile),
        rows::pipelines(profile),
        soft_max::pipelines(profile),
        ssm_conv::pipelines(profile),
        ssm_scan::pipelines(profile),
        top_k::pipelines(profile),
        unary::pipelines(profile),
    ]
    .concat();
    all.sort();
    all.dedup();
    all
}
