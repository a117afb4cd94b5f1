//! Block types with 1 to 2 bits for each value and one scale.

use super::large::pairs;
use super::{Fields, Group, Quant};
use bytemuck::{Pod, Zeroable};

/// TQ1_0: bytes of five base-3 digits, as fractions in 256ths; bytes of four digits; unit. Values have offset
/// 1.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockTQ1 {
    fives: [u8; 48],
    fours: [u8; 4],
    unit: [u8; 2],
}

impl BlockTQ1 {
    /// Returns the bytes of 16 values and the index of the digit in each.
    #[inline(always)]
    fn sixteen(&self, n: usize) -> ([u8; 16], [u8; 16]) {
        let fives: &[[u8; 16]; 3] = bytemuck::cast_ref(&self.fives);
        let [a, b, c, d] = self.fours;
        match n {
            // 32 values share a digit position of 32 bytes, then 16 one of 16 bytes, then 4 one of 4 bytes.
            0..10 => (fives[n % 2], [n as u8 / 2; 16]),
            10..15 => (fives[2], [n as u8 - 10; 16]),
            _ => ([a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d], std::array::from_fn(|i| i as u8 / 4)),
        }
    }
}

impl Quant for BlockTQ1 {
    const GROUPS: usize = 8;
    const OFFSET: Option<i32> = Some(1);

    half_unit!(unit);

    /// Extracts digits: the fraction that remains after the higher digits, times 3, has the digit as its
    /// integer part.
    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        const WEIGHTS: [u8; 5] = [1, 3, 9, 27, 81];
        let digits = |n: usize| -> [i8; 16] {
            let (bytes, digits) = self.sixteen(n);
            let weights = digits.map(|d| WEIGHTS[usize::from(d)]);
            std::array::from_fn(|i| ((u16::from(bytes[i].wrapping_mul(weights[i])) * 3) >> 8) as i8)
        };
        Group::Made(bytemuck::cast([digits(2 * g), digits(2 * g + 1)]))
    }
}

/// TQ2_0: bit pairs, unit. Values have offset 1.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockTQ2 {
    q: [u8; 64],
    unit: [u8; 2],
}

impl Quant for BlockTQ2 {
    const GROUPS: usize = 8;
    const OFFSET: Option<i32> = Some(1);

    half_unit!(unit);

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        let (low, low_shift) = pairs(&self.q, g);
        Group::Fields(Fields::without_high(low, low_shift, 2))
    }
}

/// Q1_0: unit, a bit for each value, the first in the lowest bit: 1 if set, else -1.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockQ1x0 {
    unit: [u8; 2],
    q: [[u8; 4]; 4],
}

impl Quant for BlockQ1x0 {
    const GROUPS: usize = 4;

    half_unit!(unit);

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        let bytes = self.q[g % 4];
        Group::Made(std::array::from_fn(|i| (bytes[i / 8] >> (i % 8) & 1) as i8 * 2 - 1))
    }
}

/// Q2_0: unit, a bit pair for each value, the first in the lowest bits. Values have offset 1.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockQ2x0 {
    unit: [u8; 2],
    q: [[u8; 8]; 2],
}

impl Quant for BlockQ2x0 {
    const GROUPS: usize = 2;
    const OFFSET: Option<i32> = Some(1);

    half_unit!(unit);

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        let bytes = self.q[g % 2];
        Group::Made(std::array::from_fn(|i| (bytes[i / 4] >> (2 * (i % 4)) & 3) as i8))
    }
}
