//! RMS_NORM.

use super::grid::whole_rows;
use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::tuning::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::kernel::NormParams;

fn spec(profile: &Profile, once: u32) -> PipelineSpec {
    pipeline("rms_norm", profile.reduction(), &[profile.workgroup(profile.tuning.row), once])
}

/// The dispatch of an RMS_NORM node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = NormParams::new(c.graph, c.node, &c.offsets())?;
    let grid = whole_rows(c.profile, p.ne);
    Ok(vec![dispatch(spec(c.profile, grid.once), [c.src(0), c.node], &p, grid.groups)])
}

/// The pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    vec![spec(profile, 0), spec(profile, 1)]
}
