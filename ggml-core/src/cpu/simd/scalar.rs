//! Portable vectors: arrays of eight floats. The compiler vectorises them with SSE2 or the target's default
//! features.
//!
//! Long functions are not inlined: lanes are unrolled, and this code is in every program.

use super::{Simd, math};
use crate::op::Activation;
use half::f16;

const LANES: usize = 8;

/// 1.5 * 2^23: adding it to a float pushes the fraction out of the mantissa, so that the lowest bit has
/// weight 1.
const PUSH: f32 = 12_582_912.0;

/// Token for eight floats in an array.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Scalar;

/// Builds a vector lane by lane.
#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; LANES] {
    std::array::from_fn(f)
}

/// Converts the first lanes of a slice; zeros if it is too short.
#[inline(always)]
fn convert<T: Copy>(x: &[T], f: impl Fn(T) -> f32) -> [f32; LANES] {
    debug_assert!(x.len() >= LANES);
    x.first_chunk::<LANES>().map_or([0.0; LANES], |x| x.map(f))
}

/// Converts a binary16 value without branches, so that the compiler vectorises it. The exponent moves by a
/// multiplication, which is exact and normalises subnormal values.
#[inline(always)]
fn widen_f16(bits: u16) -> f32 {
    const INFINITE: u32 = 0x0f80_0000;
    const QUIET: u32 = 0x0040_0000;
    let shifted = u32::from(bits & 0x7fff) << 13;
    let finite = (f32::from_bits(shifted) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = shifted | 0x7f80_0000 | if shifted > INFINITE { QUIET } else { 0 };
    let magnitude = if shifted >= INFINITE { special } else { finite };
    f32::from_bits(magnitude | u32::from(bits & 0x8000) << 16)
}

/// Converts to binary16, rounded to nearest, ties to even.
#[inline(never)]
fn narrow_f16(x: f32) -> u16 {
    f16::from_f32_const(x).to_bits()
}

/// [`math::exp_lanes`].
#[inline(never)]
fn exp(x: &[f32; LANES]) -> [f32; LANES] {
    math::exp_lanes(Scalar, *x)
}

/// [`math::activate_lanes`].
#[inline(never)]
fn activate(activation: Activation, x: &[f32; LANES]) -> [f32; LANES] {
    math::activate_lanes(Scalar, activation, *x)
}

impl Simd for Scalar {
    type F = [f32; LANES];
    const LANES: usize = LANES;
    const WIDE: bool = false;
    const PORTABLE: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> Self::F {
        convert(x, |v| v)
    }

    #[inline(always)]
    unsafe fn load_at(self, x: &[f32], at: usize) -> Self::F {
        convert(x.get(at..).unwrap_or_default(), |v| v)
    }

    #[inline(always)]
    fn store(self, x: &mut [f32], v: Self::F) {
        if let Some(to) = x.first_chunk_mut::<LANES>() {
            *to = v;
        }
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16]) -> Self::F {
        convert(x, widen_f16)
    }

    #[inline(always)]
    fn store_f16(self, x: &mut [u16], v: Self::F) {
        if let Some(to) = x.first_chunk_mut::<LANES>() {
            *to = v.map(narrow_f16);
        }
    }

    #[inline(always)]
    fn load_bf16(self, x: &[u16]) -> Self::F {
        convert(x, |v| f32::from_bits(u32::from(v) << 16))
    }

    #[inline(always)]
    fn load_i8(self, x: &[i8]) -> Self::F {
        convert(x, f32::from)
    }

    #[inline(always)]
    fn store_i8(self, x: &mut [i8], v: Self::F) {
        if let Some(to) = x.first_chunk_mut::<LANES>() {
            *to = self.round(v).map(|v| v as i8);
        }
    }

    #[inline(always)]
    fn splat_f16(self, x: u16) -> Self::F {
        [widen_f16(x); LANES]
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // Two roundings: without the instruction, a fused operation is a library call.
        each(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        each(|i| a[i].abs())
    }

    #[inline(always)]
    fn flip(self, a: Self::F, sign: Self::F) -> Self::F {
        each(|i| f32::from_bits(a[i].to_bits() ^ (sign[i].to_bits() & 0x8000_0000)))
    }

    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        // Kernels round small values only.
        each(|i| if a[i].abs() < 4_194_304.0 { (a[i] + PUSH) - PUSH } else { a[i] })
    }

    #[inline(always)]
    fn exp(self, x: Self::F) -> Self::F {
        exp(&x)
    }

    #[inline(always)]
    fn activate(self, activation: Activation, x: Self::F) -> Self::F {
        activate(activation, &x)
    }

    #[inline(always)]
    fn exp2i(self, n: Self::F) -> Self::F {
        // The lowest bits of the sum are the exponent. (A conversion would check the range in each lane.)
        each(|i| f32::from_bits((n[i] + (PUSH + 127.0)).to_bits() << 23))
    }

    #[inline(always)]
    fn select_lt(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F {
        each(|i| if a[i] < b[i] { x[i] } else { y[i] })
    }

    #[inline(always)]
    fn sum4(self, v: [Self::F; 4]) -> [f32; 4] {
        v.map(|v| ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])))
    }
}

#[cfg(test)]
mod tests {
    use super::widen_f16;
    use half::f16;

    #[test]
    fn every_binary16_value_is_widened_as_the_standard_says() {
        for bits in 0..=u16::MAX {
            let expected = f16::from_bits(bits).to_f32_const().to_bits();
            assert_eq!(widen_f16(bits).to_bits(), expected, "{bits:#06x}");
        }
    }
}
