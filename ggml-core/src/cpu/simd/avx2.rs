//! Vectors of eight floats: AVX2, FMA, F16C.

use super::{Job, Simd};
use std::arch::x86_64::*;

/// Token for eight floats in a register. A value exists only inside [`enter`].
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Avx2(());

/// Runs a kernel compiled for this instruction set.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) fn enter<J: Job>(job: J) -> J::Out {
    job.run(Avx2(()))
}

/// Wraps intrinsics that access no memory, or only memory that the caller has just borrowed with its length
/// in the type.
macro_rules! avx2 {
    ($($body:tt)*) => {{
        // SAFETY: a token of type `Avx2` exists only on machines with these features, and pointers come from
        // references to arrays as long as the access.
        unsafe { $($body)* }
    }};
}

/// Returns the first `N` elements; zeros if there are fewer.
#[inline(always)]
fn head<T: Copy + Default, const N: usize>(x: &[T]) -> [T; N] {
    debug_assert!(x.len() >= N);
    x.first_chunk().copied().unwrap_or([T::default(); N])
}

impl Simd for Avx2 {
    type F = __m256;
    const LANES: usize = 8;
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        avx2!(_mm256_set1_ps(x))
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> __m256 {
        let x: [f32; 8] = head(x);
        avx2!(_mm256_loadu_ps(x.as_ptr()))
    }

    #[inline(always)]
    unsafe fn load_at(self, x: &[f32], at: usize) -> __m256 {
        debug_assert!(at + 8 <= x.len());
        // SAFETY: the caller guarantees that the eight elements are within `x`.
        unsafe { _mm256_loadu_ps(x.as_ptr().add(at)) }
    }

    #[inline(always)]
    fn store(self, x: &mut [f32], v: __m256) {
        if let Some(to) = x.first_chunk_mut::<8>() {
            avx2!(_mm256_storeu_ps(to.as_mut_ptr(), v));
        }
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16]) -> __m256 {
        let x: [u16; 8] = head(x);
        avx2!(_mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())))
    }

    #[inline(always)]
    fn store_f16(self, x: &mut [u16], v: __m256) {
        if let Some(to) = x.first_chunk_mut::<8>() {
            avx2!(_mm_storeu_si128(to.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)));
        }
    }

    #[inline(always)]
    fn load_bf16(self, x: &[u16]) -> __m256 {
        let x: [u16; 8] = head(x);
        avx2!({
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(x.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        })
    }

    #[inline(always)]
    fn load_i8(self, x: &[i8]) -> __m256 {
        let x: [i8; 8] = head(x);
        avx2!(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(x.as_ptr().cast()))))
    }

    #[inline(always)]
    fn store_i8(self, x: &mut [i8], v: __m256) {
        if let Some(to) = x.first_chunk_mut::<8>() {
            avx2!({
                let wide = _mm256_cvtps_epi32(v);
                let pairs =
                    _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256::<1>(wide));
                _mm_storel_epi64(to.as_mut_ptr().cast(), _mm_packs_epi16(pairs, pairs));
            });
        }
    }

    #[inline(always)]
    fn splat_f16(self, x: u16) -> __m256 {
        avx2!(_mm256_cvtph_ps(_mm_set1_epi16(x as i16)))
    }

    #[inline(always)]
    fn prefetch<T>(self, x: &T, bytes: usize) {
        prefetch(x, bytes);
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        avx2!(_mm256_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        avx2!(_mm256_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        avx2!(_mm256_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        avx2!(_mm256_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        avx2!(_mm256_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        avx2!(_mm256_max_ps(a, b))
    }

    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        avx2!(_mm256_min_ps(a, b))
    }

    #[inline(always)]
    fn abs(self, a: __m256) -> __m256 {
        avx2!(_mm256_andnot_ps(_mm256_set1_ps(-0.0), a))
    }

    #[inline(always)]
    fn flip(self, a: __m256, sign: __m256) -> __m256 {
        avx2!(_mm256_xor_ps(a, _mm256_and_ps(sign, _mm256_set1_ps(-0.0))))
    }

    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        avx2!(_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }

    #[inline(always)]
    fn exp2i(self, n: __m256) -> __m256 {
        avx2!({
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        })
    }

    #[inline(always)]
    fn select_lt(self, a: __m256, b: __m256, x: __m256, y: __m256) -> __m256 {
        avx2!(_mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)))
    }

    #[inline(always)]
    fn sum4(self, v: [__m256; 4]) -> [f32; 4] {
        avx2!(sums(v))
    }
}

/// Prefetches the cache line `bytes` bytes after `x`.
#[inline(always)]
#[allow(unused_unsafe, reason = "the intrinsic became a safe function after Rust 1.89")]
pub(in crate::cpu) fn prefetch<T>(x: &T, bytes: usize) {
    let at = std::ptr::from_ref(x).wrapping_byte_add(bytes);
    // SAFETY: the instruction is a hint that accepts any address, and every x86-64 processor supports it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

/// Returns the sums of four vectors: pairs, pairs of pairs, then the two halves.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn sums(v: [__m256; 4]) -> [f32; 4] {
    let pairs = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    let sums = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
    let mut out = [0.0; 4];
    // SAFETY: the array has the four elements that are written.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), sums) };
    out
}
