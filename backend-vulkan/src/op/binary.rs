//! ADD and MUL.

use super::grid::{Strided, merge, rows};
use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::kernel::BinaryParams;

fn spec(profile: &Profile, once: u32) -> PipelineSpec {
    pipeline("binary", "default", &[profile.workgroup(profile.tuning.elementwise), once])
}

/// Returns the dispatch of an ADD or MUL node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let mut p = BinaryParams::new(c.graph, c.node, &c.offsets())?;
    let mut shapes =
        [Strided { ne: p.ne, nb: p.nbd }, Strided { ne: p.ne, nb: p.nb0 }, Strided { ne: p.ne1, nb: p.nb1 }];
    merge(&mut shapes);
    let [d, a, b] = shapes;
    (p.ne, p.nbd, p.nb0, p.ne1, p.nb1) = (d.ne, d.nb, a.nb, b.ne, b.nb);
    let grid = rows(c.profile, c.profile.workgroup(c.profile.tuning.elementwise), p.ne);
    Ok(vec![dispatch(spec(c.profile, grid.once), [c.src(0), c.src(1), c.node], &p, grid.groups)])
}

/// Returns the pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    vec![spec(profile, 0), spec(profile, 1)]
}
