//! Blocks of quantised weights, taken apart.
//!
//! Whatever the type, a block has groups of 32 weights, and a weight is
//!
//! > `unit * scale[group] * half_scale[group][half] * number - minimum`
//!
//! with an F32 `unit` of the block, small whole numbers for the scales, and whole numbers of a byte; `half` is 0 for
//! the first 16 of a group and 1 for the last. Most types have only some of these factors. All of them together are
//! exact in F32. (Scales of halves may be floats of few bits, too.)
//!
//! A type is a structure with the layout of its blocks and a [`Quant`] that says where the parts are; with an entry in
//! [`with_quant`] it has every operation.

use crate::cpu::simd::Simd;
use crate::dtype::DType;
use bytemuck::Pod;
use half::f16;

mod large;
mod points;
mod small;
mod ternary;

use large::{BlockIQ4XS, BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K};
use points::{BlockIQ1M, BlockIQ1S, BlockIQ2S, BlockIQ2XS, BlockIQ2XXS, BlockIQ3S, BlockIQ3XXS};
use small::{BlockIQ4NL, BlockMXFP4, BlockNVFP4, BlockQ4x1, BlockQ5x0, BlockQ5x1};
pub(in crate::cpu) use small::{BlockQ4, BlockQ8};
use ternary::{BlockQ1x0, BlockQ2x0, BlockTQ1, BlockTQ2};

/// Bits of the numbers of a group, 32 of them.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) enum Group<'a> {
    /// Signed bytes.
    Bytes(&'a [i8; 32]),
    /// Nibbles, the first 16 numbers in the low ones.
    Nibbles(&'a [u8; 16]),
    /// The same, and a fifth bit for each number, the first in the lowest.
    Five(&'a [u8; 16], u32),
    /// Nibbles as before that are places in a table.
    Named([u8; 16], &'static [i8; 16]),
    /// Bytes that are made from others.
    Made([i8; 32]),
    /// Fields of two sequences of 32 bytes.
    Fields(Fields<'a>),
}

/// A number is a field of a byte of `low`, and above it a field of a byte of `high`, less `excess`.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Fields<'a> {
    /// Bytes with the low bits.
    pub(in crate::cpu) low: &'a [u8; 32],
    /// Position of the field in them.
    pub(in crate::cpu) low_shift: u32,
    /// Its width: 2 or 4.
    pub(in crate::cpu) low_bits: u32,
    /// Bytes with the high bits.
    pub(in crate::cpu) high: &'a [u8; 32],
    /// Position of the field in them.
    pub(in crate::cpu) high_shift: u32,
    /// Its width: 0 (there are none), 1 or 2.
    pub(in crate::cpu) high_bits: u32,
    /// What is taken off.
    pub(in crate::cpu) excess: i8,
}

/// Unsigned numbers of eight groups.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "panels of AVX-512 alone ask"))]
pub(in crate::cpu) struct Pairs<'a> {
    /// Two groups in each 32 bytes, the first of both in the low nibbles.
    pub(in crate::cpu) nibbles: &'a [[u8; 32]; 4],
    /// 32 bytes with a fifth bit of every group, the first group's lowest.
    pub(in crate::cpu) fifths: Option<&'a [u8; 32]>,
}

impl Group<'_> {
    /// The numbers, as large as they are stored. Loops over bytes that the compiler turns into vectors.
    #[inline(always)]
    pub(in crate::cpu) fn numbers(self) -> [i8; 32] {
        let nibble = |q: &[u8; 16], i: usize| if i < 16 { q[i] & 15 } else { q[i - 16] >> 4 };
        match self {
            Group::Bytes(q) => *q,
            Group::Nibbles(q) => std::array::from_fn(|i| nibble(q, i) as i8),
            Group::Five(q, high) => {
                std::array::from_fn(|i| (nibble(q, i) | ((high >> i & 1) as u8) << 4) as i8)
            }
            Group::Named(q, table) => std::array::from_fn(|i| table[usize::from(nibble(&q, i))]),
            Group::Made(q) => q,
            Group::Fields(f) => {
                let field = |byte: u8, shift, bits: u32| byte >> shift & ((1 << bits) - 1);
                std::array::from_fn(|i| {
                    let high = field(f.high[i], f.high_shift, f.high_bits);
                    (field(f.low[i], f.low_shift, f.low_bits) | high << f.low_bits) as i8 - f.excess
                })
            }
        }
    }
}

/// What the bits of [`Quant::unit`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) enum Unit {
    /// A binary16.
    Half,
    /// The exponent of a power of two, 128 too large.
    Power,
}

/// A power of two by its exponent, 128 too large: 2^-128, which is subnormal, to 2^127.
#[inline(always)]
pub(in crate::cpu) fn power(exponent: u8) -> f32 {
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (u32::from(exponent) - 1) << 23 })
}

/// A block of quantised weights.
pub(in crate::cpu) trait Quant: Pod + Send + Sync {
    /// Groups of 32: 1, 2, 4 or 8.
    const GROUPS: usize = 1;
    /// How much larger than they should be the numbers of [`Quant::group`] are, which then are unsigned; `None` if they are
    /// right, and signed.
    const OFFSET: Option<i32> = None;
    /// How much larger than they should be the numbers are as unsigned bytes.
    const BIAS: i32 = match Self::OFFSET {
        Some(offset) => offset,
        None => 128,
    };
    /// What the unit is.
    const UNIT: Unit = Unit::Half;
    /// What the unit is of the number that [`Quant::unit`] says: a power of two.
    const FRACTION: f32 = 1.0;
    /// Whether halves of groups have scales of their own; the groups have none then.
    const HALVES: bool = false;
    /// Whether these are no whole numbers, but floats of at most eight bits: [`Quant::half_floats`].
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "the AVX2 path alone asks"))]
    const FLOATS: bool = false;
    /// Minima of a group: none, one, or one for each half.
    const MINIMA: usize = 0;

    /// Bits of the unit.
    fn unit(&self) -> u16;

    /// The numbers of a group.
    fn group(&self, g: usize) -> Group<'_>;

    /// The numbers of all groups, of types that have them so.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "panels of AVX-512 alone ask"))]
    fn pairs(&self) -> Option<Pairs<'_>> {
        None
    }

    /// Scales of the groups.
    #[inline(always)]
    fn scales(&self) -> [i8; 8] {
        [1; 8]
    }

    /// Scales of the halves of the groups.
    #[inline(always)]
    fn half_scales(&self) -> [[i8; 2]; 8] {
        [[1; 2]; 8]
    }

    /// The same as floats.
    #[inline(always)]
    fn half_floats(&self) -> [[f32; 2]; 8] {
        self.half_scales().map(|[first, last]| [f32::from(first), f32::from(last)])
    }

    /// Bits of a binary16: the unit of the minima with the other sign, as they are added.
    #[inline(always)]
    fn negative_unit(&self) -> u16 {
        0
    }

    /// Minima of the groups (if there are two, of their first or last halves).
    #[inline(always)]
    fn minima(&self, _half: usize) -> [i8; 8] {
        [1; 8]
    }

    /// The unit as a number.
    #[inline(always)]
    fn unit_f32(&self) -> f32 {
        match Self::UNIT {
            Unit::Half => f16::from_bits(self.unit()).to_f32_const() * Self::FRACTION,
            Unit::Power => power(self.unit() as u8),
        }
    }

    /// The unit in every lane.
    #[inline(always)]
    fn splat_unit<S: Simd>(&self, s: S) -> S::F {
        match Self::UNIT {
            Unit::Half if Self::FRACTION != 1.0 => s.mul(s.splat_f16(self.unit()), s.splat(Self::FRACTION)),
            Unit::Half => s.splat_f16(self.unit()),
            Unit::Power => s.splat(self.unit_f32()),
        }
    }
}

/// Does something for a type of quantised weights that is known when the program runs.
pub(in crate::cpu) trait ForQuant {
    /// What comes out.
    type Out;
    /// Does it.
    fn call<Q: Quant>(self) -> Self::Out;
}

/// Calls `f` for the type; `None` if it has no blocks, or unknown ones.
pub(in crate::cpu) fn with_quant<F: ForQuant>(dtype: DType, f: F) -> Option<F::Out> {
    Some(match dtype {
        DType::Q8_0 => f.call::<BlockQ8>(),
        DType::Q4_0 => f.call::<BlockQ4>(),
        DType::Q4_1 => f.call::<BlockQ4x1>(),
        DType::Q5_0 => f.call::<BlockQ5x0>(),
        DType::Q5_1 => f.call::<BlockQ5x1>(),
        DType::Q2_K => f.call::<BlockQ2K>(),
        DType::Q3_K => f.call::<BlockQ3K>(),
        DType::Q4_K => f.call::<BlockQ4K>(),
        DType::Q5_K => f.call::<BlockQ5K>(),
        DType::Q6_K => f.call::<BlockQ6K>(),
        DType::IQ4_NL => f.call::<BlockIQ4NL>(),
        DType::IQ4_XS => f.call::<BlockIQ4XS>(),
        DType::MXFP4 => f.call::<BlockMXFP4>(),
        DType::NVFP4 => f.call::<BlockNVFP4>(),
        DType::IQ2_XXS => f.call::<BlockIQ2XXS>(),
        DType::IQ2_XS => f.call::<BlockIQ2XS>(),
        DType::IQ2_S => f.call::<BlockIQ2S>(),
        DType::IQ3_XXS => f.call::<BlockIQ3XXS>(),
        DType::IQ3_S => f.call::<BlockIQ3S>(),
        DType::IQ1_S => f.call::<BlockIQ1S>(),
        DType::IQ1_M => f.call::<BlockIQ1M>(),
        DType::TQ1_0 => f.call::<BlockTQ1>(),
        DType::TQ2_0 => f.call::<BlockTQ2>(),
        DType::Q1_0 => f.call::<BlockQ1x0>(),
        DType::Q2_0 => f.call::<BlockQ2x0>(),
        _ => return None,
    })
}
