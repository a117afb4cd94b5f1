//! Layouts of quantised blocks.
//!
//! Blocks of every type have groups of 32 weights, and a weight is
//!
//! > `unit * scale[group] * half_scale[group][half] * number - minimum`
//!
//! with an F32 `unit` of the block, small integers as scales, and an 8-bit integer `number`, the quantised
//! value. `half` is 0 for the first 16 weights of a group and 1 for the others. Most types have only some of
//! these factors. Their product is exact in F32. (Scales of halves may also be floats with few bits.)
//!
//! A type is a structure with the layout of its blocks and a [`Quant`] implementation that locates the parts.
//! With an entry in [`with_quant`] it supports every operation.

use crate::dtype::DType;
use bytemuck::Pod;
use half::f16;

/// Implements [`Quant::unit`] for a unit that is stored as the bytes of a binary16 in a field.
macro_rules! half_unit {
    ($field:ident) => {
        #[inline(always)]
        fn unit(&self) -> u16 {
            u16::from_le_bytes(self.$field)
        }
    };
}

mod large;
mod points;
mod small;
mod ternary;

use large::{BlockIQ4XS, BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K};
use points::{BlockIQ1M, BlockIQ1S, BlockIQ2S, BlockIQ2XS, BlockIQ2XXS, BlockIQ3S, BlockIQ3XXS};
use small::{BlockIQ4NL, BlockMXFP4, BlockNVFP4, BlockQ4x1, BlockQ5x0, BlockQ5x1};
pub(in crate::cpu) use small::{BlockQ4, BlockQ8};
use ternary::{BlockQ1x0, BlockQ2x0, BlockTQ1, BlockTQ2};

/// Encoding of the 32 quantised values of a group.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) enum Group<'a> {
    /// Signed bytes.
    Bytes(&'a [i8; 32]),
    /// Nibbles, the first 16 values in the low ones.
    Nibbles(&'a [u8; 16]),
    /// Nibbles as in `Nibbles`, and a fifth bit for each value, the first in the lowest bit.
    Five(&'a [u8; 16], u32),
    /// Nibbles as in `Nibbles` that are indices into a table.
    Named([u8; 16], &'static [i8; 16]),
    /// Decoded bytes.
    Made([i8; 32]),
    /// Bit fields in two sequences of 32 bytes.
    Fields(Fields<'a>),
}

/// Bit fields of a group. A value is a field of a byte of `low`, with a field of a byte of `high` above it,
/// minus `excess`.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Fields<'a> {
    /// Bytes that contain the low bits.
    pub(in crate::cpu) low: &'a [u8; 32],
    /// Shift of the low field.
    pub(in crate::cpu) low_shift: u32,
    /// Width of the low field: 2 or 4.
    pub(in crate::cpu) low_bits: u32,
    /// Bytes that contain the high bits.
    pub(in crate::cpu) high: &'a [u8; 32],
    /// Shift of the high field.
    pub(in crate::cpu) high_shift: u32,
    /// Width of the high field: 0 (none), 1 or 2.
    pub(in crate::cpu) high_bits: u32,
    /// Value to subtract.
    pub(in crate::cpu) excess: i8,
}

impl<'a> Fields<'a> {
    /// Creates fields without high bits and excess.
    #[inline(always)]
    fn without_high(low: &'a [u8; 32], low_shift: u32, low_bits: u32) -> Fields<'a> {
        Fields { low, low_shift, low_bits, high: low, high_shift: 0, high_bits: 0, excess: 0 }
    }
}

/// Unsigned quantised values of eight groups.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only panels of AVX-512 use it"))]
pub(in crate::cpu) struct Pairs<'a> {
    /// Two groups in each 32 bytes, the first one in the low nibbles.
    pub(in crate::cpu) nibbles: &'a [[u8; 32]; 4],
    /// 32 bytes with a fifth bit of every group, the first group's in the lowest bit.
    pub(in crate::cpu) fifths: Option<&'a [u8; 32]>,
}

impl Group<'_> {
    /// Returns the quantised values as stored. The compiler vectorises these loops over bytes.
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

/// Encoding of [`Quant::unit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) enum Unit {
    /// Binary16.
    Half,
    /// Exponent of a power of two, plus 128.
    Power,
}

/// Returns a power of two from its exponent plus 128: 2^-128 (subnormal) to 2^127.
#[inline(always)]
pub(in crate::cpu) fn power(exponent: u8) -> f32 {
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (u32::from(exponent) - 1) << 23 })
}

/// A block of quantised weights.
pub(in crate::cpu) trait Quant: Pod + Send + Sync {
    /// Groups of 32 weights: 1, 2, 4 or 8.
    const GROUPS: usize = 1;
    /// Offset of the values of [`Quant::group`], which are then unsigned; `None` if the values are signed
    /// without an offset.
    const OFFSET: Option<i32> = None;
    /// Offset of the values as unsigned bytes.
    const BIAS: i32 = match Self::OFFSET {
        Some(offset) => offset,
        None => 128,
    };
    /// Encoding of the unit.
    const UNIT: Unit = Unit::Half;
    /// True if a block of one group begins with its unit, followed by the unit of its minimum if it has one.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only x86-64 loads units as words"))]
    const UNIT_LEADS: bool = false;
    /// Factor of the stored unit ([`Quant::unit`]), a power of two.
    const FRACTION: f32 = 1.0;
    /// True if halves of groups have scales; groups then have none.
    const HALVES: bool = false;
    /// True if the scales of halves are floats of at most eight bits instead of integers:
    /// [`Quant::half_floats`].
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only AVX2 code uses it"))]
    const FLOATS: bool = false;
    /// Number of minima of a group: none, one, or one for each half.
    const MINIMA: usize = 0;

    /// Returns the bits of the unit.
    fn unit(&self) -> u16;

    /// Returns the encoded values of a group.
    fn group(&self, g: usize) -> Group<'_>;

    /// Returns the values of all groups, for types with this layout.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only panels of AVX-512 use it"))]
    fn pairs(&self) -> Option<Pairs<'_>> {
        None
    }

    /// Returns the scales of the groups.
    #[inline(always)]
    fn scales(&self) -> [i8; 8] {
        [1; 8]
    }

    /// Returns the scales of the halves of the groups.
    #[inline(always)]
    fn half_scales(&self) -> [[i8; 2]; 8] {
        [[1; 2]; 8]
    }

    /// Returns the scales of the halves as floats.
    #[inline(always)]
    fn half_floats(&self) -> [[f32; 2]; 8] {
        self.half_scales().map(|[first, last]| [f32::from(first), f32::from(last)])
    }

    /// Returns the bits of a binary16: the negated unit of the minima, so that minima can be added.
    #[inline(always)]
    fn negative_unit(&self) -> u16 {
        0
    }

    /// Returns the minima of the groups (of their first or last halves if there are two).
    #[inline(always)]
    fn minima(&self, _half: usize) -> [i8; 8] {
        [1; 8]
    }

    /// Returns the unit as a float.
    #[inline(always)]
    fn unit_f32(&self) -> f32 {
        match Self::UNIT {
            Unit::Half => f16::from_bits(self.unit()).to_f32_const() * Self::FRACTION,
            Unit::Power => power(self.unit() as u8),
        }
    }
}

/// Generic operation on a type of quantised weights that is known only at run time.
pub(in crate::cpu) trait ForQuant {
    /// Result type.
    type Out;
    /// Runs the operation for a type.
    fn call<Q: Quant>(self) -> Self::Out;
}

/// Calls `f` for the type; `None` if it has no blocks or is unknown.
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
