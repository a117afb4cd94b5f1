//! Integer dot products with AVX-512 VNNI: 64 byte products and their sums in one instruction.

use super::avx2;
use super::lanes::{
    add_group, blocks8, factors8, halves_twice, nibbles_of_two, numbers, numbers_of_two, prefetch8,
    put_factors, signed_bytes, sum_halves4, to_array, transpose8,
};
use super::{IntDot, MAX_TILE, PanelShape, ROWS, factor_count};
use crate::cpu::dot::block::{Group, Quant};
use crate::cpu::dot::column::{Column, Rounded};
use crate::cpu::simd::avx512::Avx512;
use std::arch::x86_64::*;
use std::ops::Range;

impl IntDot for Avx512 {
    #[inline(always)]
    fn panel_shape<Q: Quant>(self) -> Option<PanelShape> {
        Some(shape::<Q>())
    }

    /// Uses AVX2 for types with half scales. It is as fast, because it applies these scales to sums of pairs,
    /// which the VNNI instruction does not provide.
    #[inline(always)]
    fn dot8<Q: Quant>(self, rows: [&[Q]; ROWS], x: Column<'_>, ahead: usize) -> [f32; ROWS] {
        // SAFETY: a token of type `Avx512` exists only on machines with these features.
        unsafe { if Q::HALVES { avx2::dot8(rows, x, ahead) } else { dot8(rows, x, ahead) } }
    }

    #[inline(always)]
    fn numbers<Q: Quant>(self, block: &Q, g: usize) -> [i8; 32] {
        // SAFETY: as above.
        unsafe { signed_bytes(block, g) }
    }

    #[inline(always)]
    fn pack<Q: Quant>(self, rows: &[&[Q]], values: &mut [u8], factors: &mut [f32]) {
        // SAFETY: as above.
        unsafe { pack(rows, values, factors, false) }
    }

    #[inline(always)]
    fn panel<const HALVES: bool, const MINIMA: usize>(
        self,
        values: &[u8],
        factors: &[f32],
        x: &[Column<'_>],
        out: &mut [f32; MAX_TILE],
    ) {
        // SAFETY: as above.
        unsafe { panels::<HALVES, MINIMA>(values, factors, x, out) }
    }
}

/// Returns the shape: two vectors of rows. Six columns need 12 sums and 12 totals of 32 registers. Types with
/// half scales use four columns, because each half needs its own sums.
const fn shape<Q: Quant>() -> PanelShape {
    let factors = factor_count(Q::HALVES, Q::MINIMA);
    PanelShape { rows: 32, columns: if Q::HALVES { 4 } else { 6 }, wide: false, factors, min_columns: 4 }
}

/// Returns the values of a group as unsigned bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn biased<Q: Quant>(block: &Q, g: usize) -> __m256i {
    match Q::OFFSET {
        Some(_) => numbers(block, g),
        None => _mm256_xor_si256(numbers(block, g), _mm256_set1_epi8(i8::MIN)),
    }
}

/// Does the same as [`numbers_of_two`], with fifth bits as masks.
#[inline]
#[target_feature(enable = "avx2,avx512bw,avx512vl")]
fn values_of_two<Q: Quant>(a: &Q, b: &Q, g: usize) -> [__m256i; 2] {
    let (Group::Five(a, high), Group::Five(b, other)) = (a.group(g), b.group(g)) else {
        return numbers_of_two(a, b, g);
    };
    let ([first, last], sixteen) = (nibbles_of_two(a, b), _mm256_set1_epi8(16));
    let bits = [high & 0xffff | other << 16, high >> 16 | other & 0xffff_0000];
    [_mm256_mask_add_epi8(first, bits[0], first, sixteen), _mm256_mask_add_epi8(last, bits[1], last, sixteen)]
}

/// Multiplies eight rows with one column. The instruction requires unsigned weights; the effect of the offset
/// is subtracted through the sum of the activations.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn dot8<Q: Quant>(mut rows: [&[Q]; ROWS], x: Column<'_>, ahead: usize) -> [f32; ROWS] {
    let n = x.blocks.len() / Q::GROUPS;
    for row in &mut rows {
        *row = &row[..n];
    }
    let mut total = _mm256_setzero_ps();
    for (b, x) in x.blocks.chunks_exact(Q::GROUPS).enumerate() {
        let blocks = blocks8(&rows, b);
        prefetch8(blocks[0], b, ahead);
        let factors = factors8(blocks);
        for (g, x) in x.iter().enumerate() {
            let q = halves_twice(&x.q);
            let mut partial = [_mm256_setzero_si256(); ROWS / 2];
            for r in 0..ROWS / 2 {
                let halves = values_of_two(blocks[r], blocks[r + ROWS / 2], g);
                for half in 0..2 {
                    let unsigned = match Q::OFFSET {
                        Some(_) => halves[half],
                        None => _mm256_xor_si256(halves[half], _mm256_set1_epi8(i8::MIN)),
                    };
                    partial[r] = _mm256_dpbusd_epi32(partial[r], unsigned, q[half]);
                }
            }
            let mut sums = sum_halves4(partial);
            if Q::BIAS > 0 {
                sums = _mm256_add_epi32(sums, _mm256_set1_epi32(x.excess()[0]));
            }
            total = add_group(Q::MINIMA, total, _mm256_cvtepi32_ps(sums), factors.of(g), x);
        }
    }
    to_array(total)
}

/// Packs a panel of 32 rows in 8 bits. For each group and each of its 8 runs of four values it has two
/// vectors: the four values of rows 0 to 15 and those of rows 16 to 31. The factors of each group are the
/// scales of all rows, then their minima, then the scales of the first halves and of the last halves. Values are
/// without their offset if they are `signed`.
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw")]
pub(in crate::cpu::dot) fn pack<Q: Quant>(
    rows: &[&[Q]],
    values: &mut [u8],
    factors: &mut [f32],
    signed: bool,
) {
    let offset = _mm256_set1_epi8(if signed { Q::BIAS as i8 } else { 0 });
    let groups: &mut [[[u8; 32]; 32]] = values.as_chunks_mut().0.as_chunks_mut().0;
    let shape = shape::<Q>();
    let factors = factors.chunks_exact_mut(Q::GROUPS * 32 * shape.factors);
    // Block by block for all rows, so that the parts of a cache line are written close together.
    for (b, (groups, factors)) in groups.chunks_exact_mut(Q::GROUPS).zip(factors).enumerate() {
        for (quarter, rows) in rows.as_chunks::<8>().0.iter().enumerate() {
            let blocks = blocks8(rows, b);
            put_factors::<Q>(&factors8(blocks), shape, quarter * 8, factors);
            if Q::HALVES {
                put_halves(blocks.map(Q::half_floats), quarter * 8, Q::GROUPS, factors);
            }
            if blocks[0].pairs().is_some() {
                continue;
            }
            for (g, group) in groups.iter_mut().enumerate() {
                let mut bytes = [_mm256_setzero_si256(); 8];
                for r in 0..8 {
                    bytes[r] = _mm256_sub_epi8(biased(blocks[r], g), offset);
                }
                for (to, v) in group.chunks_exact_mut(4).zip(transpose8(bytes)) {
                    // SAFETY: the array is as long as the access.
                    unsafe { _mm256_storeu_si256(to[quarter].as_mut_ptr().cast(), v) };
                }
            }
        }
        for (half, rows) in rows.as_chunks::<16>().0.iter().enumerate() {
            pack_pairs(rows, b, half, groups);
        }
    }
}

/// Packs a block of 16 rows, for types with [`Quant::pairs`]. It rearranges the bytes before it separates the
/// nibbles, so that both groups of a pair need only one rearrangement.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn pack_pairs<Q: Quant>(rows: &[&[Q]; 16], b: usize, half: usize, groups: &mut [[[u8; 32]; 32]]) {
    let mut pairs = [&[[0; 32]; 4]; 16];
    let mut highs = [&[0; 32]; 16];
    let mut fifth = false;
    for r in 0..16 {
        let Some(block) = rows[r][b].pairs() else { return };
        pairs[r] = block.nibbles;
        if let Some(high) = block.fifths {
            (highs[r], fifth) = (high, true);
        }
    }
    let bits = if fifth { fours(highs) } else { [_mm512_setzero_si512(); 8] };
    let (low, sixteen) = (_mm512_set1_epi8(15), _mm512_set1_epi8(16));
    for (p, groups) in groups.as_chunks_mut::<2>().0.iter_mut().enumerate().take(4) {
        let mut bytes = pairs.map(|_| &[0; 32]);
        for r in 0..16 {
            bytes[r] = &pairs[r][p];
        }
        for (four, both) in fours(bytes).into_iter().enumerate() {
            let numbers = [_mm512_and_si512(both, low), _mm512_and_si512(_mm512_srli_epi16::<4>(both), low)];
            for (i, mut v) in numbers.into_iter().enumerate() {
                if fifth {
                    // Bit `2 p + i` of its byte, moved to bit 4.
                    let bit = _mm512_srl_epi16(bits[four], _mm_cvtsi32_si128((2 * p + i) as i32));
                    let bit = _mm512_and_si512(_mm512_slli_epi16::<4>(bit), sixteen);
                    v = _mm512_or_si512(v, bit);
                }
                let (to, _) = groups[i][4 * four + 2 * half..].split_at_mut(2);
                let to: &mut [u8] = to.as_flattened_mut();
                if let Some(to) = to.first_chunk_mut::<64>() {
                    // SAFETY: the array is as long as the access.
                    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), v) };
                }
            }
        }
    }
}

/// Returns the eight 4-byte words of 16 rows: a vector for each word, a lane for each row.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::cpu::dot) fn fours(rows: [&[u8; 32]; 16]) -> [__m512i; 8] {
    let mut out = [_mm512_setzero_si512(); 8];
    for h in 0..2 {
        // Each vector holds 16 bytes of four rows that are four apart; then rows and words are transposed.
        let mut v = [_mm512_setzero_si512(); 4];
        for i in 0..4 {
            let mut quarters = [_mm_setzero_si128(); 4];
            for q in 0..4 {
                let row: &[[u8; 16]; 2] = bytemuck::cast_ref(rows[i + 4 * q]);
                // SAFETY: the array is as long as the access.
                quarters[q] = unsafe { _mm_loadu_si128(row[h].as_ptr().cast()) };
            }
            let low = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(quarters[0]), quarters[1]);
            v[i] = _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(low, quarters[2]), quarters[3]);
        }
        let (a, b) = (_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
        let (c, d) = (_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
        out[4 * h] = _mm512_unpacklo_epi64(a, c);
        out[4 * h + 1] = _mm512_unpackhi_epi64(a, c);
        out[4 * h + 2] = _mm512_unpacklo_epi64(b, d);
        out[4 * h + 3] = _mm512_unpackhi_epi64(b, d);
    }
    out
}

/// Writes the half scales of the groups of eight blocks, from row `first` on. They are the last factors of
/// each group of a panel.
#[inline(always)]
fn put_halves(scales: [[[f32; 2]; 8]; 8], first: usize, groups: usize, panel: &mut [f32]) {
    for (g, group) in panel.chunks_exact_mut(panel.len() / groups).enumerate() {
        for (half, to) in group.chunks_exact_mut(32).rev().take(2).enumerate() {
            for (to, scales) in to[first..].iter_mut().zip(&scales) {
                *to = scales[g][1 - half];
            }
        }
    }
}

/// Multiplies a panel with up to six columns; four with scales of halves, see [`shape`].
#[target_feature(enable = "avx2,fma,avx512f,avx512vnni")]
fn panels<const HALVES: bool, const MINIMA: usize>(
    values: &[u8],
    factors: &[f32],
    x: &[Column<'_>],
    out: &mut [f32; MAX_TILE],
) {
    match *x {
        [a, b, c, d, e, f] if !HALVES => panel::<HALVES, MINIMA, 6>(values, factors, [a, b, c, d, e, f], out),
        [a, b, c, d, e] if !HALVES => panel::<HALVES, MINIMA, 5>(values, factors, [a, b, c, d, e], out),
        [a, b, c, d] => panel::<HALVES, MINIMA, 4>(values, factors, [a, b, c, d], out),
        [a, b, c] => panel::<HALVES, MINIMA, 3>(values, factors, [a, b, c], out),
        [a, b] => panel::<HALVES, MINIMA, 2>(values, factors, [a, b], out),
        [a] => panel::<HALVES, MINIMA, 1>(values, factors, [a], out),
        _ => {}
    }
}

/// Multiplies a panel with `C` columns: four activations, repeated in all lanes, times the four values of 32
/// rows. Half scales multiply the sums of the halves, which is exact in F32 (for float scales only the
/// products are exact).
#[target_feature(enable = "avx2,fma,avx512f,avx512vnni")]
fn panel<const HALVES: bool, const MINIMA: usize, const C: usize>(
    values: &[u8],
    factors: &[f32],
    x: [Column<'_>; C],
    out: &mut [f32; MAX_TILE],
) {
    let n = x[0].blocks.len();
    let mut columns: [&[Rounded]; C] = [&[]; C];
    for c in 0..C {
        columns[c] = &x[c].blocks[..n];
    }
    let values: &[[[u8; 64]; 16]] = values.as_chunks().0.as_chunks().0;
    let groups = values[..n].iter().zip(factors.chunks_exact(32 * factor_count(HALVES, MINIMA)));
    let mut total = [[_mm512_setzero_ps(); 2]; C];
    for (at, (values, factors)) in groups.enumerate() {
        let mut x = [&columns[0][at]; C];
        for c in 1..C {
            x[c] = &columns[c][at];
        }
        let (scales, minima) = factors.as_chunks::<16>().0.split_at(2);
        let (minima, halves) = minima.split_at(2 * MINIMA);
        let mut sum = sums::<MINIMA, C>(values, x, if HALVES { 0..4 } else { 0..8 });
        if HALVES {
            let last = sums::<MINIMA, C>(values, x, 4..8);
            for c in 0..C {
                for v in 0..2 {
                    let first = _mm512_mul_ps(sum[c][v], floats512(&halves[v]));
                    sum[c][v] = _mm512_fmadd_ps(last[c][v], floats512(&halves[2 + v]), first);
                }
            }
        }
        for c in 0..C {
            let (scale, weighed) = (_mm512_set1_ps(x[c].scale), x[c].weighed());
            for v in 0..2 {
                let scaled = _mm512_mul_ps(_mm512_mul_ps(floats512(&scales[v]), scale), sum[c][v]);
                total[c][v] = _mm512_add_ps(total[c][v], scaled);
                for i in 0..MINIMA {
                    let minimum = _mm512_mul_ps(floats512(&minima[2 * i + v]), _mm512_set1_ps(weighed[i]));
                    total[c][v] = _mm512_add_ps(total[c][v], minimum);
                }
            }
        }
    }
    for c in 0..C {
        for v in 0..2 {
            let Some(to) = out[c * 32 + v * 16..].first_chunk_mut::<16>() else { continue };
            // SAFETY: the array is as long as the access.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), total[c][v]) };
        }
    }
}

/// Returns the sums of products over some 4-byte words of a group: of all, or of one half. Types without
/// minima may have a bias.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn sums<const MINIMA: usize, const C: usize>(
    values: &[[u8; 64]; 16],
    x: [&Rounded; C],
    fours: Range<usize>,
) -> [[__m512; 2]; C] {
    let mut sum = [[_mm512_setzero_si512(); 2]; C];
    if MINIMA == 0 {
        for c in 0..C {
            sum[c] = [_mm512_set1_epi32(x[c].excess()[fours.start / 4]); 2];
        }
    }
    for four in fours {
        let (first, second) = (load512(&values[2 * four]), load512(&values[2 * four + 1]));
        for c in 0..C {
            let words: &[[u8; 4]; 8] = bytemuck::cast_ref(&x[c].q);
            let x = _mm512_set1_epi32(i32::from_le_bytes(words[four]));
            sum[c][0] = _mm512_dpbusd_epi32(sum[c][0], first, x);
            sum[c][1] = _mm512_dpbusd_epi32(sum[c][1], second, x);
        }
    }
    floats(sum)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn floats<const C: usize>(sums: [[__m512i; 2]; C]) -> [[__m512; 2]; C] {
    let mut out = [[_mm512_setzero_ps(); 2]; C];
    for c in 0..C {
        for v in 0..2 {
            out[c][v] = _mm512_cvtepi32_ps(sums[c][v]);
        }
    }
    out
}

/// Loads 64 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
fn load512(x: &[u8; 64]) -> __m512i {
    // SAFETY: the array is as long as the access.
    unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
}

/// Loads 16 floats.
#[inline]
#[target_feature(enable = "avx512f")]
fn floats512(x: &[f32; 16]) -> __m512 {
    // SAFETY: the array is as long as the access.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}
