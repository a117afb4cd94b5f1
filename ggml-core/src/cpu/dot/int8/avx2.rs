//! Integer dot products with AVX2.

use super::lanes::{
    add_group, blocks8, factors_of, factors8, from_array, half_sums8, halves_twice, load, load_factors,
    numbers, numbers_of_two, prefetch8, put_factors, signed, signed_bytes, sum_halves4, sum8, to_array,
    transpose8,
};
use super::{IntDot, MAX_TILE, PanelShape, ROWS};
use crate::cpu::dot::block::Quant;
use crate::cpu::dot::column::{Column, Rounded};
use crate::cpu::simd::avx2::Avx2;
use std::arch::x86_64::*;

impl IntDot for Avx2 {
    /// Returns no shape for float scales, which cannot be multiplied into 16-bit integers.
    #[inline(always)]
    fn panel_shape<Q: Quant>(self) -> Option<PanelShape> {
        (!Q::FLOATS).then_some(shape::<Q>())
    }

    #[inline(always)]
    fn dot8<Q: Quant>(self, rows: [&[Q]; ROWS], x: Column<'_>, ahead: usize) -> [f32; ROWS] {
        // SAFETY: a token of type `Avx2` exists only on machines with these features.
        unsafe { dot8(rows, x, ahead) }
    }

    #[inline(always)]
    fn numbers<Q: Quant>(self, block: &Q, g: usize) -> [i8; 32] {
        // SAFETY: as above.
        unsafe { signed_bytes(block, g) }
    }

    #[inline(always)]
    fn pack<Q: Quant>(self, rows: &[&[Q]], values: &mut [u8], factors: &mut [f32]) {
        // SAFETY: as above.
        unsafe { pack(rows, values, factors) }
    }

    #[inline(always)]
    fn panel<const HALVES: bool, const MINIMA: usize>(
        self,
        values: &[u8],
        factors: &[f32],
        x: &[Column<'_>],
        out: &mut [f32; MAX_TILE],
    ) {
        // Scales of halves are in the values.
        // SAFETY: as above.
        unsafe { panels::<MINIMA>(values, factors, x, out) }
    }
}

/// Returns the shape: two vectors of rows and four columns need eight accumulators of 16 registers. Eight
/// totals are needed only once for 16 multiplications.
const fn shape<Q: Quant>() -> PanelShape {
    let min_columns = if Q::GROUPS > 1 { 4 } else { 10 };
    PanelShape { rows: 16, columns: 4, wide: true, factors: factors_of::<Q>(), min_columns }
}

/// Returns the scales of the halves of a group, for 16 pairs of values.
#[inline]
#[target_feature(enable = "avx2")]
fn inner([first, last]: [i8; 2]) -> __m256i {
    _mm256_set_m128i(_mm_set1_epi16(i16::from(last)), _mm_set1_epi16(i16::from(first)))
}

/// Multiplies eight rows with one column: 32 byte products in three instructions, for each row and group.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn dot8<Q: Quant>(mut rows: [&[Q]; ROWS], x: Column<'_>, ahead: usize) -> [f32; ROWS] {
    let n = x.blocks.len() / Q::GROUPS;
    for row in &mut rows {
        *row = &row[..n];
    }
    let mut total = _mm256_setzero_ps();
    for (b, x) in x.blocks.chunks_exact(Q::GROUPS).enumerate() {
        let blocks = blocks8(&rows, b);
        prefetch8(blocks[0], b, ahead);
        let factors = factors8(blocks);
        // Conditional, because the compiler does not remove an unused `map` that is a call.
        let halves = if Q::HALVES && !Q::FLOATS { blocks.map(Q::half_scales) } else { [[[1; 2]; 8]; ROWS] };
        let floats = if Q::FLOATS { blocks.map(Q::half_floats) } else { [[[1.0; 2]; 8]; ROWS] };
        for (g, x) in x.iter().enumerate() {
            if Q::OFFSET.is_some() && !Q::HALVES {
                let mut sums = sums_of_unsigned(blocks, g, &x.q);
                if Q::BIAS > 0 {
                    sums = _mm256_add_epi32(sums, _mm256_set1_epi32(x.excess()[0]));
                }
                total = add_group(Q::MINIMA, total, _mm256_cvtepi32_ps(sums), factors.of(g), x);
                continue;
            }
            let q = load(bytemuck::cast_ref(&x.q));
            let mut partial = [_mm256_setzero_si256(); ROWS];
            for r in 0..ROWS {
                partial[r] = products(blocks[r], g, halves[r][g], q);
            }
            let sums = if Q::FLOATS {
                let [first, last] = half_sums8(partial);
                let [a, b] = [0, 1].map(|half| from_array(floats.map(|scales| scales[g][half])));
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(last), b, _mm256_mul_ps(_mm256_cvtepi32_ps(first), a))
            } else {
                _mm256_cvtepi32_ps(sum8(partial))
            };
            total = add_group(Q::MINIMA, total, sums, factors.of(g), x);
        }
    }
    to_array(total)
}

/// Returns the sums of products of eight rows, of a type with unsigned values. These have at most five bits, so that
/// four products fit: 4 * 31 * 127 < 2^15.
#[inline]
#[target_feature(enable = "avx2")]
fn sums_of_unsigned<Q: Quant>(blocks: [&Q; ROWS], g: usize, q: &[i8; 32]) -> __m256i {
    let q = halves_twice(q);
    let mut partial = [_mm256_setzero_si256(); ROWS / 2];
    for r in 0..ROWS / 2 {
        let [first, last] = numbers_of_two(blocks[r], blocks[r + ROWS / 2], g);
        let pairs = _mm256_add_epi16(_mm256_maddubs_epi16(first, q[0]), _mm256_maddubs_epi16(last, q[1]));
        partial[r] = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    }
    sum_halves4(partial)
}

/// Returns sums of four neighbouring byte products, times the scales of their halves. The instruction
/// multiplies unsigned by signed bytes, so the signs of signed weights are moved to the activations. No sum
/// saturates: 2 * 128 * 127 < 2^15.
#[inline]
#[target_feature(enable = "avx2")]
fn products<Q: Quant>(block: &Q, g: usize, scales: [i8; 2], x: __m256i) -> __m256i {
    let w = numbers(block, g);
    let pairs = match Q::OFFSET {
        Some(_) => _mm256_maddubs_epi16(w, x),
        None => _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)),
    };
    _mm256_madd_epi16(pairs, if Q::HALVES && !Q::FLOATS { inner(scales) } else { _mm256_set1_epi16(1) })
}

/// Packs a panel of 16 rows in 16 bits. For each group and each of its 16 pairs of values it has two vectors:
/// the pair of rows 0 to 7 and that of rows 8 to 15. Scales of half groups are multiplied in: 32 * 128 fits.
/// The factors of each group are the scales of all rows, then their minima.
#[target_feature(enable = "avx2,f16c")]
fn pack<Q: Quant>(rows: &[&[Q]], values: &mut [u8], factors: &mut [f32]) {
    let groups: &mut [[[u8; 32]; 32]] = values.as_chunks_mut().0.as_chunks_mut().0;
    let factors = factors.chunks_exact_mut(Q::GROUPS * 16 * factors_of::<Q>());
    // Block by block for all rows, so that the parts of a cache line are written close together.
    for (b, (groups, factors)) in groups.chunks_exact_mut(Q::GROUPS).zip(factors).enumerate() {
        for (half, rows) in rows.as_chunks::<8>().0.iter().enumerate() {
            let blocks = blocks8(rows, b);
            put_factors::<Q>(&factors8(blocks), shape::<Q>(), half * 8, factors);
            let halves = blocks.map(Q::half_scales);
            for (g, group) in groups.iter_mut().enumerate() {
                let (mut first, mut second) = ([_mm256_setzero_si256(); 8], [_mm256_setzero_si256(); 8]);
                for r in 0..8 {
                    let (x, scales) = (signed(blocks[r], g), halves[r][g]);
                    first[r] = widen::<Q>(_mm256_castsi256_si128(x), scales[0]);
                    second[r] = widen::<Q>(_mm256_extracti128_si256::<1>(x), scales[1]);
                }
                let pairs = transpose8(first).into_iter().chain(transpose8(second));
                for (to, v) in group.chunks_exact_mut(2).zip(pairs) {
                    // SAFETY: the array is as long as the access.
                    unsafe { _mm256_storeu_si256(to[half].as_mut_ptr().cast(), v) };
                }
            }
        }
    }
}

/// Extends 16 values to 16 bits and multiplies them by their scale.
#[inline]
#[target_feature(enable = "avx2")]
fn widen<Q: Quant>(x: __m128i, scale: i8) -> __m256i {
    let x = _mm256_cvtepi8_epi16(x);
    if Q::HALVES { _mm256_mullo_epi16(x, _mm256_set1_epi16(i16::from(scale))) } else { x }
}

/// Multiplies a panel with up to four columns.
#[target_feature(enable = "avx2,fma")]
fn panels<const MINIMA: usize>(values: &[u8], factors: &[f32], x: &[Column<'_>], out: &mut [f32; MAX_TILE]) {
    match *x {
        [a, b, c, d] => panel::<MINIMA, 4>(values, factors, [a, b, c, d], out),
        [a, b, c] => panel::<MINIMA, 3>(values, factors, [a, b, c], out),
        [a, b] => panel::<MINIMA, 2>(values, factors, [a, b], out),
        [a] => panel::<MINIMA, 1>(values, factors, [a], out),
        _ => {}
    }
}

/// Multiplies a panel with `C` columns: a pair of activations, repeated in all lanes, times the pairs of 16
/// rows.
#[target_feature(enable = "avx2,fma")]
fn panel<const MINIMA: usize, const C: usize>(
    values: &[u8],
    factors: &[f32],
    x: [Column<'_>; C],
    out: &mut [f32; MAX_TILE],
) {
    let n = x[0].wide.len();
    let (mut wide, mut blocks): ([&[[i32; 16]]; C], [&[Rounded]; C]) = ([&[]; C], [&[]; C]);
    for c in 0..C {
        (wide[c], blocks[c]) = (bytemuck::cast_slice(&x[c].wide[..n]), &x[c].blocks[..n]);
    }
    let values: &[[[u8; 32]; 32]] = values.as_chunks().0.as_chunks().0;
    let groups = values[..n].iter().zip(factors.chunks_exact(16 * (1 + MINIMA)));
    let mut total = [[_mm256_setzero_ps(); 2]; C];
    for (at, (values, factors)) in groups.enumerate() {
        let mut sum = [[_mm256_setzero_si256(); 2]; C];
        for pair in 0..16 {
            let (first, second) = (load(&values[2 * pair]), load(&values[2 * pair + 1]));
            for c in 0..C {
                let x = _mm256_set1_epi32(wide[c][at][pair]);
                sum[c][0] = _mm256_add_epi32(sum[c][0], _mm256_madd_epi16(first, x));
                sum[c][1] = _mm256_add_epi32(sum[c][1], _mm256_madd_epi16(second, x));
            }
        }
        for half in 0..2 {
            let factors = load_factors(factors, 16, half * 8);
            for c in 0..C {
                let sums = _mm256_cvtepi32_ps(sum[c][half]);
                total[c][half] = add_group(MINIMA, total[c][half], sums, factors, &blocks[c][at]);
            }
        }
    }
    for c in 0..C {
        for half in 0..2 {
            out[c * 16 + half * 8..][..8].copy_from_slice(&to_array(total[c][half]));
        }
    }
}
