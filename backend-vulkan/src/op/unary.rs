//! Activations and SCALE, alone and in chains.

use super::grid::{Strided, merge, rows};
use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::tuning::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::fuse::Chain;
use ggml_core::kernel::UnaryParams;

fn spec(profile: &Profile, once: u32) -> PipelineSpec {
    pipeline("unary", "default", &[profile.workgroup(profile.tuning.elementwise), once])
}

/// The dispatch of an activation or SCALE node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    plan_chain(c, &Chain::of_one(c.graph, c.node))
}

/// The dispatch of several functions, one after the other. Without a row the operand stands in its place.
pub(super) fn plan_chain(c: &Context<'_>, chain: &Chain) -> Result<Vec<Dispatch>, Refusal> {
    let operands = [chain.x, chain.row.unwrap_or(chain.x), chain.result()];
    let mut p = UnaryParams::new(c.graph, chain, operands.map(|id| c.windows.remainder(c.graph, id)))?;
    if chain.row.is_none() {
        let mut shapes = [Strided { ne: p.ne, nb: p.nbd }, Strided { ne: p.ne, nb: p.nb0 }];
        merge(&mut shapes);
        let [d, a] = shapes;
        (p.ne, p.nbd, p.nb0) = (d.ne, d.nb, a.nb);
    }
    let grid = rows(c.profile, c.profile.workgroup(c.profile.tuning.elementwise), p.ne);
    Ok(vec![dispatch(spec(c.profile, grid.once), operands, &p, grid.groups)])
}

/// The pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    vec![spec(profile, 0), spec(profile, 1)]
}
