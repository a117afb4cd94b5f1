//! CACHE_MASK.

use super::grid::rows;
use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::kernel::CacheMaskParams;

/// Variants, and the cells that an invocation computes.
const VARIANTS: [(&str, u32); 2] = [("w128", 8), ("w16", 1)];

fn spec(profile: &Profile, variant: &'static str, once: u32) -> PipelineSpec {
    pipeline("cache_mask", variant, &[profile.workgroup(profile.tuning.elementwise), once])
}

/// Returns the dispatch of a CACHE_MASK node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = CacheMaskParams::new(c.graph, c.node, &c.offsets())?;
    let whole = p.kv.is_multiple_of(8) && p.off0.is_multiple_of(4) && p.offd.is_multiple_of(8);
    let (variant, cells) = VARIANTS[usize::from(!whole)];
    let blocks = p.tokens.div_ceil(CacheMaskParams::TOKENS);
    let all = (p.kv / cells).checked_mul(blocks).ok_or_else(|| {
        Refusal(format!("CACHE_MASK of {} cells and {} tokens is too large", p.kv, p.tokens))
    })?;
    let workgroup = c.profile.workgroup(c.profile.tuning.elementwise);
    let grid = rows(c.profile, workgroup, [all, 1, 1, 1]);
    let spec = spec(c.profile, variant, grid.once);
    Ok(vec![dispatch(spec, [c.src(0), c.src(1), c.node], &p, grid.groups)])
}

/// Returns the pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    VARIANTS.iter().flat_map(|(variant, _)| [0, 1].map(|once| spec(profile, variant, once))).collect()
}
