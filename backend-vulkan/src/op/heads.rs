//! The operations between the projections and attention.

use super::grid::whole_rows;
use super::{Context, Dispatch, Operand, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::fuse::Heads;
use ggml_core::kernel::HeadsParams;

/// Invocations per head.
const WORKGROUP: u32 = 64;

fn spec(profile: &Profile, d: u32, once: u32) -> PipelineSpec {
    let workgroup = profile.workgroup(WORKGROUP);
    let pairs = d.div_ceil(2 * workgroup);
    pipeline("heads", profile.reduction(), &[workgroup, once, pairs])
}

/// Returns the dispatch of a group. If there are no factors, the table of frequencies is bound in their
/// place.
pub(super) fn plan(c: &Context<'_>, heads: &Heads) -> Result<Vec<Dispatch>, Refusal> {
    let (p, o) = HeadsParams::new(c.graph, heads, &|id| c.windows.remainder(c.graph, id))?;
    let grid = whole_rows(c.profile, [p.d, p.heads.iter().sum(), p.tokens, 1]);
    let read = [&o.x[..], &o.w, &[o.positions, o.cells]].concat();
    let mut dispatch = dispatch(spec(c.profile, p.d, grid.once), read, &p, grid.groups);
    let table = Operand::Constant(o.table);
    dispatch.operands.extend([table, o.factors.map_or(table, Operand::Tensor)]);
    dispatch.operands.extend(o.d.map(Operand::Tensor));
    dispatch.written = o.d.len();
    Ok(vec![dispatch])
}

/// Returns the pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    [64, 256].iter().flat_map(|&d| [0, 1].map(|once| spec(profile, d, once))).collect()
}
