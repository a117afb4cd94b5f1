//! TOP_K.

use super::grid::whole_rows;
use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::tuning::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::kernel::TopKParams;

/// Rows up to this length, the weights of experts, are for one wave.
const SHORT: u32 = 1024;

fn spec(profile: &Profile, short: bool, once: u32) -> PipelineSpec {
    let workgroup = if short { 64 } else { profile.tuning.row };
    pipeline("top_k", "default", &[profile.workgroup(workgroup), once])
}

/// The dispatch of a TOP_K node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = TopKParams::new(c.graph, c.node, &c.offsets())?;
    let grid = whole_rows(c.profile, p.ne);
    Ok(vec![dispatch(spec(c.profile, p.ne[0] <= SHORT, grid.once), [c.src(0), c.node], &p, grid.groups)])
}

/// The pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    [true, false].iter().flat_map(|&short| [0, 1].map(|once| spec(profile, short, once))).collect()
}
