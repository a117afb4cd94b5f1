//! Rows of activations in 8 bits: blocks of 32 with an F32 scale ([`quantize`](super::quantize) writes them).

use bytemuck::{Pod, Zeroable};

/// 32 activations in 8 bits with their scale and sums in one structure, so that a kernel needs one address
/// for each column.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(in crate::cpu) struct Rounded {
    /// Quantised values.
    pub(in crate::cpu) q: [i8; 32],
    /// Scale of the values.
    pub(in crate::cpu) scale: f32,
    /// Bits of the result of [`Rounded::weighed`] or [`Rounded::excess`]: types with minima have no bias.
    pub(super) sums: [u32; 2],
    /// Padding: three blocks fill whole cache lines.
    unused: u32,
}

impl Rounded {
    /// Returns the factors of a group's minima: the scaled sum of the activations, or the sums of its halves.
    #[inline(always)]
    pub(in crate::cpu) fn weighed(&self) -> [f32; 2] {
        self.sums.map(f32::from_bits)
    }

    /// Returns [`Quant::BIAS`](super::block::Quant::BIAS) times the sum of the values, negated; the sums of the halves if these have
    /// scales.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "unsigned weights are x86-64's"))]
    pub(in crate::cpu) fn excess(&self) -> [i32; 2] {
        self.sums.map(u32::cast_signed)
    }
}

/// A row of activations in 8 bits.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "numbers in 16 bits are for kernels of x86-64")
)]
pub(in crate::cpu) struct Column<'a> {
    /// Blocks of the row.
    pub(in crate::cpu) blocks: &'a [Rounded],
    /// Values in 16 bits, for kernels that need them.
    pub(in crate::cpu) wide: &'a [[i16; 32]],
}
