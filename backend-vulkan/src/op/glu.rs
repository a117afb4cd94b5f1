//! Gated linear units.

use super::grid::{Strided, merge, rows};
use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::kernel::GluParams;

fn spec(profile: &Profile, once: u32) -> PipelineSpec {
    pipeline("glu", "default", &[profile.workgroup(profile.tuning.elementwise), once])
}

/// Returns the dispatch of a GLU node. With one operand both windows are that operand's.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let mut p = GluParams::new(c.graph, c.node, &c.offsets())?;
    let mut shapes =
        [Strided { ne: p.ne, nb: p.nbd }, Strided { ne: p.ne, nb: p.nb0 }, Strided { ne: p.ne, nb: p.nb1 }];
    merge(&mut shapes);
    let [d, gate, up] = shapes;
    (p.ne, p.nbd, p.nb0, p.nb1) = (d.ne, d.nb, gate.nb, up.nb);
    let grid = rows(c.profile, c.profile.workgroup(c.profile.tuning.elementwise), p.ne);
    let up = if c.operands() > 1 { 1 } else { 0 };
    Ok(vec![dispatch(spec(c.profile, grid.once), [c.src(0), c.src(up), c.node], &p, grid.groups)])
}

/// Returns the pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    vec![spec(profile, 0), spec(profile, 1)]
}
