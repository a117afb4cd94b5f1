//! TOP_K, by itself and fused with the soft-max of the selected elements: a wavefront for each row. The best
//! of long rows: many work-groups for each row.

use super::grid::{ROW_THREADS, launch, rows_of, scratch, tensors};
use super::{Context, Launch, Operand, Refusal};
use ggml_core::TensorId;
use ggml_core::fuse::{Best, Router};
use ggml_core::kernel::{BestParams, TopKParams};

/// Threads of a work-group that processes a part of a row.
const BEST_THREADS: u32 = 128;

/// Plans the launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = TopKParams::new(c.graph, c.node, &[])?;
    plan_rows(c, [c.graph.tensor(c.node).src()[0], c.node, c.node], &p)
}

/// Plans the launches of a group: each lane of a wavefront holds one of the weights.
pub(super) fn plan_router(c: &Context<'_>, router: &Router) -> Result<Vec<Launch>, Refusal> {
    let p = TopKParams::of_group(c.graph, router, [0; 3])?;
    if p.k > c.profile.wave {
        return Err(Refusal(format!(
            "a router of {} experts per token is not fused; the maximum is {}",
            p.k, c.profile.wave
        )));
    }
    plan_rows(c, [router.scores, router.ids, router.weights], &p)
}

fn plan_rows(c: &Context<'_>, operands: [TensorId; 3], p: &TopKParams) -> Result<Vec<Launch>, Refusal> {
    let groups = rows_of(p.ne)?.div_ceil(u64::from(ROW_THREADS / c.profile.wave));
    let launch = launch(c, ("top_k", "top_k"), tensors(&operands), p, [groups, 1, 1], ROW_THREADS)?;
    Ok(vec![Launch { written: 2, ..launch }])
}

/// Plans the launch that finds the best of each row.
pub(super) fn plan_best(c: &Context<'_>, best: &Best) -> Result<Vec<Launch>, Refusal> {
    let p = BestParams::new(c.graph, best, 4 * BEST_THREADS, &|_| 0)?;
    let [x, results @ ..] = BestParams::operands(best);
    let rows = c.graph.tensor(x).ne[1] as u64;
    let counters =
        u32::try_from(rows).map_err(|_| Refusal(format!("the best of {rows} rows: too many for 32 bits")))?;
    let [parts] = scratch(c, [(rows, 4 * BestParams::WORDS as u64 * u64::from(p.parts))])?;
    let operands = [vec![Operand::Tensor(x), parts, Operand::Counters(counters)], tensors(&results)].concat();
    let launch = launch(c, ("top_k", "best"), operands, &p, [p.parts.into(), rows, 1], BEST_THREADS)?;
    Ok(vec![Launch { written: 6, ..launch }])
}
