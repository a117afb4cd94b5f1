//! MUL_MAT: matrix-vector products for few columns, tiles for more.

use super::batches::{batches, merged};
use super::grid::cover;
use super::row_ranges::{Rows, split_rows};
use super::weights::{WEIGHTS, Weights, aligned};
use super::{Context, Dispatch, Operand, Refusal, dispatch, mat_narrow, pipeline, products};
use crate::device::profile::Profile;
use crate::device::tuning::{Fragment, Streamed, Tiles, Warptile};
use crate::pipeline::PipelineSpec;
use ggml_core::DType;
use ggml_core::kernel::{MulMatParams, ProductsParams};
use ggml_core::precision::Precision;

pub(super) fn tile_spec(tiles: &Tiles, tile: &Warptile, weights: &Weights, aligned: bool) -> PipelineSpec {
    let t = if weights.long { tile.long() } else { *tile };
    let workgroup = t.workgroup(tiles.lanes);
    let mut constants =
        vec![workgroup, t.bm, t.bn, t.bk, t.tm, t.tn, t.unroll, aligned as u32, t.slices, t.buffers];
    constants.extend(tiles.shape.into_iter().flat_map(|shape| [shape.m, shape.n, shape.k]));
    let spec = pipeline("mul_mat_tile", weights.tile_variant(tiles.fragment), &constants);
    PipelineSpec { subgroup: tiles.subgroup, ..spec }
}

/// Returns the pipeline in which `groups` work-groups share tiles.
fn streamed(mut spec: PipelineSpec, groups: u64) -> PipelineSpec {
    spec.specialization.push(groups as u32);
    spec
}

/// Returns the pipeline that rounds columns for a fragment: to 8 bits, or to F16.
fn round_spec(profile: &Profile, fragment: Fragment, aligned: bool) -> PipelineSpec {
    let constants = [profile.workgroup(profile.tuning.row), aligned as u32];
    // Sums of 32 products must fit F16 (fragment_packed.glsl).
    let smaller = |powers: u32| [&constants[..], &[powers]].concat();
    match fragment {
        Fragment::Int8 => pipeline("mul_mat_round_int8", "default", &constants),
        Fragment::Packed => pipeline("mul_mat_round", profile.reduction(), &smaller(12)),
        _ => pipeline("mul_mat_round", profile.reduction(), &smaller(0)),
    }
}

/// Returns the dispatch that rounds columns for a fragment; its second operand holds the rounded columns.
/// `p`: [`MulMatParams::of_columns`].
pub(super) fn round(
    c: &Context<'_>,
    fragment: Fragment,
    p: &MulMatParams,
    b: Operand,
) -> Result<Dispatch, Refusal> {
    let batch = u64::from(p.ne2) * u64::from(p.ne3);
    let columns = u64::from(p.n) * batch;
    let k = u64::from(p.k);
    let bytes = columns
        * match fragment {
            // Bytes, and 16 more for each block of 32.
            Fragment::Int8 => k / 2 * 3,
            _ => k.next_multiple_of(128) * 2 + 4,
        };
    let grid = cover(c.profile, [p.n.into(), batch, 1]);
    let rounded = usize::try_from(bytes).ok().filter(|&bytes| bytes <= c.window_limit());
    match rounded {
        Some(bytes) if grid.once == 1 => {
            let wide = [p.off1, p.nb1[0], p.nb1[1], p.nb1[2]].iter().all(|at| at.is_multiple_of(4));
            let spec = round_spec(c.profile, fragment, wide);
            let dispatch = dispatch(spec, [], p, grid.groups);
            Ok(Dispatch { operands: vec![b, Operand::Scratch(bytes)], ..dispatch })
        }
        _ => Err(Refusal(format!("{columns} columns of {} activations are too many to be rounded", p.k))),
    }
}

/// Returns true if the tile is within the device's limits.
fn allowed(profile: &Profile, tiles: &Tiles, t: &Warptile) -> bool {
    let caps = &profile.caps;
    t.workgroup(tiles.lanes) <= caps.max_invocations && t.shared_bytes(tiles.fragment) <= caps.shared_bytes
}

/// Returns the largest tile that yields enough work-groups and is not mostly empty.
pub(super) fn choose(
    profile: &Profile,
    tiles: &Tiles,
    m: u64,
    n: u64,
    batch: u64,
) -> Option<&'static Warptile> {
    let fits = |t: &&Warptile| {
        let groups = m.div_ceil(t.bm.into()) * n.div_ceil(t.bn.into()) * batch;
        let enough =
            u64::from(tiles.enough) * if tiles.fragment.is_matrix() { u64::from(t.bm * t.bn) } else { 4096 };
        groups * 4096 >= enough && n * 2 > u64::from(t.bn) && m * 2 > u64::from(t.bm)
    };
    let all = || tiles.tiles.iter().filter(|t| allowed(profile, tiles, t));
    all().rev().find(fits).or_else(|| all().next())
}

/// The tile, its grid, and additional operands that the work-groups write.
struct Grid {
    tile: Warptile,
    groups: [u64; 3],
    /// True if the work-groups share tiles.
    shared: bool,
    /// Sums of parts of tiles, and a counter for each tile; the result where tiles are not shared.
    joined: [Operand; 2],
}

impl Grid {
    /// Chooses the grid for rows, columns and matrices of a product with rows of `k` elements. `rounded`:
    /// bytes of its rounded columns in scratch memory.
    fn choose(
        c: &Context<'_>,
        tiles: &Tiles,
        [rows, n, batch, k]: [u64; 4],
        (d, rounded): (Operand, usize),
    ) -> Result<Grid, Refusal> {
        let across = |t: &Warptile| [n.div_ceil(t.bn.into()), rows.div_ceil(t.bm.into())];
        if let Some((tile, groups)) = shared(c.profile, tiles, [rows, n, batch, k]) {
            let sums = 2 * groups as usize * (tile.bm * tile.bn) as usize * 4;
            let skip = rounded.next_multiple_of(c.profile.caps.binding_alignment as usize);
            if skip + sums <= c.window_limit() {
                let [x, y] = across(&tile);
                let counters = Operand::Counters((x * y) as usize * 4);
                let joined = [Operand::ScratchAt(skip, sums), counters];
                return Ok(Grid { tile, groups: [groups, 1, 1], shared: true, joined });
            }
        }
        let tile = *choose(c.profile, tiles, rows, n, batch)
            .ok_or_else(|| Refusal("no tile of MUL_MAT fits the device's work-groups".into()))?;
        let [x, y] = across(&tile);
        Ok(Grid { tile, groups: [x, y, batch], shared: false, joined: [d; 2] })
    }
}

/// Returns the tile to share and the number of work-groups that share tiles, if each of them has enough steps
/// and the tile is not mostly empty.
fn shared(profile: &Profile, tiles: &Tiles, [rows, n, batch, k]: [u64; 4]) -> Option<(Warptile, u64)> {
    let Streamed { tile, groups, least } = tiles.streamed?;
    let [bm, bn, bk] = [tile.bm, tile.bn, tile.bk].map(u64::from);
    let of_all = rows.div_ceil(bm) * n.div_ceil(bn);
    let steps = of_all * k.div_ceil(bk);
    let full = n * 2 > bn && rows * 2 > bm;
    // The kernel counts steps with 32 bits.
    let enough = batch == 1 && full && steps >= groups * least && steps <= u64::from(u32::MAX);
    // If there are fewer tiles than work-groups, split each tile into the same number of parts, if this
    // leaves almost no work-group idle: parts at the same offset along k read the same columns.
    let alike = groups / of_all.max(1) * of_all;
    let groups = if 8 * alike >= 7 * groups { alike } else { groups };
    (enough && allowed(profile, tiles, &tile)).then_some((tile, groups))
}

/// Returns the pipelines with tiles for weights of a type. `of`: the tiles of one product, or of a mixture's.
pub(super) fn tile_specs(
    profile: &Profile,
    weights: &Weights,
    of: impl Fn(Tiles) -> Tiles,
) -> Vec<PipelineSpec> {
    let mut all = Vec::new();
    for aligned in [false, true] {
        for precision in [Precision::Exact, Precision::Fast] {
            let tiles = of(profile.tiles(precision, weights.dtype));
            all.extend(tiles.tiles.iter().map(|t| tile_spec(&tiles, t, weights, aligned)));
        }
    }
    all
}

/// Returns the pipelines with shared tiles, with the number of work-groups for the largest products.
fn shared_specs(profile: &Profile, weights: &Weights) -> Vec<PipelineSpec> {
    let tiles = profile.tiles(Precision::Fast, weights.dtype);
    let shared = tiles.streamed.filter(|s| allowed(profile, &tiles, &s.tile));
    let spec = |s: Streamed, aligned| streamed(tile_spec(&tiles, &s.tile, weights, aligned), s.groups);
    shared.into_iter().flat_map(|s| [false, true].map(|aligned| spec(s, aligned))).collect()
}

/// Returns the dispatches of a MUL_MAT node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let p = MulMatParams::new(c.graph, c.node, &c.offsets())?;
    let operands = [c.src(0), c.src(1), c.node];
    if operands.iter().all(|&t| c.graph.tensor(t).span_bytes() <= c.window_limit()) {
        let [a, b, d] = operands.map(Operand::Tensor);
        return product(c, p, [a, b, d]);
    }
    // Larger than a window: process each matrix separately, its columns in parts, and for each part its rows
    // in parts.
    let mut dispatches = Vec::new();
    for i3 in 0..p.ne3 {
        for i2 in 0..p.ne2 {
            let a = Rows::of(c, c.src(0), (i2 / p.r2) as usize, (i3 / p.r3) as usize);
            let b = Rows::of(c, c.src(1), i2 as usize, i3 as usize);
            let d = Rows::of(c, c.node, i2 as usize, i3 as usize);
            for columns in split_rows(c, &[b, d])? {
                for rows in split_rows(c, &[a])? {
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
                    let operands = [a.operand(&rows), b.operand(&columns), d.operand(&columns)];
                    dispatches.extend(product(c, part, operands)?);
                }
            }
        }
    }
    Ok(dispatches)
}

/// Returns the dispatches of rows `first_row .. m`. If there are more matrices than a dimension of a grid can
/// have work-groups, several dispatches compute them.
fn product(c: &Context<'_>, p: MulMatParams, operands: [Operand; 3]) -> Result<Vec<Dispatch>, Refusal> {
    let [_, y, z] = c.profile.caps.max_workgroups;
    let narrow = mat_narrow::takes(c.profile, c.precision, c.operand(0).dtype, p.n);
    let with_vectors = narrow || p.n <= c.profile.tuning.vec_columns || p.has_few_rows(c.profile.units());
    // The kernel of vectors has groups of columns in the same dimension, and each index of the fourth is a
    // dispatch.
    let (p, most) = match with_vectors {
        true => (if p.ne3 > p.ne2 { merged(&p) } else { p }, z / p.n.max(1)),
        false => (p, y.min(z)),
    };
    let mut dispatches = Vec::new();
    for part in batches(&p, most) {
        let part = if with_vectors { vectors(c, &part, operands) } else { tiles(c, part, operands) };
        dispatches.extend(part?);
    }
    Ok(dispatches)
}

/// Returns the dispatches of a product in tiles.
fn tiles(c: &Context<'_>, p: MulMatParams, operands: [Operand; 3]) -> Result<Vec<Dispatch>, Refusal> {
    let dtype = c.operand(0).dtype;
    let weights =
        Weights::of(dtype).ok_or_else(|| Refusal(format!("MUL_MAT has no Vulkan kernel for {dtype}")))?;
    let (rows, n) = (u64::from(p.m - p.first_row), u64::from(p.n));
    let batch = u64::from(p.ne2) * u64::from(p.ne3);
    let aligned = aligned(dtype, (p.off0, &p.nb0), (p.off1, &p.nb1));
    let tiles = c.profile.tiles(c.precision, dtype);
    let round = tiles.fragment.rounds().then(|| round(c, tiles.fragment, &p.of_columns(), operands[1]));
    let round = round.transpose()?;
    let [a, b, d] = operands;
    let b = round.as_ref().map_or(b, |round| round.operands[1]);
    let rounded = if let Operand::Scratch(bytes) = b { bytes } else { 0 };
    let Grid { tile, groups, shared, joined } =
        Grid::choose(c, &tiles, [rows, n, batch, p.k.into()], (d, rounded))?;
    let grid = cover(c.profile, groups);
    if grid.once != 1 {
        return Err(Refusal(format!(
            "MUL_MAT of {rows} rows, {n} columns, {batch} matrices needs too many work-groups"
        )));
    }
    let is_matrix = tiles.fragment.is_matrix();
    let joined = joined.into_iter().filter(|_| is_matrix);
    let operands = [a, b, d].into_iter().chain(joined).chain(weights.table()).collect();
    let spec = tile_spec(&tiles, &tile, weights, aligned);
    let spec = if shared { streamed(spec, groups[0]) } else { spec };
    let written = if is_matrix { 3 } else { 1 };
    let product = Dispatch { operands, written, ..dispatch(spec, [], &p, grid.groups) };
    Ok(round.into_iter().chain([product]).collect())
}

/// Returns the same as matrix-vector products. Their kernel supports three dimensions, so each index of the
/// fourth is a dispatch.
fn vectors(c: &Context<'_>, p: &MulMatParams, [a, b, d]: [Operand; 3]) -> Result<Vec<Dispatch>, Refusal> {
    let group = products::single(c);
    let all = ProductsParams::new(c.graph, &group, |id| c.windows.remainder(c.graph, id))?;
    let one = |i3: u32| {
        let part = ProductsParams {
            n: p.n,
            rows: [p.first_row, p.m],
            ne2: p.ne2,
            r2: p.r2,
            nb0: [all.nb0[0], p.nb0[1]],
            nb1: [all.nb1[0], p.nb1[1]],
            off0: [p.off0 + i3 / p.r3 * p.nb0[2], 0, 0],
            off1: p.off1 + i3 * p.nb1[2],
            offd: [p.offd + i3 * p.nbd[2], 0, 0],
            ..all
        };
        products::product(c, c.operand(0).dtype, products::single_operands(a, b, d), &part)
    };
    Ok((0..p.ne3).map(one).collect::<Result<Vec<_>, _>>()?.concat())
}

/// Returns the pipelines of this family except the matrix-vector ones.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let mut rounding: Vec<Fragment> = [DType::F16, DType::Q8_0, DType::Q4_K]
        .into_iter()
        .map(|dtype| profile.tiles(Precision::Fast, dtype).fragment)
        .filter(|fragment| fragment.rounds())
        .collect();
    rounding.dedup();
    let of_fragment =
        |&fragment: &Fragment| [false, true].map(|aligned| round_spec(profile, fragment, aligned));
    let rounding: Vec<PipelineSpec> = rounding.iter().flat_map(of_fragment).collect();
    let tiles = WEIGHTS.iter().flat_map(|weights| {
        tile_specs(profile, weights, |tiles| tiles).into_iter().chain(shared_specs(profile, weights))
    });
    rounding.into_iter().chain(tiles).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{ArchClass, Caps, MatrixShape, MatrixTypes};

    /// Returns the number of work-groups that share tiles on an NVIDIA device with `units` multiprocessors.
    fn sharing(units: u32, product: [u64; 4]) -> Option<u64> {
        let profile = Profile::new(Caps {
            subgroup_min: 32,
            subgroup_max: 32,
            subgroup_default: 32,
            shared_bytes: 48 << 10,
            fp16: true,
            matrices: vec![MatrixShape { m: 16, n: 16, k: 16, types: MatrixTypes::F16F32 }],
            compute_units: Some(units),
            ..Caps::imagined(ArchClass::Nvidia, 64)
        });
        let tiles = profile.tiles(Precision::Fast, DType::Q4_K);
        shared(&profile, &tiles, product).map(|(_, groups)| groups)
    }

    #[test]
    fn large_products_are_shared_evenly() {
        // Rows, columns, matrices, length of rows.
        assert_eq!(
            sharing(132, [14336, 512, 1, 4096]),
            Some(264),
            "448 tiles: a round, and 184 tiles in pieces"
        );
        assert_eq!(sharing(132, [4096, 512, 1, 14336]), Some(256), "128 tiles in halves");
        assert_eq!(sharing(132, [4096, 512, 1, 4096]), None, "too little for each");
        assert_eq!(sharing(46, [4096, 512, 1, 4096]), Some(92), "but not on a smaller device");
        assert_eq!(sharing(132, [14336, 64, 1, 4096]), None, "half of each tile is empty");
        assert_eq!(sharing(132, [14336, 512, 2, 4096]), None, "several matrices");
    }
}
