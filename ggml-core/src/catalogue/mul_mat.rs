//! Test cases of MUL_MAT.

use super::case::{Case, Fill};
use crate::dtype::DType;
use crate::op::mul_mat::WEIGHT_TYPES;

/// True if a type has all cases. The kernels of other types are those of such a type with another block
/// decoder.
pub(super) fn thorough(dtype: DType) -> bool {
    WEIGHT_TYPES[..6].contains(&dtype)
}

/// True if a type has few bits; these types have the fewest cases.
fn few_bits(dtype: DType) -> bool {
    WEIGHT_TYPES[16..].contains(&dtype)
}

/// Test cases: matrix-vector and matrix-matrix products for each type, extents around tile borders,
/// broadcasting, strides. Types that are not `thorough` have a subset.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &dtype in WEIGHT_TYPES {
        let block = dtype.block();
        // (k in blocks of 32 or elements, m, n): one column, few columns, tiles and their borders.
        let k = |blocks: usize, odd: usize| match block {
            1 => odd,
            // Blocks of 256: an eighth of the blocks gives rows of the same length.
            256 => blocks.div_ceil(8) * block + if blocks > 2 { block } else { 0 },
            _ => blocks * block,
        };
        let shapes = [
            (k(1, 1), 1, 1),
            (k(2, 64), 64, 1),
            (k(8, 255), 67, 1),
            (k(9, 288), 33, 2),
            (k(3, 97), 16, 5),
            (k(8, 256), 128, 8),
            (k(4, 128), 64, 64),
            (k(5, 161), 65, 67),
            (k(8, 256), 130, 33),
        ];
        // One column, some columns, tiles; for types of more bits also two columns.
        let some = [shapes[2], shapes[4], shapes[7], shapes[3]];
        let some = if few_bits(dtype) { &some[..3] } else { &some[..] };
        for &(k, m, n) in if thorough(dtype) { &shapes[..] } else { some } {
            cases.push(Case::new(format!("MUL_MAT({dtype}, k={k}, m={m}, n={n})"), |g, c| {
                let a = c.leaf(g, "a", dtype, [k, m, 1, 1], Fill::Uniform(-1.0, 1.0))?;
                let b = c.leaf(g, "b", DType::F32, [k, n, 1, 1], Fill::Uniform(-1.0, 1.0))?;
                g.mul_mat(a, b)
            }));
        }
        let planes = [(3, 2, 3, 2, 9), (2, 1, 4, 3, 1), (1, 1, 2, 2, 40)];
        let taken = if thorough(dtype) { planes.len() } else { usize::from(!few_bits(dtype)) };
        for &(a2, a3, b2, b3, n) in &planes[..taken] {
            cases.push(Case::new(
                format!("MUL_MAT({dtype}, a=[{a2}, {a3}], b=[{b2}, {b3}], n={n})"),
                |g, c| {
                    let k = block.max(64);
                    let a = c.leaf(g, "a", dtype, [k, 21, a2, a3], Fill::Uniform(-1.0, 1.0))?;
                    let b = c.leaf(g, "b", DType::F32, [k, n, b2, b3], Fill::Uniform(-1.0, 1.0))?;
                    g.mul_mat(a, b)
                },
            ));
        }
    }
    // Enough rows to occupy a device, for which backends have other kernels; the rows of b are no multiple of
    // the elements that a wavefront processes.
    for (dtype, k) in [(DType::F16, 1288), (DType::Q8_0, 1312), (DType::Q4_0, 1312), (DType::Q6_K, 1280)] {
        for n in [1, 2, 7, 12] {
            cases.push(Case::new(format!("MUL_MAT({dtype}, k={k}, m=2050, n={n})"), |g, c| {
                let a = c.leaf(g, "a", dtype, [k, 2050, 1, 1], Fill::Uniform(-1.0, 1.0))?;
                let b = c.leaf(g, "b", DType::F32, [k, n, 1, 1], Fill::Uniform(-1.0, 1.0))?;
                g.mul_mat(a, b)
            }));
        }
    }
    cases.push(Case::new("MUL_MAT(Q4_K, k=1280, m=2050, n=1)", |g, c| {
        let a = c.leaf(g, "a", DType::Q4_K, [1280, 2050, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let b = c.leaf(g, "b", DType::F32, [1280, 1, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        g.mul_mat(a, b)
    }));
    // One column of rows long enough for special kernels.
    for (dtype, k) in [(DType::Q4_1, 1312), (DType::Q5_0, 1312), (DType::Q5_1, 1312), (DType::Q5_K, 1280)] {
        cases.push(Case::new(format!("MUL_MAT({dtype}, k={k}, m=258, n=1)"), |g, c| {
            let a = c.leaf(g, "a", dtype, [k, 258, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let b = c.leaf(g, "b", DType::F32, [k, 1, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            g.mul_mat(a, b)
        }));
    }
    // Few columns of rows longer than the wavefronts of a work-group process at a time, some not a multiple of what each does.
    for (dtype, k, n) in [
        (DType::Q4_K, 4608, 3),
        (DType::Q4_K, 4608, 11),
        (DType::Q8_0, 4384, 2),
        (DType::Q8_0, 4384, 16),
        (DType::Q6_K, 4608, 8),
        (DType::Q5_1, 1312, 4),
        (DType::IQ4_XS, 1280, 9),
    ] {
        cases.push(Case::new(format!("MUL_MAT({dtype}, k={k}, m=50, n={n})"), |g, c| {
            let a = c.leaf(g, "a", dtype, [k, 50, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let b = c.leaf(g, "b", DType::F32, [k, n, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            g.mul_mat(a, b)
        }));
    }
    // The same with so many planes that a work-group has several tiles of rows.
    cases.push(Case::new("MUL_MAT(Q4_K, k=4096, m=70, b=[8, 7], n=2)", |g, c| {
        let a = c.leaf(g, "a", DType::Q4_K, [4096, 70, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let b = c.leaf(g, "b", DType::F32, [4096, 2, 8, 7], Fill::Uniform(-1.0, 1.0))?;
        g.mul_mat(a, b)
    }));
    // Few long rows and many columns.
    for (dtype, n) in [(DType::F16, 70), (DType::Q4_K, 37)] {
        cases.push(Case::new(format!("MUL_MAT({dtype}, k=1024, m=18, n={n})"), |g, c| {
            let a = c.leaf(g, "a", dtype, [1024, 18, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let b = c.leaf(g, "b", DType::F32, [1024, n, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            g.mul_mat(a, b)
        }));
    }
    for n in [1, 11] {
        cases.push(Case::new(format!("MUL_MAT(F16 permuted heads, n={n})"), |g, c| {
            let a = c.leaf(g, "a", DType::F16, [64, 2, 37, 1], Fill::Uniform(-1.0, 1.0))?;
            let a = g.permute(a, [0, 2, 1, 3])?;
            let b = c.leaf(g, "b", DType::F32, [64, 4, n, 1], Fill::Uniform(-1.0, 1.0))?;
            let b = g.permute(b, [0, 2, 1, 3])?;
            g.mul_mat(a, b)
        }));
    }
    // Activations beyond the range of F16, and smaller ones whose sums are: models have such activations.
    for (dtype, n) in [(DType::Q4_0, 40), (DType::Q6_K, 33), (DType::TQ2_0, 35)] {
        cases.push(Case::new(format!("MUL_MAT({dtype}, large activations, n={n})"), |g, c| {
            let a = c.leaf(g, "a", dtype, [512, 67, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let large = |i: usize| match i % 512 {
                300 => 4e5,
                60 | 200 => -3e4,
                rest => rest as f32 / 256.0 - 1.0,
            };
            let b = Fill::Values((0..512 * n).map(large).collect());
            let b = c.leaf(g, "b", DType::F32, [512, n, 1, 1], b)?;
            g.mul_mat(a, b)
        }));
    }
    // The largest integers of blocks times activations of one magnitude, all products of the same sign: sums at the limits of
    // number formats.
    for dtype in [DType::Q8_0, DType::Q4_K] {
        cases.push(Case::new(format!("MUL_MAT({dtype}, products of one sign, n=20)"), |g, c| {
            let a = c.leaf(g, "a", dtype, [512, 66, 1, 1], Fill::Values(vec![-1.0; 512 * 66]))?;
            let b = c.leaf(g, "b", DType::F32, [512, 20, 1, 1], Fill::Values(vec![-3.9; 512 * 20]))?;
            g.mul_mat(a, b)
        }));
    }
    cases.push(Case::new("MUL_MAT(Q8_0 window of rows)", |g, c| {
        let a = c.leaf(g, "a", DType::Q8_0, [64, 40, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let a = g.view(a, [64, 19, 1, 1], [34, 68, 68 * 19, 68 * 19], 68 * 7)?;
        let b = c.leaf(g, "b", DType::F32, [64, 3, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        g.mul_mat(a, b)
    }));
    cases
}
