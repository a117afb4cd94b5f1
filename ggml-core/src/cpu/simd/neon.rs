//! Vectors of eight floats: two registers of Arm Advanced SIMD.
//!
//! Eight lanes instead of four, so that sums are added in the same order as with AVX2. The two independent
//! halves also hide latency.

use super::{IntDot, Job, Simd};
use half::f16;
use std::arch::aarch64::*;

/// Levels of integer dot products: no single instruction, SDOT, SDOT and SMMLA.
pub(in crate::cpu) const PLAIN: u8 = 0;
pub(in crate::cpu) const DOT: u8 = 1;
pub(in crate::cpu) const MATRIX: u8 = 2;

/// Token for eight floats in two registers. A value exists only inside the function that enters its level.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Neon<const LEVEL: u8>(());

/// Two registers.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Pair(float32x4_t, float32x4_t);

/// Runs a kernel compiled for this instruction set.
#[target_feature(enable = "neon")]
pub(in crate::cpu) fn enter<J: Job>(job: J) -> J::Out {
    job.run(Neon::<PLAIN>(()))
}

/// Runs a kernel compiled with SDOT.
#[target_feature(enable = "neon,dotprod")]
pub(in crate::cpu) fn enter_dot<J: Job>(job: J) -> J::Out {
    job.run(Neon::<DOT>(()))
}

/// Runs a kernel compiled with SDOT and SMMLA.
#[target_feature(enable = "neon,dotprod,i8mm")]
pub(in crate::cpu) fn enter_matrix<J: Job>(job: J) -> J::Out {
    job.run(Neon::<MATRIX>(()))
}

/// Wraps intrinsics that access no memory, or only memory that the caller has just borrowed with its length
/// in the type.
macro_rules! neon {
    ($($body:tt)*) => {{
        // SAFETY: a token of type `Neon` exists only on machines with this feature, and pointers come from
        // references to arrays as long as the access.
        unsafe { $($body)* }
    }};
}

/// Returns the first 8 elements; zeros if there are fewer.
#[inline(always)]
fn head<T: Copy + Default>(x: &[T]) -> [T; 8] {
    debug_assert!(x.len() >= 8);
    x.first_chunk().copied().unwrap_or_default()
}

/// Applies a function to both halves.
macro_rules! both {
    ($f:ident($($v:expr),+)) => {
        neon!(Pair($f($($v.0),+), $f($($v.1),+)))
    };
}

impl<const LEVEL: u8> Neon<LEVEL> {
    /// Converts eight signed 16-bit integers.
    #[inline(always)]
    fn widen(self, x: int16x8_t) -> Pair {
        neon!(Pair(vcvtq_f32_s32(vmovl_s16(vget_low_s16(x))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(x)))))
    }
}

impl<const LEVEL: u8> Simd for Neon<LEVEL>
where
    Neon<LEVEL>: IntDot,
{
    type F = Pair;
    const LANES: usize = 8;
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Pair {
        neon!(Pair(vdupq_n_f32(x), vdupq_n_f32(x)))
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> Pair {
        let x = head(x);
        neon!(Pair(vld1q_f32(x.as_ptr()), vld1q_f32(x.as_ptr().add(4))))
    }

    #[inline(always)]
    unsafe fn load_at(self, x: &[f32], at: usize) -> Pair {
        debug_assert!(at + 8 <= x.len());
        // SAFETY: the caller guarantees that the eight elements are within `x`.
        unsafe { Pair(vld1q_f32(x.as_ptr().add(at)), vld1q_f32(x.as_ptr().add(at + 4))) }
    }

    #[inline(always)]
    fn store(self, x: &mut [f32], v: Pair) {
        if let Some(to) = x.first_chunk_mut::<8>() {
            neon!({
                vst1q_f32(to.as_mut_ptr(), v.0);
                vst1q_f32(to.as_mut_ptr().add(4), v.1);
            });
        }
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16]) -> Pair {
        // Converted in software: stable Rust has no vector type of binary16.
        let x = head(x).map(|x| f16::from_bits(x).to_f32_const());
        self.load(&x)
    }

    #[inline(always)]
    fn store_f16(self, x: &mut [u16], v: Pair) {
        let mut wide = [0.0; 8];
        self.store(&mut wide, v);
        if let Some(to) = x.first_chunk_mut::<8>() {
            *to = wide.map(|x| f16::from_f32_const(x).to_bits());
        }
    }

    #[inline(always)]
    fn load_bf16(self, x: &[u16]) -> Pair {
        let x = head(x);
        neon!({
            let x = vld1q_u16(x.as_ptr());
            Pair(
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(x))),
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_high_u16(x))),
            )
        })
    }

    #[inline(always)]
    fn load_i8(self, x: &[i8]) -> Pair {
        let x = head(x);
        self.widen(neon!(vmovl_s8(vld1_s8(x.as_ptr()))))
    }

    #[inline(always)]
    fn store_i8(self, x: &mut [i8], v: Pair) {
        if let Some(to) = x.first_chunk_mut::<8>() {
            neon!({
                let low = vqmovn_s32(vcvtnq_s32_f32(v.0));
                let high = vqmovn_s32(vcvtnq_s32_f32(v.1));
                vst1_s8(to.as_mut_ptr(), vqmovn_s16(vcombine_s16(low, high)));
            });
        }
    }

    #[inline(always)]
    fn splat_f16(self, x: u16) -> Pair {
        self.splat(f16::from_bits(x).to_f32_const())
    }

    #[inline(always)]
    fn add(self, a: Pair, b: Pair) -> Pair {
        both!(vaddq_f32(a, b))
    }

    #[inline(always)]
    fn sub(self, a: Pair, b: Pair) -> Pair {
        both!(vsubq_f32(a, b))
    }

    #[inline(always)]
    fn mul(self, a: Pair, b: Pair) -> Pair {
        both!(vmulq_f32(a, b))
    }

    #[inline(always)]
    fn div(self, a: Pair, b: Pair) -> Pair {
        both!(vdivq_f32(a, b))
    }

    #[inline(always)]
    fn fma(self, a: Pair, b: Pair, c: Pair) -> Pair {
        both!(vfmaq_f32(c, a, b))
    }

    #[inline(always)]
    fn max(self, a: Pair, b: Pair) -> Pair {
        // Not the instruction set's maximum, which returns NaN if either operand is NaN.
        let greater = |a, b| neon!(vbslq_f32(vcgtq_f32(a, b), a, b));
        Pair(greater(a.0, b.0), greater(a.1, b.1))
    }

    #[inline(always)]
    fn min(self, a: Pair, b: Pair) -> Pair {
        let lesser = |a, b| neon!(vbslq_f32(vcltq_f32(a, b), a, b));
        Pair(lesser(a.0, b.0), lesser(a.1, b.1))
    }

    #[inline(always)]
    fn abs(self, a: Pair) -> Pair {
        both!(vabsq_f32(a))
    }

    #[inline(always)]
    fn flip(self, a: Pair, sign: Pair) -> Pair {
        let flipped = |a, sign| {
            neon!({
                let sign = vandq_u32(vreinterpretq_u32_f32(sign), vdupq_n_u32(0x8000_0000));
                vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(a), sign))
            })
        };
        Pair(flipped(a.0, sign.0), flipped(a.1, sign.1))
    }

    #[inline(always)]
    fn round(self, a: Pair) -> Pair {
        both!(vrndnq_f32(a))
    }

    #[inline(always)]
    fn exp2i(self, n: Pair) -> Pair {
        let power = |n| {
            neon!({
                let biased = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
                vreinterpretq_f32_s32(vshlq_n_s32::<23>(biased))
            })
        };
        Pair(power(n.0), power(n.1))
    }

    #[inline(always)]
    fn select_lt(self, a: Pair, b: Pair, x: Pair, y: Pair) -> Pair {
        neon!(Pair(vbslq_f32(vcltq_f32(a.0, b.0), x.0, y.0), vbslq_f32(vcltq_f32(a.1, b.1), x.1, y.1)))
    }

    #[inline(always)]
    fn sum4(self, v: [Pair; 4]) -> [f32; 4] {
        neon!({
            let low = vpaddq_f32(vpaddq_f32(v[0].0, v[1].0), vpaddq_f32(v[2].0, v[3].0));
            let high = vpaddq_f32(vpaddq_f32(v[0].1, v[1].1), vpaddq_f32(v[2].1, v[3].1));
            let mut out = [0.0; 4];
            vst1q_f32(out.as_mut_ptr(), vaddq_f32(low, high));
            out
        })
    }
}
