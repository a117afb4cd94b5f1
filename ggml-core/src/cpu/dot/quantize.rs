//! Activations in 8 bits: blocks of 32 with an F32 scale.
//!
//! The scale is the largest magnitude / 127; values are rounded to nearest, ties to even. The scale of a
//! block with an infinity or a NaN is NaN, so that an earlier error appears in the result instead of being
//! hidden. Blocks with magnitudes below [`SMALLEST`] become zeros.

use super::block::Quant;
use super::column::{Column, Rounded};
use crate::cpu::execution::Line;
use crate::cpu::simd::Simd;

/// Magnitude below which 127 / magnitude could be infinite.
const SMALLEST: f32 = 1e-36;

/// Layout of a row in scratch memory, in lines.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct RowScratch {
    blocks: usize,
    wide: bool,
}

impl RowScratch {
    /// Returns the layout for rows of `k` elements; `wide` adds the values in 16 bits.
    pub(in crate::cpu) fn new(k: usize, wide: bool) -> RowScratch {
        RowScratch { blocks: k / 32, wide }
    }

    /// Returns the lines of the blocks and of the values in 16 bits.
    fn parts(&self) -> [usize; 2] {
        let lines = |bytes: usize| bytes.div_ceil(size_of::<Line>());
        [lines(self.blocks * size_of::<Rounded>()), if self.wide { lines(self.blocks * 64) } else { 0 }]
    }

    /// Returns the lines of a row.
    pub(in crate::cpu) fn lines(&self) -> usize {
        self.parts().iter().sum()
    }

    /// Returns a row in its scratch memory.
    #[inline]
    pub(in crate::cpu) fn column<'a>(&self, lines: &'a [Line]) -> Column<'a> {
        let (blocks, wide) = lines.split_at(self.parts()[0]);
        let blocks: &[u8] = &bytemuck::cast_slice(blocks)[..self.blocks * size_of::<Rounded>()];
        Column {
            blocks: bytemuck::cast_slice(blocks),
            wide: if self.wide { &bytemuck::cast_slice(wide)[..self.blocks] } else { &[] },
        }
    }

    /// Quantises a row into its scratch memory.
    #[inline(always)]
    pub(in crate::cpu) fn fill<S: Simd>(&self, s: S, sums: Sums, x: &[f32], lines: &mut [Line]) {
        let (blocks, wide) = lines.split_at_mut(self.parts()[0]);
        let blocks: &mut [u8] = &mut bytemuck::cast_slice_mut(blocks)[..self.blocks * size_of::<Rounded>()];
        let blocks: &mut [Rounded] = bytemuck::cast_slice_mut(blocks);
        for (x, block) in x.as_chunks().0.iter().zip(&mut *blocks) {
            fill(s, sums, x, block);
        }
        if self.wide {
            let wide: &mut [[i16; 32]] = bytemuck::cast_slice_mut(wide);
            wide.iter_mut().zip(blocks).for_each(|(wide, block)| *wide = block.q.map(i16::from));
        }
    }
}

/// Sums of a block's values that products with a type of weights need.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Sums {
    /// True for the sums of both halves.
    halves: bool,
    /// Factor of the sums if they are integers ([`Rounded::excess`]); without it they are scaled
    /// ([`Rounded::weighed`]).
    bias: Option<i32>,
}

impl Sums {
    /// Returns the sums for a type of weights.
    pub(super) fn of<Q: Quant>() -> Sums {
        const { assert!(Q::MINIMA == 0 || Q::BIAS == 0, "sums have one meaning") };
        let bias = (Q::MINIMA == 0).then_some(-Q::BIAS);
        Sums { halves: if Q::MINIMA == 0 { Q::HALVES } else { Q::MINIMA == 2 }, bias }
    }
}

/// Quantises 32 activations.
#[inline(always)]
pub(super) fn fill<S: Simd>(s: S, sums: Sums, x: &[f32; 32], to: &mut Rounded) {
    to.scale = block(s, x, &mut to.q);
    let half = |q: &[i8]| q.iter().map(|&q| i32::from(q)).sum::<i32>();
    let [first, last] = [half(&to.q[..16]), half(&to.q[16..])];
    let halves = if sums.halves { [first, last] } else { [first + last, 0] };
    to.sums = match sums.bias {
        Some(bias) => halves.map(|sum| (bias * sum).cast_unsigned()),
        None => halves.map(|sum| (to.scale * sum as f32).to_bits()),
    };
}

/// Quantises a block and returns its scale.
#[inline(always)]
fn block<S: Simd>(s: S, x: &[f32; 32], q: &mut [i8; 32]) -> f32 {
    let mut most = s.splat(0.0);
    let mut finite = s.splat(0.0);
    for chunk in x.chunks_exact(S::LANES) {
        let v = s.load(chunk);
        most = s.max(s.abs(v), most);
        // Stays 0 unless a value is infinite or NaN.
        finite = s.add(finite, s.sub(v, v));
    }
    let most = s.greatest(most);
    if s.sum(finite) != 0.0 {
        *q = [0; 32];
        return f32::NAN;
    }
    if most < SMALLEST {
        *q = [0; 32];
        return 0.0;
    }
    let factor = s.splat(127.0 / most);
    for (chunk, q) in x.chunks_exact(S::LANES).zip(q.chunks_exact_mut(S::LANES)) {
        s.store_i8(q, s.mul(s.load(chunk), factor));
    }
    most / 127.0
}
