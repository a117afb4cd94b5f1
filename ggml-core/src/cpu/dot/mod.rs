//! Rows of weights as they are stored, and their products with rows of activations.
//!
//! * [`float`]: weights are widened to F32 in registers, or once for many columns; F32 accumulation.
//! * [`int8`]: activations are rounded to 8-bit blocks ([`quantize`]); products of blocks are exact integers.
//!
//! A new type of weights is a [`Weight`] here and an entry in [`with_weight`]; with that it has every operation. An
//! [`int8::Quant`] and an entry in [`int8::with_quant`] give it integer products.

#![allow(
    clippy::needless_range_loop,
    reason = "register tiles: rows and columns are indices of several arrays"
)]

use super::simd::Simd;
use crate::dtype::DType;
use bytemuck::{Pod, Zeroable};

pub(super) mod float;
pub(super) mod int8;
pub(super) mod quantize;

/// A block of Q8_0: binary16 scale, 32 signed bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct BlockQ8 {
    /// Bytes of the scale.
    pub(super) scale: [u8; 2],
    /// Numbers.
    pub(super) q: [i8; 32],
}

/// A block of Q4_0: binary16 scale, 32 nibbles that are 8 too large; the first 16 numbers are the low ones.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct BlockQ4 {
    /// Bytes of the scale.
    pub(super) scale: [u8; 2],
    /// Numbers.
    pub(super) q: [u8; 16],
}

/// A block of Q6_K: 256 numbers of 6 bits that are 32 too large, a scale for 16 of them, a scale of the scales.
///
/// Group `g` of 32 numbers has its low bits in the nibbles of 32 bytes and its high bits in two bits of 32 others: see
/// [`BlockQ6::group`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct BlockQ6 {
    low: [u8; 128],
    high: [u8; 64],
    scales: [i8; 16],
    scale: [u8; 2],
}

/// A group of 32 numbers of a [`BlockQ6`].
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupQ6<'a> {
    /// Bytes with the low four bits, at bit `low_shift`.
    pub(super) low: &'a [u8; 32],
    /// 0 or 4.
    pub(super) low_shift: u32,
    /// Bytes with the high two bits, at bit `high_shift`.
    pub(super) high: &'a [u8; 32],
    /// 0, 2, 4 or 6.
    pub(super) high_shift: u32,
    /// Scales of the first and of the last 16 numbers.
    pub(super) scales: [i8; 2],
}

impl BlockQ6 {
    /// Group 0 to 7: quarter `g % 4` of half `g / 4`.
    #[inline(always)]
    pub(super) fn group(&self, g: usize) -> GroupQ6<'_> {
        let (half, quarter) = (g / 4 % 2, g % 4);
        GroupQ6 {
            low: &self.low.as_chunks().0[2 * half + quarter % 2],
            low_shift: 4 * (quarter as u32 / 2),
            high: &self.high.as_chunks().0[half],
            high_shift: 2 * quarter as u32,
            scales: self.scales.as_chunks().0[g % 8],
        }
    }
}

impl GroupQ6<'_> {
    /// The numbers without their scales. A loop over bytes that the compiler turns into vectors.
    #[inline(always)]
    pub(super) fn numbers(&self) -> [i8; 32] {
        let mut out = [0; 32];
        for i in 0..32 {
            let (low, high) = (self.low[i] >> self.low_shift & 15, self.high[i] >> self.high_shift & 3);
            out[i] = (high << 4 | low) as i8 - 32;
        }
        out
    }
}

/// Vectors that 32 numbers fill at the most.
pub(super) const MAX_PARTS: usize = 4;

/// How weights are stored.
pub(super) trait Weight: Send + Sync + 'static {
    /// What a row consists of.
    type Block: Pod + Send + Sync;
    /// What is widened together: some groups of 32 weights.
    type Unit: Pod;
    /// Groups of a unit.
    const GROUPS: usize = 1;

    /// The whole units of a row and, for plain types, what remains.
    fn split(row: &[Self::Block]) -> (&[Self::Unit], &[Self::Block]);

    /// The scale of a unit, for [`Weight::group`]; anything for types without one.
    fn scale<S: Simd>(s: S, unit: &Self::Unit) -> S::F;

    /// The weights of a group, in `32 / LANES` vectors; the others are left as they are.
    fn group<S: Simd>(s: S, unit: &Self::Unit, scale: S::F, group: usize, out: &mut [S::F; MAX_PARTS]);

    /// A vector of what remains of a row, at `at`; zeros above its end.
    fn rest<S: Simd>(s: S, rest: &[Self::Block], at: usize) -> S::F;
}

/// Does something for a type of weights that is known when the program runs.
pub(super) trait ForWeight {
    /// What comes out.
    type Out;
    /// Does it.
    fn call<W: Weight>(self) -> Self::Out;
}

/// Calls `f` for the type; `None` if there is no [`Weight`] for it.
pub(super) fn with_weight<F: ForWeight>(dtype: DType, f: F) -> Option<F::Out> {
    Some(match dtype {
        DType::F32 => f.call::<F32>(),
        DType::F16 => f.call::<F16>(),
        DType::BF16 => f.call::<BF16>(),
        DType::Q8_0 => f.call::<Q8>(),
        DType::Q4_0 => f.call::<Q4>(),
        DType::Q6_K => f.call::<Q6>(),
        _ => return None,
    })
}

/// Whether there is a [`Weight`] for a type.
pub(super) fn has_weight(dtype: DType) -> bool {
    struct Nothing;
    impl ForWeight for Nothing {
        type Out = ();
        fn call<W: Weight>(self) {}
    }
    with_weight(dtype, Nothing).is_some()
}

/// Plain types: a unit is an array of 32.
macro_rules! plain {
    ($(#[$doc:meta])* $name:ident, $block:ty, $load:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name;

        impl Weight for $name {
            type Block = $block;
            type Unit = [$block; 32];

            #[inline(always)]
            fn split(row: &[$block]) -> (&[[$block; 32]], &[$block]) {
                row.as_chunks()
            }

            #[inline(always)]
            fn scale<S: Simd>(s: S, _unit: &[$block; 32]) -> S::F {
                s.splat(0.0)
            }

            #[inline(always)]
            fn group<S: Simd>(s: S, unit: &[$block; 32], _: S::F, _: usize, out: &mut [S::F; MAX_PARTS]) {
                for part in 0..32 / S::LANES {
                    out[part] = s.$load(&unit[part * S::LANES..]);
                }
            }

            #[inline(always)]
            fn rest<S: Simd>(s: S, rest: &[$block], at: usize) -> S::F {
                let mut full = [<$block>::default(); 32];
                full.iter_mut().zip(rest.iter().skip(at).take(S::LANES)).for_each(|(to, from)| *to = *from);
                s.$load(&full)
            }
        }
    };
}

plain!(
    /// F32 weights.
    F32, f32, load
);
plain!(
    /// Binary16 weights.
    F16, u16, load_f16
);
plain!(
    /// Bfloat16 weights.
    BF16, u16, load_bf16
);

/// Block types: a unit is a block.
macro_rules! blocks {
    ($(#[$doc:meta])* $name:ident, $block:ty, $groups:literal, $group:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name;

        impl Weight for $name {
            type Block = $block;
            type Unit = $block;
            const GROUPS: usize = $groups;

            #[inline(always)]
            fn split(row: &[$block]) -> (&[$block], &[$block]) {
                (row, &[])
            }

            #[inline(always)]
            fn scale<S: Simd>(s: S, unit: &$block) -> S::F {
                s.splat_f16(u16::from_le_bytes(unit.scale))
            }

            #[inline(always)]
            fn group<S: Simd>(s: S, unit: &$block, scale: S::F, group: usize, out: &mut [S::F; MAX_PARTS]) {
                $group(s, unit, scale, group, out);
            }

            #[inline(always)]
            fn rest<S: Simd>(s: S, _rest: &[$block], _at: usize) -> S::F {
                s.splat(0.0)
            }
        }
    };
}

blocks!(
    /// Q8_0 weights.
    Q8, BlockQ8, 1, group_q8
);
blocks!(
    /// Q4_0 weights.
    Q4, BlockQ4, 1, group_q4
);
blocks!(
    /// Q6_K weights.
    Q6, BlockQ6, 8, group_q6
);

#[inline(always)]
fn group_q8<S: Simd>(s: S, block: &BlockQ8, scale: S::F, _: usize, out: &mut [S::F; MAX_PARTS]) {
    for part in 0..32 / S::LANES {
        out[part] = s.mul(s.load_i8(&block.q[part * S::LANES..]), scale);
    }
}

/// The product of a nibble and a scale is exact in F32, so is eight times the scale, and so is their difference.
#[inline(always)]
fn group_q4<S: Simd>(s: S, block: &BlockQ4, scale: S::F, _: usize, out: &mut [S::F; MAX_PARTS]) {
    let offset = s.mul(scale, s.splat(-8.0));
    for part in 0..32 / S::LANES {
        let first = part * S::LANES;
        let number = s.load_nibbles(&block.q[first % 16..], first >= 16);
        out[part] = s.fma(number, scale, offset);
    }
}

#[inline(always)]
fn group_q6<S: Simd>(s: S, block: &BlockQ6, scale: S::F, group: usize, out: &mut [S::F; MAX_PARTS]) {
    let group = block.group(group);
    let numbers = group.numbers();
    let scales = [
        s.mul(scale, s.splat(f32::from(group.scales[0]))),
        s.mul(scale, s.splat(f32::from(group.scales[1]))),
    ];
    for part in 0..32 / S::LANES {
        let first = part * S::LANES;
        out[part] = s.mul(s.load_i8(&numbers[first..]), scales[first / 16]);
    }
}

/// Widens a row to F32; `out` has its length.
#[inline(always)]
pub(super) fn widen<S: Simd, W: Weight>(s: S, row: &[W::Block], out: &mut [f32]) {
    let (units, rest) = W::split(row);
    widen_units::<S, W>(s, units, rest, out);
}

/// Widens units and what remains of a row to F32, as far as `out` reaches.
#[inline(always)]
pub(super) fn widen_units<S: Simd, W: Weight>(s: S, units: &[W::Unit], rest: &[W::Block], out: &mut [f32]) {
    let (chunks, tail) = out.as_chunks_mut::<32>();
    for (unit, chunks) in units.iter().zip(chunks.chunks_mut(W::GROUPS)) {
        let scale = W::scale(s, unit);
        for (group, chunk) in chunks.iter_mut().enumerate() {
            let mut parts = [s.splat(0.0); MAX_PARTS];
            W::group(s, unit, scale, group, &mut parts);
            for part in 0..32 / S::LANES {
                s.store(&mut chunk[part * S::LANES..], parts[part]);
            }
        }
    }
    for (i, chunk) in tail.chunks_mut(S::LANES).enumerate() {
        s.store_partial(chunk, W::rest(s, rest, i * S::LANES));
    }
}
