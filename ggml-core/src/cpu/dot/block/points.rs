//! Block types whose codes are indices of grid points ([`crate::grids`]): IQ1, IQ2, IQ3.
//!
//! Eight values at a time are the bytes of a 64-bit word, so that spreading codes and applying signs take a
//! few instructions.

use super::{Group, Quant};
use crate::grids;
use bytemuck::{Pod, Zeroable};

/// The value 1 in every byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Spreads eight codes of two bits, one in each byte.
#[inline(always)]
fn spread8(point: u16) -> u64 {
    let x = u64::from(point);
    let x = (x | x << 24) & 0x0000_00ff_0000_00ff;
    let x = (x | x << 12) & 0x000f_000f_000f_000f;
    (x | x << 6) & (3 * ONES)
}

/// Spreads four codes of four bits, one in each byte.
#[inline(always)]
fn spread4(point: u16) -> u64 {
    let x = u64::from(point);
    let x = (x | x << 8) & 0x00ff_00ff;
    (x | x << 4) & 0x0f0f_0f0f
}

/// Returns the magnitudes of IQ2: 8, 25 and 43. No byte overflows here or below.
#[inline(always)]
fn magnitudes2(point: u16) -> u64 {
    let c = spread8(point);
    8 * ONES + 17 * c + (c >> 1 & ONES)
}

/// Returns the magnitudes of two points of IQ3_XXS: 4, 12, 20 .. 52, 62.
#[inline(always)]
fn magnitudes3_xxs(points: [u16; 2]) -> u64 {
    let c = spread4(points[0]) | spread4(points[1]) << 32;
    4 * ONES + 8 * c + 2 * ((c + ONES) >> 3 & ONES)
}

/// Returns the magnitudes of two points of IQ3_S: 1, 3 .. 15.
#[inline(always)]
fn magnitudes3_s(points: [u16; 2]) -> u64 {
    ONES + 2 * (spread4(points[0]) | spread4(points[1]) << 32)
}

/// Negates each non-zero byte whose sign bit is set; the first byte has the lowest bit.
#[inline(always)]
fn signed(magnitudes: u64, signs: u8) -> [i8; 8] {
    let own = (u64::from(signs) * ONES) & 0x8040_2010_0804_0201;
    let negative = (own + 127 * ONES) >> 7 & ONES;
    // Two's complement: adding 1 to the complement does not carry, because no byte is 0.
    bytemuck::cast((magnitudes ^ (negative * 255)).wrapping_add(negative).to_le_bytes())
}

/// Returns eight signs from seven: the number of set signs is even.
#[inline(always)]
fn even(seven: u32) -> u8 {
    (seven & 127 | (seven & 127).count_ones() << 7) as u8
}

/// Returns a group from four times eight values.
#[inline(always)]
fn made(eights: [[i8; 8]; 4]) -> Group<'static> {
    Group::Made(bytemuck::cast(eights))
}

/// Returns `2 s + 1` for a nibble.
#[inline(always)]
fn odd(s: u8) -> i8 {
    (2 * (s & 15) + 1) as i8
}

/// Returns the scales of halves from the nibbles of eight bytes.
#[inline(always)]
fn odd_halves(bytes: [u8; 8]) -> [[i8; 2]; 8] {
    bytes.map(|byte| [odd(byte), odd(byte >> 4)])
}

/// IQ2_XXS: unit; for each group four indices and a word with four times seven signs and a scale.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockIQ2XXS {
    unit: [u8; 2],
    q: [[[u8; 4]; 2]; 8],
}

impl Quant for BlockIQ2XXS {
    const GROUPS: usize = 8;
    const FRACTION: f32 = 0.125;

    half_unit!(unit);

    #[inline(always)]
    fn scales(&self) -> [i8; 8] {
        self.q.map(|[_, word]| odd(word[3] >> 4))
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        let [indices, word] = self.q[g % 8];
        let word = u32::from_le_bytes(word);
        made(std::array::from_fn(|n| {
            signed(magnitudes2(grids::IQ2_XXS[usize::from(indices[n])]), even(word >> (7 * n)))
        }))
    }
}

/// IQ2_XS: unit; for each eight values nine bits of index and seven signs; scales of halves.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockIQ2XS {
    unit: [u8; 2],
    q: [[[u8; 2]; 4]; 8],
    scales: [u8; 8],
}

impl Quant for BlockIQ2XS {
    const GROUPS: usize = 8;
    const FRACTION: f32 = 0.125;
    const HALVES: bool = true;

    half_unit!(unit);

    #[inline(always)]
    fn half_scales(&self) -> [[i8; 2]; 8] {
        odd_halves(self.scales)
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        made(self.q[g % 8].map(|word| {
            let word = u16::from_le_bytes(word);
            signed(magnitudes2(grids::IQ2_XS[usize::from(word & 511)]), even(u32::from(word >> 9)))
        }))
    }
}

/// IQ2_S: unit, low bytes of indices, signs, two high bits of indices, scales of halves.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockIQ2S {
    unit: [u8; 2],
    q: [[u8; 4]; 8],
    signs: [[u8; 4]; 8],
    high: [u8; 8],
    scales: [u8; 8],
}

impl Quant for BlockIQ2S {
    const GROUPS: usize = 8;
    const FRACTION: f32 = 0.125;
    const HALVES: bool = true;

    half_unit!(unit);

    #[inline(always)]
    fn half_scales(&self) -> [[i8; 2]; 8] {
        odd_halves(self.scales)
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        let (low, signs, high) = (self.q[g % 8], self.signs[g % 8], usize::from(self.high[g % 8]));
        made(std::array::from_fn(|n| {
            let index = usize::from(low[n]) | (high >> (2 * n) & 3) << 8;
            signed(magnitudes2(grids::IQ2_S[index]), signs[n])
        }))
    }
}

/// IQ3_XXS: unit, eight indices for each group, words as in IQ2_XXS.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockIQ3XXS {
    unit: [u8; 2],
    q: [[[u8; 2]; 4]; 8],
    words: [[u8; 4]; 8],
}

impl Quant for BlockIQ3XXS {
    const GROUPS: usize = 8;
    const FRACTION: f32 = 0.25;

    half_unit!(unit);

    #[inline(always)]
    fn scales(&self) -> [i8; 8] {
        self.words.map(|word| odd(word[3] >> 4))
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        let (q, word) = (self.q[g % 8], u32::from_le_bytes(self.words[g % 8]));
        made(std::array::from_fn(|n| {
            let points = q[n].map(|index| grids::IQ3_XXS[usize::from(index)]);
            signed(magnitudes3_xxs(points), even(word >> (7 * n)))
        }))
    }
}

/// IQ3_S: unit, low bytes of eight indices for each group, their ninth bits, signs, scales.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockIQ3S {
    unit: [u8; 2],
    q: [[u8; 8]; 8],
    high: [u8; 8],
    signs: [[u8; 4]; 8],
    scales: [u8; 4],
}

impl Quant for BlockIQ3S {
    const GROUPS: usize = 8;

    half_unit!(unit);

    #[inline(always)]
    fn scales(&self) -> [i8; 8] {
        std::array::from_fn(|g| odd(self.scales[g / 2] >> (4 * (g % 2))))
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        let (low, signs, high) = (self.q[g % 8], self.signs[g % 8], usize::from(self.high[g % 8]));
        let point = |n: usize| grids::IQ3_S[usize::from(low[n]) | (high >> n & 1) << 8];
        made(std::array::from_fn(|n| signed(magnitudes3_s([point(2 * n), point(2 * n + 1)]), signs[n])))
    }
}

/// Returns eight times the values of IQ1: -8, 0, 8, plus or minus 1.
#[inline(always)]
fn shifted(index: usize, less: bool) -> [i8; 8] {
    let numbers: [i8; 8] = bytemuck::cast((8 * spread8(grids::IQ1[index & 2047])).to_le_bytes());
    numbers.map(|number| number - if less { 9 } else { 7 })
}

/// IQ1_S: unit, low bytes of indices; for each group a word with their high bits, the scale and the shift.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockIQ1S {
    unit: [u8; 2],
    q: [[u8; 4]; 8],
    words: [[u8; 2]; 8],
}

impl Quant for BlockIQ1S {
    const GROUPS: usize = 8;
    const FRACTION: f32 = 0.125;

    half_unit!(unit);

    #[inline(always)]
    fn scales(&self) -> [i8; 8] {
        self.words.map(|word| odd(word[1] >> 4 & 7))
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        let (low, word) = (self.q[g % 8], usize::from(u16::from_le_bytes(self.words[g % 8])));
        made(std::array::from_fn(|n| {
            shifted(usize::from(low[n]) | (word >> (3 * n) & 7) << 8, word >> 15 == 1)
        }))
    }
}

/// IQ1_M: low bytes of indices; nibbles with their high bits and the shift; words with four scales of halves
/// and a nibble of the unit on top.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockIQ1M {
    q: [[u8; 4]; 8],
    high: [[u8; 2]; 8],
    words: [[u8; 2]; 4],
}

impl Quant for BlockIQ1M {
    const GROUPS: usize = 8;
    const FRACTION: f32 = 0.125;
    const HALVES: bool = true;

    #[inline(always)]
    fn unit(&self) -> u16 {
        let [a, b, c, d] = self.words.map(|word| u16::from_le_bytes(word) >> 12);
        a | b << 4 | c << 8 | d << 12
    }

    #[inline(always)]
    fn half_scales(&self) -> [[i8; 2]; 8] {
        std::array::from_fn(|g| {
            let word = u16::from_le_bytes(self.words[g / 2]) >> (6 * (g % 2));
            [odd(word as u8 & 7), odd((word >> 3) as u8 & 7)]
        })
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        let (low, high) = (self.q[g % 8], usize::from(u16::from_le_bytes(self.high[g % 8])));
        made(std::array::from_fn(|n| {
            let nibble = high >> (4 * n);
            shifted(usize::from(low[n]) | (nibble & 7) << 8, nibble & 8 != 0)
        }))
    }
}
