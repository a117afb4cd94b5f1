//! Numbers and names of the matrix instructions of gfx90a and gfx942, in format VOP3P.

use crate::isa::op::matrix::{Element, MatrixRow, Shape};
use Element::{Bf8, Bf16, F16, F32, F64, Fp8, I8, Xf32};

const fn row(
    code: u16,
    name: &'static str,
    (size, depth, blocks): (usize, usize, usize),
    a: Element,
    b: Element,
) -> MatrixRow {
    let shape = Shape { size, depth, blocks };
    MatrixRow { code, name, shape, a, b, sparse: false, flushes: false, negates: false }
}

const fn dense(code: u16, name: &'static str, shape: (usize, usize, usize), kind: Element) -> MatrixRow {
    row(code, name, shape, kind, kind)
}

/// An instruction of gfx90a on F16 or BF16.
const fn flushing(code: u16, name: &'static str, shape: (usize, usize, usize), kind: Element) -> MatrixRow {
    MatrixRow { flushes: true, ..dense(code, name, shape, kind) }
}

/// An instruction of gfx942 on F64.
const fn negating(code: u16, name: &'static str, shape: (usize, usize, usize)) -> MatrixRow {
    MatrixRow { negates: true, ..dense(code, name, shape, F64) }
}

const fn sparse(
    code: u16,
    name: &'static str,
    size: usize,
    depth: usize,
    a: Element,
    b: Element,
) -> MatrixRow {
    MatrixRow { sparse: true, ..row(code, name, (size, depth, 1), a, b) }
}

pub(super) const GFX90A: &[MatrixRow] = &[
    dense(0x40, "v_mfma_f32_32x32x1f32", (32, 1, 2), F32),
    dense(0x41, "v_mfma_f32_16x16x1f32", (16, 1, 4), F32),
    dense(0x42, "v_mfma_f32_4x4x1f32", (4, 1, 16), F32),
    dense(0x44, "v_mfma_f32_32x32x2f32", (32, 2, 1), F32),
    dense(0x45, "v_mfma_f32_16x16x4f32", (16, 4, 1), F32),
    flushing(0x48, "v_mfma_f32_32x32x4f16", (32, 4, 2), F16),
    flushing(0x49, "v_mfma_f32_16x16x4f16", (16, 4, 4), F16),
    flushing(0x4a, "v_mfma_f32_4x4x4f16", (4, 4, 16), F16),
    flushing(0x4c, "v_mfma_f32_32x32x8f16", (32, 8, 1), F16),
    flushing(0x4d, "v_mfma_f32_16x16x16f16", (16, 16, 1), F16),
    dense(0x50, "v_mfma_i32_32x32x4i8", (32, 4, 2), I8),
    dense(0x51, "v_mfma_i32_16x16x4i8", (16, 4, 4), I8),
    dense(0x52, "v_mfma_i32_4x4x4i8", (4, 4, 16), I8),
    dense(0x54, "v_mfma_i32_32x32x8i8", (32, 8, 1), I8),
    dense(0x55, "v_mfma_i32_16x16x16i8", (16, 16, 1), I8),
    flushing(0x63, "v_mfma_f32_32x32x4bf16_1k", (32, 4, 2), Bf16),
    flushing(0x64, "v_mfma_f32_16x16x4bf16_1k", (16, 4, 4), Bf16),
    flushing(0x65, "v_mfma_f32_4x4x4bf16_1k", (4, 4, 16), Bf16),
    flushing(0x66, "v_mfma_f32_32x32x8bf16_1k", (32, 8, 1), Bf16),
    flushing(0x67, "v_mfma_f32_16x16x16bf16_1k", (16, 16, 1), Bf16),
    flushing(0x68, "v_mfma_f32_32x32x2bf16", (32, 2, 2), Bf16),
    flushing(0x69, "v_mfma_f32_16x16x2bf16", (16, 2, 4), Bf16),
    flushing(0x6b, "v_mfma_f32_4x4x2bf16", (4, 2, 16), Bf16),
    flushing(0x6c, "v_mfma_f32_32x32x4bf16", (32, 4, 1), Bf16),
    flushing(0x6d, "v_mfma_f32_16x16x8bf16", (16, 8, 1), Bf16),
    dense(0x6e, "v_mfma_f64_16x16x4f64", (16, 4, 1), F64),
    dense(0x6f, "v_mfma_f64_4x4x4f64", (4, 4, 4), F64),
];

pub(super) const GFX942: &[MatrixRow] = &[
    dense(0x3e, "v_mfma_f32_16x16x8_xf32", (16, 8, 1), Xf32),
    dense(0x3f, "v_mfma_f32_32x32x4_xf32", (32, 4, 1), Xf32),
    dense(0x40, "v_mfma_f32_32x32x1_2b_f32", (32, 1, 2), F32),
    dense(0x41, "v_mfma_f32_16x16x1_4b_f32", (16, 1, 4), F32),
    dense(0x42, "v_mfma_f32_4x4x1_16b_f32", (4, 1, 16), F32),
    dense(0x44, "v_mfma_f32_32x32x2_f32", (32, 2, 1), F32),
    dense(0x45, "v_mfma_f32_16x16x4_f32", (16, 4, 1), F32),
    dense(0x48, "v_mfma_f32_32x32x4_2b_f16", (32, 4, 2), F16),
    dense(0x49, "v_mfma_f32_16x16x4_4b_f16", (16, 4, 4), F16),
    dense(0x4a, "v_mfma_f32_4x4x4_16b_f16", (4, 4, 16), F16),
    dense(0x4c, "v_mfma_f32_32x32x8_f16", (32, 8, 1), F16),
    dense(0x4d, "v_mfma_f32_16x16x16_f16", (16, 16, 1), F16),
    dense(0x50, "v_mfma_i32_32x32x4_2b_i8", (32, 4, 2), I8),
    dense(0x51, "v_mfma_i32_16x16x4_4b_i8", (16, 4, 4), I8),
    dense(0x52, "v_mfma_i32_4x4x4_16b_i8", (4, 4, 16), I8),
    dense(0x56, "v_mfma_i32_32x32x16_i8", (32, 16, 1), I8),
    dense(0x57, "v_mfma_i32_16x16x32_i8", (16, 32, 1), I8),
    dense(0x5d, "v_mfma_f32_32x32x4_2b_bf16", (32, 4, 2), Bf16),
    dense(0x5e, "v_mfma_f32_16x16x4_4b_bf16", (16, 4, 4), Bf16),
    dense(0x5f, "v_mfma_f32_4x4x4_16b_bf16", (4, 4, 16), Bf16),
    dense(0x60, "v_mfma_f32_32x32x8_bf16", (32, 8, 1), Bf16),
    dense(0x61, "v_mfma_f32_16x16x16_bf16", (16, 16, 1), Bf16),
    sparse(0x62, "v_smfmac_f32_16x16x32_f16", 16, 32, F16, F16),
    sparse(0x64, "v_smfmac_f32_32x32x16_f16", 32, 16, F16, F16),
    sparse(0x66, "v_smfmac_f32_16x16x32_bf16", 16, 32, Bf16, Bf16),
    sparse(0x68, "v_smfmac_f32_32x32x16_bf16", 32, 16, Bf16, Bf16),
    sparse(0x6a, "v_smfmac_i32_16x16x64_i8", 16, 64, I8, I8),
    sparse(0x6c, "v_smfmac_i32_32x32x32_i8", 32, 32, I8, I8),
    negating(0x6e, "v_mfma_f64_16x16x4_f64", (16, 4, 1)),
    negating(0x6f, "v_mfma_f64_4x4x4_4b_f64", (4, 4, 4)),
    row(0x70, "v_mfma_f32_16x16x32_bf8_bf8", (16, 32, 1), Bf8, Bf8),
    row(0x71, "v_mfma_f32_16x16x32_bf8_fp8", (16, 32, 1), Bf8, Fp8),
    row(0x72, "v_mfma_f32_16x16x32_fp8_bf8", (16, 32, 1), Fp8, Bf8),
    row(0x73, "v_mfma_f32_16x16x32_fp8_fp8", (16, 32, 1), Fp8, Fp8),
    row(0x74, "v_mfma_f32_32x32x16_bf8_bf8", (32, 16, 1), Bf8, Bf8),
    row(0x75, "v_mfma_f32_32x32x16_bf8_fp8", (32, 16, 1), Bf8, Fp8),
    row(0x76, "v_mfma_f32_32x32x16_fp8_bf8", (32, 16, 1), Fp8, Bf8),
    row(0x77, "v_mfma_f32_32x32x16_fp8_fp8", (32, 16, 1), Fp8, Fp8),
    sparse(0x78, "v_smfmac_f32_16x16x64_bf8_bf8", 16, 64, Bf8, Bf8),
    sparse(0x79, "v_smfmac_f32_16x16x64_bf8_fp8", 16, 64, Bf8, Fp8),
    sparse(0x7a, "v_smfmac_f32_16x16x64_fp8_bf8", 16, 64, Fp8, Bf8),
    sparse(0x7b, "v_smfmac_f32_16x16x64_fp8_fp8", 16, 64, Fp8, Fp8),
    sparse(0x7c, "v_smfmac_f32_32x32x32_bf8_bf8", 32, 32, Bf8, Bf8),
    sparse(0x7d, "v_smfmac_f32_32x32x32_bf8_fp8", 32, 32, Bf8, Fp8),
    sparse(0x7e, "v_smfmac_f32_32x32x32_fp8_bf8", 32, 32, Fp8, Bf8),
    sparse(0x7f, "v_smfmac_f32_32x32x32_fp8_fp8", 32, 32, Fp8, Fp8),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::op::matrix::MOST_RESULTS;

    #[test]
    fn tables_are_sorted_and_registers_are_whole() {
        for table in [GFX90A, GFX942] {
            assert!(table.windows(2).all(|w| w[0].code < w[1].code));
            for row in table {
                let [a, b] = [row.a_registers(), row.b_registers()];
                assert!((1..=4).contains(&a) && (1..=4).contains(&b), "{}", row.name);
                assert!(row.registers() <= MOST_RESULTS, "{}", row.name);
            }
        }
    }
}
