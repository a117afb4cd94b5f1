//! MUL_MAT_ID: a mat-vec for each pair of an index and a token.

use super::grid::{launch, no_kernel, tensors};
use super::{Context, Launch, Refusal};
use crate::tuning::Tuning;
use ggml_core::DType;
use ggml_core::kernel::MulMatIdParams;

/// Threads of a work-group.
const VEC_THREADS: u32 = 128;
/// Rows of a wavefront of the kernels of a type.
const ROWS: [u32; 2] = [1, 4];

/// Kernels by the type's name in theirs.
macro_rules! kernels {
    ($t:literal) => {
        [concat!("mat_vec_id_", $t, "_r1"), concat!("mat_vec_id_", $t, "_r4")]
    };
}

fn kernels(dtype: DType) -> Option<[&'static str; 2]> {
    Some(match dtype {
        DType::F32 => kernels!("f32"),
        DType::F16 => kernels!("f16"),
        DType::BF16 => kernels!("bf16"),
        DType::Q8_0 => kernels!("q8_0"),
        DType::Q4_0 => kernels!("q4_0"),
        DType::Q4_1 => kernels!("q4_1"),
        DType::Q5_0 => kernels!("q5_0"),
        DType::Q5_1 => kernels!("q5_1"),
        DType::Q2_K => kernels!("q2_k"),
        DType::Q3_K => kernels!("q3_k"),
        DType::Q4_K => kernels!("q4_k"),
        DType::Q5_K => kernels!("q5_k"),
        DType::Q6_K => kernels!("q6_k"),
        DType::IQ4_NL => kernels!("iq4_nl"),
        DType::IQ4_XS => kernels!("iq4_xs"),
        DType::MXFP4 => kernels!("mxfp4"),
        _ => return None,
    })
}

/// The launches of a node of this family.
pub(super) fn plan(c: &Context<'_>) -> Result<Vec<Launch>, Refusal> {
    let p = MulMatIdParams::new(c.graph, c.node, &[])?;
    let src = c.graph.tensor(c.node).src();
    let dtype = c.graph.tensor(src[0]).dtype;
    let kernels = kernels(dtype).ok_or_else(|| no_kernel(c, dtype))?;
    if p.k >= 1 << 29 {
        return Err(Refusal(format!(
            "MUL_MAT_ID of rows of {} elements: a lane's offset in a row has 32 bits",
            p.k
        )));
    }
    let tuning = Tuning::of(c.profile);
    let pairs = u64::from(p.used) * u64::from(p.tokens);
    let waves = |rows: u32| u64::from(p.m.div_ceil(rows)) * pairs;
    let enough = 4 * tuning.units(c.profile) * u64::from(tuning.vec_waves);
    let i = ROWS.iter().rposition(|&rows| rows <= tuning.vec_rows && waves(rows) >= enough).unwrap_or(0);
    let of_group = VEC_THREADS / c.profile.wave * ROWS[i];
    let groups = [u64::from(p.m.div_ceil(of_group)), 1, pairs];
    let operands = tensors(&[src[0], src[1], src[2], c.node]);
    Ok(vec![launch(c, ("mul_mat_id", kernels[i]), operands, &p, groups, VEC_THREADS)?])
}
