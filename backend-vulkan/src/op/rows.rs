//! GET_ROWS and SET_ROWS.

use super::grid::rows;
use super::row_ranges::{Rows, split_rows};
use super::weights::{WEIGHTS, Weights};
use super::{Context, Dispatch, Operand, Refusal, dispatch, pipeline};
use crate::device::profile::Profile;
use crate::pipeline::PipelineSpec;
use bytemuck::{Pod, Zeroable};
use ggml_core::kernel::{GetRowsParams, SetRowsParams};
use ggml_core::{DType, Op};

/// The parameters of GET_ROWS, and the rows of the matrix in the window. A matrix larger than a window needs
/// several dispatches, each of which writes the rows in its window.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct GetRowsWindow {
    /// Parameters of the operation.
    pub params: GetRowsParams,
    /// First row of the window.
    pub first_row: u32,
    /// Number of rows in the window.
    pub window_rows: u32,
}

/// Variants of SET_ROWS by type.
const SET_VARIANTS: [(DType, &str); 4] =
    [(DType::F32, "f32"), (DType::F16, "f16"), (DType::Q8_0, "q8_0"), (DType::Q4_0, "q4_0")];

fn get_spec(profile: &Profile, variant: &'static str, once: u32) -> PipelineSpec {
    pipeline("get_rows", variant, &[profile.workgroup(profile.tuning.elementwise), once])
}

fn set_spec(profile: &Profile, variant: &'static str, once: u32) -> PipelineSpec {
    pipeline("set_rows", variant, &[profile.workgroup(profile.tuning.elementwise), once])
}

/// Returns the dispatches of a GET_ROWS or SET_ROWS node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    match c.result().op() {
        Some(Op::GetRows(_)) => get(c),
        _ => set(c),
    }
}

fn get(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let a = c.operand(0);
    // I32 is copied like F32.
    let stored = if a.dtype == DType::I32 { DType::F32 } else { a.dtype };
    let weights = Weights::of(stored)
        .ok_or_else(|| Refusal(format!("GET_ROWS has no Vulkan kernel for {}", a.dtype)))?;
    let params = GetRowsParams::new(c.graph, c.node, &c.offsets())?;
    // An invocation computes one element, or eight of a quantised type.
    let mut taken = params.ne;
    taken[0] /= if a.dtype.is_quantized() { 8 } else { 1 };
    let grid = rows(c.profile, c.profile.workgroup(c.profile.tuning.elementwise), taken);
    let spec = get_spec(c.profile, weights.rows, grid.once);
    let part = |operand: Operand, first_row: u32, window_rows: u32| {
        let p = GetRowsWindow { params, first_row, window_rows };
        let mut dispatch = dispatch(spec.clone(), [c.src(0), c.src(1), c.node], &p, grid.groups);
        dispatch.operands[0] = operand;
        dispatch.operands.extend(weights.table());
        dispatch
    };
    if a.span_bytes() <= c.window_limit() {
        return Ok(vec![part(Operand::Tensor(c.src(0)), 0, params.rows)]);
    }
    if a.ne[2] * a.ne[3] > 1 {
        return Err(Refusal(format!(
            "{} exceeds the device's maximum window and is not a matrix",
            a.describe()
        )));
    }
    let matrix = Rows::of(c, c.src(0), 0, 0);
    let ranges = split_rows(c, &[matrix])?;
    Ok(ranges
        .iter()
        .map(|range| part(matrix.operand(range), range.start as u32, range.len() as u32))
        .collect())
}

fn set(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let dtype = c.result().dtype;
    let &(_, variant) = SET_VARIANTS
        .iter()
        .find(|(known, _)| *known == dtype)
        .ok_or_else(|| Refusal(format!("SET_ROWS has no Vulkan kernel for {dtype}")))?;
    let p = SetRowsParams::new(c.graph, c.node, &c.offsets())?;
    // An invocation computes one element or one block.
    let taken = [p.ne[0] / dtype.block() as u32, p.ne[1], p.ne[2], p.ne[3]];
    let grid = rows(c.profile, c.profile.workgroup(c.profile.tuning.elementwise), taken);
    let spec = set_spec(c.profile, variant, grid.once);
    Ok(vec![dispatch(spec, [c.src(1), c.src(2), c.node], &p, grid.groups)])
}

/// Returns the pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let get = WEIGHTS.iter().flat_map(|w| [0, 1].map(|once| get_spec(profile, w.rows, once)));
    get.chain(SET_VARIANTS.iter().flat_map(|(_, v)| [0, 1].map(|once| set_spec(profile, v, once)))).collect()
}
