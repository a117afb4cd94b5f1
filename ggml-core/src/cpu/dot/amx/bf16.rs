//! Products of F16 and BF16 weights with activations as sums of two BF16 values.
//!
//! A binary16 value has 11 significant bits: the upper 8 and the rest are BF16 values. Of the four products of two
//! sums, that of both lower parts is left out: it is about 2^-16 of the result. BF16 weights have one part.

use super::columns::STEP_LINES;
use super::registers::{Hardware, Registers, Shapes};
use super::{COLUMNS, Multiply, Pack, Products, ROWS};
use crate::cpu::dot::int8::avx512::fours;
use crate::cpu::execution::Line;
use std::arch::x86_64::*;

/// Steps of 32 elements that are multiplied with all columns before the next: rows and columns fit into a
/// first-level cache.
const SEGMENT: usize = 4;

/// Bytes of a step of a panel, for each part of the weights.
const STEP: usize = 64 * ROWS;

/// Bytes between the rows of a tile of products or weights.
const STRIDE: usize = 4 * ROWS;

/// Registers of full size: four of sums, two of columns, two of weights.
struct Full;

impl Shapes for Full {
    const SHAPES: [[usize; 2]; 8] = [[COLUMNS, 64]; 8];
}

/// Returns the kernels of weights with `PARTS` parts: 2 for F16, 1 for BF16.
pub(super) fn kernels<const PARTS: usize>() -> (Pack, Multiply) {
    (pack::<PARTS>, multiply::<PARTS>)
}

/// Writes column `c` of a block.
pub(super) fn put(x: &[f32], c: usize, block: &mut [Line]) {
    // SAFETY: the kernels of this module are called only where AMX was detected, which includes AVX-512.
    unsafe { put_halves(x, c, block) }
}

#[target_feature(enable = "avx512f,avx512dq")]
fn put_halves(x: &[f32], c: usize, block: &mut [Line]) {
    for (i, step) in block.chunks_exact_mut(STEP_LINES).enumerate() {
        let x = x.get(32 * i..).unwrap_or_default();
        let mut full = [[0.0; 16]; 2];
        match x.first_chunk::<32>() {
            Some(x) => full.as_flattened_mut().copy_from_slice(x),
            None => full.as_flattened_mut()[..x.len()].copy_from_slice(x),
        }
        let step: &mut [[[u16; 16]; 2]] = bytemuck::cast_slice_mut(step);
        for (i, x) in full.iter().enumerate() {
            // SAFETY: the array is as long as the access.
            let parts = split(unsafe { _mm512_loadu_ps(x.as_ptr()) });
            store(&mut step[c][i], parts[0]);
            store(&mut step[COLUMNS + c][i], parts[1]);
        }
    }
}

/// Splits values into sums of two BF16 values, the second rounded. Infinities and NaNs have a second part of zero.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn split(x: __m512) -> [__m256i; 2] {
    const NAN: i32 = 0x81;
    const INFINITE: i32 = 0x18;
    let bits = _mm512_castps_si512(x);
    // A NaN keeps a bit among the upper ones.
    let nan = _mm512_fpclass_ps_mask::<NAN>(x);
    let bits = _mm512_mask_or_epi32(bits, nan, bits, _mm512_set1_epi32(0x0040_0000));
    let upper = _mm512_and_si512(bits, _mm512_set1_epi32(0xffff_0000_u32 as i32));
    let rest = _mm512_castps_si512(_mm512_sub_ps(x, _mm512_castsi512_ps(upper)));
    let finite = !_mm512_fpclass_ps_mask::<{ NAN | INFINITE }>(x);
    let lower = _mm512_maskz_add_epi32(finite, rest, _mm512_set1_epi32(0x8000));
    [
        _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(upper)),
        _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(lower)),
    ]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(to: &mut [u16; 16], x: __m256i) {
    // SAFETY: the array is as long as the access.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), x) };
}

/// Packs a panel. A step of it has for each part 16 pairs of values: each pair of all rows.
fn pack<const PARTS: usize>(rows: &[&[u8]; ROWS], values: &mut [u8], _: &mut [f32]) {
    // SAFETY: the kernels of this module are called only where AMX was detected, which includes AVX-512.
    unsafe { pack_halves::<PARTS>(rows, values) }
}

#[target_feature(enable = "avx512f,avx512dq")]
fn pack_halves<const PARTS: usize>(rows: &[&[u8]; ROWS], values: &mut [u8]) {
    let mut parts = [[[[0; 16]; 2]; 16]; PARTS];
    for (step, values) in values.chunks_exact_mut(PARTS * STEP).enumerate() {
        for (half, rows) in rows.as_chunks::<16>().0.iter().enumerate() {
            for (r, row) in rows.iter().enumerate() {
                let row: &[u16] = bytemuck::cast_slice::<u8, u16>(row).get(32 * step..).unwrap_or_default();
                let mut full = [[0; 16]; 2];
                match row.first_chunk::<32>() {
                    Some(row) => full.as_flattened_mut().copy_from_slice(row),
                    None => full.as_flattened_mut()[..row.len()].copy_from_slice(row),
                }
                for (i, x) in full.iter().enumerate() {
                    if PARTS == 1 {
                        parts[0][r][i] = *x;
                        continue;
                    }
                    for (part, values) in parts.iter_mut().zip(split(widen(x))) {
                        store(&mut part[r][i], values);
                    }
                }
            }
            for (part, values) in parts.iter().zip(values.chunks_exact_mut(STEP)) {
                put_words(part, half, values);
            }
        }
    }
}

/// Writes a step of 16 rows, the first or the last of a panel.
#[inline]
#[target_feature(enable = "avx512f")]
fn put_words(rows: &[[[u16; 16]; 2]; 16], half: usize, values: &mut [u8]) {
    let mut of_rows = [&[0; 32]; 16];
    for i in 0..2 {
        for r in 0..16 {
            of_rows[r] = bytemuck::cast_ref(&rows[r][i]);
        }
        for (word, values) in fours(of_rows).into_iter().zip(values.chunks_exact_mut(STRIDE).skip(8 * i)) {
            let to = &mut values.as_chunks_mut::<64>().0[half];
            // SAFETY: the array is as long as the access.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), word) };
        }
    }
}

/// Converts 16 binary16 values.
#[inline]
#[target_feature(enable = "avx512f")]
fn widen(x: &[u16; 16]) -> __m512 {
    // SAFETY: the array is as long as the access.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(x.as_ptr().cast()) })
}

/// Multiplies a panel with blocks of columns.
fn multiply<const PARTS: usize>(values: &[u8], _: &[f32], x: &[Line], products: &mut [Products]) {
    // SAFETY: the kernels of this module are called only where AMX was detected. No other function configures
    // registers, and none is called meanwhile.
    let mut registers = unsafe { Hardware::<Full>::configure() };
    multiply_in::<_, PARTS>(&mut registers, values, x, products);
}

/// Multiplies a panel with blocks of columns in given registers.
#[inline(always)]
fn multiply_in<R: Registers<Full>, const PARTS: usize>(
    registers: &mut R,
    values: &[u8],
    x: &[Line],
    products: &mut [Products],
) {
    products.as_flattened_mut().fill([0.0; ROWS]);
    let block = STEP_LINES * (values.len() / (PARTS * STEP));
    for (s, values) in values.chunks(SEGMENT * PARTS * STEP).enumerate() {
        let first = s * SEGMENT * STEP_LINES;
        let last = first + values.len() / (PARTS * STEP) * STEP_LINES;
        for (x, products) in x.chunks(2 * block).zip(products.chunks_mut(2)) {
            let x = |b: usize| bytemuck::cast_slice(&x[b * block + first..b * block + last]);
            if let [a, b] = products {
                let products = [a, b].map(bytemuck::bytes_of_mut);
                segment::<R, PARTS, true>(registers, values, [x(0), x(1)], products);
            } else if let [a] = products {
                let products = [bytemuck::bytes_of_mut(a), &mut [][..]];
                segment::<R, PARTS, false>(registers, values, [x(0), &[]], products);
            }
        }
    }
}

/// Adds the products of some steps with one or two blocks of columns.
#[inline(always)]
fn segment<R: Registers<Full>, const PARTS: usize, const TWO: bool>(
    registers: &mut R,
    values: &[u8],
    x: [&[u8]; 2],
    products: [&mut [u8]; 2],
) {
    registers.load::<0>(products[0], STRIDE);
    registers.load::<1>(&products[0][64..], STRIDE);
    if TWO {
        registers.load::<2>(products[1], STRIDE);
        registers.load::<3>(&products[1][64..], STRIDE);
    }
    for (step, values) in values.chunks_exact(PARTS * STEP).enumerate() {
        let [upper, lower] = [0, COLUMNS * 64].map(|at| at + step * STEP_LINES * 64);
        columns::<R, TWO>(registers, x, upper);
        if PARTS == 2 {
            weights(registers, &values[STEP..]);
            dots::<R, TWO>(registers);
        }
        weights(registers, values);
        dots::<R, TWO>(registers);
        columns::<R, TWO>(registers, x, lower);
        dots::<R, TWO>(registers);
    }
    let [a, b] = products;
    registers.store::<0>(a, STRIDE);
    registers.store::<1>(&mut a[64..], STRIDE);
    if TWO {
        registers.store::<2>(b, STRIDE);
        registers.store::<3>(&mut b[64..], STRIDE);
    }
}

/// Loads a part of a step of one or two blocks of columns.
#[inline(always)]
fn columns<R: Registers<Full>, const TWO: bool>(registers: &mut R, x: [&[u8]; 2], at: usize) {
    registers.load::<4>(&x[0][at..], 64);
    if TWO {
        registers.load::<5>(&x[1][at..], 64);
    }
}

/// Loads a part of a step of a panel.
#[inline(always)]
fn weights<R: Registers<Full>>(registers: &mut R, values: &[u8]) {
    registers.load::<6>(values, STRIDE);
    registers.load::<7>(&values[64..], STRIDE);
}

/// Adds the products of the loaded tiles.
#[inline(always)]
fn dots<R: Registers<Full>, const TWO: bool>(registers: &mut R) {
    registers.dot_bf16::<0, 4, 6>();
    registers.dot_bf16::<1, 4, 7>();
    if TWO {
        registers.dot_bf16::<2, 5, 6>();
        registers.dot_bf16::<3, 5, 7>();
    }
}

#[cfg(test)]
pub(super) mod tests {
    //! The kernel in registers in software.

    use super::super::registers::model::Model;
    use super::*;

    /// Splits values as kernels do.
    pub(in super::super) fn split_values(x: &[f32; 16]) -> [[u16; 16]; 2] {
        // SAFETY: the test that calls this has detected AVX-512; the arrays are as long as the accesses.
        unsafe {
            split(_mm512_loadu_ps(x.as_ptr())).map(|part| {
                let mut out = [0; 16];
                _mm256_storeu_si256(out.as_mut_ptr().cast(), part);
                out
            })
        }
    }

    /// Does the same as [`multiply`].
    pub(in super::super) fn in_software<const PARTS: usize>(
        values: &[u8],
        _: &[f32],
        x: &[Line],
        products: &mut [Products],
    ) {
        multiply_in::<_, PARTS>(&mut Model::new(), values, x, products);
    }
}
