//! Rows of weights as stored, and their dot products with rows of activations.
//!
//! * [`float`]: weights are converted to F32 in registers, or once for many columns; F32 accumulation.
//! * [`int8`]: activations are rounded to 8-bit blocks ([`quantize`]); products of blocks are exact integers.
//!   A product finds the kernels of its type in a table ([`kernels`]).
//!
//! Quantised types implement [`block::Quant`]. Plain types implement [`Weight`] here and have an entry in
//! [`with_weight`]. This is sufficient for every operation.

#![allow(
    clippy::needless_range_loop,
    reason = "register tiles: rows and columns are indices of several arrays"
)]

use super::simd::{Job, Simd};
use crate::dtype::DType;
use block::{ForQuant, Group, Quant, Unit, with_quant};
use bytemuck::Pod;
use std::marker::PhantomData;

pub(super) mod amx;
pub(super) mod block;
pub(super) mod column;
pub(super) mod float;
pub(super) mod int8;
pub(super) mod kernels;
pub(super) mod quantize;

pub(super) use block::{BlockQ4, BlockQ8};

/// Maximum number of vectors for 32 values.
pub(super) const MAX_PARTS: usize = 4;

/// Storage format of weights.
pub(super) trait Weight: Send + Sync + 'static {
    /// Element of a stored row.
    type Block: Pod + Send + Sync;
    /// Unit of conversion: some groups of 32 weights.
    type Unit: Pod;
    /// Number of groups in a unit.
    const GROUPS: usize = 1;

    /// Splits a row into its whole units and, for plain types, the remaining elements.
    fn split(row: &[Self::Block]) -> (&[Self::Unit], &[Self::Block]);

    /// Returns the scale of a unit, for [`Weight::group`]; unused for types without one.
    fn scale<S: Simd>(s: S, unit: &Self::Unit) -> S::F;

    /// Writes the weights of a group as `32 / LANES` vectors; the other vectors of `out` are unchanged.
    fn group<S: Simd>(s: S, unit: &Self::Unit, scale: S::F, group: usize, out: &mut [S::F; MAX_PARTS]);

    /// Returns a vector of the remaining elements of a row, from `at` on; zeros beyond the end.
    fn rest<S: Simd>(s: S, rest: &[Self::Block], at: usize) -> S::F;
}

/// Generic operation on a type of weights that is known only at run time.
pub(super) trait ForWeight {
    /// Result type.
    type Out;
    /// Runs the operation for a type.
    fn call<W: Weight>(self) -> Self::Out;
}

/// Calls `f` for the type; `None` if it has no [`Weight`].
pub(super) fn with_weight<F: ForWeight>(dtype: DType, f: F) -> Option<F::Out> {
    Some(match dtype {
        DType::F32 => f.call::<F32>(),
        DType::F16 => f.call::<F16>(),
        DType::BF16 => f.call::<BF16>(),
        _ => return with_quant(dtype, Blocks(f)),
    })
}

/// Adapter from [`ForWeight`] to [`ForQuant`].
struct Blocks<F>(F);

impl<F: ForWeight> ForQuant for Blocks<F> {
    type Out = F::Out;

    fn call<Q: Quant>(self) -> F::Out {
        self.0.call::<Q>()
    }
}

/// True if a type has a [`Weight`].
pub(super) fn has_weight(dtype: DType) -> bool {
    struct Nothing;
    impl ForWeight for Nothing {
        type Out = ();
        fn call<W: Weight>(self) {}
    }
    with_weight(dtype, Nothing).is_some()
}

/// Implements [`Weight`] for plain types: a unit is an array of 32.
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

/// Block types: a unit is a block. Products of a quantised value and its scales are exact in F32.
impl<Q: Quant> Weight for Q {
    type Block = Q;
    type Unit = Q;
    const GROUPS: usize = Q::GROUPS;

    #[inline(always)]
    fn split(row: &[Q]) -> (&[Q], &[Q]) {
        (row, &[])
    }

    #[inline(always)]
    fn scale<S: Simd>(s: S, unit: &Q) -> S::F {
        match Q::UNIT {
            Unit::Half if Q::FRACTION != 1.0 => s.mul(s.splat_f16(unit.unit()), s.splat(Q::FRACTION)),
            Unit::Half => s.splat_f16(unit.unit()),
            Unit::Power => s.splat(unit.unit_f32()),
        }
    }

    #[inline(always)]
    fn group<S: Simd>(s: S, unit: &Q, scale: S::F, g: usize, out: &mut [S::F; MAX_PARTS]) {
        let decoded;
        let numbers = match unit.group(g) {
            Group::Bytes(q) => q,
            _ => {
                decoded = s.numbers(unit, g);
                &decoded
            }
        };
        let (mut scales, mut minima) = ([scale; 2], [s.splat(0.0); 2]);
        for half in 0..2 {
            if Q::HALVES {
                scales[half] = s.mul(scale, s.splat(unit.half_floats()[g][half]));
            } else if Q::GROUPS > 1 {
                scales[half] = s.mul(scale, s.splat(f32::from(unit.scales()[g])));
            }
            if Q::MINIMA > 0 {
                let minimum = f32::from(unit.minima(half % Q::MINIMA)[g]);
                minima[half] = s.mul(s.splat_f16(unit.negative_unit()), s.splat(minimum));
            }
        }
        for part in 0..32 / S::LANES {
            let (first, half) = (part * S::LANES, part * S::LANES / 16);
            let number = s.load_i8(&numbers[first..]);
            out[part] = match Q::MINIMA {
                0 => s.mul(number, scales[half]),
                _ => s.fma(number, scales[half], minima[half]),
            };
        }
    }

    #[inline(always)]
    fn rest<S: Simd>(s: S, _rest: &[Q], _at: usize) -> S::F {
        s.splat(0.0)
    }
}

/// Converts a row to F32; `out` has its length.
#[inline(always)]
pub(super) fn widen<S: Simd, W: Weight>(s: S, row: &[W::Block], out: &mut [f32]) {
    let (units, rest) = W::split(row);
    widen_units::<S, W>(s, units, rest, out);
}

/// [`widen`] as a [`Job`], from a segment of the row on.
pub(super) struct Widen<'a, W: Weight> {
    row: &'a [W::Block],
    segment: usize,
    out: &'a mut [f32],
    weight: PhantomData<W>,
}

impl<'a, W: Weight> Widen<'a, W> {
    /// Creates the job for a row and an output of the same number of elements.
    pub(super) fn new(row: &'a [W::Block], out: &'a mut [f32]) -> Widen<'a, W> {
        Widen::segment(row, 0, out)
    }

    /// Creates the job for as many elements as `out` has from segment `segment` of a row on.
    pub(super) fn segment(row: &'a [W::Block], segment: usize, out: &'a mut [f32]) -> Widen<'a, W> {
        Widen { row, segment, out, weight: PhantomData }
    }
}

impl<W: Weight> Job for Widen<'_, W> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (units, rest) = W::split(self.row);
        let units = units.get(self.segment * float::units::<W>()..).unwrap_or_default();
        widen_units::<S, W>(s, units, rest, self.out);
    }
}

/// Converts units and the remaining elements of a row to F32, up to the length of `out`.
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
