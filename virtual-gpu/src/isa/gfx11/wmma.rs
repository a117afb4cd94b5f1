//! Numbers and names of the matrix instructions of GFX11, in format VOP3P.

use crate::isa::op::wmma::{Factor, Sum, WmmaRow};

/// Matrix instructions by number.
pub(super) const ROWS: &[WmmaRow] = &[
    row(0x40, "v_wmma_f32_16x16x16_f16", Factor::F16, Sum::F32),
    row(0x41, "v_wmma_f32_16x16x16_bf16", Factor::Bf16, Sum::F32),
    row(0x42, "v_wmma_f16_16x16x16_f16", Factor::F16, Sum::F16),
    row(0x43, "v_wmma_bf16_16x16x16_bf16", Factor::Bf16, Sum::Bf16),
    row(0x44, "v_wmma_i32_16x16x16_iu8", Factor::I8, Sum::I32),
    row(0x45, "v_wmma_i32_16x16x16_iu4", Factor::I4, Sum::I32),
];

const fn row(code: u16, name: &'static str, factor: Factor, sum: Sum) -> WmmaRow {
    WmmaRow { code, name, factor, sum }
}
