//! Integer products with AVX2.

use super::{Form, Group, IntDot, MAX_TILE, PanelShape, Quant, ROWS};
use crate::cpu::dot::quantize::Column;
use crate::cpu::simd::avx2::{Avx2, prefetch};
use std::arch::x86_64::*;

impl IntDot for Avx2 {
    #[inline(always)]
    fn panel_shape<Q: Quant>(self) -> Option<PanelShape> {
        Some(shape::<Q>())
    }

    #[inline(always)]
    fn dot8<Q: Quant>(self, rows: [&[Q]; ROWS], x: Column<'_>, ahead: usize) -> [f32; ROWS] {
        // SAFETY: a token of type `Avx2` exists only on machines with these features.
        unsafe { dot8(rows, x, ahead) }
    }

    #[inline(always)]
    fn pack<Q: Quant>(self, rows: &[&[Q]], values: &mut [u8], scales: &mut [f32]) {
        // SAFETY: as above.
        unsafe { pack(rows, values, scales) }
    }

    #[inline(always)]
    fn panel<Q: Quant>(self, values: &[u8], scales: &[f32], x: &[Column<'_>], out: &mut [f32; MAX_TILE]) {
        // SAFETY: as above.
        unsafe { panels(values, scales, x, out) }
    }
}

/// Two vectors of rows and four columns: eight accumulators of 16 registers, and eight totals that are needed once for
/// 16 multiplications.
pub(super) const fn shape<Q: Quant>() -> PanelShape {
    let from = if matches!(Q::FORM, Form::Six) { 4 } else { 10 };
    PanelShape { rows: 16, columns: 4, wide: true, from }
}

/// 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(x: &[u8; 32]) -> __m256i {
    // SAFETY: the array is as long as the access.
    unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
}

/// The numbers of a group in the order of the bytes of activations: signed bytes and six bits as they are (the latter
/// without their scales), nibbles 8 too large.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn numbers<Q: Quant>(block: &Q, g: usize) -> __m256i {
    match block.group(g) {
        Group::Bytes(q) => load(bytemuck::cast_ref(q)),
        Group::Nibbles(q) => {
            // SAFETY: the array is as long as the access.
            let q = unsafe { _mm_loadu_si128(q.as_ptr().cast()) };
            let both = _mm256_set_m128i(_mm_srli_epi16::<4>(q), q);
            _mm256_and_si256(both, _mm256_set1_epi8(15))
        }
        Group::Six(q) => {
            let field = |bytes, shift: u32, mask| {
                let shifted = _mm256_srl_epi16(load(bytes), _mm_cvtsi32_si128(shift as i32));
                _mm256_and_si256(shifted, _mm256_set1_epi8(mask))
            };
            let (low, high) = (field(q.low, q.low_shift, 15), field(q.high, q.high_shift, 3));
            _mm256_sub_epi8(_mm256_or_si256(low, _mm256_slli_epi16::<4>(high)), _mm256_set1_epi8(32))
        }
    }
}

/// Scales within a block, for 16 pairs of numbers.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn inner_scales<Q: Quant>(block: &Q, g: usize) -> __m256i {
    match block.group(g) {
        Group::Six(q) => {
            let [first, last] = q.scales.map(|s| _mm_set1_epi16(i16::from(s)));
            _mm256_set_m128i(last, first)
        }
        _ => _mm256_set1_epi16(1),
    }
}

/// The lanes of each of eight vectors added: one lane for each.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn sum8(v: [__m256i; 8]) -> __m256i {
    let low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    let high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    _mm256_add_epi32(
        _mm256_permute2x128_si256::<0x20>(low, high),
        _mm256_permute2x128_si256::<0x31>(low, high),
    )
}

/// Asks for the cache lines of the blocks that lie some bytes after eight blocks.
#[inline(always)]
pub(super) fn prefetch8<Q>(blocks: [&Q; ROWS], ahead: usize) {
    for block in blocks {
        for line in 0..size_of::<Q>().div_ceil(64) {
            prefetch(block, ahead + 64 * line);
        }
    }
}

/// The scales of eight blocks.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn scales8<Q: Quant>(blocks: [&Q; 8]) -> __m256 {
    let [a, b, c, d, e, f, g, h] = blocks.map(|q| q.scale() as i16);
    _mm256_cvtph_ps(_mm_set_epi16(h, g, f, e, d, c, b, a))
}

/// Eight numbers of a vector.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn to_array(v: __m256) -> [f32; 8] {
    let mut out = [0.0; 8];
    // SAFETY: the array is as long as the access.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), v) };
    out
}

/// Eight rows with one column: 32 products of bytes in three instructions, for each row and group.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn dot8<Q: Quant>(rows: [&[Q]; ROWS], x: Column<'_>, ahead: usize) -> [f32; ROWS] {
    let n = x.q.len() / Q::GROUPS;
    let rows = rows.map(|row| &row[..n]);
    let numbers_of = x.q.chunks_exact(Q::GROUPS);
    let (scales, sums) = (&x.scale[..n * Q::GROUPS], &x.sum[..n * Q::GROUPS]);
    let mut total = _mm256_setzero_ps();
    for (b, q) in numbers_of.enumerate() {
        prefetch8(rows.map(|row| &row[b]), ahead);
        let block_scales = scales8(rows.map(|row| &row[b]));
        for (g, q) in q.iter().enumerate() {
            let q = load(bytemuck::cast_ref(q));
            let mut partial = [_mm256_setzero_si256(); ROWS];
            for r in 0..ROWS {
                partial[r] = products(&rows[r][b], g, q);
            }
            let (mut sum, at) = (sum8(partial), b * Q::GROUPS + g);
            if Q::FORM == Form::Nibbles {
                sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(8 * sums[at]));
            }
            let scale = _mm256_mul_ps(block_scales, _mm256_set1_ps(scales[at]));
            total = _mm256_add_ps(total, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(sum)));
        }
    }
    to_array(total)
}

/// Sums of four neighbouring products of bytes. The instruction multiplies unsigned by signed bytes: signed weights
/// give their sign to the activations. No sum saturates: 2 * 128 * 127 < 2^15.
#[inline]
#[target_feature(enable = "avx2")]
fn products<Q: Quant>(block: &Q, g: usize, x: __m256i) -> __m256i {
    let w = numbers(block, g);
    let pairs = match Q::FORM {
        Form::Nibbles => _mm256_maddubs_epi16(w, x),
        _ => _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)),
    };
    _mm256_madd_epi16(pairs, inner_scales(block, g))
}

/// An 8 x 8 matrix of 32-bit numbers with rows and columns exchanged.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn transpose8(r: [__m256i; 8]) -> [__m256i; 8] {
    let pair = |a, b| (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let quad = |a, b| (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let ((a0, a1), (b0, b1), (c0, c1), (d0, d1)) =
        (pair(r[0], r[1]), pair(r[2], r[3]), pair(r[4], r[5]), pair(r[6], r[7]));
    let ((e0, e1), (e2, e3)) = (quad(a0, b0), quad(a1, b1));
    let ((f0, f1), (f2, f3)) = (quad(c0, d0), quad(c1, d1));
    let low = |a, b| _mm256_permute2x128_si256::<0x20>(a, b);
    let high = |a, b| _mm256_permute2x128_si256::<0x31>(a, b);
    [
        low(e0, f0),
        low(e1, f1),
        low(e2, f2),
        low(e3, f3),
        high(e0, f0),
        high(e1, f1),
        high(e2, f2),
        high(e3, f3),
    ]
}

/// A panel of 16 rows in 16 bits: for each group and each of its 16 pairs of numbers two vectors, the pair of rows 0
/// to 7 and that of rows 8 to 15. Scales within a block are multiplied in: 32 * 128 fits.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn pack<Q: Quant>(rows: &[&[Q]], values: &mut [u8], scales: &mut [f32]) {
    let values: &mut [[u8; 32]] = values.as_chunks_mut().0;
    for (half, rows) in rows.as_chunks::<8>().0.iter().enumerate() {
        for (at, group) in values.chunks_exact_mut(32).enumerate() {
            let (b, g) = (at / Q::GROUPS, at % Q::GROUPS);
            let blocks = rows.map(|row| &row[b]);
            let (mut first, mut second) = ([_mm256_setzero_si256(); 8], [_mm256_setzero_si256(); 8]);
            for r in 0..8 {
                let (x, scale) = (numbers(blocks[r], g), inner_scales(blocks[r], g));
                let offset = _mm256_set1_epi16(if Q::FORM == Form::Nibbles { 8 } else { 0 });
                let widen = |x, scale| {
                    let x = _mm256_sub_epi16(_mm256_cvtepi8_epi16(x), offset);
                    if Q::FORM == Form::Six { _mm256_mullo_epi16(x, scale) } else { x }
                };
                first[r] = widen(_mm256_castsi256_si128(x), _mm256_permute2x128_si256::<0x00>(scale, scale));
                second[r] =
                    widen(_mm256_extracti128_si256::<1>(x), _mm256_permute2x128_si256::<0x11>(scale, scale));
            }
            let pairs = transpose8(first).into_iter().chain(transpose8(second));
            for (to, v) in group.chunks_exact_mut(2).zip(pairs) {
                // SAFETY: the array is as long as the access.
                unsafe { _mm256_storeu_si256(to[half].as_mut_ptr().cast(), v) };
            }
            scales[at * 16 + half * 8..][..8].copy_from_slice(&to_array(scales8(blocks)));
        }
    }
}

/// A panel with up to four columns.
#[target_feature(enable = "avx2,fma")]
pub(super) fn panels(values: &[u8], scales: &[f32], x: &[Column<'_>], out: &mut [f32; MAX_TILE]) {
    match *x {
        [a, b, c, d] => panel(values, scales, [a, b, c, d], out),
        [a, b, c] => panel(values, scales, [a, b, c], out),
        [a, b] => panel(values, scales, [a, b], out),
        [a] => panel(values, scales, [a], out),
        _ => {}
    }
}

/// A panel with `C` columns: a pair of activations, repeated in all lanes, times the pairs of 16 rows.
#[target_feature(enable = "avx2,fma")]
fn panel<const C: usize>(values: &[u8], scales: &[f32], x: [Column<'_>; C], out: &mut [f32; MAX_TILE]) {
    let n = x[0].wide.len();
    let wide: [&[[i32; 16]]; C] = x.map(|x| bytemuck::cast_slice(&x.wide[..n]));
    let x_scale = x.map(|x| &x.scale[..n]);
    let values: &[[[u8; 32]; 32]] = values.as_chunks().0.as_chunks().0;
    let (values, scales) = (&values[..n], &scales.as_chunks::<16>().0[..n]);
    let mut total = [[_mm256_setzero_ps(); 2]; C];
    for b in 0..n {
        let mut sum = [[_mm256_setzero_si256(); 2]; C];
        for pair in 0..16 {
            let (first, second) = (load(&values[b][2 * pair]), load(&values[b][2 * pair + 1]));
            for c in 0..C {
                let x = _mm256_set1_epi32(wide[c][b][pair]);
                sum[c][0] = _mm256_add_epi32(sum[c][0], _mm256_madd_epi16(first, x));
                sum[c][1] = _mm256_add_epi32(sum[c][1], _mm256_madd_epi16(second, x));
            }
        }
        for half in 0..2 {
            let Some(scale) = scales[b][half * 8..].first_chunk::<8>() else { continue };
            // SAFETY: the array is as long as the access.
            let scale = unsafe { _mm256_loadu_ps(scale.as_ptr()) };
            for c in 0..C {
                let scale = _mm256_mul_ps(scale, _mm256_set1_ps(x_scale[c][b]));
                total[c][half] =
                    _mm256_add_ps(total[c][half], _mm256_mul_ps(scale, _mm256_cvtepi32_ps(sum[c][half])));
            }
        }
    }
    for c in 0..C {
        for half in 0..2 {
            out[c * 16 + half * 8..][..8].copy_from_slice(&to_array(total[c][half]));
        }
    }
}
