//! CPY and CONT.

use super::grid::{Strided, merge, rows};
use super::{Context, Dispatch, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use ggml_core::DType;
use ggml_core::kernel::CopyParams;

const VARIANTS: [&str; 9] =
    ["w128", "w32", "w16", "f32_f16", "f32_bf16", "f16_f32", "f16_bf16", "bf16_f32", "bf16_f16"];

fn spec(profile: &Profile, variant: &'static str, reshaped: bool, once: u32) -> PipelineSpec {
    pipeline("copy", variant, &[profile.workgroup(profile.tuning.elementwise), reshaped as u32, once])
}

fn variant(from: DType, to: DType) -> Option<&'static str> {
    Some(match (from, to) {
        (DType::F32, DType::F32) | (DType::I32, DType::I32) => "w32",
        (DType::F16, DType::F16) | (DType::BF16, DType::BF16) => "w16",
        (DType::F32, DType::F16) => "f32_f16",
        (DType::F32, DType::BF16) => "f32_bf16",
        (DType::F16, DType::F32) => "f16_f32",
        (DType::F16, DType::BF16) => "f16_bf16",
        (DType::BF16, DType::F32) => "bf16_f32",
        (DType::BF16, DType::F16) => "bf16_f16",
        _ => return None,
    })
}

/// Returns the elements of four words, if a copy may move that many at a time: rows without gaps that begin
/// and end at multiples of them on both sides.
fn quads(variant: &str, p: &CopyParams) -> Option<u32> {
    let unit = match variant {
        "w32" => 4,
        "w16" => 8,
        _ => return None,
    };
    let whole = |n: &u32| n.is_multiple_of(unit);
    let sides = [(&p.nb0, p.off0), (&p.nbd, p.offd)];
    let aligned = sides.iter().all(|(nb, off)| nb[0] == 1 && nb[1..].iter().all(whole) && whole(off));
    (p.ne0 == p.ned && aligned && whole(&p.ned[0])).then_some(unit)
}

/// Returns the dispatch of a CPY or CONT node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let (from, to) = (c.operand(0).dtype, c.result().dtype);
    let mut variant = variant(from, to).ok_or_else(|| Refusal(format!("{from} cannot be copied to {to}")))?;
    let mut p = CopyParams::new(c.graph, c.node, &c.offsets())?;
    let mut source = [Strided { ne: p.ne0, nb: p.nb0 }];
    let mut destination = [Strided { ne: p.ned, nb: p.nbd }];
    if p.ne0 == p.ned {
        let mut both = [destination[0], source[0]];
        merge(&mut both);
        (destination, source) = ([both[0]], [both[1]]);
    } else {
        merge(&mut source);
        merge(&mut destination);
    }
    (p.ne0, p.nb0, p.ned, p.nbd) = (source[0].ne, source[0].nb, destination[0].ne, destination[0].nb);
    if let Some(unit) = quads(variant, &p) {
        variant = "w128";
        for (ne, nb, off) in [(&mut p.ne0, &mut p.nb0, &mut p.off0), (&mut p.ned, &mut p.nbd, &mut p.offd)] {
            ne[0] /= unit;
            nb[1..].iter_mut().for_each(|n| *n /= unit);
            *off /= unit;
        }
        p.count /= unit;
    }
    let reshaped = p.ne0 != p.ned;
    let covered = if reshaped { [p.count, 1, 1, 1] } else { p.ned };
    let grid = rows(c.profile, c.profile.workgroup(c.profile.tuning.elementwise), covered);
    let spec = spec(c.profile, variant, reshaped, grid.once);
    Ok(vec![dispatch(spec, [c.src(0), c.node], &p, grid.groups)])
}

/// Returns the pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let forms = [(false, 0), (false, 1), (true, 0), (true, 1)];
    VARIANTS.iter().flat_map(|v| forms.map(|(reshaped, once)| spec(profile, v, reshaped, once))).collect()
}
