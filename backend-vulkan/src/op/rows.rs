//! GET_ROWS and SET_ROWS.

use super::grid::rows;
use super::{Context, Dispatch, Operand, Refusal, dispatch, pipeline};
use crate::op::mul_mat::rows_of_a_part;
use crate::pipeline::PipelineSpec;
use crate::tuning::Profile;
use bytemuck::{Pod, Zeroable};
use ggml_core::kernel::{GetRowsParams, SetRowsParams};
use ggml_core::{DType, Op};

/// The parameters of GET_ROWS, and which rows of the matrix are in the window: a matrix larger than a window takes
/// several dispatches, each of which writes what it has.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct GetRowsWindow {
    /// The operation.
    pub params: GetRowsParams,
    /// First row of the window.
    pub first_row: u32,
    /// Rows of the window.
    pub window_rows: u32,
}

const GET_VARIANTS: [&str; 5] = ["w32", "f16", "bf16", "q8_0", "q4_0"];
const SET_VARIANTS: [&str; 2] = ["f32", "f16"];

fn get_spec(profile: &Profile, variant: &'static str) -> PipelineSpec {
    pipeline("get_rows", variant, &[profile.workgroup(profile.tuning.elementwise)])
}

fn set_spec(profile: &Profile, variant: &'static str) -> PipelineSpec {
    pipeline("set_rows", variant, &[profile.workgroup(profile.tuning.elementwise)])
}

/// The dispatches of a GET_ROWS or SET_ROWS node.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    match c.result().op() {
        Some(Op::GetRows(_)) => get(c),
        _ => set(c),
    }
}

fn get(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let a = c.operand(0);
    let variant = match a.dtype {
        DType::F32 | DType::I32 => "w32",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::Q8_0 => "q8_0",
        DType::Q4_0 => "q4_0",
        other => return Err(Refusal(format!("GET_ROWS has no Vulkan kernel for {other}"))),
    };
    let params = GetRowsParams::new(c.graph, c.node, &c.offsets())?;
    let spec = get_spec(c.profile, variant);
    let grid = rows(c.profile, spec.specialization[0], params.ne);
    let parts = rows_of_a_part(c, a)?;
    let dispatches = parts.into_iter().map(|part| {
        let (first_row, window_rows) = (part.first, part.rows);
        let p = GetRowsWindow { params, first_row, window_rows };
        let mut dispatch = dispatch(spec.clone(), [c.src(0), c.src(1), c.node], &p, grid);
        if let Some((skip, bytes)) = part.bytes {
            dispatch.operands[0] = Operand::Part(c.src(0), skip, bytes);
        }
        dispatch
    });
    Ok(dispatches.collect())
}

fn set(c: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let variant = match c.result().dtype {
        DType::F32 => "f32",
        DType::F16 => "f16",
        other => return Err(Refusal(format!("SET_ROWS has no Vulkan kernel for {other}"))),
    };
    let p = SetRowsParams::new(c.graph, c.node, &c.offsets())?;
    let spec = set_spec(c.profile, variant);
    let grid = rows(c.profile, spec.specialization[0], p.ne);
    Ok(vec![dispatch(spec, [c.src(1), c.src(2), c.node], &p, grid)])
}

/// The pipelines of this family.
pub(super) fn pipelines(profile: &Profile) -> Vec<PipelineSpec> {
    let get = GET_VARIANTS.iter().map(|v| get_spec(profile, v));
    get.chain(SET_VARIANTS.iter().map(|v| set_spec(profile, v))).collect()
}
