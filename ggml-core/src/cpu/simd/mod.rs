//! One vector of F32 numbers under one interface, so that a kernel is written once and compiled for each instruction
//! set.
//!
//! A kernel is a [`Job`]: a structure with its operands and a generic function. [`dispatch`] enters that function
//! through a wrapper that is compiled with the features of the chosen instruction set; everything on the way down is
//! `#[inline(always)]`, so that the intrinsics are compiled with these features too. No closure on that way may have
//! vectors in it: it cannot be told to be inlined, and would be compiled without the features ([`map`] has macros for
//! loops). The vector types are tokens: one exists only where [`Detected`] has proven that the machine executes its
//! instructions.

use super::dot::int8::IntDot;
use super::isa::{Detected, Isa};

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
pub(super) mod map;
pub(super) mod math;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
pub(super) mod scalar;

/// The most lanes that a vector has on any instruction set.
pub(super) const MAX_LANES: usize = 16;

/// A vector of F32 numbers. Slices that are shorter than a method asks for are read as zeros and not written.
pub(super) trait Simd: IntDot {
    /// The vector.
    type F: Copy;
    /// Its elements; divides 32.
    const LANES: usize;
    /// Whether there are 32 registers, and not 16 or less.
    const WIDE: bool;

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::F;
    /// The first [`Simd::LANES`] elements.
    fn load(self, x: &[f32]) -> Self::F;
    /// Elements `at .. at + LANES`.
    ///
    /// # Safety
    /// They must be within `x`.
    unsafe fn load_at(self, x: &[f32], at: usize) -> Self::F;
    /// Writes the first [`Simd::LANES`] elements.
    fn store(self, x: &mut [f32], v: Self::F);
    /// The first [`Simd::LANES`] binary16 numbers, converted (exactly).
    fn load_f16(self, x: &[u16]) -> Self::F;
    /// Writes binary16 numbers, rounded to nearest, ties to even.
    fn store_f16(self, x: &mut [u16], v: Self::F);
    /// The first [`Simd::LANES`] bfloat16 numbers, converted (exactly).
    fn load_bf16(self, x: &[u16]) -> Self::F;
    /// The first [`Simd::LANES`] signed bytes, converted.
    fn load_i8(self, x: &[i8]) -> Self::F;
    /// Writes signed bytes, rounded to nearest, ties to even; lanes are in -127 ..= 127.
    fn store_i8(self, x: &mut [i8], v: Self::F);
    /// One binary16 number, converted, in every lane.
    fn splat_f16(self, x: u16) -> Self::F;

    /// Asks for the cache line at some bytes after `x`, which may be anywhere: nothing is read.
    #[inline(always)]
    fn prefetch<T>(self, x: &T, bytes: usize) {
        let _ = (x, bytes);
    }

    /// Sum.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// Difference.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// Product.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// Quotient.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once where the instruction set can.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The greater one; `b` if either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// The lesser one; `b` if either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// Magnitude.
    fn abs(self, a: Self::F) -> Self::F;
    /// `a` with its sign changed where `sign` is negative.
    fn flip(self, a: Self::F, sign: Self::F) -> Self::F;
    /// The nearest whole number, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// Two to the power of a whole number in -126 ..= 127.
    fn exp2i(self, n: Self::F) -> Self::F;
    /// `x` where `a < b`, else `y`.
    fn select_lt(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F;
    /// The sum over the lanes of each of four vectors, always added in the same order.
    fn sum4(self, v: [Self::F; 4]) -> [f32; 4];

    /// The first `x.len()` lanes, zeros above; `x` is shorter than a vector.
    #[inline(always)]
    fn load_partial(self, x: &[f32]) -> Self::F {
        let mut full = [0.0; MAX_LANES];
        full.iter_mut().zip(x).for_each(|(to, from)| *to = *from);
        self.load(&full)
    }

    /// Writes the first `x.len()` lanes; `x` is shorter than a vector.
    #[inline(always)]
    fn store_partial(self, x: &mut [f32], v: Self::F) {
        let mut full = [0.0; MAX_LANES];
        self.store(&mut full, v);
        x.iter_mut().zip(full).for_each(|(to, from)| *to = from);
    }

    /// The sum over the lanes.
    #[inline(always)]
    fn sum(self, v: Self::F) -> f32 {
        let zero = self.splat(0.0);
        self.sum4([v, zero, zero, zero])[0]
    }

    /// The greatest lane, NaNs left out; minus infinity if there is no other.
    #[inline(always)]
    fn greatest(self, v: Self::F) -> f32 {
        let mut full = [f32::NEG_INFINITY; MAX_LANES];
        self.store(&mut full, v);
        full.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
}

/// Lanes of a vector, where the type is not at hand.
#[inline(always)]
pub(super) fn lanes<S: Simd>(_: S) -> usize {
    S::LANES
}

/// A kernel with its operands, to be compiled for each instruction set.
pub(super) trait Job {
    /// What it returns.
    type Out;
    /// The kernel. Implementations are `#[inline(always)]`, and so is every generic function that they call.
    fn run<S: Simd>(self, s: S) -> Self::Out;
}

/// Runs a kernel on an instruction set.
pub(super) fn dispatch<J: Job>(detected: Detected, job: J) -> J::Out {
    match detected.isa() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Detected` with this value exists only after the machine was found to have these features.
        Isa::Avx2 => unsafe { avx2::enter(job) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512 => unsafe { avx512::enter(job) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        Isa::Neon => unsafe { neon::enter(job) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        Isa::NeonDot => unsafe { neon::enter_dot(job) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        Isa::NeonMatrix => unsafe { neon::enter_matrix(job) },
        _ => job.run(scalar::Scalar),
    }
}
