//! MUL_MAT_ID: matrix-vector products for each index of each token, optionally fused with the operations
//! after them, or tiles where many tokens share a matrix.

use super::grid::cover;
use super::mul_mat::{choose, round, tile_spec, tile_specs};
use super::products::{accepts, fit_windows, rounds, shapes, vec_spec};
use super::row_ranges::{Rows, split_rows};
use super::vec_shape::{Shape, VecSpec};
use super::weights::{WEIGHTS, Weights, aligned, even};
use super::{Context, Dispatch, Operand, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::device::tuning::Tiles;
use crate::pipeline::PipelineSpec;
use ggml_core::DType;
use ggml_core::fuse::{ExpertProduct, Experts};
use ggml_core::kernel::{ExpertSumParams, ExpertsParams, MulMatIdParams, ProductsParams};

/// Returns the average columns of a matrix up to which each column is a separate product. A tile costs the
/// arithmetic of all of its columns, and takes as long as about ten products of one column on GCN. On matrix
/// units arithmetic costs little: an H200 computes prompts of 64 tokens, four columns for each of 128 experts, 1.35
/// times as fast with tiles.
fn vec_columns(c: &Context<'_>, dtype: DType) -> u64 {
    if c.profile.tiles(c.precision, dtype).fragment.is_matrix() { 2 } else { 10 }
}

/// Returns the kernel with indices for a tile.
fn with_ids(spec: PipelineSpec) -> PipelineSpec {
    PipelineSpec { shader: "mul_mat_id_tile", ..spec }
}

/// Bit for the weighted sum over a token's experts, in addition to the bits of [`ProductsParams`].
const JOINED: u32 = 64;
/// Maximum experts of a weighted sum.
const MOST_JOINED: u32 = 64;

/// Returns the dispatches of a MUL_MAT_ID node: one, or one for each part of matrices that are larger than a
/// window.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let product = ExpertProduct { weight: c.src(0), node: c.node, bias: None, result: c.node };
    let (input, ids) = (c.src(1), c.src(2));
    let group = Experts { input, ids, products: vec![product], glu: None, weighted: None, residual: None };
    let params = ExpertsParams::new(c.graph, &group, |id| c.windows.remainder(c.graph, id))?;
    let mut dispatches = Vec::new();
    let mut add = |matrices: Operand, first_expert: u32, window_experts: u32| -> Result<(), Refusal> {
        let p = MulMatIdParams { first_expert, window_experts, ..params.product };
        if has_few_columns(c, c.operand(0).dtype, &p) {
            let mut dispatch = vectors(c, &group, &ExpertsParams { product: p, ..params })?;
            dispatch.operands[..2].fill(matrices);
            dispatches.push(dispatch);
        } else {
            let operands = [matrices, Operand::Tensor(input), Operand::Tensor(ids)];
            dispatches.extend(tile(c, &p, c.operand(0).dtype, operands, Some(Operand::Tensor(c.node)))?.0);
        }
        Ok(())
    };
    if c.operand(0).span_bytes() <= c.window_limit() {
        add(Operand::Tensor(c.src(0)), 0, params.product.experts)?;
        return Ok(dispatches);
    }
    let matrices = Rows::matrices(c, c.src(0));
    for range in split_rows(c, &[matrices])? {
        add(matrices.operand(&range), range.start as u32, range.len() as u32)?;
    }
    Ok(dispatches)
}

/// Returns the dispatches of a group.
pub(super) fn plan_experts(c: &Context<'_>, group: &Experts) -> Result<Vec<Dispatch>, Refusal> {
    let p = ExpertsParams::new(c.graph, group, |id| c.windows.remainder(c.graph, id))?;
    let first = group.products.first().map_or(c.node, |product| product.weight);
    accepts(c, group.products.iter().map(|product| product.weight), group.glu)?;
    let dispatches = match has_few_columns(c, c.graph.tensor(first).dtype, &p.product) {
        true => vec![vectors(c, group, &p)?],
        false => summed_tiles(c, group, &p)?,
    };
    for dispatch in &dispatches {
        fit_windows(c, &dispatch.operands)?;
    }
    Ok(dispatches)
}

/// Returns the dispatches of a group with many columns: products as tiles, whose results go to scratch memory,
/// and their weighted sum.
fn summed_tiles(c: &Context<'_>, group: &Experts, p: &ExpertsParams) -> Result<Vec<Dispatch>, Refusal> {
    let (product, weighted) = group.plain_sum().ok_or_else(|| {
        Refusal(
            "products of an expert with many columns are fused with their sum only, without biases".into(),
        )
    })?;
    let sum = ExpertSumParams::new(p)?;
    let of_each = sum.products(p);
    let [matrices, input, ids] = [product.weight, group.input, group.ids].map(Operand::Tensor);
    let (mut dispatches, results) =
        tile(c, &of_each, c.graph.tensor(product.weight).dtype, [matrices, input, ids], None)?;
    let weights = Operand::Tensor(weighted.weights);
    let residual = group.added().map_or(weights, Operand::Tensor);
    let has_residual = u32::from(group.added().is_some());
    let spec = sum_spec(c.profile, has_residual);
    let rows = sum.m.div_ceil(spec.specialization[0]);
    let grid = checked(c, &p.product, [rows, sum.tokens, 1])?;
    let operands =
        [results, weights, residual].into_iter().chain(group.results().into_iter().map(Operand::Tensor));
    dispatches.push(Dispatch { operands: operands.collect(), ..dispatch(spec, [], &sum, grid) });
    Ok(dispatches)
}

/// Returns true if each column of an expert is a separate product.
fn has_few_columns(c: &Context<'_>, dtype: DType, p: &MulMatIdParams) -> bool {
    u64::from(p.used) * u64::from(p.tokens) / u64::from(p.experts.max(1)) <= vec_columns(c, dtype)
}

fn weights_of(dtype: DType) -> Result<&'static Weights, Refusal> {
    Weights::of(dtype).ok_or_else(|| Refusal(format!("MUL_MAT_ID has no Vulkan kernel for {dtype}")))
}

/// Returns the grid of a product, whose kernel does not loop; an error if it exceeds the device's limits.
fn checked(c: &Context<'_>, p: &MulMatIdParams, wanted: [u32; 3]) -> Result<[u32; 3], Refusal> {
    match cover(c.profile, wanted.map(u64::from)) {
        grid if grid.once == 1 => Ok(grid.groups),
        _ => Err(Refusal(format!(
            "MUL_MAT_ID of {} rows, {} indices, {} tokens needs too many work-groups",
            p.m, p.used, p.tokens
        ))),
    }
}

/// Returns the products of a group as matrix-vector products.
fn vectors(c: &Context<'_>, group: &Experts, params: &ExpertsParams) -> Result<Dispatch, Refusal> {
    let (p, bits) = (&params.product, epilogue_bits(group));
    let first = group.products.first().map_or(c.node, |product| product.weight);
    let dtype = c.graph.tensor(first).dtype;
    let weights = weights_of(dtype)?;
    // The rows of joined experts are treated as one row, and so are their inputs.
    let joined = bits & JOINED != 0;
    if joined && (p.used > MOST_JOINED || p.k % weights.piece != 0 || p.nb1[0] != p.k) {
        return Err(Refusal(format!(
            "a sum over experts with rows of {} elements, {} experts is not fused",
            p.k, p.used
        )));
    }
    let indices = if joined { 1 } else { p.used };
    let shape = Shape {
        weights,
        columns: 1,
        rows: u64::from(p.m) * u64::from(indices) * u64::from(p.tokens),
        k: p.k.saturating_mul(p.used / indices),
        pair: 1 + u32::from(group.glu.is_some()),
        aligned: [p.off0, params.off0_up]
            .iter()
            .all(|&off0| aligned(dtype, (off0, &p.nb0), (p.off1, &p.nb1))),
        even: even(dtype, &[p.off0, params.off0_up], &p.nb0),
        int8: rounds(c.profile, c.precision, dtype),
        staged: false,
    };
    let spec = vec_spec(c.profile, &shape);
    let grid = checked(c, p, [p.m.div_ceil(spec.rows), indices, p.tokens])?;
    let operands = operands(group).into_iter().chain(weights.table()).collect();
    Ok(Dispatch { operands, ..dispatch(vec_pipeline(&spec, bits), [], params, grid) })
}

fn vec_pipeline(spec: &VecSpec, bits: u32) -> PipelineSpec {
    spec.pipeline("mul_mat_id_vec", [&spec.constants[..], &[bits]].concat())
}

/// Returns the bits for the operations after the products of a group, for the kernel's constant.
fn epilogue_bits(group: &Experts) -> u32 {
    let biases = group.products.iter().enumerate().filter(|(_, product)| product.bias.is_some());
    let after = [
        (group.residual.is_some(), ProductsParams::RESIDUAL),
        (group.glu.is_some(), ProductsParams::GLU),
        (group.weighted.is_some(), JOINED),
    ];
    let after = after.into_iter().filter(|(is, _)| *is).map(|(_, bit)| bit);
    biases.map(|(i, _)| ProductsParams::BIAS << i).chain(after).sum()
}

/// Returns the tensors of a group in the order of the kernel's bindings. In place of a missing tensor, one
/// that is read anyway is bound.
fn operands(group: &Experts) -> Vec<Operand> {
    let product = |i: usize| group.products.get(i).or(group.products.first());
    let bias = |i: usize| product(i).and_then(|product| product.bias).map_or(group.input, |bias| bias.0);
    let factors = group.weighted.as_ref().map_or(group.input, |weighted| weighted.weights);
    let residual = group.added().unwrap_or(group.input);
    let read = [group.input, group.ids, bias(0), bias(1), factors, residual];
    let weights = [0, 1].into_iter().filter_map(|i| Some(product(i)?.weight));
    weights.chain(read).chain(group.results()).map(Operand::Tensor).collect()
}

/// Returns the pipeline that makes the lists of pairs and tiles for tiles of `columns`.
fn list_spec(profile: &Profile, columns: u32) -> PipelineSpec {
    pipeline("mul_mat_id_list", "default", &[profile.workgroup(profile.tuning.row), columns])
}

/// Returns the pipeline of the weighted sum over experts; `residual`: 1 if a residual is added.
fn sum_spec(profile: &Profile, residual: u32) -> PipelineSpec {
    pipeline("expert_sum", "default", &[profile.workgroup(profile.tuning.elementwise), residual])
}

/// Bytes of an entry in the list of tiles.
const ENTRY: u64 = 16;

/// Scratch memory of a product, in which arrays follow each other.
struct Room<'a> {
    c: &'a Context<'a>,
    used: usize,
}

impl Room<'_> {
    /// Returns an operand of `count` elements of `each` bytes.
    fn take(&mut self, count: u64, each: u64) -> Result<Operand, Refusal> {
        let bytes = count.checked_mul(each).and_then(|bytes| usize::try_from(bytes).ok());
        let at = self.used.next_multiple_of(self.c.profile.caps.binding_alignment as usize);
        let end =
            bytes.filter(|&bytes| bytes <= self.c.window_limit()).and_then(|bytes| at.checked_add(bytes));
        self.used =
            end.ok_or_else(|| Refusal(format!("MUL_MAT_ID needs {count} times {each} bytes of scratch")))?;
        Ok(Operand::ScratchAt(at, self.used - at))
    }
}

/// Returns the dispatches of the products with the matrices of a window as tiles, and the operand that receives
/// the results: rounding of the columns, lists, products. The results go to `d`, or else to scratch memory.
fn tile(
    c: &Context<'_>,
    p: &MulMatIdParams,
    dtype: DType,
    [matrices, input, ids]: [Operand; 3],
    d: Option<Operand>,
) -> Result<(Vec<Dispatch>, Operand), Refusal> {
    let weights = weights_of(dtype)?;
    let aligned = aligned(dtype, (p.off0, &p.nb0), (p.off1, &p.nb1));
    let pairs = u64::from(p.used) * u64::from(p.tokens);
    // Loops over pairs count with 32 bits, some steps beyond the end.
    if pairs > 1 << 31 {
        return Err(Refusal(format!("{} indices of {} tokens are too many to be listed", p.used, p.tokens)));
    }
    let tiles = c.profile.tiles(c.precision, dtype).for_experts();
    let tile = choose(c.profile, &tiles, p.m.into(), pairs / u64::from(p.experts.max(1)), p.experts.into())
        .ok_or_else(|| Refusal("no tile of MUL_MAT_ID fits the device's work-groups".into()))?;
    let spec = with_ids(tile_spec(&tiles, tile, weights, aligned));
    let fragment = tiles.fragment;
    let round = fragment.rounds().then(|| round(c, fragment, &p.of_columns(), input)).transpose()?;
    let input = round.as_ref().map_or(input, |round| round.operands[1]);
    let mut room = Room { c, used: if let Operand::Scratch(bytes) = input { bytes } else { 0 } };
    // Each matrix has at most one tile that is not full; so have the pairs whose index is outside the matrices.
    let others = pairs / u64::from(tile.bn) + 1;
    // Some devices allow fewer work-groups in a dimension than there are matrices, or tiles.
    let limits = c.profile.caps.max_workgroups;
    let most = limits[0].saturating_sub(1).clamp(1, p.window_experts.max(1));
    let sorted = room.take(pairs, 4)?;
    let listed = room.take(others + u64::from(most), ENTRY)?;
    let d = d.map_or_else(|| room.take(pairs * u64::from(p.m), 4), Ok)?;
    let listing = list_spec(c.profile, tile.bn);
    let mut dispatches: Vec<Dispatch> = round.into_iter().collect();
    for first in (0..p.window_experts).step_by(most as usize) {
        let part = MulMatIdParams {
            off0: p.off0 + first * p.nb0[1],
            first_expert: p.first_expert + first,
            window_experts: most.min(p.window_experts - first),
            ..*p
        };
        let grid = checked(c, &part, [part.window_experts + 1, 1, 1])?;
        let list = dispatch(listing.clone(), [], &part, grid);
        dispatches.push(Dispatch { operands: vec![ids, sorted, listed], written: 2, ..list });
        let entries = others + u64::from(part.window_experts);
        let along = u32::try_from(entries).unwrap_or(u32::MAX).min(limits[1].max(1));
        let across = u32::try_from(entries.div_ceil(along.into())).unwrap_or(u32::MAX);
        let grid = checked(c, &part, [p.m.div_ceil(tile.bm), along, across])?;
        let operands = [matrices, input, sorted, listed, d].into_iter().chain(weights.table()).collect();
        dispatches.push(Dispatch { operands, ..dispatch(spec.clone(), [], &part, grid) });
    }
    Ok((dispatches, d))
}

/// Returns the pipelines of this family: single products, pairs with all optional parts, and weighted sums.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let one = shapes(profile).into_iter().filter(|shape| shape.columns == 1 && !shape.staged);
    let mut all = Vec::new();
    for shape in one {
        all.push(vec_pipeline(&vec_spec(profile, &shape), 0));
        if shape.is_usual() {
            let pair = vec_spec(profile, &Shape { pair: 2, ..shape });
            all.push(vec_pipeline(&pair, ProductsParams::GLU | (3 * ProductsParams::BIAS)));
            all.push(vec_pipeline(&vec_spec(profile, &shape), JOINED | ProductsParams::RESIDUAL));
        }
    }
    let tiles: Vec<PipelineSpec> = WEIGHTS
        .iter()
        .flat_map(|weights| tile_specs(profile, weights, Tiles::for_experts))
        .map(with_ids)
        .collect();
    let mut widths: Vec<u32> = tiles.iter().filter_map(|spec| spec.specialization.get(2).copied()).collect();
    widths.sort_unstable();
    widths.dedup();
    all.extend(widths.into_iter().map(|columns| list_spec(profile, columns)));
    all.extend([0, 1].map(|residual| sum_spec(profile, residual)));
    all.extend(tiles);
    all
}
