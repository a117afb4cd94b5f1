//! TOP_K, alone and with the soft-max of what it picks.

use super::grid::whole_rows;
use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::tuning::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::TensorId;
use ggml_core::fuse::Router;
use ggml_core::kernel::TopKParams;

/// Rows up to this length, the scores of experts, are for one wave and stay in its registers.
const SHORT: u32 = 1024;

fn spec(profile: &Profile, n: u32, once: u32) -> PipelineSpec {
    let short = n <= SHORT;
    let workgroup = if short { profile.wave() } else { profile.workgroup(profile.tuning.row) };
    let held = if short { n.div_ceil(workgroup).next_power_of_two() } else { 0 };
    pipeline("top_k", profile.reduction(), &[workgroup, once, held])
}

/// The dispatch of a TOP_K node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = TopKParams::new(c.graph, c.node, &c.offsets())?;
    Ok(plan_rows(c, [c.src(0), c.node, c.node], &p))
}

/// The dispatch of a group.
pub(super) fn plan_router(c: &Context<'_>, router: &Router) -> Result<Vec<Dispatch>, Refusal> {
    let operands = [router.scores, router.ids, router.weights];
    let p = TopKParams::of_group(c.graph, router, operands.map(|id| c.windows.remainder(c.graph, id)))?;
    let most = c.profile.wave();
    if p.k > most {
        return Err(Refusal(format!("a router of {} experts for each token, more than {most}", p.k)));
    }
    Ok(plan_rows(c, operands, &p))
}

fn plan_rows(c: &Context<'_>, operands: [TensorId; 3], p: &TopKParams) -> Vec<Dispatch> {
    let grid = whole_rows(c.profile, p.ne);
    let spec = spec(c.profile, p.ne[0], grid.once);
    vec![Dispatch { written: 2, ..dispatch(spec, operands, p, grid.groups) }]
}

/// The pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    [64, SHORT, SHORT + 1].iter().flat_map(|&n| [0, 1].map(|once| spec(profile, n, once))).collect()
}
