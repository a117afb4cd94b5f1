//! Block types with eight groups that have their own scales.

use super::small::NONLINEAR;
use super::{Fields, Group, Pairs, Quant};
use bytemuck::{Pod, Zeroable};

/// Sign bit of a binary16.
const SIGN: u16 = 0x8000;

/// Returns the `n`th 32 bytes.
#[inline(always)]
fn bytes32(bytes: &[u8], n: usize) -> &[u8; 32] {
    &bytes.as_chunks().0[n]
}

/// Returns the bytes and the shift of group `g` in the bit pair order of Q2_K, Q3_K and Q6_K: group `4 m + n`
/// is in bits `2 n` and up of the `m`th 32 bytes.
#[inline(always)]
pub(super) fn pairs(bytes: &[u8; 64], g: usize) -> (&[u8; 32], u32) {
    (bytes32(bytes, g / 4 % 2), 2 * (g as u32 % 4))
}

/// Q2_K: scale and minimum of each half group in the nibbles of a byte, bit pairs, units of scales and
/// minima.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockQ2K {
    scales: [u8; 16],
    q: [u8; 64],
    unit: [u8; 2],
    minimum: [u8; 2],
}

impl Quant for BlockQ2K {
    const GROUPS: usize = 8;
    const OFFSET: Option<i32> = Some(0);
    const HALVES: bool = true;
    const MINIMA: usize = 2;

    half_unit!(unit);

    #[inline(always)]
    fn negative_unit(&self) -> u16 {
        u16::from_le_bytes(self.minimum) ^ SIGN
    }

    #[inline(always)]
    fn half_scales(&self) -> [[i8; 2]; 8] {
        bytemuck::cast(self.scales.map(|s| s & 15))
    }

    #[inline(always)]
    fn minima(&self, half: usize) -> [i8; 8] {
        std::array::from_fn(|g| (self.scales[2 * g + half % 2] >> 4) as i8)
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        let (low, low_shift) = pairs(&self.q, g);
        Group::Fields(Fields::without_high(low, low_shift, 2))
    }
}

/// Q3_K: third bits (those of group `n` in bit `n` of 32 bytes), bit pairs, 16 scales of 6 bits with offset
/// 32, unit. Quantised values have offset 4.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockQ3K {
    high: [u8; 32],
    q: [u8; 64],
    scales: [u8; 12],
    unit: [u8; 2],
}

impl Quant for BlockQ3K {
    const GROUPS: usize = 8;
    const HALVES: bool = true;

    half_unit!(unit);

    /// Unpacks the scales: four low bits in the nibbles of the first eight bytes, all low nibbles first; two
    /// high bits of each in the last four bytes.
    #[inline(always)]
    fn half_scales(&self) -> [[i8; 2]; 8] {
        let [a, b, high]: [u32; 3] = bytemuck::pod_read_unaligned(&self.scales);
        let fours = [(a, 0), (b, 0), (a, 4), (b, 4)];
        let mut scales = [0u32; 4];
        for (n, (scales, (low, shift))) in scales.iter_mut().zip(fours).enumerate() {
            *scales = (low >> shift & 0x0f0f_0f0f) | (high >> (2 * n) & 0x0303_0303) << 4;
        }
        let scales: [u8; 16] = bytemuck::cast(scales);
        bytemuck::cast(scales.map(|s| s as i8 - 32))
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        let (low, low_shift) = pairs(&self.q, g);
        let (high, high_shift) = (&self.high, g as u32 % 8);
        Group::Fields(Fields { low, low_shift, low_bits: 2, high, high_shift, high_bits: 1, excess: 4 })
    }
}

/// Eight scales and eight minima of 6 bits in the three words of Q4_K and Q5_K.
#[derive(Clone, Copy)]
struct Sixes([u32; 3]);

impl Sixes {
    /// Returns the scales (`which` = 0) or minima (1). Those of groups 0 to 3 are the low bits of the first
    /// two words. The others have four bits in the nibbles of the last word and two bits in the high bits of
    /// the first two words.
    #[inline(always)]
    fn eight(self, which: usize) -> [i8; 8] {
        let (word, low) = (self.0[which], self.0[2] >> (4 * which));
        bytemuck::cast([word & 0x3f3f_3f3f, (low & 0x0f0f_0f0f) | (word >> 2 & 0x3030_3030)])
    }
}

/// Implements the scales and minima of Q4_K and Q5_K.
macro_rules! six_bit_scales {
    () => {
        #[inline(always)]
        fn negative_unit(&self) -> u16 {
            u16::from_le_bytes(self.minimum) ^ SIGN
        }

        #[inline(always)]
        fn scales(&self) -> [i8; 8] {
            Sixes(bytemuck::pod_read_unaligned(&self.scales)).eight(0)
        }

        #[inline(always)]
        fn minima(&self, _: usize) -> [i8; 8] {
            Sixes(bytemuck::pod_read_unaligned(&self.scales)).eight(1)
        }
    };
}

/// Returns the bytes and the shift of group `g` in the nibble order of Q4_K and Q5_K: two groups share 32
/// bytes.
#[inline(always)]
fn nibbles(bytes: &[u8; 128], g: usize) -> (&[u8; 32], u32) {
    (bytes32(bytes, g / 2 % 4), 4 * (g as u32 % 2))
}

/// Q4_K: units of scales and minima, scales and minima, nibbles.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockQ4K {
    unit: [u8; 2],
    minimum: [u8; 2],
    scales: [u8; 12],
    q: [u8; 128],
}

impl Quant for BlockQ4K {
    const GROUPS: usize = 8;
    const OFFSET: Option<i32> = Some(0);
    const MINIMA: usize = 1;

    half_unit!(unit);

    six_bit_scales!();

    #[inline(always)]
    fn pairs(&self) -> Option<Pairs<'_>> {
        Some(Pairs { nibbles: bytemuck::cast_ref(&self.q), fifths: None })
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        let (low, low_shift) = nibbles(&self.q, g);
        Group::Fields(Fields::without_high(low, low_shift, 4))
    }
}

/// Q5_K: as Q4_K, with fifth bits (those of group `n` in bit `n` of 32 bytes) before the nibbles.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockQ5K {
    unit: [u8; 2],
    minimum: [u8; 2],
    scales: [u8; 12],
    high: [u8; 32],
    q: [u8; 128],
}

impl Quant for BlockQ5K {
    const GROUPS: usize = 8;
    const OFFSET: Option<i32> = Some(0);
    const MINIMA: usize = 1;

    half_unit!(unit);

    six_bit_scales!();

    #[inline(always)]
    fn pairs(&self) -> Option<Pairs<'_>> {
        Some(Pairs { nibbles: bytemuck::cast_ref(&self.q), fifths: Some(&self.high) })
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        let (low, low_shift) = nibbles(&self.q, g);
        let (high, high_shift) = (&self.high, g as u32 % 8);
        Group::Fields(Fields { low, low_shift, low_bits: 4, high, high_shift, high_bits: 1, excess: 0 })
    }
}

/// Q6_K: nibbles, bit pairs, scales of the half groups, unit. Quantised values have offset 32. Groups `4 m`
/// and `4 m + 2` share 32 bytes of nibbles, and so do groups `4 m + 1` and `4 m + 3`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockQ6K {
    low: [u8; 128],
    high: [u8; 64],
    scales: [[i8; 2]; 8],
    unit: [u8; 2],
}

impl Quant for BlockQ6K {
    const GROUPS: usize = 8;
    const HALVES: bool = true;

    half_unit!(unit);

    #[inline(always)]
    fn half_scales(&self) -> [[i8; 2]; 8] {
        self.scales
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        let (half, quarter) = (g / 4 % 2, g % 4);
        let (low, low_shift) = (bytes32(&self.low, 2 * half + quarter % 2), 4 * (quarter as u32 / 2));
        let (high, high_shift) = pairs(&self.high, g);
        Group::Fields(Fields { low, low_shift, low_bits: 4, high, high_shift, high_bits: 2, excess: 32 })
    }
}

/// IQ4_XS: unit, two high bits and four low bits of eight scales with offset 32, indices into [`NONLINEAR`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockIQ4XS {
    unit: [u8; 2],
    scales_high: [u8; 2],
    scales_low: [u8; 4],
    q: [[u8; 16]; 8],
}

impl Quant for BlockIQ4XS {
    const GROUPS: usize = 8;

    half_unit!(unit);

    #[inline(always)]
    fn scales(&self) -> [i8; 8] {
        let (low, high) = (u32::from_le_bytes(self.scales_low), u16::from_le_bytes(self.scales_high));
        std::array::from_fn(|g| ((low >> (4 * g) & 15) as u8 | ((high >> (2 * g) & 3) as u8) << 4) as i8 - 32)
    }

    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        Group::Named(self.q[g % 8], &NONLINEAR)
    }
}
