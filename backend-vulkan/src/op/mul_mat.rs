//! MUL_MAT: mat-vec for up to [`VEC_COLUMNS`] columns, tiles for more.

use super::grid::clamp;
use super::{Context, Dispatch, Operand, Refusal, dispatch, pipeline};
use crate::pipeline::PipelineSpec;
use crate::tuning::{Profile, Warptile};
use ggml_core::kernel::MulMatParams;
use ggml_core::plan::Precision;
use ggml_core::{DType, Tensor};

/// Columns up to which the mat-vec kernel is used.
pub const VEC_COLUMNS: u32 = 8;

const TYPES: [DType; 5] = [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0];
const COLUMNS: [u32; 4] = [1, 2, 4, 8];

/// Variants of the mat-vec kernel: by shared memory, by subgroup arithmetic.
fn vec_variant(dtype: DType, reduction: &str) -> Option<&'static str> {
    let pair = match dtype {
        DType::F32 => ["f32_lds", "f32_subgroup"],
        DType::F16 => ["f16_lds", "f16_subgroup"],
        DType::BF16 => ["bf16_lds", "bf16_subgroup"],
        DType::Q8_0 => ["q8_0_lds", "q8_0_subgroup"],
        DType::Q4_0 => ["q4_0_lds", "q4_0_subgroup"],
        _ => return None,
    };
    Some(pair[(reduction == "subgroup") as usize])
}

/// Variants of the tiled kernel: F32 tiles, F16 tiles.
fn tile_variant(dtype: DType, f16: bool) -> Option<&'static str> {
    let pair = match dtype {
        DType::F32 => ["f32_tile32", "f32_tile16"],
        DType::F16 => ["f16_tile32", "f16_tile16"],
        DType::BF16 => ["bf16_tile32", "bf16_tile16"],
        DType::Q8_0 => ["q8_0_tile32", "q8_0_tile16"],
        DType::Q4_0 => ["q4_0_tile32", "q4_0_tile16"],
        _ => return None,
    };
    Some(pair[f16 as usize])
}

/// Mat-vec for one of [`COLUMNS`].
fn vec_spec(profile: &Profile, dtype: DType, columns: usize, aligned: bool) -> Option<PipelineSpec> {
    let t = profile.tuning.mat_vec;
    let constants = [profile.workgroup(t.workgroup), t.rows[columns], COLUMNS[columns], aligned as u32];
    let mut spec = pipeline("mul_mat_vec", vec_variant(dtype, profile.reduction())?, &constants);
    spec.subgroup = profile.required_subgroup();
    Some(spec)
}

fn tile_spec(t: &Warptile, dtype: DType, f16: bool, aligned: bool) -> Option<PipelineSpec> {
    // The two halves of a block of Q4_0 are unpacked together.
    let bk = if dtype == DType::Q4_0 { 32 } else { t.bk[f16 as usize] };
    let constants = [t.workgroup(), t.bm, t.bn, bk, t.tm, t.tn, t.unroll, aligned as u32];
    Some(pipeline("mul_mat_tile", tile_variant(dtype, f16)?, &constants))
}

fn f16_tiles(profile: &Profile, precision: Precision) -> bool {
    precision == Precision::Fast && profile.tuning.f16_tiles && profile.caps.fp16
}

/// The largest tile that leaves enough work-groups and is not mostly empty.
fn choose(profile: &Profile, m: u64, n: u64, batch: u64) -> Option<&'static Warptile> {
    let allowed = |t: &&Warptile| t.workgroup() <= profile.caps.max_invocations;
    let fits = |t: &&Warptile| {
        let groups = m.div_ceil(t.bm.into()) * n.div_ceil(t.bn.into()) * batch;
        groups >= profile.tuning.enough_groups.into() && n * 2 > u64::from(t.bn) && m * 2 > u64::from(t.bm)
    };
    let tiles = || profile.tuning.tiles.iter().filter(allowed);
    tiles().rev().find(fits).or_else(|| tiles().next())
}

/// Consecutive rows of a matrix that fit a window.
pub(super) struct Part {
    /// First row.
    pub(super) first: u32,
    /// Rows.
    pub(super) rows: u32,
    /// Bytes after the beginning of the tensor, and bytes; `None` for the whole tensor.
    pub(super) bytes: Option<(usize, usize)>,
}

/// Cuts `count` rows, `stride` bytes apart and `bytes` long, into windows. All begin at the same remainder of the
/// device's alignment as the first.
fn cut(c: &Context<'_>, what: &Tensor, count: usize, stride: usize, bytes: usize) -> Result<Vec<Part>, Refusal> {
    // The window may begin before the tensor and end on a whole word.
    let alignment = usize::try_from(c.profile.caps.binding_alignment).unwrap_or(1).max(4);
    let room = c.window_limit().saturating_sub(what.dtype.block_bytes() * alignment + 4);
    let step = alignment / gcd(alignment, stride);
    let most = match stride {
        0 => count,
        _ if bytes > room => 0,
        _ => ((room - bytes) / stride + 1) / step * step,
    };
    if most == 0 {
        return Err(Refusal(format!("a few rows of {} are larger than a window of this device", what.describe())));
    }
    let part = |first: usize| {
        let rows = most.min(count - first);
        let bytes = Some((first * stride, (rows - 1) * stride + bytes));
        Part { first: first as u32, rows: rows as u32, bytes }
    };
    Ok((0..count).step_by(most).map(part).collect())
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The windows that cover a matrix, cut by rows if it is larger than one.
pub(super) fn rows_of_a_part(c: &Context<'_>, a: &Tensor) -> Result<Vec<Part>, Refusal> {
    if a.span_bytes() <= c.window_limit() {
        return Ok(vec![Part { first: 0, rows: a.ne[1] as u32, bytes: None }]);
    }
    if a.ne[2] * a.ne[3] > 1 {
        return Err(Refusal(format!("{} is larger than a window of this device and no matrix", a.describe())));
    }
    let bytes = a.dtype.row_bytes(a.ne[0]).unwrap_or(usize::MAX);
    cut(c, a, a.ne[1], a.nb[1], bytes)
}

/// The dispatches of a MUL_MAT node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let (a, b, d) = (c.operand(0), c.operand(1), c.result());
    let p = MulMatParams::new(c.graph, c.node, &c.offsets())?;
    let limit = c.window_limit();
    if [a, b, d].iter().all(|t| t.span_bytes() <= limit) {
        let mut whole = product(c, p)?;
        whole.operands = [c.src(0), c.src(1), c.node].map(Operand::Tensor).to_vec();
        return Ok(vec![whole]);
    }
    // Larger than a window: columns in parts, and for each of them rows in parts.
    if p.ne2 * p.ne3 > 1 {
        return Err(Refusal(format!("MUL_MAT of batches with an operand larger than a window of {limit} bytes")));
    }
    let b_parts = cut(c, b, b.ne[1], b.nb[1], b.ne[0] * 4)?;
    let d_parts = cut(c, d, d.ne[1], d.nb[1], d.ne[0] * 4)?;
    let columns = if b_parts.len() > d_parts.len() { b_parts } else { d_parts };
    let rows = rows_of_a_part(c, a)?;
    let mut dispatches = Vec::new();
    for column in &columns {
        let (first, n) = (column.first as usize, column.rows as usize);
        let window = |stride: usize, row: usize| (first * stride, (n - 1) * stride + row);
        let (b_window, d_window) = (window(b.nb[1], b.ne[0] * 4), window(d.nb[1], d.ne[0] * 4));
        for row in &rows {
            let part = MulMatParams { n: column.rows, first_row: row.first, m: row.first + row.rows, ..p };
            let mut dispatch = product(c, part)?;
            let of_a = row.bytes.map_or(Operand::Tensor(c.src(0)), |(at, n)| Operand::Part(c.src(0), at, n));
            dispatch.operands = vec![
                of_a,
                Operand::Part(c.src(1), b_window.0, b_window.1),
                Operand::Part(c.node, d_window.0, d_window.1),
            ];
            dispatches.push(dispatch);
        }
    }
    Ok(dispatches)
}

/// One product of rows `first_row .. m`, without operands.
fn product(c: &Context<'_>, p: MulMatParams) -> Result<Dispatch, Refusal> {
    let dtype = c.operand(0).dtype;
    let none = || Refusal(format!("MUL_MAT has no Vulkan kernel for {dtype}"));
    let (rows, n) = (u64::from(p.m - p.first_row), u64::from(p.n));
    let batch = u64::from(p.ne2) * u64::from(p.ne3);
    let aligned = aligned(dtype, &p);
    if p.n <= VEC_COLUMNS {
        let columns = COLUMNS.iter().position(|&columns| columns >= p.n).unwrap_or(COLUMNS.len() - 1);
        let spec = vec_spec(c.profile, dtype, columns, aligned).ok_or_else(none)?;
        let groups = rows.div_ceil(spec.specialization[1].into());
        // More groups of rows than one dimension of a grid has are folded into the second.
        let x = groups.min(c.profile.caps.max_workgroups[0].max(1).into());
        let grid = clamp(c.profile, [x, groups.div_ceil(x), batch]);
        return Ok(dispatch(spec, [], &p, grid));
    }
    let f16 = f16_tiles(c.profile, c.precision);
    let tile = choose(c.profile, rows, n, batch)
        .ok_or_else(|| Refusal("no tile of MUL_MAT fits the device's work-groups".into()))?;
    let spec = tile_spec(tile, dtype, f16, aligned).ok_or_else(none)?;
    let (x, y) = (n.div_ceil(tile.bn.into()), rows.div_ceil(tile.bm.into()));
    let [most_x, most_y, _] = c.profile.caps.max_workgroups.map(u64::from);
    if x > most_x || y > most_y {
        return Err(Refusal(format!("MUL_MAT of {rows} rows and {n} columns needs too many work-groups")));
    }
    Ok(dispatch(spec, [], &p, clamp(c.profile, [x, y, batch])))
}

/// Whether strides and offsets allow loads of 16 bytes: of `b` always, of `a` for plain types.
fn aligned(dtype: DType, p: &MulMatParams) -> bool {
    let multiple = |unit: u32, offset: u32, strides: [u32; 3]| {
        offset.is_multiple_of(unit) && strides.iter().all(|s| s.is_multiple_of(unit))
    };
    let a = match dtype {
        DType::F32 => multiple(4, p.off0, p.nb0),
        DType::F16 | DType::BF16 => multiple(8, p.off0, p.nb0),
        _ => true,
    };
    a && multiple(4, p.off1, p.nb1)
}

/// The pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let mut all = Vec::new();
    for dtype in TYPES {
        for aligned in [false, true] {
            all.extend((0..COLUMNS.len()).filter_map(|i| vec_spec(profile, dtype, i, aligned)));
            for precision in [Precision::Exact, Precision::Fast] {
                let f16 = f16_tiles(profile, precision);
                all.extend(profile.tuning.tiles.iter().filter_map(|t| tile_spec(t, dtype, f16, aligned)));
            }
        }
    }
    all
}
