//! MUL_MAT: mat-vec for few columns, tiles for more.

use super::grid::cover;
use super::parts::{Rows, cut};
use super::weights::{WEIGHTS, Weights, aligned};
use super::{Context, Dispatch, Operand, Refusal, dispatch, pipeline, products};
use crate::device::tuning::{Profile, Warptile};
use crate::pipeline::PipelineSpec;
use ggml_core::DType;
use ggml_core::kernel::{MulMatParams, ProductsParams};
use ggml_core::plan::Precision;

pub(super) fn tile_spec(t: &Warptile, weights: &Weights, f16: bool, aligned: bool) -> PipelineSpec {
    let t = if weights.long { t.long() } else { *t };
    let constants = [t.workgroup(), t.bm, t.bn, t.bk, t.tm, t.tn, t.unroll, aligned as u32, t.slices];
    pipeline("mul_mat_tile", weights.tile_variant(f16), &constants)
}

/// The tiles that come into question, and whether they are F16: only for quantised weights, which are small enough
/// for short sums in F16; the shader sees to activations that are not.
pub(super) fn tiles(profile: &Profile, precision: Precision, dtype: DType) -> (&'static [Warptile], bool) {
    let fast = precision == Precision::Fast && profile.caps.fp16 && dtype.is_quantized();
    match profile.tuning.f16_tiles {
        tiles if fast && !tiles.is_empty() => (tiles, true),
        _ => (profile.tuning.tiles, false),
    }
}

/// The largest tile that leaves enough work-groups and is not mostly empty.
pub(super) fn choose<'a>(
    profile: &Profile,
    tiles: &'a [Warptile],
    m: u64,
    n: u64,
    batch: u64,
) -> Option<&'a Warptile> {
    let allowed = |t: &&Warptile| t.workgroup() <= profile.caps.max_invocations;
    let fits = |t: &&Warptile| {
        let groups = m.div_ceil(t.bm.into()) * n.div_ceil(t.bn.into()) * batch;
        groups >= profile.tuning.enough_groups.into() && n * 2 > u64::from(t.bn) && m * 2 > u64::from(t.bm)
    };
    let tiles = || tiles.iter().filter(allowed);
    tiles().rev().find(fits).or_else(|| tiles().next())
}

/// The dispatches of a MUL_MAT node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = MulMatParams::new(c.graph, c.node, &c.offsets())?;
    let operands = [c.src(0), c.src(1), c.node];
    if operands.iter().all(|&t| c.graph.tensor(t).span_bytes() <= c.window_limit()) {
        let [a, b, d] = operands.map(Operand::Tensor);
        return product(c, p, [a, b, d]);
    }
    // Larger than a window: each matrix on its own, its columns in parts, and for each of them its rows in parts.
    let mut dispatches = Vec::new();
    for i3 in 0..p.ne3 {
        for i2 in 0..p.ne2 {
            let a = Rows::of(c, c.src(0), (i2 / p.r2) as usize, (i3 / p.r3) as usize);
            let b = Rows::of(c, c.src(1), i2 as usize, i3 as usize);
            let d = Rows::of(c, c.node, i2 as usize, i3 as usize);
            for columns in cut(c, &[b, d])? {
                for rows in cut(c, &[a])? {
                    let (first_row, m) = (rows.start as u32, rows.end as u32);
                    let part = MulMatParams {
                        n: columns.len() as u32,
                        first_row,
                        m,
                        ne2: 1,
                        ne3: 1,
                        r2: 1,
                        r3: 1,
                        ..p
                    };
                    let operands = [a.part(&rows), b.part(&columns), d.part(&columns)];
                    dispatches.extend(product(c, part, operands)?);
                }
            }
        }
    }
    Ok(dispatches)
}

/// The dispatches of rows `first_row .. m`.
fn product(c: &Context<'_>, p: MulMatParams, operands: [Operand; 3]) -> Result<Vec<Dispatch>, Refusal> {
    if p.n <= c.profile.tuning.vec_columns {
        return vectors(c, &p, operands);
    }
    let dtype = c.operand(0).dtype;
    let weights =
        Weights::of(dtype).ok_or_else(|| Refusal(format!("MUL_MAT has no Vulkan kernel for {dtype}")))?;
    let (rows, n) = (u64::from(p.m - p.first_row), u64::from(p.n));
    let batch = u64::from(p.ne2) * u64::from(p.ne3);
    let aligned = aligned(dtype, (p.off0, &p.nb0), (p.off1, &p.nb1));
    let (tiles, f16) = tiles(c.profile, c.precision, dtype);
    let tile = choose(c.profile, tiles, rows, n, batch)
        .ok_or_else(|| Refusal("no tile of MUL_MAT fits the device's work-groups".into()))?;
    let spec = tile_spec(tile, weights, f16, aligned);
    let grid = cover(c.profile, [n.div_ceil(tile.bn.into()), rows.div_ceil(tile.bm.into()), batch]);
    if grid.once != 1 {
        return Err(Refusal(format!(
            "MUL_MAT of {rows} rows, {n} columns, {batch} matrices needs too many work-groups"
        )));
    }
    Ok(vec![Dispatch { operands: operands.to_vec(), ..dispatch(spec, [], &p, grid.groups) }])
}

/// The same as mat-vec, whose kernel knows three dimensions.
fn vectors(c: &Context<'_>, p: &MulMatParams, [a, b, d]: [Operand; 3]) -> Result<Vec<Dispatch>, Refusal> {
    let group = products::single(c);
    let all = ProductsParams::new(c.graph, &group, |id| c.windows.remainder(c.graph, id))?;
    let one = |i3: u32| {
        let part = ProductsParams {
            n: p.n,
            rows: [p.first_row, p.m],
            ne2: p.ne2,
            r2: p.r2,
            off0: [p.off0 + i3 / p.r3 * p.nb0[2], 0, 0],
            off1: p.off1 + i3 * p.nb1[2],
            offd: [p.offd + i3 * p.nbd[2], 0, 0],
            ..all
        };
        let dispatch = products::product(c, c.operand(0).dtype, &part)?;
        Ok(Dispatch { operands: products::single_operands(a, b, d), ..dispatch })
    };
    (0..p.ne3).map(one).collect()
}

/// The pipelines of this family but for mat-vec.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let mut all = Vec::new();
    for weights in &WEIGHTS {
        for aligned in [false, true] {
            for precision in [Precision::Exact, Precision::Fast] {
                let (tiles, f16) = tiles(profile, precision, weights.dtype);
                all.extend(tiles.iter().map(|t| tile_spec(t, weights, f16, aligned)));
            }
        }
    }
    all
}
