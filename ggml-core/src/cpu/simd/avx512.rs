//! Vectors of sixteen floats: AVX-512.

use super::{Job, Simd, avx2};
use std::arch::x86_64::*;

/// Token for sixteen floats in a register. A value exists only inside [`enter`].
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Avx512(());

/// Runs a kernel compiled for this instruction set.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(in crate::cpu) fn enter<J: Job>(job: J) -> J::Out {
    job.run(Avx512(()))
}

/// Wraps intrinsics that access no memory, or only memory that the caller has just borrowed with its length
/// in the type.
macro_rules! avx512 {
    ($($body:tt)*) => {{
        // SAFETY: a token of type `Avx512` exists only on machines with these features, and pointers come
        // from references to arrays as long as the access.
        unsafe { $($body)* }
    }};
}

/// Returns the first 16 elements; zeros if there are fewer.
#[inline(always)]
fn head<T: Copy + Default>(x: &[T]) -> [T; 16] {
    debug_assert!(x.len() >= 16);
    x.first_chunk().copied().unwrap_or_default()
}

impl Simd for Avx512 {
    type F = __m512;
    const LANES: usize = 16;
    const WIDE: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        avx512!(_mm512_set1_ps(x))
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> __m512 {
        let x = head(x);
        avx512!(_mm512_loadu_ps(x.as_ptr()))
    }

    #[inline(always)]
    unsafe fn load_at(self, x: &[f32], at: usize) -> __m512 {
        debug_assert!(at + 16 <= x.len());
        // SAFETY: the caller guarantees that the sixteen elements are within `x`.
        unsafe { _mm512_loadu_ps(x.as_ptr().add(at)) }
    }

    #[inline(always)]
    fn store(self, x: &mut [f32], v: __m512) {
        if let Some(to) = x.first_chunk_mut::<16>() {
            avx512!(_mm512_storeu_ps(to.as_mut_ptr(), v));
        }
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16]) -> __m512 {
        let x = head(x);
        avx512!(_mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())))
    }

    #[inline(always)]
    fn store_f16(self, x: &mut [u16], v: __m512) {
        if let Some(to) = x.first_chunk_mut::<16>() {
            avx512!(_mm256_storeu_si256(
                to.as_mut_ptr().cast(),
                _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)
            ));
        }
    }

    #[inline(always)]
    fn load_bf16(self, x: &[u16]) -> __m512 {
        let x = head(x);
        avx512!({
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        })
    }

    #[inline(always)]
    fn load_i8(self, x: &[i8]) -> __m512 {
        let x = head(x);
        avx512!(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.as_ptr().cast()))))
    }

    #[inline(always)]
    fn store_i8(self, x: &mut [i8], v: __m512) {
        if let Some(to) = x.first_chunk_mut::<16>() {
            avx512!(_mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v))));
        }
    }

    #[inline(always)]
    fn splat_f16(self, x: u16) -> __m512 {
        avx512!(_mm512_cvtph_ps(_mm256_set1_epi16(x as i16)))
    }

    #[inline(always)]
    fn prefetch<T>(self, x: &T, bytes: usize) {
        avx2::prefetch(x, bytes);
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        avx512!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_max_ps(a, b))
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_min_ps(a, b))
    }

    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        avx512!(_mm512_abs_ps(a))
    }

    #[inline(always)]
    fn flip(self, a: __m512, sign: __m512) -> __m512 {
        avx512!(_mm512_xor_ps(a, _mm512_and_ps(sign, _mm512_set1_ps(-0.0))))
    }

    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        avx512!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }

    #[inline(always)]
    fn exp2i(self, n: __m512) -> __m512 {
        avx512!({
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        })
    }

    #[inline(always)]
    fn select_lt(self, a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
        avx512!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x))
    }

    #[inline(always)]
    fn sum4(self, v: [__m512; 4]) -> [f32; 4] {
        avx512!({
            // The two halves first, then as with eight lanes.
            avx2::sums([fold(v[0]), fold(v[1]), fold(v[2]), fold(v[3])])
        })
    }

    #[inline(always)]
    fn greatest(self, v: __m512) -> f32 {
        // The second operand replaces a NaN.
        avx512!(_mm512_reduce_max_ps(_mm512_max_ps(v, _mm512_set1_ps(f32::NEG_INFINITY))))
    }
}

/// Returns the sum of the two halves.
#[inline]
#[target_feature(enable = "avx2,avx512f,avx512dq")]
fn fold(v: __m512) -> __m256 {
    _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v))
}
