//! RMS_NORM, by itself and fused with the sums around it.

use super::grid::whole_rows;
use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::TensorId;
use ggml_core::fuse::{Norm, Scaled};
use ggml_core::kernel::NormParams;

/// Maximum quads of a row that an invocation holds in registers. Longer rows are read in rounds of fewer
/// quads.
const MOST_QUADS: u32 = 8;
const QUADS_OF_A_ROUND: u32 = 4;

/// Returns the work-group size for a row: one quad per invocation where that is enough. The heads of a prompt
/// are many short rows, of which a device has more in flight if no invocation idles.
fn workgroup(profile: &Profile, n: u32) -> u32 {
    let quads = n.div_ceil(4).checked_next_power_of_two().unwrap_or(u32::MAX);
    profile.workgroup(profile.tuning.row.min(quads.max(profile.wave())))
}

fn spec(profile: &Profile, p: &NormParams, once: u32) -> PipelineSpec {
    let workgroup = workgroup(profile, p.ne[0]);
    let strides = [p.nb0, p.nb1, p.nb2, p.nbd].concat();
    let offsets = [p.ne[0], p.off0, p.off1, p.off2, p.offw, p.offr, p.offd];
    let aligned = strides.iter().chain(&offsets).all(|n| n % 4 == 0);
    let quads = p.ne[0].div_ceil(4 * workgroup);
    let (quads, whole) = match quads {
        0..=MOST_QUADS => (quads, if 4 * workgroup * quads == p.ne[0] { 2 } else { 1 }),
        _ => (QUADS_OF_A_ROUND, 0),
    };
    pipeline("rms_norm", profile.reduction(), &[workgroup, once, p.parts, aligned.into(), quads, whole])
}

/// Returns the dispatch of an RMS_NORM node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = NormParams::new(c.graph, c.node, &c.offsets())?;
    let (x, d) = (c.src(0), c.node);
    Ok(plan_rows(c, [x, x, x, x, d, d], &p))
}

/// Returns the dispatch of a group.
pub(super) fn plan_norm(c: &Context<'_>, norm: &Norm) -> Result<Vec<Dispatch>, Refusal> {
    let p = NormParams::of_group(c.graph, norm, &|id| c.windows.remainder(c.graph, id))?;
    Ok(plan_rows(c, NormParams::operands(norm), &p))
}

/// Returns the dispatch of a norm multiplied by a constant.
pub(super) fn plan_scaled(c: &Context<'_>, scaled: &Scaled) -> Result<Vec<Dispatch>, Refusal> {
    let (x, d) = (scaled.x, scaled.nodes[1]);
    let p = NormParams::of_scaled(c.graph, scaled, [x, d].map(|id| c.windows.remainder(c.graph, id)))?;
    Ok(plan_rows(c, [x, x, x, x, d, d], &p))
}

fn plan_rows(c: &Context<'_>, operands: [TensorId; 6], p: &NormParams) -> Vec<Dispatch> {
    let grid = whole_rows(c.profile, p.ne);
    let spec = spec(c.profile, p, grid.once);
    vec![Dispatch { written: 2, ..dispatch(spec, operands, p, grid.groups) }]
}

/// Returns the pipelines of this family, for usual lengths only.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let all = NormParams::SUM | NormParams::WEIGHT | NormParams::RESIDUAL;
    let of = |parts: u32, n: u32, once: u32| {
        spec(profile, &NormParams { ne: [n, 1, 1, 1], parts, ..NormParams::default() }, once)
    };
    let lengths = [1, 896, 4096, 4097, 8192, 1 << 20, (1 << 20) + 1];
    let mut some: Vec<PipelineSpec> =
        [0, all].iter().flat_map(|&parts| lengths.map(|n| of(parts, n, 1))).collect();
    some.extend([of(all, 4096, 0), of(NormParams::WEIGHT | NormParams::GATE, 128, 1)]);
    some
}
