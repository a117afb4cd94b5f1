//! SSM_CONV.

use super::grid::rows;
use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::tuning::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::kernel::SsmConvParams;

fn spec(profile: &Profile, once: u32) -> PipelineSpec {
    pipeline("ssm_conv", "default", &[profile.workgroup(profile.tuning.elementwise), once])
}

/// The dispatch of an SSM_CONV node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = SsmConvParams::new(c.graph, c.node, &c.offsets())?;
    let all = p.tokens + (p.taps - 1) * p.slots;
    let grid = rows(c.profile, c.profile.workgroup(c.profile.tuning.elementwise), [p.channels, all, 1, 1]);
    let operands = [c.src(0), c.src(1), c.src(2), c.src(3), c.node];
    Ok(vec![dispatch(spec(c.profile, grid.once), operands, &p, grid.groups)])
}

/// The pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    vec![spec(profile, 0), spec(profile, 1)]
}
