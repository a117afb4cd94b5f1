//! GET_ROWS and SET_ROWS.

use super::grid::{by_rows, no_kernel, tensors};
use super::{Context, Launch, Refusal};
use ggml_core::kernel::{GetRowsParams, SetRowsParams};
use ggml_core::{DType, Op};

/// Plans the launches of a node of this family. A thread moves eight adjacent elements.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let node = c.graph.tensor(c.node);
    let src = node.src();
    if let Some(Op::SetRows(_)) = node.op() {
        let p = SetRowsParams::new(c.graph, c.node, &[])?;
        let kernel = match node.dtype {
            DType::F32 => "set_rows_f32",
            DType::F16 => "set_rows_f16",
            DType::Q8_0 => "set_rows_q8_0",
            DType::Q4_0 => "set_rows_q4_0",
            other => return Err(no_kernel(c, other)),
        };
        return by_rows(c, ("rows", kernel), tensors(&[src[1], src[2], c.node]), &p, p.ne, 8);
    }
    let p = GetRowsParams::new(c.graph, c.node, &[])?;
    let kernel = match c.graph.tensor(src[0]).dtype {
        // No arithmetic is done on rows of I32, so the four-byte copy of F32 works for them.
        DType::F32 | DType::I32 => "get_rows_f32",
        DType::F16 => "get_rows_f16",
        DType::BF16 => "get_rows_bf16",
        DType::Q8_0 => "get_rows_q8_0",
        DType::Q4_0 => "get_rows_q4_0",
        DType::Q4_1 => "get_rows_q4_1",
        DType::Q5_0 => "get_rows_q5_0",
        DType::Q5_1 => "get_rows_q5_1",
        DType::Q2_K => "get_rows_q2_k",
        DType::Q3_K => "get_rows_q3_k",
        DType::Q4_K => "get_rows_q4_k",
        DType::Q5_K => "get_rows_q5_k",
        DType::Q6_K => "get_rows_q6_k",
        DType::IQ4_NL => "get_rows_iq4_nl",
        DType::IQ4_XS => "get_rows_iq4_xs",
        DType::MXFP4 => "get_rows_mxfp4",
        DType::Q1_0 => "get_rows_q1_0",
        DType::Q2_0 => "get_rows_q2_0",
        DType::NVFP4 => "get_rows_nvfp4",
        DType::TQ1_0 => "get_rows_tq1_0",
        DType::TQ2_0 => "get_rows_tq2_0",
        DType::IQ1_S => "get_rows_iq1_s",
        DType::IQ1_M => "get_rows_iq1_m",
        DType::IQ2_XXS => "get_rows_iq2_xxs",
        DType::IQ2_XS => "get_rows_iq2_xs",
        DType::IQ2_S => "get_rows_iq2_s",
        DType::IQ3_XXS => "get_rows_iq3_xxs",
        DType::IQ3_S => "get_rows_iq3_s",
        other => return Err(no_kernel(c, other)),
    };
    by_rows(c, ("rows", kernel), tensors(&[src[0], src[1], c.node]), &p, p.ne, 8)
}
