//! Planning shared by operations whose state is updated by one token after the other: eight invocations hold
//! a column of the state of one head in their registers, a work-group eight columns.

use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use bytemuck::NoUninit;
use ggml_core::TensorId;

/// Invocations that share a column.
const SHARERS: u32 = 8;
/// Invocations of a work-group: one wavefront of GCN, whose barriers cost nothing.
const WORKGROUP: u32 = 64;

/// Name of a shader and its variant.
pub(super) type Shader = (&'static str, &'static str);

/// Shape of a node's states.
pub(super) struct States {
    /// Elements of a column.
    pub(super) length: u32,
    /// Columns of a head.
    pub(super) columns: u32,
    pub(super) heads: u32,
    pub(super) slots: u32,
}

/// Returns the pipeline for columns of up to `length` elements. Powers of two, so that models share
/// pipelines.
fn spec(profile: &Profile, shader: Shader, length: u32) -> PipelineSpec {
    let quads = length.div_ceil(4 * SHARERS).next_power_of_two();
    pipeline(shader.0, shader.1, &[profile.workgroup(WORKGROUP), quads])
}

/// Returns the dispatch of a node or a group with these operands, the result included.
pub(super) fn plan(
    c: &Context<'_>,
    shader: Shader,
    operands: &[TensorId],
    p: &impl NoUninit,
    states: &States,
) -> Result<Vec<Dispatch>, Refusal> {
    let spec = spec(c.profile, shader, states.length);
    let columns = spec.specialization[0] / SHARERS;
    let grid = [states.columns.div_ceil(columns.max(1)), states.heads, states.slots];
    let limits = c.profile.caps.max_workgroups;
    if (0..3).any(|i| grid[i] > limits[i]) {
        let States { heads, slots, .. } = states;
        let name = c.graph.tensor(c.node).op().map_or(shader.0, |op| op.name());
        return Err(Refusal(format!(
            "{name} of {heads} heads, {slots} sequences needs too many work-groups"
        )));
    }
    Ok(vec![dispatch(spec, operands.iter().copied(), p, grid)])
}

/// Returns the pipelines for columns of up to `longest` elements.
pub(super) fn pipelines(profile: &Profile, shader: Shader, longest: usize) -> Vec<PipelineSpec> {
    let longest = (longest as u32).div_ceil(4 * SHARERS).ilog2();
    (0..=longest).map(|i| spec(profile, shader, (4 * SHARERS) << i)).collect()
}
