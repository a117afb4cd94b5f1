//! RMS_NORM.

use super::grid::whole_rows;
use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::pipeline::PipelineSpec;
use crate::tuning::Profile;
use ggml_core::kernel::NormParams;

fn spec(profile: &Profile) -> PipelineSpec {
    let mut spec = pipeline("rms_norm", profile.reduction(), &[profile.workgroup(profile.tuning.row)]);
    spec.subgroup = profile.required_subgroup();
    spec
}

/// The dispatch of an RMS_NORM node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = NormParams::new(c.graph, c.node, &c.offsets())?;
    Ok(vec![dispatch(spec(c.profile), [c.src(0), c.node], &p, whole_rows(c.profile, p.ne))])
}

/// The pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    vec![spec(profile)]
}
