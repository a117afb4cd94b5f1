//! Vectors of F32 values behind one interface, so that a kernel is written once and compiled for each
//! instruction set.
//!
//! A kernel is a [`Job`]: a structure with its operands and a generic function. [`dispatch`] calls that
//! function through a wrapper that is compiled with the features of the chosen instruction set. Every
//! function in between is `#[inline(always)]`, so that the intrinsics are compiled with these features too.
//! Closures in between must not contain vectors: they cannot be forced inline and would be compiled without
//! the features ([`map`] has macros for loops). The vector types are tokens: a value exists only after
//! [`Detected`] has proven that the machine supports the instructions.

use super::dot::int8::IntDot;
use super::isa::{Detected, Isa};
use crate::op::Activation;

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
pub(super) mod map;
pub(super) mod math;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
pub(super) mod scalar;

/// Maximum number of lanes over all instruction sets.
pub(super) const MAX_LANES: usize = 16;

/// Vector of F32 values. A slice that is shorter than a method requires is read as zeros and not written.
pub(super) trait Simd: IntDot {
    /// Vector register type.
    type F: Copy;
    /// Number of lanes; divides 32.
    const LANES: usize;
    /// True if there are 32 registers, false for 16 or fewer.
    const WIDE: bool;
    /// True for portable code, of which there is as little as possible: it runs where nothing else can.
    const PORTABLE: bool = false;

    /// Returns `x` in every lane.
    fn splat(self, x: f32) -> Self::F;
    /// Loads the first [`Simd::LANES`] elements.
    fn load(self, x: &[f32]) -> Self::F;
    /// Loads elements `at .. at + LANES`.
    ///
    /// # Safety
    /// The elements must be within `x`.
    unsafe fn load_at(self, x: &[f32], at: usize) -> Self::F;
    /// Writes the first [`Simd::LANES`] elements.
    fn store(self, x: &mut [f32], v: Self::F);
    /// Loads and converts the first [`Simd::LANES`] binary16 values (exactly).
    fn load_f16(self, x: &[u16]) -> Self::F;
    /// Writes binary16 values, rounded to nearest, ties to even.
    fn store_f16(self, x: &mut [u16], v: Self::F);
    /// Loads and converts the first [`Simd::LANES`] bfloat16 values (exactly).
    fn load_bf16(self, x: &[u16]) -> Self::F;
    /// Loads and converts the first [`Simd::LANES`] signed bytes.
    fn load_i8(self, x: &[i8]) -> Self::F;
    /// Writes signed bytes, rounded to nearest, ties to even; lanes must be in -127 ..= 127.
    fn store_i8(self, x: &mut [i8], v: Self::F);
    /// Returns one converted binary16 value in every lane.
    fn splat_f16(self, x: u16) -> Self::F;

    /// Prefetches the cache line `bytes` bytes after `x`. Any address is valid: nothing is read.
    #[inline(always)]
    fn prefetch<T>(self, x: &T, bytes: usize) {
        let _ = (x, bytes);
    }

    /// Returns `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// Returns `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// Returns `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// Returns `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// Returns `a * b + c`, rounded once where the instruction set supports it.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Returns the larger one; `b` if either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// Returns the smaller one; `b` if either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// Returns the magnitude.
    fn abs(self, a: Self::F) -> Self::F;
    /// Returns `a` with its sign flipped where `sign` is negative.
    fn flip(self, a: Self::F, sign: Self::F) -> Self::F;
    /// Rounds to the nearest integer, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// Returns `e^x` ([`math::exp`]).
    #[inline(always)]
    fn exp(self, x: Self::F) -> Self::F {
        math::exp_lanes(self, x)
    }
    /// Applies an activation function ([`math::activate`]).
    #[inline(always)]
    fn activate(self, activation: Activation, x: Self::F) -> Self::F {
        math::activate_lanes(self, activation, x)
    }
    /// Returns two to the power of an integer in -126 ..= 127.
    fn exp2i(self, n: Self::F) -> Self::F;
    /// Returns `x` where `a < b`, else `y`.
    fn select_lt(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F;
    /// Returns the sum over the lanes of each of four vectors, always added in the same order.
    fn sum4(self, v: [Self::F; 4]) -> [f32; 4];

    /// Loads `x.len()` lanes and zeros the others; `x` is shorter than a vector.
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

    /// Returns the sum over the lanes.
    #[inline(always)]
    fn sum(self, v: Self::F) -> f32 {
        let zero = self.splat(0.0);
        self.sum4([v, zero, zero, zero])[0]
    }

    /// Returns the largest lane, ignoring NaNs; minus infinity if all are NaN.
    #[inline(always)]
    fn greatest(self, v: Self::F) -> f32 {
        let mut full = [f32::NEG_INFINITY; MAX_LANES];
        self.store(&mut full, v);
        full.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
}

/// Returns the number of lanes, for code that cannot name the type.
#[inline(always)]
pub(super) fn lanes<S: Simd>(_: S) -> usize {
    S::LANES
}

/// A kernel with its operands, to be compiled for each instruction set.
pub(super) trait Job {
    /// Result type.
    type Out;
    /// Runs the kernel. Implementations, and every generic function that they call, are `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Out;
}

/// Runs a kernel on an instruction set.
pub(super) fn dispatch<J: Job>(detected: Detected, job: J) -> J::Out {
    match detected.isa() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Detected` with this value exists only after these features were detected on this
        // machine.
        Isa::Avx2 => unsafe { avx2::enter(job) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512 | Isa::Amx => unsafe { avx512::enter(job) },
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
