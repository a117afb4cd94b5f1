//! Names and sizes of the matrix instructions of gfx90a and gfx942.

/// Type of the elements of a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Element {
    F16,
    Bf16,
    F32,
    Xf32,
    F64,
    I8,
    Fp8,
    Bf8,
}
use Element::{Bf8, Bf16, F16, F32, F64, Fp8, I8, Xf32};

/// An instruction: rows, depth, blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) depth: usize,
    pub(crate) blocks: usize,
    pub(crate) kinds: [Element; 2],
    pub(crate) sparse: bool,
}

const fn dense(name: &'static str, size: usize, depth: usize, blocks: usize, kind: Element) -> Shape {
    Shape { name, size, depth, blocks, kinds: [kind, kind], sparse: false }
}

const fn mixed(name: &'static str, size: usize, depth: usize, a: Element, b: Element) -> Shape {
    Shape { name, size, depth, blocks: 1, kinds: [a, b], sparse: false }
}

const fn sparse(name: &'static str, size: usize, depth: usize, a: Element, b: Element) -> Shape {
    Shape { sparse: true, ..mixed(name, size, depth, a, b) }
}

pub(crate) const GFX90A: &[Shape] = &[
    dense("v_mfma_f32_32x32x1f32", 32, 1, 2, F32),
    dense("v_mfma_f32_16x16x1f32", 16, 1, 4, F32),
    dense("v_mfma_f32_4x4x1f32", 4, 1, 16, F32),
    dense("v_mfma_f32_32x32x2f32", 32, 2, 1, F32),
    dense("v_mfma_f32_16x16x4f32", 16, 4, 1, F32),
    dense("v_mfma_f32_32x32x4f16", 32, 4, 2, F16),
    dense("v_mfma_f32_16x16x4f16", 16, 4, 4, F16),
    dense("v_mfma_f32_4x4x4f16", 4, 4, 16, F16),
    dense("v_mfma_f32_32x32x8f16", 32, 8, 1, F16),
    dense("v_mfma_f32_16x16x16f16", 16, 16, 1, F16),
    dense("v_mfma_i32_32x32x4i8", 32, 4, 2, I8),
    dense("v_mfma_i32_16x16x4i8", 16, 4, 4, I8),
    dense("v_mfma_i32_4x4x4i8", 4, 4, 16, I8),
    dense("v_mfma_i32_32x32x8i8", 32, 8, 1, I8),
    dense("v_mfma_i32_16x16x16i8", 16, 16, 1, I8),
    dense("v_mfma_f32_32x32x4bf16_1k", 32, 4, 2, Bf16),
    dense("v_mfma_f32_16x16x4bf16_1k", 16, 4, 4, Bf16),
    dense("v_mfma_f32_4x4x4bf16_1k", 4, 4, 16, Bf16),
    dense("v_mfma_f32_32x32x8bf16_1k", 32, 8, 1, Bf16),
    dense("v_mfma_f32_16x16x16bf16_1k", 16, 16, 1, Bf16),
    dense("v_mfma_f32_32x32x2bf16", 32, 2, 2, Bf16),
    dense("v_mfma_f32_16x16x2bf16", 16, 2, 4, Bf16),
    dense("v_mfma_f32_4x4x2bf16", 4, 2, 16, Bf16),
    dense("v_mfma_f32_32x32x4bf16", 32, 4, 1, Bf16),
    dense("v_mfma_f32_16x16x8bf16", 16, 8, 1, Bf16),
    dense("v_mfma_f64_16x16x4f64", 16, 4, 1, F64),
    dense("v_mfma_f64_4x4x4f64", 4, 4, 4, F64),
];

pub(crate) const GFX942: &[Shape] = &[
    dense("v_mfma_f32_16x16x8_xf32", 16, 8, 1, Xf32),
    dense("v_mfma_f32_32x32x4_xf32", 32, 4, 1, Xf32),
    dense("v_mfma_f32_32x32x1_2b_f32", 32, 1, 2, F32),
    dense("v_mfma_f32_16x16x1_4b_f32", 16, 1, 4, F32),
    dense("v_mfma_f32_4x4x1_16b_f32", 4, 1, 16, F32),
    dense("v_mfma_f32_32x32x2_f32", 32, 2, 1, F32),
    dense("v_mfma_f32_16x16x4_f32", 16, 4, 1, F32),
    dense("v_mfma_f32_32x32x4_2b_f16", 32, 4, 2, F16),
    dense("v_mfma_f32_16x16x4_4b_f16", 16, 4, 4, F16),
    dense("v_mfma_f32_4x4x4_16b_f16", 4, 4, 16, F16),
    dense("v_mfma_f32_32x32x8_f16", 32, 8, 1, F16),
    dense("v_mfma_f32_16x16x16_f16", 16, 16, 1, F16),
    dense("v_mfma_i32_32x32x4_2b_i8", 32, 4, 2, I8),
    dense("v_mfma_i32_16x16x4_4b_i8", 16, 4, 4, I8),
    dense("v_mfma_i32_4x4x4_16b_i8", 4, 4, 16, I8),
    dense("v_mfma_i32_32x32x16_i8", 32, 16, 1, I8),
    dense("v_mfma_i32_16x16x32_i8", 16, 32, 1, I8),
    dense("v_mfma_f32_32x32x4_2b_bf16", 32, 4, 2, Bf16),
    dense("v_mfma_f32_16x16x4_4b_bf16", 16, 4, 4, Bf16),
    dense("v_mfma_f32_4x4x4_16b_bf16", 4, 4, 16, Bf16),
    dense("v_mfma_f32_32x32x8_bf16", 32, 8, 1, Bf16),
    dense("v_mfma_f32_16x16x16_bf16", 16, 16, 1, Bf16),
    dense("v_mfma_f64_16x16x4_f64", 16, 4, 1, F64),
    dense("v_mfma_f64_4x4x4_4b_f64", 4, 4, 4, F64),
    mixed("v_mfma_f32_16x16x32_bf8_bf8", 16, 32, Bf8, Bf8),
    mixed("v_mfma_f32_16x16x32_bf8_fp8", 16, 32, Bf8, Fp8),
    mixed("v_mfma_f32_16x16x32_fp8_bf8", 16, 32, Fp8, Bf8),
    mixed("v_mfma_f32_16x16x32_fp8_fp8", 16, 32, Fp8, Fp8),
    mixed("v_mfma_f32_32x32x16_bf8_bf8", 32, 16, Bf8, Bf8),
    mixed("v_mfma_f32_32x32x16_bf8_fp8", 32, 16, Bf8, Fp8),
    mixed("v_mfma_f32_32x32x16_fp8_bf8", 32, 16, Fp8, Bf8),
    mixed("v_mfma_f32_32x32x16_fp8_fp8", 32, 16, Fp8, Fp8),
    sparse("v_smfmac_f32_16x16x32_f16", 16, 32, F16, F16),
    sparse("v_smfmac_f32_32x32x16_f16", 32, 16, F16, F16),
    sparse("v_smfmac_f32_16x16x32_bf16", 16, 32, Bf16, Bf16),
    sparse("v_smfmac_f32_32x32x16_bf16", 32, 16, Bf16, Bf16),
    sparse("v_smfmac_i32_16x16x64_i8", 16, 64, I8, I8),
    sparse("v_smfmac_i32_32x32x32_i8", 32, 32, I8, I8),
    sparse("v_smfmac_f32_16x16x64_bf8_bf8", 16, 64, Bf8, Bf8),
    sparse("v_smfmac_f32_16x16x64_bf8_fp8", 16, 64, Bf8, Fp8),
    sparse("v_smfmac_f32_16x16x64_fp8_bf8", 16, 64, Fp8, Bf8),
    sparse("v_smfmac_f32_16x16x64_fp8_fp8", 16, 64, Fp8, Fp8),
    sparse("v_smfmac_f32_32x32x32_bf8_bf8", 32, 32, Bf8, Bf8),
    sparse("v_smfmac_f32_32x32x32_bf8_fp8", 32, 32, Bf8, Fp8),
    sparse("v_smfmac_f32_32x32x32_fp8_bf8", 32, 32, Fp8, Bf8),
    sparse("v_smfmac_f32_32x32x32_fp8_fp8", 32, 32, Fp8, Fp8),
];
