//! Planning of nodes as dispatches: one function for each family of operations.
//!
//! A family's function returns either the dispatches that compute a node or the reason why there are none, so
//! that `supports` and `prepare` cannot disagree. It sees the device only as a [`Profile`] and the operands'
//! offsets only as [`Windows`].

use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::fuse::Group;
pub use ggml_core::kernel::Refusal;
use ggml_core::precision::Precision;
use ggml_core::{DType, Graph, Op, Tensor, TensorId};

pub mod batches;
mod binary;
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
mod mat_narrow;
mod matrix_forms;
pub mod mul_mat;
pub mod mul_mat_id;
pub mod norm;
pub mod products;
mod recurrent;
pub mod rope;
mod row_ranges;
pub mod rows;
pub mod soft_max;
pub mod ssm_conv;
pub mod ssm_scan;
mod staged;
pub mod top_k;
pub mod unary;
mod vec_shape;
mod weights;

/// An operand of a dispatch; operands are bound in the order of the shader's bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The window of a tensor (its whole span).
    Tensor(TensorId),
    /// Range of a tensor's span, for operands larger than a window: byte offset from the tensor's beginning,
    /// and bytes.
    Range(TensorId, usize, usize),
    /// The constant of a node (see [`ggml_core::kernel::constant`]).
    Constant(TensorId),
    /// The grid of values that weights of a type index ([`ggml_core::grids`]).
    Grid(DType),
    /// Bytes of the program's scratch memory, whose contents are undefined when the dispatch begins.
    Scratch(usize),
    /// Scratch memory at an offset: `skip` bytes from the beginning (a multiple of the device's alignment),
    /// and bytes.
    ScratchAt(usize, usize),
    /// Bytes of the program's counters, which are zero when the dispatch begins; the dispatch must leave them
    /// zero.
    Counters(usize),
}

impl Operand {
    /// Returns the tensor, the operand's byte offset in it, and the operand's bytes; `None` for operands that
    /// are no tensors.
    pub(crate) fn range(&self, graph: &Graph) -> Option<(TensorId, usize, usize)> {
        match *self {
            Operand::Tensor(id) => Some((id, 0, graph.tensor(id).span_bytes())),
            Operand::Range(id, skip, bytes) => Some((id, skip, bytes)),
            Operand::Constant(_) | Operand::Grid(_) => None,
            Operand::Scratch(_) | Operand::ScratchAt(..) | Operand::Counters(_) => None,
        }
    }
}

/// One dispatch of one shader.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    /// The shader and its constants.
    pub pipeline: PipelineSpec,
    /// Operands in binding order: those that are read, those that are written, then a grid if any.
    pub operands: Vec<Operand>,
    /// Number of written operands.
    pub written: usize,
    /// Bytes of the parameter structure.
    pub params: Vec<u8>,
    /// Number of work-groups in each dimension.
    pub grid: [u32; 3],
}

/// Properties of operands' windows after alignment to the device's requirement.
pub trait Windows {
    /// Returns the distance from the window's beginning to the tensor, in blocks.
    fn remainder(&self, graph: &Graph, tensor: TensorId) -> u32;

    /// Returns the bytes of the window of a part of a tensor: `bytes` bytes, `skip` bytes after its
    /// beginning.
    fn bytes(&self, graph: &Graph, tensor: TensorId, skip: usize, bytes: usize) -> u64;
}

/// Windows that begin exactly at their tensors: for `supports`, before tensors have offsets.
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

/// The inputs of a family's function.
pub struct Context<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// The node; for a group, the node that names it.
    pub node: TensorId,
    /// The device and its tuning.
    pub profile: &'a Profile,
    /// The allowed rounding.
    pub precision: Precision,
    /// Windows of the operands.
    pub windows: &'a dyn Windows,
}

impl Context<'_> {
    /// Returns the remainders of the node's operands and of the node itself, in the order that the parameter
    /// structures expect.
    pub fn offsets(&self) -> Vec<u32> {
        let src = self.graph.tensor(self.node).src();
        src.iter().chain([&self.node]).map(|&t| self.windows.remainder(self.graph, t)).collect()
    }

    /// Returns the node's tensor.
    fn result(&self) -> &Tensor {
        self.graph.tensor(self.node)
    }

    /// Returns an operand's id, or the node's own if it has fewer operands, which the graph's rules exclude.
    fn src(&self, i: usize) -> TensorId {
        self.result().src().get(i).copied().unwrap_or(self.node)
    }

    /// Returns an operand's tensor.
    fn operand(&self, i: usize) -> &Tensor {
        self.graph.tensor(self.src(i))
    }

    /// Returns the number of operands.
    fn operands(&self) -> usize {
        self.result().src().len()
    }

    /// Returns the maximum bytes of a window.
    fn window_limit(&self) -> usize {
        usize::try_from(self.profile.caps.max_binding).unwrap_or(usize::MAX)
    }
}

/// Returns a dispatch with one written operand, the last.
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

/// Returns a pipeline specification.
fn pipeline(shader: &'static str, variant: &'static str, specialization: &[u32]) -> PipelineSpec {
    PipelineSpec { shader, variant, specialization: specialization.to_vec(), subgroup: None }
}

/// Returns the dispatches that compute a group, or the reason why it is not computed together. Views and
/// empty tensors need none.
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
    let ranges = dispatches.iter().flat_map(|d| &d.operands).filter_map(|o| o.range(context.graph));
    for (id, skip, bytes) in ranges {
        let (window, most) =
            (context.windows.bytes(context.graph, id, skip, bytes), context.profile.caps.max_binding);
        if window > most {
            let (name, tensor) = (group.name(context.graph), context.graph.tensor(id).describe());
            return Err(Refusal(format!(
                "{name}: {tensor} needs a window of {window} bytes; the device's maximum is {most}"
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

/// Returns the number of weights of a row that an invocation of a matrix-vector pipeline reads at a time.
pub(crate) fn piece(pipeline: &PipelineSpec) -> Option<u32> {
    let of_type = weights::WEIGHTS.iter().find(|w| w.vec_variants().contains(&pipeline.variant))?;
    Some(of_type.piece)
}

/// Returns every pipeline that [`plan_group`] may request on a device, for audits of the compiled code. Where
/// a specialisation depends on a model's shape (heads that share a key, columns of a value row), only usual
/// values are included.
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
        mat_narrow::pipelines(profile),
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
