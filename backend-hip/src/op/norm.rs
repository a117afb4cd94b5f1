//! RMS_NORM, by itself and fused with the additions around it.

use super::grid::{ROW_THREADS, launch, rows_of, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::TensorId;
use ggml_core::fuse::{Norm, Scaled};
use ggml_core::kernel::NormParams;

/// Longest row for one wavefront, and for a work-group that holds it in registers.
const OF_A_WAVE: u32 = 512;
const OF_A_GROUP: u32 = 4096;

/// Plans the launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = NormParams::new(c.graph, c.node, &[])?;
    let (x, d) = (c.graph.tensor(c.node).src()[0], c.node);
    plan_rows(c, [x, x, x, x, d, d], &p)
}

/// Plans the launches of a group.
pub(super) fn plan_norm(c: &Context<'_>, norm: &Norm) -> Result<Vec<Launch>, Refusal> {
    plan_rows(c, NormParams::operands(norm), &NormParams::of_group(c.graph, norm, &|_| 0)?)
}

/// Plans the launches of a norm times a scalar.
pub(super) fn plan_scaled(c: &Context<'_>, scaled: &Scaled) -> Result<Vec<Launch>, Refusal> {
    let (x, d) = (scaled.x, scaled.nodes[1]);
    plan_rows(c, [x, x, x, x, d, d], &NormParams::of_scaled(c.graph, scaled, [0; 2])?)
}

fn plan_rows(c: &Context<'_>, operands: [TensorId; 6], p: &NormParams) -> Result<Vec<Launch>, Refusal> {
    let rows = rows_of(p.ne)?;
    let gated = p.parts & NormParams::GATE != 0;
    let waves = rows.div_ceil(u64::from(ROW_THREADS / c.profile.wave));
    let (kernel, groups) = match p.ne[0] {
        n if gated && n <= OF_A_WAVE => ("norm_gated", waves),
        n if gated => {
            return Err(Refusal(format!("a gate on rows of {n} elements; the maximum is {OF_A_WAVE}")));
        }
        n if n <= OF_A_WAVE => ("norm_wave", waves),
        n if n <= OF_A_GROUP => ("norm_group", rows),
        _ => ("norm_long", rows),
    };
    let launch = launch(c, ("norm", kernel), tensors(&operands), p, [groups, 1, 1], ROW_THREADS)?;
    Ok(vec![Launch { written: 2, ..launch }])
}
