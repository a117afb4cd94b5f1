//! Integer products with AVX-512 VNNI: 64 products of bytes and their sums in one instruction.

use super::avx2::{self, load, numbers, prefetch8, scales8, sum8, to_array, transpose8};
use super::{Form, IntDot, MAX_TILE, PanelShape, Quant, ROWS};
use crate::cpu::dot::quantize::Column;
use crate::cpu::simd::avx512::Avx512;
use std::arch::x86_64::*;

impl IntDot for Avx512 {
    /// Weights of more than 8 bits, scales within the block included, go the way of AVX2.
    #[inline(always)]
    fn panel_shape<Q: Quant>(self) -> Option<PanelShape> {
        Some(match Q::FORM {
            Form::Six => avx2::shape::<Q>(),
            _ => PanelShape { rows: 32, columns: 6, wide: false, from: 4 },
        })
    }

    #[inline(always)]
    fn dot8<Q: Quant>(self, rows: [&[Q]; ROWS], x: Column<'_>, ahead: usize) -> [f32; ROWS] {
        // SAFETY: a token of type `Avx512` exists only on machines with these features.
        unsafe { if Q::FORM == Form::Six { avx2::dot8(rows, x, ahead) } else { dot8(rows, x, ahead) } }
    }

    #[inline(always)]
    fn pack<Q: Quant>(self, rows: &[&[Q]], values: &mut [u8], scales: &mut [f32]) {
        // SAFETY: as above.
        unsafe {
            if Q::FORM == Form::Six { avx2::pack(rows, values, scales) } else { pack(rows, values, scales) }
        }
    }

    #[inline(always)]
    fn panel<Q: Quant>(self, values: &[u8], scales: &[f32], x: &[Column<'_>], out: &mut [f32; MAX_TILE]) {
        let bias = bias::<Q>();
        // SAFETY: as above.
        unsafe {
            match *x {
                _ if Q::FORM == Form::Six => avx2::panels(values, scales, x, out),
                [a, b, c, d, e, f] => panel(values, scales, [a, b, c, d, e, f], bias, out),
                [a, b, c, d, e] => panel(values, scales, [a, b, c, d, e], bias, out),
                [a, b, c, d] => panel(values, scales, [a, b, c, d], bias, out),
                [a, b, c] => panel(values, scales, [a, b, c], bias, out),
                [a, b] => panel(values, scales, [a, b], bias, out),
                [a] => panel(values, scales, [a], bias, out),
                _ => {}
            }
        }
    }
}

/// How much larger the unsigned bytes of [`biased`] are than the numbers.
const fn bias<Q: Quant>() -> i32 {
    match Q::FORM {
        Form::Nibbles => 8,
        _ => 128,
    }
}

/// The numbers of a block as unsigned bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn biased<Q: Quant>(block: &Q) -> __m256i {
    match Q::FORM {
        Form::Nibbles => numbers(block, 0),
        _ => _mm256_xor_si256(numbers(block, 0), _mm256_set1_epi8(i8::MIN)),
    }
}

/// Eight rows with one column. The instruction wants unsigned weights; what the bias adds is taken off with the sum of
/// the activations.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512vl,avx512vnni")]
fn dot8<Q: Quant>(rows: [&[Q]; ROWS], x: Column<'_>, ahead: usize) -> [f32; ROWS] {
    let n = x.q.len();
    let rows = rows.map(|row| &row[..n]);
    let (scales, sums) = (&x.scale[..n], &x.sum[..n]);
    let mut total = _mm256_setzero_ps();
    for b in 0..n {
        prefetch8(rows.map(|row| &row[b]), ahead);
        let q = load(bytemuck::cast_ref(&x.q[b]));
        let mut partial = [_mm256_setzero_si256(); ROWS];
        for r in 0..ROWS {
            partial[r] = _mm256_dpbusd_epi32(_mm256_setzero_si256(), biased(&rows[r][b]), q);
        }
        let sum = _mm256_sub_epi32(sum8(partial), _mm256_set1_epi32(bias::<Q>() * sums[b]));
        let scale = _mm256_mul_ps(scales8(rows.map(|row| &row[b])), _mm256_set1_ps(scales[b]));
        total = _mm256_add_ps(total, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(sum)));
    }
    to_array(total)
}

/// A panel of 32 rows in 8 bits: for each block and each of its 8 fours of numbers two vectors, the four of rows 0 to
/// 15 and that of rows 16 to 31.
#[target_feature(enable = "avx2,f16c")]
fn pack<Q: Quant>(rows: &[&[Q]], values: &mut [u8], scales: &mut [f32]) {
    let values: &mut [[u8; 32]] = values.as_chunks_mut().0;
    for (quarter, rows) in rows.as_chunks::<8>().0.iter().enumerate() {
        for (b, block) in values.chunks_exact_mut(32).enumerate() {
            let blocks = rows.map(|row| &row[b]);
            let mut bytes = [_mm256_setzero_si256(); 8];
            for r in 0..8 {
                bytes[r] = biased(blocks[r]);
            }
            for (to, v) in block.chunks_exact_mut(4).zip(transpose8(bytes)) {
                // SAFETY: the array is as long as the access.
                unsafe { _mm256_storeu_si256(to[quarter].as_mut_ptr().cast(), v) };
            }
            scales[b * 32 + quarter * 8..][..8].copy_from_slice(&to_array(scales8(blocks)));
        }
    }
}

/// A panel with `C` columns: four activations, repeated in all lanes, times the fours of 32 rows.
#[target_feature(enable = "avx2,fma,avx512f,avx512vnni")]
fn panel<const C: usize>(
    values: &[u8],
    scales: &[f32],
    x: [Column<'_>; C],
    bias: i32,
    out: &mut [f32; MAX_TILE],
) {
    let n = x[0].q.len();
    let fours: [&[[u8; 32]]; C] = x.map(|x| bytemuck::cast_slice(&x.q[..n]));
    let x_scale = x.map(|x| &x.scale[..n]);
    let x_sum = x.map(|x| &x.sum[..n]);
    let values: &[[[u8; 64]; 16]] = values.as_chunks().0.as_chunks().0;
    let (values, scales) = (&values[..n], &scales.as_chunks::<32>().0[..n]);
    let mut total = [[_mm512_setzero_ps(); 2]; C];
    for b in 0..n {
        let mut sum = [[_mm512_setzero_si512(); 2]; C];
        for c in 0..C {
            sum[c] = [_mm512_set1_epi32(-bias * x_sum[c][b]); 2];
        }
        for four in 0..8 {
            let (first, second) = (load512(&values[b][2 * four]), load512(&values[b][2 * four + 1]));
            for c in 0..C {
                let x = &fours[c][b];
                let x = i32::from_le_bytes([x[4 * four], x[4 * four + 1], x[4 * four + 2], x[4 * four + 3]]);
                let x = _mm512_set1_epi32(x);
                sum[c][0] = _mm512_dpbusd_epi32(sum[c][0], first, x);
                sum[c][1] = _mm512_dpbusd_epi32(sum[c][1], second, x);
            }
        }
        for half in 0..2 {
            let Some(scale) = scales[b][half * 16..].first_chunk::<16>() else { continue };
            // SAFETY: the array is as long as the access.
            let scale = unsafe { _mm512_loadu_ps(scale.as_ptr()) };
            for c in 0..C {
                let scale = _mm512_mul_ps(scale, _mm512_set1_ps(x_scale[c][b]));
                total[c][half] =
                    _mm512_add_ps(total[c][half], _mm512_mul_ps(scale, _mm512_cvtepi32_ps(sum[c][half])));
            }
        }
    }
    for c in 0..C {
        for half in 0..2 {
            let Some(to) = out[c * 32 + half * 16..].first_chunk_mut::<16>() else { continue };
            // SAFETY: the array is as long as the access.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), total[c][half]) };
        }
    }
}

/// 64 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
fn load512(x: &[u8; 64]) -> __m512i {
    // SAFETY: the array is as long as the access.
    unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
}
