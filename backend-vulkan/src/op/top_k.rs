//! TOP_K, by itself and fused with the soft-max of the selected values; the best of long rows.

use super::grid::whole_rows;
use super::{Context, Dispatch, Operand, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::TensorId;
use ggml_core::fuse::{Best, Router};
use ggml_core::kernel::{BestParams, TopKParams};

/// Maximum length of short rows, like the scores of experts: one subgroup holds them in its registers.
const SHORT: u32 = 1024;

/// Invocations of a work-group that processes a part of a row.
const PART: u32 = 128;
/// Maximum quads of a part that an invocation has in flight.
const MOST_QUADS: u32 = 4;

fn spec(profile: &Profile, n: u32, once: u32) -> PipelineSpec {
    let short = n <= SHORT;
    let workgroup = if short { profile.wave() } else { profile.workgroup(profile.tuning.row) };
    let held = if short { n.div_ceil(workgroup).next_power_of_two() } else { 0 };
    pipeline("top_k", profile.reduction(), &[workgroup, once, held])
}

/// Returns the dispatch of a TOP_K node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = TopKParams::new(c.graph, c.node, &c.offsets())?;
    Ok(plan_rows(c, [c.src(0), c.node, c.node], &p))
}

/// Returns the dispatch of a group.
pub(super) fn plan_router(c: &Context<'_>, router: &Router) -> Result<Vec<Dispatch>, Refusal> {
    let operands = [router.scores, router.ids, router.weights];
    let p = TopKParams::of_group(c.graph, router, operands.map(|id| c.windows.remainder(c.graph, id)))?;
    let most = c.profile.wave();
    if p.k > most {
        return Err(Refusal(format!(
            "a router of {} experts per token is not fused; the maximum is {most}",
            p.k
        )));
    }
    Ok(plan_rows(c, operands, &p))
}

fn plan_rows(c: &Context<'_>, operands: [TensorId; 3], p: &TopKParams) -> Vec<Dispatch> {
    let grid = whole_rows(c.profile, p.ne);
    let spec = spec(c.profile, p.ne[0], grid.once);
    vec![Dispatch { written: 2, ..dispatch(spec, operands, p, grid.groups) }]
}

/// Returns the pipeline for the best of rows. `wide`: rows begin at multiples of four elements and consist of
/// whole quads, or there is only one row, which begins at one.
fn best_spec(profile: &Profile, part: u32, wide: bool) -> PipelineSpec {
    let workgroup = profile.workgroup(PART);
    let quads = (part / (4 * workgroup)).clamp(1, MOST_QUADS);
    pipeline("best", profile.reduction(), &[workgroup, quads, wide.into()])
}

/// Returns the dispatch for the best of rows.
pub(super) fn plan_best(c: &Context<'_>, best: &Best) -> Result<Vec<Dispatch>, Refusal> {
    let off = |id| c.windows.remainder(c.graph, id);
    let p = BestParams::new(c.graph, best, 4 * c.profile.workgroup(PART), &off)?;
    let rows = c.graph.tensor(best.logits).ne[1];
    let [across, along, _] = c.profile.caps.max_workgroups;
    let groups = u32::try_from(rows).ok().filter(|&rows| rows <= along && p.parts <= across);
    let Some(groups) = groups else {
        return Err(Refusal(format!("the best of {rows} rows needs too many work-groups")));
    };
    let wide = p.offx.is_multiple_of(4) && (rows == 1 || p.n.is_multiple_of(4));
    let [x, results @ ..] = BestParams::operands(best);
    let operands = [x, x].into_iter().chain(results);
    let spec = best_spec(c.profile, p.part, wide);
    let mut dispatch = dispatch(spec, operands, &p, [p.parts, groups, 1]);
    let words = rows * BestParams::WORDS * p.parts as usize;
    dispatch.operands.extend([Operand::Scratch(4 * words), Operand::Counters(4 * rows)]);
    Ok(vec![Dispatch { written: 6, ..dispatch }])
}

/// Returns the pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let rows = [64, SHORT, SHORT + 1];
    let rows = rows.into_iter().flat_map(|n| [0, 1].map(|once| spec(profile, n, once)));
    let quad = 4 * profile.workgroup(PART);
    let best =
        (1..=MOST_QUADS).flat_map(|quads| [false, true].map(|wide| best_spec(profile, quads * quad, wide)));
    rows.chain(best).collect()
}
