//! FLASH_ATTN_EXT: one kernel for few tokens, one for many.

use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::tuning::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::DType;
use ggml_core::kernel::FlashAttnParams;

/// Tokens up to which each gets work-groups of its own.
const VEC_TOKENS: u32 = 4;
/// Longest rows of k and v in the kernel for few tokens.
const VEC_ROW: u32 = 256;
/// Longest rows of v in the kernel for many tokens.
const TILE_ROW: u32 = 512;

fn vec_spec(profile: &Profile, variant: &'static str, heads: u32) -> PipelineSpec {
    let t = profile.tuning.flash_vec;
    // The partial products of a step take shared memory for each head.
    let workgroup = if heads > 2 { t.workgroup / 2 } else { t.workgroup };
    pipeline("flash_attn_vec", variant, &[profile.workgroup(workgroup), heads, t.keys, t.unroll])
}

fn tile_spec(profile: &Profile, variant: &'static str, dv: u32, aligned: bool) -> PipelineSpec {
    let t = profile.tuning.flash_tile;
    // Powers of two, so that models share pipelines.
    let quads = dv.div_ceil(4 * t.sc).next_power_of_two();
    // Positions of v that are staged at a time: no more than the stage of queries and keys holds in the usual cases.
    let positions = if quads <= 2 { 16 } else { 8 };
    let constants = [t.workgroup, t.br, t.bc, t.sc, quads, positions, aligned as u32];
    pipeline("flash_attn_tile", variant, &constants)
}

/// Query heads of a work-group in the kernel for few tokens. More of them read keys and values fewer times, but a device
/// with idle compute units is faster with more work-groups. `sets`: heads of keys, times tokens, times batches.
fn shared_heads(profile: &Profile, per_kv: u32, sets: u64) -> u32 {
    let most = per_kv.min(profile.tuning.flash_vec.heads);
    let enough = u64::from(profile.tuning.enough_groups) / 2;
    (1..=most).rev().find(|&shared| sets * u64::from(per_kv.div_ceil(shared)) >= enough).unwrap_or(1)
}

fn multiples(unit: u32, values: &[u32]) -> bool {
    values.iter().all(|v| v.is_multiple_of(unit))
}

/// The variant of a type of keys and values.
const VARIANTS: [(DType, &str); 4] =
    [(DType::F32, "f32"), (DType::F16, "f16"), (DType::Q8_0, "q8_0"), (DType::Q4_0, "q4_0")];

/// The dispatch of a FLASH_ATTN_EXT node. Without a mask or sinks the queries stand in their place.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let dtype = c.operand(1).dtype;
    let &(_, variant) = VARIANTS
        .iter()
        .find(|(known, _)| *known == dtype)
        .ok_or_else(|| Refusal(format!("FLASH_ATTN_EXT has no Vulkan kernel for keys of {dtype}")))?;
    let p = FlashAttnParams::new(c.graph, c.node, &c.offsets())?;
    let optional = |i| if c.operands() > i { c.src(i) } else { c.src(0) };
    let operands = [c.src(0), c.src(1), c.src(2), optional(3), optional(4), c.node];
    let ([d, dv], [tokens, heads, batch], [_, heads_kv]) = (p.d, p.ne, p.kv);
    let limits = c.profile.caps.max_workgroups;
    let checked = |grid: [u32; 3]| match (0..3).all(|i| grid[i] <= limits[i]) {
        true => Ok(grid),
        false => Err(Refusal(format!(
            "FLASH_ATTN_EXT of {tokens} tokens, {heads} heads needs too many work-groups"
        ))),
    };

    // Rows of blocks are whole quads wherever they begin.
    let plain = if dtype.is_quantized() { 1 } else { 3 };
    let quads =
        [p.nbq, p.nbk, p.nbv][..plain].iter().all(|nb| multiples(4, nb)) && multiples(4, &p.off[..plain]);
    let few = tokens <= VEC_TOKENS && d <= VEC_ROW && dv <= VEC_ROW && multiples(8, &p.d) && quads;
    let per_kv = heads / heads_kv;
    // Heads that share a work-group share a mask.
    let shared = match p.mask_ne[0] {
        1 => shared_heads(c.profile, per_kv, u64::from(heads_kv) * u64::from(tokens) * u64::from(batch)),
        _ => 1,
    };
    let spec = vec_spec(c.profile, variant, shared);
    if few && spec.specialization[0] >= dv / 8 {
        let groups = heads_kv * per_kv.div_ceil(shared);
        return Ok(vec![dispatch(spec, operands, &p, checked([groups, tokens, batch])?)]);
    }
    if dv > TILE_ROW {
        return Err(Refusal(format!(
            "FLASH_ATTN_EXT with value rows of {dv} elements; {TILE_ROW} are the most"
        )));
    }
    let spec = tile_spec(c.profile, variant, dv, quads && multiples(4, &p.d));
    if spec.specialization[0] > c.profile.caps.max_invocations {
        return Err(Refusal("FLASH_ATTN_EXT needs larger work-groups than the device has".into()));
    }
    let grid = checked([tokens.div_ceil(spec.specialization[1]), heads, batch])?;
    Ok(vec![dispatch(spec, operands, &p, grid)])
}

/// The pipelines of this family, for usual rows of values and numbers of heads.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let mut all = Vec::new();
    for (_, variant) in VARIANTS {
        all.extend((1..=profile.tuning.flash_vec.heads).map(|heads| vec_spec(profile, variant, heads)));
        for dv in [64, 128, 256] {
            all.extend([false, true].map(|aligned| tile_spec(profile, variant, dv, aligned)));
        }
    }
    all
}
