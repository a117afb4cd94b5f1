//! SOFT_MAX.

use super::grid::whole_rows;
use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::kernel::SoftMaxParams;

fn spec(profile: &Profile, once: u32) -> PipelineSpec {
    pipeline("soft_max", profile.reduction(), &[profile.workgroup(profile.tuning.row), once])
}

/// Returns the dispatch of a SOFT_MAX node. If there is no mask, the operand is bound in its place.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = SoftMaxParams::new(c.graph, c.node, &c.offsets())?;
    let mask = if c.operands() > 1 { c.src(1) } else { c.src(0) };
    let grid = whole_rows(c.profile, p.ne);
    Ok(vec![dispatch(spec(c.profile, grid.once), [c.src(0), mask, c.node], &p, grid.groups)])
}

/// Returns the pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    vec![spec(profile, 0), spec(profile, 1)]
}
