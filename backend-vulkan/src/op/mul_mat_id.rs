//! MUL_MAT_ID: mat-vec for each index of each token, tiles where many tokens share a matrix.

use super::grid::cover;
use super::mul_mat::{choose, tile_spec, tiles};
use super::parts::{Rows, cut};
use super::products::{Shape, even, rounds, shapes, vec_spec};
use super::weights::{WEIGHTS, Weights, aligned};
use super::{Context, Dispatch, Operand, Refusal, dispatch, pipeline};
use crate::device::tuning::{Profile, Warptile};
use crate::pipeline::PipelineSpec;
use ggml_core::kernel::MulMatIdParams;
use ggml_core::plan::Precision;

/// Columns of a matrix, on average, up to which each is a product of its own: a tile costs the arithmetic of all of its
/// columns, and about ten products of one column take as long on GCN and on an H200.
const VEC_COLUMNS: u64 = 16;

fn id_tile_spec(tile: &Warptile, weights: &Weights, f16: bool, aligned: bool) -> PipelineSpec {
    PipelineSpec { shader: "mul_mat_id_tile", ..tile_spec(tile, weights, f16, aligned) }
}

/// The dispatches of a MUL_MAT_ID node: one, or one for each part of matrices that are larger than a window.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let params = MulMatIdParams::new(c.graph, c.node, &c.offsets())?;
    let part = |operand: Operand, first_expert: u32, window_experts: u32| -> Result<Dispatch, Refusal> {
        let mut part = product(c, MulMatIdParams { first_expert, window_experts, ..params })?;
        part.operands =
            [operand].into_iter().chain([c.src(1), c.src(2), c.node].map(Operand::Tensor)).collect();
        Ok(part)
    };
    if c.operand(0).span_bytes() <= c.window_limit() {
        return Ok(vec![part(Operand::Tensor(c.src(0)), 0, params.experts)?]);
    }
    let matrices = Rows::matrices(c, c.src(0));
    let ranges = cut(c, &[matrices])?;
    ranges.iter().map(|range| part(matrices.part(range), range.start as u32, range.len() as u32)).collect()
}

/// The products with the matrices of a window, without operands.
fn product(c: &Context<'_>, p: MulMatIdParams) -> Result<Dispatch, Refusal> {
    let dtype = c.operand(0).dtype;
    let weights =
        Weights::of(dtype).ok_or_else(|| Refusal(format!("MUL_MAT_ID has no Vulkan kernel for {dtype}")))?;
    let aligned = aligned(dtype, (p.off0, &p.nb0), (p.off1, &p.nb1));
    let checked = |wanted: [u32; 3]| match cover(c.profile, wanted.map(u64::from)) {
        grid if grid.once == 1 => Ok(grid.groups),
        _ => Err(Refusal(format!(
            "MUL_MAT_ID of {} rows, {} indices, {} tokens needs too many work-groups",
            p.m, p.used, p.tokens
        ))),
    };
    let pairs = u64::from(p.used) * u64::from(p.tokens);
    let columns = pairs / u64::from(p.experts.max(1));
    if columns <= VEC_COLUMNS {
        let shape = Shape {
            weights,
            columns: 1,
            rows: u64::from(p.m) * pairs,
            k: p.k,
            pair: 1,
            aligned,
            even: even(dtype, &[p.off0], &p.nb0),
            int8: rounds(c.profile, c.precision, dtype),
        };
        let spec = vec_spec(c.profile, &shape);
        let grid = checked([p.m.div_ceil(spec.rows), p.used, p.tokens])?;
        return Ok(dispatch(pipeline("mul_mat_id_vec", spec.variant, &spec.constants), [], &p, grid));
    }
    let (tiles, f16) = tiles(c.profile, c.precision, dtype);
    let tile = choose(c.profile, tiles, p.m.into(), columns, p.experts.into())
        .ok_or_else(|| Refusal("no tile of MUL_MAT_ID fits the device's work-groups".into()))?;
    let spec = id_tile_spec(tile, weights, f16, aligned);
    Ok(dispatch(spec, [], &p, checked([p.m.div_ceil(tile.bm), p.window_experts, 1])?))
}

/// The pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let one = shapes(profile).into_iter().filter(|shape| shape.columns == 1);
    let mut all: Vec<PipelineSpec> = one
        .map(|shape| {
            let spec = vec_spec(profile, &shape);
            pipeline("mul_mat_id_vec", spec.variant, &spec.constants)
        })
        .collect();
    for weights in &WEIGHTS {
        for aligned in [false, true] {
            for precision in [Precision::Exact, Precision::Fast] {
                let (tiles, f16) = tiles(profile, precision, weights.dtype);
                all.extend(tiles.iter().map(|t| id_tile_spec(t, weights, f16, aligned)));
            }
        }
    }
    all
}
