//! Products of quantised weights with 8-bit activations.
//!
//! A product of two tiles sums over one group of 32 (or over one half of a group, if halves have scales). Vectors
//! of AVX-512 then scale the sums and add them to totals, as the other instruction sets do. The sums of the next
//! groups are computed meanwhile.

use super::columns::{AT_ONCE, group_lines};
use super::registers::{Hardware, Registers, Shapes, TILE_BYTES};
use super::{COLUMNS, Multiply, Pack, Products, ROWS};
use crate::cpu::dot::block::Quant;
use crate::cpu::dot::int8::{avx512, factor_count};
use crate::cpu::execution::Line;
use std::arch::x86_64::*;

/// Groups of a row that are multiplied with all columns before the next: with the columns of a block they fit into
/// a first-level cache. A multiple of [`AT_ONCE`].
const SEGMENT: usize = 16;

/// Bytes of a group of a panel.
const GROUP: usize = 32 * ROWS;

/// Shapes for sums over groups, or over halves of groups: four of sums, two of columns, two of weights.
struct Groups<const HALVES: bool>;

impl<const HALVES: bool> Shapes for Groups<HALVES> {
    const SHAPES: [[usize; 2]; 8] = {
        let (sums, bytes) = ([COLUMNS, 64], if HALVES { 16 } else { 32 });
        let (x, w) = ([COLUMNS, bytes], [bytes / 4, 64]);
        [sums, sums, sums, sums, x, x, w, w]
    };
}

/// Sums of 16 columns with 16 rows.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
struct Sums([[i32; 16]; COLUMNS]);

/// Returns the number of factors of a row and group.
pub(super) const fn factors<Q: Quant>() -> usize {
    factor_count(Q::HALVES, Q::MINIMA)
}

/// Returns the kernels of a type.
pub(super) fn kernels<Q: Quant>() -> (Pack, Multiply) {
    let multiply: Multiply = match (Q::HALVES, Q::MINIMA) {
        (false, 0) => multiply::<false, 0>,
        (false, _) => multiply::<false, 1>,
        (true, 0) => multiply::<true, 0>,
        (true, _) => multiply::<true, 2>,
    };
    (pack::<Q>, multiply)
}

/// Packs a panel as AVX-512 does, with signed values. Groups that fill up the last ones have factors of zero, and
/// values that matter not: those of the activations are zeros.
fn pack<Q: Quant>(rows: &[&[u8]; ROWS], values: &mut [u8], factors: &mut [f32]) {
    let mut blocks: [&[Q]; ROWS] = [&[]; ROWS];
    for (row, bytes) in blocks.iter_mut().zip(rows) {
        *row = bytemuck::cast_slice(bytes);
    }
    let groups = blocks[0].len() * Q::GROUPS;
    let (factors, padding) = factors.split_at_mut(groups * ROWS * self::factors::<Q>());
    padding.fill(0.0);
    // SAFETY: the kernels of this module are called only where AMX was detected, which includes AVX-512.
    unsafe { avx512::pack(&blocks, &mut values[..groups * GROUP], factors, true) };
}

/// Multiplies a panel with blocks of columns.
fn multiply<const HALVES: bool, const MINIMA: usize>(
    values: &[u8],
    factors: &[f32],
    x: &[Line],
    products: &mut [Products],
) {
    // SAFETY: the kernels of this module are called only where AMX was detected, which includes AVX-512. No other
    // function configures registers, and none is called meanwhile.
    unsafe {
        let mut registers = Hardware::<Groups<HALVES>>::configure();
        multiply_in::<_, HALVES, MINIMA>(&mut registers, values, factors, x, products);
    }
}

/// Multiplies a panel with blocks of columns in given registers.
#[inline]
#[target_feature(enable = "avx512f")]
fn multiply_in<R: Registers<Groups<HALVES>>, const HALVES: bool, const MINIMA: usize>(
    registers: &mut R,
    values: &[u8],
    factors: &[f32],
    x: &[Line],
    products: &mut [Products],
) {
    products.as_flattened_mut().fill([0.0; ROWS]);
    let (lines, factors_of_group) = (group_lines(MINIMA), ROWS * factor_count(HALVES, MINIMA));
    let block = lines * (values.len() / GROUP);
    let segments = values.chunks(SEGMENT * GROUP).zip(factors.chunks(SEGMENT * factors_of_group));
    for (s, (values, factors)) in segments.enumerate() {
        let first = s * SEGMENT * lines;
        for (x, products) in x.chunks_exact(block).zip(&mut *products) {
            let x = &x[first..first + values.len() / GROUP * lines];
            for half in 0..2 {
                segment::<R, HALVES, MINIMA>(registers, values, factors, x, half, products);
            }
        }
    }
}

/// Adds the products of some groups of 16 rows, the first or the last of a panel, with a block of columns. The
/// number of groups is a multiple of [`AT_ONCE`].
#[inline]
#[target_feature(enable = "avx512f")]
fn segment<R: Registers<Groups<HALVES>>, const HALVES: bool, const MINIMA: usize>(
    registers: &mut R,
    values: &[u8],
    factors: &[f32],
    x: &[Line],
    half: usize,
    products: &mut Products,
) {
    let (lines, sums_of_group) = (group_lines(MINIMA), if HALVES { 2 } else { 1 });
    let at_once = AT_ONCE / sums_of_group;
    let mut total = [_mm512_setzero_ps(); COLUMNS];
    for c in 0..COLUMNS {
        total[c] = load(&products[c], half);
    }
    let mut sums = [[Sums([[0; 16]; COLUMNS]); AT_ONCE]; 2];
    let factors = factors.chunks_exact(at_once * ROWS * factor_count(HALVES, MINIMA));
    let mut next = values.chunks_exact(at_once * GROUP).zip(x.chunks_exact(at_once * lines));
    if let Some((values, x)) = next.next() {
        dots::<R, HALVES>(registers, values, x, half, &mut sums[0]);
    }
    for (step, (factors, x)) in factors.zip(x.chunks_exact(at_once * lines)).enumerate() {
        let [now, later] = if step % 2 == 0 { [0, 1] } else { [1, 0] };
        if let Some((values, x)) = next.next() {
            dots::<R, HALVES>(registers, values, x, half, &mut sums[later]);
        }
        let factors = factors.chunks_exact(ROWS * factor_count(HALVES, MINIMA));
        let sums = sums[now].chunks_exact(sums_of_group);
        for ((factors, x), sums) in factors.zip(x.chunks_exact(lines)).zip(sums) {
            add::<HALVES, MINIMA>(sums, factors, x, half, &mut total);
        }
    }
    for c in 0..COLUMNS {
        let to = &mut products[c].as_chunks_mut::<16>().0[half];
        // SAFETY: the array is as long as the access.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), total[c]) };
    }
}

/// Computes [`AT_ONCE`] tiles of sums: of as many groups, or of the halves of half as many.
#[inline(always)]
fn dots<R: Registers<Groups<HALVES>>, const HALVES: bool>(
    registers: &mut R,
    values: &[u8],
    x: &[Line],
    half: usize,
    sums: &mut [Sums; AT_ONCE],
) {
    let [a, b, c, d] = sums;
    let groups = if HALVES { AT_ONCE / 2 } else { AT_ONCE };
    let x: &[u8] = bytemuck::cast_slice(x);
    let bytes = x.len() / groups;
    let mut operands: [(&[u8], &[u8]); AT_ONCE] = [(&[], &[]); AT_ONCE];
    for (i, operands) in operands.iter_mut().enumerate() {
        let (g, part) = if HALVES { (i / 2, i % 2) } else { (i, 0) };
        *operands = (&x[g * bytes + 16 * part..], &values[g * GROUP + GROUP / 2 * part + 64 * half..]);
    }
    dot::<R, HALVES, 0, 4, 6>(registers, operands[0], a);
    dot::<R, HALVES, 1, 5, 7>(registers, operands[1], b);
    dot::<R, HALVES, 2, 4, 6>(registers, operands[2], c);
    dot::<R, HALVES, 3, 5, 7>(registers, operands[3], d);
}

/// Computes one tile of sums, in register `C`.
#[inline(always)]
fn dot<R: Registers<Groups<HALVES>>, const HALVES: bool, const C: usize, const A: usize, const B: usize>(
    registers: &mut R,
    (x, values): (&[u8], &[u8]),
    sums: &mut Sums,
) {
    registers.load::<A>(x, 32);
    registers.load::<B>(values, 4 * ROWS);
    registers.zero::<C>();
    registers.dot_i8::<C, A, B>();
    registers.store::<C>(bytemuck::bytes_of_mut(sums), TILE_BYTES / COLUMNS);
}

/// Adds a group to the totals of 16 rows. Half scales multiply the sums of the halves.
#[inline]
#[target_feature(enable = "avx512f")]
fn add<const HALVES: bool, const MINIMA: usize>(
    sums: &[Sums],
    factors: &[f32],
    x: &[Line],
    half: usize,
    total: &mut [__m512; COLUMNS],
) {
    let x: &[[f32; COLUMNS]] = bytemuck::cast_slice(&x[COLUMNS / 2..]);
    let factors = factors.as_chunks::<ROWS>().0;
    let scale = load(&factors[0], half);
    for c in 0..COLUMNS {
        let mut sum = integers(&sums[0].0[c]);
        if HALVES {
            let [first, last] = [1 + MINIMA, 2 + MINIMA].map(|i| &factors[i]);
            sum = _mm512_mul_ps(sum, load(first, half));
            sum = _mm512_fmadd_ps(integers(&sums[1].0[c]), load(last, half), sum);
        }
        let scaled = _mm512_mul_ps(_mm512_mul_ps(scale, _mm512_set1_ps(x[0][c])), sum);
        total[c] = _mm512_add_ps(total[c], scaled);
        for i in 1..=MINIMA {
            let minimum = _mm512_mul_ps(load(&factors[i], half), _mm512_set1_ps(x[i][c]));
            total[c] = _mm512_add_ps(total[c], minimum);
        }
    }
}

/// Loads the first or the last 16 of 32 floats.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(x: &[f32; ROWS], half: usize) -> __m512 {
    let x = &x.as_chunks::<16>().0[half];
    // SAFETY: the array is as long as the access.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}

/// Converts 16 integers.
#[inline]
#[target_feature(enable = "avx512f")]
fn integers(x: &[i32; 16]) -> __m512 {
    // SAFETY: the array is as long as the access.
    _mm512_cvtepi32_ps(unsafe { _mm512_loadu_si512(x.as_ptr().cast()) })
}

#[cfg(test)]
pub(super) mod tests {
    //! The kernel in registers in software.

    use super::super::registers::model::Model;
    use super::*;

    /// Does the same as [`multiply`].
    pub(in super::super) fn in_software<Q: Quant>(
        values: &[u8],
        factors: &[f32],
        x: &[Line],
        products: &mut [Products],
    ) {
        // SAFETY: the test that calls this has detected AVX-512.
        unsafe {
            match (Q::HALVES, Q::MINIMA) {
                (false, 0) => multiply_in::<_, false, 0>(&mut Model::new(), values, factors, x, products),
                (false, _) => multiply_in::<_, false, 1>(&mut Model::new(), values, factors, x, products),
                (true, 0) => multiply_in::<_, true, 0>(&mut Model::new(), values, factors, x, products),
                (true, _) => multiply_in::<_, true, 2>(&mut Model::new(), values, factors, x, products),
            }
        }
    }
}
