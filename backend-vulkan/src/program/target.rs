//! The device that graphs are lowered for, and its support of nodes and groups.

use crate::context::DeviceContext;
use crate::device::cost::Model;
use crate::device::profile::Profile;
use crate::op::{self, Context, Dispatch, ExactWindows, Refusal};
use crate::pipeline::PipelineSet;
use crate::pipeline::modules::Modules;
use ggml_core::backend::Support;
use ggml_core::fuse::Group;
use ggml_core::precision::Precision;
use ggml_core::{DType, Graph, Result, Source, TensorId};

/// Device description for lowering.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    /// Name for errors.
    pub(crate) name: &'a str,
    /// Device properties and tuning for operations.
    pub(crate) profile: &'a Profile,
    /// Shader modules with checks against the device.
    pub(crate) modules: &'a Modules,
    /// Estimates of execution times on the device.
    pub(crate) model: &'a Model,
}

impl<'a> Target<'a> {
    /// Creates the description of an open device.
    pub(crate) fn new(context: &'a DeviceContext, pipelines: &'a PipelineSet) -> Target<'a> {
        let (profile, model) = (&context.profile, &context.model);
        Target { name: context.name(), profile, modules: pipelines.modules(), model }
    }
}

/// Reports whether a node can be computed, regardless of its operands' offsets.
pub(crate) fn supports(target: &Target<'_>, graph: &Graph, node: TensorId) -> Support {
    if node.index() >= graph.tensors().len() {
        return Support::no("the node is not in the graph");
    }
    let computed = graph.tensor(node).op().is_some_and(|op| !op.is_view());
    if !computed {
        return Support::Native;
    }
    for precision in [Precision::Exact, Precision::Fast] {
        let support = joins(target, graph, &Group::Node(node), precision);
        if support != Support::Native {
            return support;
        }
    }
    Support::Native
}

/// Reports whether a group can be computed together, regardless of its operands' offsets.
pub(crate) fn joins(target: &Target<'_>, graph: &Graph, group: &Group, precision: Precision) -> Support {
    let (profile, windows) = (target.profile, &ExactWindows);
    let context = Context { graph, node: group.last(), profile, precision, windows };
    match plan(target, &context, group) {
        Ok(_) => Support::Native,
        Err(Refusal(reason)) => Support::Unsupported { reason },
    }
}

/// Returns true if a type can be an operand of MUL_MAT and GET_ROWS, by planning both operations for it.
pub(crate) fn supports_weights(target: &Target<'_>, dtype: DType) -> bool {
    let probe = || -> Result<bool> {
        let (mut graph, k) = (Graph::new(), dtype.block().max(32) * 8);
        let a = graph.leaf("a", dtype, [k, 64, 1, 1], Source::Weight)?;
        let ids = graph.leaf("ids", DType::I32, [4, 1, 1, 1], Source::Input)?;
        let rows = graph.get_rows(a, ids)?;
        let mut nodes = vec![rows];
        for n in [1, 64] {
            let b = graph.leaf(&format!("b{n}"), DType::F32, [k, n, 1, 1], Source::Input)?;
            nodes.push(graph.mul_mat(a, b)?);
        }
        Ok(nodes.into_iter().all(|node| supports(target, &graph, node) == Support::Native))
    };
    probe().unwrap_or(false)
}

/// Returns the dispatches of a group, checked against their shaders and the device.
pub(super) fn plan(
    target: &Target<'_>,
    context: &Context<'_>,
    group: &Group,
) -> Result<Vec<Dispatch>, Refusal> {
    let dispatches = op::plan_group(context, group)?;
    for dispatch in &dispatches {
        check(target, dispatch).map_err(Refusal)?;
    }
    Ok(dispatches)
}

/// Returns the reason why a dispatch cannot run on the device, or does not match its shader. A mismatch is a
/// bug in this library.
fn check(target: &Target<'_>, dispatch: &Dispatch) -> Result<(), String> {
    let spec = &dispatch.pipeline;
    let module = target.modules.check(spec)?;
    let (bindings, push) = (module.bindings(), module.push_bytes());
    if dispatch.operands.len() != bindings as usize {
        return Err(format!("{spec}: {} operands for {bindings} bindings", dispatch.operands.len()));
    }
    if dispatch.params.len() != push as usize {
        return Err(format!("{spec}: {} bytes of parameters for {push}", dispatch.params.len()));
    }
    let limits = target.profile.caps.max_workgroups;
    if (0..3).any(|d| dispatch.grid[d] == 0 || dispatch.grid[d] > limits[d]) {
        return Err(format!("{spec}: a grid of {:?} is outside the device's {limits:?}", dispatch.grid));
    }
    Ok(())
}
