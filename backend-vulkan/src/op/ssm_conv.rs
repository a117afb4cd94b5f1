//! SSM_CONV.

use super::grid::rows;
use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::fuse::Conv;
use ggml_core::kernel::{ConvParams, SsmConvParams};

fn spec(profile: &Profile, once: u32) -> PipelineSpec {
    pipeline("ssm_conv", "default", &[profile.workgroup(profile.tuning.elementwise), once])
}

fn conv_spec(profile: &Profile, once: u32) -> PipelineSpec {
    pipeline("conv", "default", &[profile.workgroup(profile.tuning.elementwise), once])
}

/// Returns the dispatch of a group.
pub(super) fn plan_group(c: &Context<'_>, conv: &Conv) -> Result<Vec<Dispatch>, Refusal> {
    let p = ConvParams::new(c.graph, conv, &|id| c.windows.remainder(c.graph, id))?;
    let workgroup = c.profile.workgroup(c.profile.tuning.elementwise);
    let grid = rows(c.profile, workgroup, [p.channels, p.tiles(), 1, 1]);
    let operands = ConvParams::operands(c.graph, conv);
    let dispatch = dispatch(conv_spec(c.profile, grid.once), operands, &p, grid.groups);
    Ok(vec![Dispatch { written: 2, ..dispatch }])
}

/// Returns the dispatch of an SSM_CONV node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = SsmConvParams::new(c.graph, c.node, &c.offsets())?;
    let all = p.tokens + (p.taps - 1) * p.slots;
    let grid = rows(c.profile, c.profile.workgroup(c.profile.tuning.elementwise), [p.channels, all, 1, 1]);
    let operands = [c.src(0), c.src(1), c.src(2), c.src(3), c.node];
    Ok(vec![dispatch(spec(c.profile, grid.once), operands, &p, grid.groups)])
}

/// Returns the pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    [0, 1].iter().flat_map(|&once| [spec(profile, once), conv_spec(profile, once)]).collect()
}
