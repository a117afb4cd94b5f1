//! Block types with one group, and NVFP4 with two.

use super::{Group, Quant, Unit};
use bytemuck::{Pod, Zeroable};

/// Values of IQ4_NL and IQ4_XS (ggml's `kvalues_iq4nl`).
pub(super) static NONLINEAR: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Values of E2M1, doubled.
static E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Q8_0: binary16 scale, 32 signed bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockQ8 {
    /// Bytes of the scale.
    pub(in crate::cpu) scale: [u8; 2],
    /// Quantised values.
    pub(in crate::cpu) q: [i8; 32],
}

impl Quant for BlockQ8 {
    const UNIT_LEADS: bool = true;

    half_unit!(scale);

    #[inline(always)]
    fn group(&self, _: usize) -> Group<'_> {
        Group::Bytes(&self.q)
    }
}

/// Q4_0: binary16 scale, nibbles with offset 8.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockQ4 {
    /// Bytes of the scale.
    pub(in crate::cpu) scale: [u8; 2],
    /// Quantised values.
    pub(in crate::cpu) q: [u8; 16],
}

impl Quant for BlockQ4 {
    const UNIT_LEADS: bool = true;
    const OFFSET: Option<i32> = Some(8);

    half_unit!(scale);

    #[inline(always)]
    fn group(&self, _: usize) -> Group<'_> {
        Group::Nibbles(&self.q)
    }
}

/// Q4_1: binary16 scale and minimum, nibbles.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockQ4x1 {
    scale: [u8; 2],
    minimum: [u8; 2],
    q: [u8; 16],
}

impl Quant for BlockQ4x1 {
    const UNIT_LEADS: bool = true;
    const OFFSET: Option<i32> = Some(0);
    const MINIMA: usize = 1;

    half_unit!(scale);

    #[inline(always)]
    fn negative_unit(&self) -> u16 {
        u16::from_le_bytes(self.minimum)
    }

    #[inline(always)]
    fn group(&self, _: usize) -> Group<'_> {
        Group::Nibbles(&self.q)
    }
}

/// Q5_0: binary16 scale, fifth bits, nibbles; values have offset 16.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockQ5x0 {
    scale: [u8; 2],
    high: [u8; 4],
    q: [u8; 16],
}

impl Quant for BlockQ5x0 {
    const UNIT_LEADS: bool = true;
    const OFFSET: Option<i32> = Some(16);

    half_unit!(scale);

    #[inline(always)]
    fn group(&self, _: usize) -> Group<'_> {
        Group::Five(&self.q, u32::from_le_bytes(self.high))
    }
}

/// Q5_1: binary16 scale and minimum, fifth bits, nibbles.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockQ5x1 {
    scale: [u8; 2],
    minimum: [u8; 2],
    high: [u8; 4],
    q: [u8; 16],
}

impl Quant for BlockQ5x1 {
    const UNIT_LEADS: bool = true;
    const OFFSET: Option<i32> = Some(0);
    const MINIMA: usize = 1;

    half_unit!(scale);

    #[inline(always)]
    fn negative_unit(&self) -> u16 {
        u16::from_le_bytes(self.minimum)
    }

    #[inline(always)]
    fn group(&self, _: usize) -> Group<'_> {
        Group::Five(&self.q, u32::from_le_bytes(self.high))
    }
}

/// IQ4_NL: binary16 scale, indices into [`NONLINEAR`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockIQ4NL {
    scale: [u8; 2],
    q: [u8; 16],
}

impl Quant for BlockIQ4NL {
    const UNIT_LEADS: bool = true;

    half_unit!(scale);

    #[inline(always)]
    fn group(&self, _: usize) -> Group<'_> {
        Group::Named(self.q, &NONLINEAR)
    }
}

/// MXFP4: exponent, E2M1 values. The unit is half the scale, because [`E2M1`] holds doubled values.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockMXFP4 {
    exponent: u8,
    q: [u8; 16],
}

impl Quant for BlockMXFP4 {
    const UNIT: Unit = Unit::Power;

    #[inline(always)]
    fn unit(&self) -> u16 {
        u16::from(self.exponent)
    }

    #[inline(always)]
    fn group(&self, _: usize) -> Group<'_> {
        Group::Named(self.q, &E2M1)
    }
}

/// Returns half of an unsigned E4M3 without its highest bit. The NaN of the format is zero in ggml.
#[inline(always)]
fn half_ue4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(bits >> 3 & 15), u32::from(bits & 7));
    match (exponent, bits & 127) {
        (_, 127) => 0.0,
        (0, _) => mantissa as f32 / 1024.0,
        // 7 is the bias of the format; 1 more halves the value.
        _ => f32::from_bits((exponent + 127 - 7 - 1) << 23 | mantissa << 20),
    }
}

/// NVFP4: scales of 16 values, E2M1 values: the first eight of each 16 in the low nibbles. The unit is 1. The
/// scales are halved, as the unit of MXFP4 is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::cpu) struct BlockNVFP4 {
    scales: [[u8; 2]; 2],
    q: [[[u8; 8]; 2]; 2],
}

impl Quant for BlockNVFP4 {
    const GROUPS: usize = 2;
    const UNIT: Unit = Unit::Power;
    const HALVES: bool = true;
    const FLOATS: bool = true;

    #[inline(always)]
    fn unit(&self) -> u16 {
        128
    }

    #[inline(always)]
    fn half_floats(&self) -> [[f32; 2]; 8] {
        let [first, last] = self.scales.map(|group| group.map(half_ue4m3));
        [first, last, first, last, first, last, first, last]
    }

    /// Rearranges the nibbles of both halves to the order of the other types.
    #[inline(always)]
    fn group(&self, g: usize) -> Group<'_> {
        const LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;
        let [first, last] = self.q[g % 2].map(u64::from_le_bytes);
        let (start, end) = (first & LOW | (last & LOW) << 4, first >> 4 & LOW | last & !LOW);
        Group::Named(bytemuck::cast([start.to_le_bytes(), end.to_le_bytes()]), &E2M1)
    }
}
