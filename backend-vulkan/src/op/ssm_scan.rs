//! SSM_SCAN.

use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::tuning::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::kernel::SsmScanParams;
use ggml_core::op::ssm_scan::MAX_STATE;

/// Invocations that share a channel's state.
const SHARERS: u32 = 8;
/// Invocations of a work-group: one wave of GCN, whose barriers cost nothing.
const WORKGROUP: u32 = 64;

/// For states of up to `n` elements. Powers of two, so that models share pipelines.
fn spec(profile: &Profile, n: u32) -> PipelineSpec {
    let quads = n.div_ceil(4 * SHARERS).next_power_of_two();
    pipeline("ssm_scan", "default", &[profile.workgroup(WORKGROUP), quads])
}

/// The dispatch of an SSM_SCAN node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = SsmScanParams::new(c.graph, c.node, &c.offsets())?;
    let spec = spec(c.profile, p.d[0]);
    let columns = spec.specialization[0] / SHARERS;
    let grid = [p.d[1].div_ceil(columns.max(1)), p.heads[1], p.slots];
    let limits = c.profile.caps.max_workgroups;
    if (0..3).any(|i| grid[i] > limits[i]) {
        return Err(Refusal(format!(
            "SSM_SCAN of {} heads, {} sequences needs too many work-groups",
            p.heads[1], p.slots
        )));
    }
    let operands = [0, 1, 2, 3, 4, 5, 6].map(|i| c.src(i)).into_iter().chain([c.node]);
    Ok(vec![dispatch(spec, operands, &p, grid)])
}

/// The pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let longest = (MAX_STATE as u32).div_ceil(4 * SHARERS).ilog2();
    (0..=longest).map(|i| spec(profile, (4 * SHARERS) << i)).collect()
}
