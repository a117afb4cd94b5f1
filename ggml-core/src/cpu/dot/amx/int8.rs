//! Products of quantised weights with 8-bit activations.
//!
//! A product of two tiles sums over one group of 32 (or over one half of a group, if halves have scales). Vectors
//! of AVX-512 then scale the sums and add them to totals, as the other instruction sets do. The next two
//! tiles are computed meanwhile.

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
    // Little memory: loads after stores at the same place of a page wait for them.
    let mut sums = [Sums([[0; 16]; COLUMNS]); AT_ONCE];
    let (lines, factors_of_group) = (group_lines(MINIMA), ROWS * factor_count(HALVES, MINIMA));
    let block = lines * (values.len() / GROUP);
    let segments = values.chunks(SEGMENT * GROUP).zip(factors.chunks(SEGMENT * factors_of_group));
    for (s, (values, factors)) in segments.enumerate() {
        let first = s * SEGMENT * lines;
        for (x, products) in x.chunks_exact(block).zip(&mut *products) {
            let x = &x[first..first + values.len() / GROUP * lines];
            for half in 0..2 {
                let products = (half, &mut *products);
                segment::<R, HALVES, MINIMA>(registers, values, factors, x, products, &mut sums);
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
    (half, products): (usize, &mut Products),
    sums: &mut [Sums; AT_ONCE],
) {
    let mut total = [_mm512_setzero_ps(); COLUMNS];
    for c in 0..COLUMNS {
        total[c] = load(&products[c], half);
    }
    let groups =
        factors.chunks_exact(ROWS * factor_count(HALVES, MINIMA)).zip(x.chunks_exact(group_lines(MINIMA)));
    let mut groups = groups.map(|(factors, x)| (factors, x, half));
    let tiles = Tiles::<HALVES> { values, x: bytemuck::cast_slice(x), lines: group_lines(MINIMA), half };
    tiles.sum::<R, 0, 4, 6>(registers, 0, sums);
    tiles.sum::<R, 1, 5, 7>(registers, 1, sums);
    // Each tile of sums is computed two tiles before it is added.
    for first in (0..tiles.count()).step_by(AT_ONCE) {
        tiles.sum::<R, 2, 4, 6>(registers, first + 2, sums);
        if !HALVES {
            add::<HALVES, MINIMA>(&sums[0..1], groups.next(), &mut total);
        }
        tiles.sum::<R, 3, 5, 7>(registers, first + 3, sums);
        add::<HALVES, MINIMA>(if HALVES { &sums[0..2] } else { &sums[1..2] }, groups.next(), &mut total);
        tiles.sum::<R, 0, 4, 6>(registers, first + 4, sums);
        if !HALVES {
            add::<HALVES, MINIMA>(&sums[2..3], groups.next(), &mut total);
        }
        tiles.sum::<R, 1, 5, 7>(registers, first + 5, sums);
        add::<HALVES, MINIMA>(if HALVES { &sums[2..4] } else { &sums[3..4] }, groups.next(), &mut total);
    }
    for c in 0..COLUMNS {
        let to = &mut products[c].as_chunks_mut::<16>().0[half];
        // SAFETY: the array is as long as the access.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), total[c]) };
    }
}

/// Operands of the tiles of a segment: one for each group, or one for each of its halves.
struct Tiles<'a, const HALVES: bool> {
    values: &'a [u8],
    x: &'a [u8],
    /// Lines of a group of columns.
    lines: usize,
    /// Half of the rows.
    half: usize,
}

impl<const HALVES: bool> Tiles<'_, HALVES> {
    /// Returns the number of tiles.
    #[inline(always)]
    fn count(&self) -> usize {
        self.values.len() / GROUP * if HALVES { 2 } else { 1 }
    }

    /// Computes tile `i` of sums in register `C`, unless there are fewer.
    #[inline(always)]
    fn sum<R: Registers<Groups<HALVES>>, const C: usize, const A: usize, const B: usize>(
        &self,
        registers: &mut R,
        i: usize,
        sums: &mut [Sums; AT_ONCE],
    ) {
        if i >= self.count() {
            return;
        }
        let (group, part) = if HALVES { (i / 2, i % 2) } else { (i, 0) };
        registers.load::<A>(&self.x[group * self.lines * size_of::<Line>() + 16 * part..], 32);
        registers.load::<B>(&self.values[group * GROUP + GROUP / 2 * part + 64 * self.half..], 4 * ROWS);
        registers.zero::<C>();
        registers.dot_i8::<C, A, B>();
        registers.store::<C>(bytemuck::bytes_of_mut(&mut sums[C]), TILE_BYTES / COLUMNS);
    }
}

/// Adds a group, its factors, columns and half of the rows, to the totals of 16 rows. Half scales multiply the sums of the halves.
#[inline]
#[target_feature(enable = "avx512f")]
fn add<const HALVES: bool, const MINIMA: usize>(
    sums: &[Sums],
    group: Option<(&[f32], &[Line], usize)>,
    total: &mut [__m512; COLUMNS],
) {
    let Some((factors, x, half)) = group else { return };
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
