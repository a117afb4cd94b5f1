//! ROPE.

use super::grid::cover;
use super::{Context, Dispatch, Operand, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::kernel::RopeParams;

fn spec(profile: &Profile, once: u32) -> PipelineSpec {
    pipeline("rope", "default", &[profile.workgroup(profile.tuning.elementwise), once])
}

/// Returns the dispatch of a ROPE node. If there are no factors, the table is bound in their place.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = RopeParams::new(c.graph, c.node, &c.offsets())?;
    let [n0, heads, tokens, batch] = p.ne.map(u64::from);
    let units = (n0 - u64::from(p.n_dims) / 2) * heads;
    if u32::try_from(units).is_err() {
        return Err(Refusal(format!("ROPE of {} elements per token: indices have 32 bits", n0 * heads)));
    }
    let workgroup = u64::from(c.profile.workgroup(c.profile.tuning.elementwise));
    let grid = cover(c.profile, [units.div_ceil(workgroup), tokens, batch]);
    let mut dispatch = dispatch(spec(c.profile, grid.once), [c.src(0), c.src(1)], &p, grid.groups);
    let factors = if c.operands() > 2 { Operand::Tensor(c.src(2)) } else { Operand::Constant(c.node) };
    dispatch.operands.extend([Operand::Constant(c.node), factors, Operand::Tensor(c.node)]);
    Ok(vec![dispatch])
}

/// Returns the pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    vec![spec(profile, 0), spec(profile, 1)]
}
